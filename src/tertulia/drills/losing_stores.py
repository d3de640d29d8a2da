"""Drills in which a store is down for a while: what works, what is refused, what comes back."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tertulia.drills.listener import Seen
from tertulia.drills.stage import QUESTION, Promise, Stage, silent_at_most, whole

_DOWN_S: Final = 5.0
# A worker keeps what it has written for ten seconds; longer, and the reply begins anew.
_LOGS_DOWN_S: Final = 3.0
# A refusal that takes longer than a client's patience is a hang.
_REFUSAL_S: Final = 3.0
# Postgres recovers for some seconds after a kill; then a lease ends and somebody claims the reply.
_STORE_S: Final = _DOWN_S + 8.0
_LOGS_S: Final = _LOGS_DOWN_S + 6.0


async def store(stage: Stage) -> list[Promise]:
    """Postgres is killed and is back after a while: nobody can send, and nothing is lost."""
    promises: list[Promise] = []

    async def break_it() -> None:
        await asyncio.to_thread(stage.fleet.postgres.kill)
        stage.note("killed Postgres (SIGKILL)")
        await asyncio.sleep(_DOWN_S / 2)
        promises.append(await _is_refused(stage))
        await asyncio.sleep(_DOWN_S / 2)
        await asyncio.to_thread(stage.fleet.postgres.start)
        stage.note("Postgres is back")

    before = await stage.ask(Seen("Say hello."))
    seen = await stage.in_mid_reply(break_it)
    await stage.fleet.ready()
    kept = await stage.stored(before)
    promises.append(
        Promise(
            "what was finished before is still there",
            kept.get("content") == before.text,
            f"{len(kept.get('content', ''))} characters",
        )
    )
    return [*await whole(stage, seen), *promises, silent_at_most(_STORE_S, seen)]


async def counters(stage: Stage) -> list[Promise]:
    """Valkey is killed and comes back empty: people are signed in, read, and send all the while."""
    promises: list[Promise] = []
    before = await stage.ask(Seen("Say hello."))
    late = Seen(QUESTION)

    async def break_it() -> None:
        await asyncio.to_thread(stage.fleet.valkey.kill)
        stage.note("killed Valkey (SIGKILL); it keeps nothing on disk")
        promises.append(await _is_signed_in(stage))
        promises.append(await _can_be_read(stage, before))
        later.append(tasks.create_task(stage.ask(late, gateway=1)))
        await asyncio.sleep(_LOGS_DOWN_S)
        await asyncio.to_thread(stage.fleet.valkey.start)
        stage.note("Valkey is back, and empty")

    later: list[asyncio.Task[Seen]] = []
    async with asyncio.TaskGroup() as tasks:
        seen = await stage.in_mid_reply(break_it)
    return [
        # The log is gone, and its writer writes it again.
        *await whole(stage, seen),
        *promises,
        Promise(
            "what was sent meanwhile is answered",
            late.end is not None and late.end[0] == "done" and not late.faults,
            f"{late.last} events, refused {len(late.refusals)} times",
        ),
        silent_at_most(_LOGS_S, seen),
    ]


async def _is_refused(stage: Stage) -> Promise:
    began = time.monotonic()
    answer = await stage.call("POST", "/v1/conversations", {})
    took_s = time.monotonic() - began
    retry = answer.headers.get("retry-after")
    stage.note(f"a new question is answered {answer.status_code} after {took_s:.2f} s")
    return Promise(
        f"who sends meanwhile is told so within {_REFUSAL_S:g} s, and when to come back",
        answer.status_code == 503 and retry is not None and took_s <= _REFUSAL_S,
        f"{answer.status_code}, Retry-After {retry}, {took_s:.2f} s",
    )


async def _is_signed_in(stage: Stage) -> Promise:
    answer = await stage.call("GET", "/v1/me")
    stage.note(f"who am I: {answer.status_code}")
    return Promise("people stay signed in", answer.status_code == 200, f"{answer.status_code}")


async def _can_be_read(stage: Stage, before: Seen) -> Promise:
    kept = await stage.stored(before)
    followed = await stage.call("GET", f"/v1/messages/{before.reply_id}/stream")
    whole_again = b"event: done" in followed.content
    stage.note(f"a finished reply is read from the store, and followed: {followed.status_code}")
    return Promise(
        "finished replies can be read and followed",
        kept.get("content") == before.text and followed.status_code == 200 and whole_again,
        f"{len(kept.get('content', ''))} characters; stream {followed.status_code}",
    )
