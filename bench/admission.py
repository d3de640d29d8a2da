"""What a message costs a gateway until it is stored and queued, and what refusing one costs.

Prints one line a figure; nothing here is a test. Run it with `python -m bench admission`. Whole
requests go through the application itself: headers, credential, body, tokens, checks, budgets,
store and answer; only the socket and its parser are missing. It needs the small model's
vocabulary, as `tertulia models pull small` leaves it.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from tertulia.backends.bell import LocalBell
from tertulia.backends.clock import SystemClock
from tertulia.backends.memory import MemoryBackend
from tertulia.backends.memory.fleet import MemoryHolds, MemoryHomes
from tertulia.backends.memory.leases import MemoryLeases
from tertulia.backends.memory.promises import MemoryPromises
from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.backends.sqlite import SqliteBackend
from tertulia.config import Settings
from tertulia.core.quota import MILLI
from tertulia.core.types import Finish, Lane, ModelState, Outcome, Status, Usage, User
from tertulia.core.waiting import LaneState, LineView
from tertulia.gateway.app import create_app
from tertulia.gateway.auth import new_key
from tertulia.gateway.desk import Desk
from tertulia.gateway.line import LineWatch
from tertulia.ports import Replicas
from tertulia.wiring.desks import Parts, gateway_desk
from tertulia.wiring.gateway import keep_prompt
from tertulia.wiring.stores import Stores

MODELS: Final = Path(__file__).parent.parent / ".tertulia" / "models"
MESSAGES: Final = 400
WARM: Final = 40
AT_ONCE: Final = 16  # a store shares its flush among those that come together
ADMISSION_GOAL_MS: Final = 2.0
REFUSAL_GOAL_MS: Final = 1.0
TEXT: Final = "Why is the sky over the sea at noon of another blue than over the hills? " * 4

Backend = MemoryBackend | SqliteBackend
Call = Callable[[int], Awaitable[int]]


class Caller:
    """One user's program, which speaks ASGI instead of HTTP."""

    def __init__(self, app: Any, secret: str) -> None:
        self._app = app
        self._secret = secret

    async def post(self, path: str, body: dict[str, Any], *, key: str = "") -> tuple[int, Any]:
        """The status and the JSON of the answer."""
        sent = json.dumps(body).encode()
        headers = [
            (b"host", b"localhost"),
            (b"authorization", f"Bearer {self._secret}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(sent)).encode()),
            (b"accept", b"application/json"),
        ]
        if key:
            headers.append((b"idempotency-key", key.encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        status, parts = 0, [b""]

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(event: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = event.get("status", status)
            parts.append(event.get("body", b""))

        await self._app(scope, receive, send)
        return status, json.loads(b"".join(parts))


async def measure(name: str, backend: Backend, desk: Desk) -> None:
    """All figures of one back end."""
    app = create_app(desk)
    rich = await _caller(desk, app, "rich", "plus")
    poor = await _caller(desk, app, "poor", "free")
    crowd = await _caller(desk, app, "crowd", "crowded")
    rooms = [await _conversation(rich) for _ in range(MESSAGES + WARM)]
    poor_room = await _conversation(poor)
    crowd_room, other_room = await _conversation(crowd), await _conversation(crowd)

    async def ask(n: int) -> int:
        path = f"/v1/conversations/{rooms[n]}/messages"
        status, _ = await rich.post(path, {"content": TEXT}, key=rooms[n])
        return status

    async def ask_too_much(n: int) -> int:
        path = f"/v1/conversations/{poor_room}/messages"
        status, _ = await poor.post(path, {"content": TEXT}, key=f"k{n}")
        return status

    async def ask_too_many(n: int) -> int:
        path = f"/v1/conversations/{crowd_room}/messages"
        status, _ = await crowd.post(path, {"content": TEXT}, key=f"k{n}")
        return status

    goal = f"goal {ADMISSION_GOAL_MS:.0f}"
    for at_once in (1, AT_ONCE):
        spent_ms = await _cost(ask, 202, at_once, lambda: _end_all(backend))
        print(f"{name}, {at_once} at once: a message {spent_ms:.2f} ms of CPU ({goal})", flush=True)
        rooms = [await _conversation(rich) for _ in rooms]
        spent_ms = await _cost(ask_too_much, 429, at_once)
        goal_of = f"goal {REFUSAL_GOAL_MS:.0f}"
        print(f"{name}, {at_once} at once: a refusal for want of budget {spent_ms:.2f} ({goal_of})")
    await crowd.post(f"/v1/conversations/{other_room}/messages", {"content": TEXT}, key="first")
    spent_ms = await _cost(ask_too_many, 429, 1)
    print(f"{name}: a refusal for too many replies {spent_ms:.2f} ({goal_of})", flush=True)
    late = await _caller(desk, create_app(replace(desk, line=_full_line())), "late", "free")
    late_room = await _conversation(late)

    async def ask_too_late(n: int) -> int:
        path = f"/v1/conversations/{late_room}/messages"
        status, _ = await late.post(path, {"content": TEXT}, key=f"k{n}")
        return status

    spent_ms = await _cost(ask_too_late, 503, 1)
    print(f"{name}: a refusal because the line is full {spent_ms:.2f} ({goal_of})", flush=True)


class _Crowd:
    """A line in which a thousand wait, for engines of eight slots; `Line` and `Replicas` in one."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    async def look(self, _: object) -> LineView:
        return LineView(self._clock.now(), {Lane.FREE: LaneState(1_000, 8, 8)})

    def models(self) -> list[ModelState]:
        return [ModelState("small", "lab/small", "ready", slots=8)]


def _full_line() -> LineWatch:
    crowd, clock = _Crowd(), SystemClock()
    return LineWatch(crowd, MemoryPromises(clock), cast("Replicas", crowd), clock)


async def _cost(
    call: Call, expected: int, at_once: int, afterwards: Callable[[], Awaitable[None]] | None = None
) -> float:
    """Milliseconds of CPU of a call; `afterwards` is not counted."""
    spent_s = 0.0
    for first in range(0, MESSAGES + WARM, at_once):
        numbers = range(first, min(first + at_once, MESSAGES + WARM))
        begun = time.process_time()
        answers = await asyncio.gather(*(call(n) for n in numbers))
        took = time.process_time() - begun
        assert set(answers) == {expected}, answers
        spent_s += took if first >= WARM else 0.0
        if afterwards is not None:
            await afterwards()
    return spent_s / (MESSAGES + WARM - -(-WARM // at_once) * at_once) * 1000


async def _end_all(backend: Backend) -> None:
    """As workers do it, so that open turns stay as few as they are."""
    while (turn := await backend.queue.claim(lease_s=2)) is not None:
        outcome = Outcome(
            Status.STOPPED, 1, Finish.STOPPED, "", Usage(turn.prompt_tokens, 0, 9), last_event_id=2
        )
        assert await backend.turns.finish(turn.held, outcome)


async def _caller(desk: Desk, app: Any, name: str, plan: str) -> Caller:
    user = User(f"u_{name}", name, "user", plan, None, desk.clock.now())
    assert await desk.accounts.add(user) is not None
    key, secret = new_key(desk, user, name)
    await desk.api_keys.add(key)
    return Caller(app, secret)


async def _conversation(caller: Caller) -> str:
    status, made = await caller.post("/v1/conversations", {})
    assert status == 201, made
    return str(made["id"])


def stores_of(backend: Backend, clock: SystemClock) -> Stores:
    """Where a bench keeps everything."""
    return Stores(
        turns=backend.turns,
        loose=backend.loose,
        queue=backend.queue,
        line=backend.line,
        presence=backend.presence,
        conversations=backend.conversations,
        messages=backend.messages,
        tasks=backend.tasks,
        summaries=backend.summaries,
        shares=backend.shares,
        accounts=backend.accounts,
        identities=backend.identities,
        ledger=backend.ledger,
        sessions=backend.sessions,
        api_keys=backend.api_keys,
        branches=backend.branches,
        files=backend.files,
        batches=backend.batches,
        batch_work=backend.batch_work,
        deletions=backend.deletions,
        erasure=backend.erasure,
        transcripts=backend.transcripts,
        imports=backend.imports,
        import_work=backend.import_work,
        prompts=backend.prompts,
        instructions=backend.instructions,
        log=backend.log,
        bell=LocalBell(),
        homes=MemoryHomes(clock),
        holds=MemoryHolds(),
        promises=MemoryPromises(clock),
        rungs=MemoryRungs(clock),
        registry=None,
        leases=MemoryLeases(clock),
    )


async def _measure() -> None:
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as made:
        settings = Settings(data_dir=Path(made), models_dir=MODELS)
        for name, backend in (
            ("memory", MemoryBackend(clock)),
            ("sqlite", SqliteBackend(Path(made) / "bench.db", clock)),
        ):
            desk = gateway_desk(Parts(settings, clock, stores_of(backend, clock)))
            await keep_prompt(settings, desk)
            await measure(name, backend, replace(desk, plans=_plans(desk)))
            await backend.close()


def _plans(desk: Desk) -> Any:
    """The usual budgets: far away for one, used up for another, and a plan for one reply."""
    free, plus = desk.plans["free"], desk.plans["plus"]
    rich = tuple(replace(budget, limit=1 << 50) for budget in plus.budgets)
    poor = tuple(replace(budget, limit=MILLI) for budget in free.budgets)
    return {
        "plus": replace(plus, budgets=rich, replies_running=1000),
        "free": replace(free, budgets=poor),
        "crowded": replace(plus, budgets=rich, replies_running=1),
    }


def main() -> None:
    """Both back ends, one after the other."""
    uvloop.run(_measure())  # as the service runs


if __name__ == "__main__":
    main()
