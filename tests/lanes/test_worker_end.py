"""How a worker ends: it claims nothing more, ends what it can, and gives back what it can't."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tertulia.core.types import Status
from tertulia.worker.health import WorkerHealth
from tertulia.worker.loop import Worker
from tests.lanes.gateway_rig import (
    ANSWER,
    Rig,
    ScriptedReplicas,
    ask_later,
    events,
    new_conversation,
    rig,
    text_of,
    until,
)

pytestmark = pytest.mark.anyio

PROMPT_S = 20.0


async def in_mid_reply(here: Rig) -> tuple[Any, dict[str, Any]]:
    """A client and its reply, which the worker holds."""
    client = await here.user("ana")
    posted = (await ask_later(client, await new_conversation(client))).json()
    await until(lambda: here.worker.held)
    return client, posted


async def test_a_draining_worker_ends_what_it_has_and_claims_nothing_more() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=1)) as here:
        client, first = await in_mid_reply(here)
        here.worker.drain()
        late = (await ask_later(client, await new_conversation(client), "And how?")).json()
        here.replicas.hold.set()
        await here.working
        owner = (await client.get("/v1/me")).json()["id"]
        ended = await here.backend.turns.find(owner, first["messageId"])
        waiting = await here.backend.turns.find(owner, late["messageId"])
    assert ended is not None
    assert waiting is not None
    assert (ended.status, waiting.status) == (Status.COMPLETED, Status.QUEUED)


async def test_what_a_worker_gives_back_goes_on_at_another_at_once() -> None:
    """Long before its lease would have ended. Nothing was said yet: these replicas always begin at
    the beginning."""
    async with rig(replicas=ScriptedReplicas(before_hold=0), lease_s=600.0) as here:
        client, posted = await in_mid_reply(here)
        here.working.cancel()
        await asyncio.wait([here.working])
        here.replicas.hold.set()
        async with asyncio.TaskGroup() as tasks:
            another = tasks.create_task(Worker(here.worker.desk).run())
            async with asyncio.timeout(PROMPT_S):
                stream = await client.get(posted["streamUrl"])
            another.cancel()
    assert text_of(stream.text) == "".join(ANSWER)
    assert [number for number, _, _ in events(stream.text)] == list(
        range(1, len(events(stream.text)) + 1)
    )
    assert b"tertulia_worker_claims_returned_total 1.0" in here.worker.figures.page()


async def test_a_worker_answers_probes() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=1)) as here:
        await in_mid_reply(here)
        health = WorkerHealth(here.worker)
        alive, ready = await asked(health, "/livez"), await asked(health, "/readyz")
        figures, nowhere = await asked(health, "/metrics"), await asked(health, "/v1/me")
        here.worker.drain()
        leaving = await asked(health, "/readyz")
        here.replicas.states = []
        missing = await asked(health, "/readyz")
    assert alive[0] == 200
    assert (ready[0], json.loads(ready[1])) == (
        200,
        {"status": "ready", "missing": [], "running": 1},
    )
    assert b"tertulia_worker_replies_running 1.0" in figures[1]
    assert nowhere[0] == 404
    assert (leaving[0], json.loads(leaving[1])["status"]) == (503, "draining")
    assert json.loads(missing[1])["missing"] == ["models"]


async def asked(app: WorkerHealth, path: str) -> tuple[int, bytes]:
    """Status and body of one call."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "path": path}, receive, send)
    return sent[0]["status"], sent[1]["body"]
