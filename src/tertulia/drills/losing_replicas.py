"""Drills in which what computes is lost: one engine, half of them, their caches, or their sense."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

from tertulia.config import Settings
from tertulia.drills.fleet import ReplicaTable
from tertulia.drills.listener import Seen
from tertulia.drills.stage import (
    QUESTION,
    Promise,
    Stage,
    all_whole,
    silent_at_most,
    whole,
)
from tertulia.wiring.models import Vocabularies

# Two missed heartbeats are about 2 s, and the next engine reads the prompt and the sent words; a
# refused connection is known at once.
_PAUSE_S: Final = 2.5
_REPLIES_AT_ONCE: Final = 4
_LOOKS: Final = 20
# What a runaway reply may cost, whatever the engine does.
RUNAWAY_TOKENS: Final = 120


async def model_server(stage: Stage) -> list[Promise]:
    """One engine dies in the middle of a reply; another goes on with the words that were sent."""

    async def break_it() -> None:
        lost = await stage.busy(stage.fleet.replicas, "replica")
        await stage.kill(lost)

    seen = await stage.in_mid_reply(break_it)
    return [*await whole(stage, seen), silent_at_most(_PAUSE_S, seen)]


async def region(stage: Stage) -> list[Promise]:
    """Half of the engines die at once, with a reply on each: as when a region is lost."""

    async def break_it() -> None:
        for role in stage.fleet.replicas[: len(stage.fleet.replicas) // 2]:
            await stage.kill(role)

    replies = await stage.in_mid_replies(_REPLIES_AT_ONCE, break_it)
    # Half of the engines do the work of all, so those that moved wait for a step's room as well.
    return [*await all_whole(stage, replies), silent_at_most(2 * _PAUSE_S, *replies)]


async def caches(stage: Stage) -> list[Promise]:
    """Everything that remembers forgets: the logs in the middle of a reply, then the engines."""

    async def flush() -> None:
        await asyncio.to_thread(stage.fleet.valkey.command, "FLUSHALL")
        stage.note("emptied Valkey: every log, bell and home is gone (FLUSHALL)")

    first = await stage.in_mid_reply(flush)
    warm = await stage.ask(Seen("And what became of them?", first.conversation))
    for role in stage.fleet.replicas:
        await stage.kill(role)
        await stage.bring_back(role)
    cold = await stage.ask(Seen("Tell me more.", first.conversation))
    stage.note(
        f"before the engines forgot, {_cached(warm)} prompt tokens were found in a cache and the "
        f"first words came after {_first_s(warm):.2f} s; then {_cached(cold)}, "
        f"{_first_s(cold):.2f} s"
    )
    kept = await all_whole(stage, [first, warm, cold])
    return [*kept, silent_at_most(_PAUSE_S, first)]


async def runaway(stage: Stage) -> list[Promise]:
    """An engine that never ends a reply and ignores every limit: the reply is cut at the plan's."""
    seen = await stage.ask(Seen(QUESTION))
    _, end = seen.end or ("", {})
    output, finish = end.get("usage", {}).get("output"), end.get("finish")
    left = await _is_rid(stage)
    return [
        *await whole(stage, seen),
        Promise(
            f"it is cut after {RUNAWAY_TOKENS} tokens, the plan's longest answer",
            output == RUNAWAY_TOKENS and finish == "length",
            f"{output} tokens, finish {finish}",
        ),
        Promise("the engine is rid of it within a second", left, "gone" if left else "still there"),
    ]


def endless(settings: Settings) -> ReplicaTable:
    """The replica of `runaway`, which speaks with the small model's own tokens."""
    folder = settings.models_folder / "small"
    vocabulary = Vocabularies(settings).of("small")
    ids = vocabulary.encode(" Round and round it goes.")
    words = json.dumps([(vocabulary.decode([token]), token) for token in ids])
    command = [sys.executable, "-m", "tertulia.drills.tireless", "--port", "{port}"]
    command += ["--model", "tireless", "--words", words, "--die-with-parent", str(os.getpid())]
    return ReplicaTable("tireless", Path(folder), trusted=True, command=tuple(command))


def _cached(seen: Seen) -> object:
    return seen.end[1].get("usage", {}).get("cached", "?") if seen.end else "?"


def _first_s(seen: Seen) -> float:
    return seen.first_words_s or 0.0


async def _is_rid(stage: Stage) -> bool:
    """Whether the engine runs nothing any more, within a second."""
    for _ in range(_LOOKS):
        if not await stage.running(stage.fleet.replicas[0], "replica"):
            return True
        await asyncio.sleep(1.0 / _LOOKS)
    return False
