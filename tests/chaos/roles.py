"""What a forked child becomes: a role of the fleet with a witness, an engine, relays, people."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import uvloop

from tertulia.backends.vocabulary import ModelVocabulary, load_vocabulary
from tertulia.wiring import models as wiring_models
from tests.chaos import mutants, witness
from tests.chaos.engine import JournalledReplica
from tests.chaos.histories import Writer
from tests.chaos.orders import obey
from tests.chaos.people import Crowd, Habits, Person
from tests.chaos.proxy import Relay, apply
from tests.e2e.processes import installed_models


@cache
def _vocabulary(folder: Path) -> ModelVocabulary:
    return load_vocabulary(folder)


# A restart reads no vocabulary: that would be most of its time. It is never changed.
wiring_models.load_vocabulary = _vocabulary  # type: ignore[attr-defined]  # imported there


def read_vocabulary() -> None:
    """Before the first fork, so that all children share it."""
    _vocabulary(installed_models() / "small")


def gateway(*, name: str, config: str, book: str, mutant: str = "", shift_s: float = 0.0) -> None:
    """`tertulia gateway --config ...`."""
    from tertulia.terminal import roles

    _prepare(name, book, mutant, shift_s)
    roles.gateway(config=Path(config))


def worker(*, name: str, config: str, book: str, mutant: str = "", shift_s: float = 0.0) -> None:
    """`tertulia worker --config ...`."""
    from tertulia.terminal import roles

    _prepare(name, book, mutant, shift_s)
    roles.worker(config=Path(config))


def _prepare(name: str, book: str, mutant: str, shift_s: float) -> None:
    if shift_s:
        # Everybody in this process who asks for the wall clock gets a wrong one.
        real = time.time
        time.time = lambda: real() + shift_s
    if mutant:
        mutants.plant(mutant, name)
    witness.flag_some()
    witness.watch(name, Path(book))


def engine(*, name: str, port: int, model_dir: str, step_s: float, journal: str) -> None:
    """A fake replica."""
    folder = Path(model_dir)

    async def serve() -> None:
        end_id = json.loads((folder / "model.json").read_text())["eos_id"]
        vocabulary = _vocabulary(folder)
        replica = JournalledReplica(vocabulary, "fake-1", end_id, step_s)
        replica.name, replica.journal = name, Path(journal)
        async with replica.listening(port):
            await replica.keep_journal()

    uvloop.run(serve())


def real_engine(*, port: int, model_dir: str, slots: int) -> None:
    """The embedded engine with the small model on one thread."""
    from tertulia.replica import main

    settings = main.ReplicaSettings(folder=Path(model_dir), port=port, threads=1, n_slots=slots)
    raise SystemExit(main.run(settings))


def relays(*, at: str, relays: dict[str, tuple[int, int]]) -> None:
    """All relays of a run: name -> (where it listens, where it leads)."""

    async def serve() -> None:
        made = {name: Relay("127.0.0.1", target, port) for name, (port, target) in relays.items()}
        for relay in made.values():
            await relay.open()

        async def handle(order: dict[str, Any]) -> Any:
            return sum(apply(made[name], order) for name in order["relays"])

        server = await obey(Path(at), handle)
        async with server:
            await server.serve_forever()

    uvloop.run(serve())


def crowd(
    *,
    at: str,
    people: list[dict[str, Any]],
    gates: dict[str, int],
    history: str,
    seed: str,
    habits: dict[str, float],
) -> None:
    """All people of a run."""

    async def serve() -> None:
        writer = Writer(Path(history))
        made = Crowd([Person(**one) for one in people], gates, writer, seed, Habits(**habits))
        running: list[asyncio.Task[None]] = []

        async def handle(order: dict[str, Any]) -> Any:
            match order["do"]:
                case "begin":
                    running.append(asyncio.ensure_future(made.run()))
                case "leave":
                    made.leave.set()
                    await asyncio.wait(running, timeout=order["at_most_s"])
                    running[0].cancel()
                case "post_again":
                    return await made.post_all_again(order["share"])
                case "look_for_deleted":
                    return await made.read_all_deleted()
                case "me":
                    return (await made.me(made.anybody())).http
                case "figures":
                    return made.figures()
            return None

        server = await obey(Path(at), handle)
        async with server:
            with suppress(asyncio.CancelledError):
                await server.serve_forever()

    uvloop.run(serve())
