"""A fleet of real processes with a relay on every connection between them.

Gateways, workers and engines are forks of the zygote; the stores are real servers. A restart has
the same port and the same settings, so that everybody finds it where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tertulia.listening import free_port
from tertulia.replica.catalogue import model_named
from tests.chaos.caller import Broken, ask
from tests.chaos.nursery import Child, Nursery, Order
from tests.chaos.orders import Line, reach
from tests.chaos.stores import StoreHands

HERE: Final = "tests.chaos.roles"
MODEL: Final = "fake-1"
_READY_S: Final = 30.0
_LOOK_S: Final = 0.02
# What ended by itself may do so again at once.
_PAUSE_S: Final = 0.3
_PAGE_S: Final = 2.0

# One that is never used up, so that there are balances to compare.
TOKENS: Final = '{ name = "tokens_day", unit = "tokens", limit = 1_000_000_000, refill_s = 86_400 }'


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything, and the times of the protocol."""

    gateways: int = 3
    workers: int = 2
    engines: int = 4
    engine: Literal["fake", "real"] = "fake"  # real: the small model on one thread each
    answer_tokens: int = 400
    slots: int = 12
    step_s: float = 0.015
    lease_s: float = 2.0
    replies: dict[str, int] = field(default_factory=lambda: {"free": 2, "plus": 3})
    abandon_s: dict[str, float] = field(default_factory=lambda: {"free": 8.0, "plus": 30.0})


@dataclass(slots=True)
class Fleet:
    """All processes of a run and the ways between them."""

    folder: Path
    models: Path
    size: Size
    nursery: Nursery
    stores: StoreHands
    ports: dict[str, int] = field(default_factory=dict)
    # Relay -> (where it listens, where it leads): `w1>r2`, `g1>postgres`, `people>g1`.
    relays: dict[str, tuple[int, int]] = field(default_factory=dict)
    mutant: str = ""
    is_ending: bool = False
    _restarts: set[asyncio.Task[None]] = field(default_factory=set)
    _line: Line | None = None

    @property
    def gateways(self) -> list[str]:
        return [f"g{n + 1}" for n in range(self.size.gateways)]

    @property
    def workers(self) -> list[str]:
        return [f"w{n + 1}" for n in range(self.size.workers)]

    @property
    def engines(self) -> list[str]:
        return [f"r{n + 1}" for n in range(self.size.engines)]

    @property
    def gates(self) -> dict[str, int]:
        """Where people find each gateway."""
        return {name: self.relays[f"people>{name}"][0] for name in self.gateways}

    async def start(self) -> None:
        """Starts everything; returns when every gateway says that it is ready."""
        self._lay_ways()
        self.nursery.on_unasked = self._keep_up
        await self.nursery.start(
            Order(
                "relays",
                f"{HERE}:relays",
                self.folder / "relays.log",
                {"at": str(self.folder / "relays.sock"), "relays": self.relays},
            )
        )
        self._line = await reach(self.folder / "relays.sock")
        for name in (*self.engines, *self.workers, *self.gateways):
            await self.run(name)
        await self.ready(self.gateways)

    async def run(self, name: str, *, shift_s: float = 0.0) -> Child:
        """Starts a process of the fleet, or starts it again."""
        log = self.folder / f"{name}.log"
        if name in self.engines and self.size.engine == "real":
            real = {
                "port": self.ports[name],
                "model_dir": str(self.models / "small"),
                "slots": self.size.slots,
            }
            return await self.nursery.start(Order(name, f"{HERE}:real_engine", log, real))
        if name in self.engines:
            engine = {
                "name": name,
                "port": self.ports[name],
                "model_dir": str(self.models / "small"),
                "step_s": self.size.step_s,
                "journal": str(self.folder / f"{name}.journal"),
            }
            return await self.nursery.start(Order(name, f"{HERE}:engine", log, engine))
        kind = "gateway" if name in self.gateways else "worker"
        role = {
            "name": name,
            "config": str(self.folder / f"{name}.toml"),
            "book": str(self.folder / f"{name}.book"),
            "mutant": self.mutant,
            "shift_s": shift_s,
        }
        return await self.nursery.start(Order(name, f"{HERE}:{kind}", log, role))

    async def ready(self, names: Sequence[str]) -> None:
        """Returns when all of these answer that they are ready."""
        async with asyncio.timeout(_READY_S):
            for name in names:
                while not await is_ready(self.ports[name]):  # noqa: ASYNC110  # no event tells
                    await asyncio.sleep(_LOOK_S)

    async def order_relays(self, names: Sequence[str], **order: Any) -> int:
        """Tells some relays what to do; how many connections it touched."""
        assert self._line is not None
        count: int = await self._line.order(relays=list(names), **order)
        return count

    async def hang_up(self) -> None:
        """Leaves the relays, which are gone."""
        if self._line is not None:
            await self._line.close()

    def ways(self, one: str, other: str) -> list[str]:
        """The relays from a process (or kind of) to another: `g1` to `valkey`, `w` to `r2`."""
        return [
            way
            for way in self.relays
            if way.partition(">")[0].startswith(one) and way.partition(">")[2].startswith(other)
        ]

    def _keep_up(self, child: Child) -> None:
        """A role that ended by itself is started again, as a supervisor does (C19 tells of it)."""
        if child.name in (*self.gateways, *self.workers) and not self.is_ending:
            restart = asyncio.ensure_future(self._start_again(child.name))
            self._restarts.add(restart)
            restart.add_done_callback(self._restarts.discard)

    async def _start_again(self, name: str) -> None:
        await asyncio.sleep(_PAUSE_S)
        if name not in self.nursery.children:
            await self.run(name)

    def last_words(self, name: str) -> str:
        """The end of a process's log, where it says why it ended."""
        log = self.folder / f"{name}.log"
        return log.read_text(errors="replace")[-300:] if log.exists() else ""

    def _lay_ways(self) -> None:
        roles = [*self.gateways, *self.workers]
        stores = {"postgres": self.stores.postgres.port}
        stores |= {f"valkey{n}": server.port for n, server in enumerate(self.stores.valkeys)}
        own = free_ports(len(roles) + len(self.engines))
        self.ports = dict(zip([*roles, *self.engines], own, strict=True))
        targets = stores | {name: self.ports[name] for name in self.engines}
        ways = [(role, target) for role in roles for target in targets]
        ways += [("people", gateway) for gateway in self.gateways]
        targets |= {name: self.ports[name] for name in self.gateways}
        for (one, other), port in zip(ways, free_ports(len(ways)), strict=True):
            self.relays[f"{one}>{other}"] = (port, targets[other])
        for role in roles:
            self._write_settings(role)

    def _write_settings(self, role: str) -> None:
        def at(target: str) -> int:
            return self.relays[f"{role}>{target}"][0]

        real = f":{self.stores.postgres.port}/"
        assert self.stores.database.count(real) == 1, self.stores.database
        database = self.stores.database.replace(real, f":{at('postgres')}/")
        ports = [at(f"valkey{n}") for n in range(len(self.stores.valkeys))]
        nodes = [f'"valkey://127.0.0.1:{port}"' for port in ports]
        plans = "".join(
            f"[plans.{plan}]\nreplies_running = {self.size.replies[plan]}\n"
            f"answer_tokens = {self.size.answer_tokens}\n"
            f"budgets = [{TOKENS}]\nabandon_s = {self.size.abandon_s[plan]}\n"
            for plan in self.size.replies
        )
        is_real = self.size.engine == "real"
        model = model_named("small").served_id if is_real else MODEL
        engine = "tertulia" if is_real else "vllm"
        replicas = "".join(
            f'[[replicas]]\nname = "{name}"\npool = "small"\nmodel = "{model}"\n'
            f'url = "http://127.0.0.1:{at(name)}"\nslots = {self.size.slots}\n'
            f'vocabulary = "{self.models / "small"}"\nengine = "{engine}"\n'
            for name in self.engines
        )
        text = f"""\
data_dir = "{self.folder / role}"
log_format = "json"
[server]
port = {self.ports[role]}
drain_s = 0.3
[models]
embedded = false
large = "off"
[fleet]
database = "{database}"
valkey = [{", ".join(nodes)}]
[worker]
lease_s = {self.size.lease_s}
health_port = {self.ports[role]}
{plans}{replicas}"""
        path = self.folder / f"{role}.toml"
        path.touch(mode=0o600)
        path.write_text(text)


def free_ports(count: int) -> list[int]:
    """So many different ports that nobody listens on now."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


async def is_ready(port: int) -> bool:
    """Whether a gateway or worker says that it is ready; false while it is not there."""
    status, _ = await get(port, "/readyz")
    return status == 200


async def get(port: int, path: str) -> tuple[int, str]:
    """A page of a process of ours, asked without a relay; status 0 while it is not there."""
    with suppress(Broken, TimeoutError):
        async with asyncio.timeout(_PAGE_S):
            answer = await ask(port, "GET", path, {}, patience_s=_PAGE_S)
            try:
                body = b"".join([piece async for piece in answer.pieces()])
            finally:
                answer.close()
            return answer.status, body.decode("utf-8", "replace")
    return 0, ""


async def post_faults(port: int, faults: Sequence[dict[str, Any]]) -> None:
    """Tells an engine what its next generations meet; one that is not there hears nothing."""
    with suppress(Broken):
        answer = await ask(port, "POST", "/faults", {}, list(faults), patience_s=_PAGE_S)
        answer.close()
