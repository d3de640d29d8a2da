"""`python -m tests.e2e.kills --points 60 --seed 1`: kills real processes in the middle of replies.

Prints one line a point and a summary; exits 1 when a client's history is not the stored reply. With
`--engine fake` answers are a function of the question, and must equal those of an undisturbed run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_args

import httpx2

from tertulia.backends.vocabulary import ModelVocabulary, load_vocabulary
from tertulia.core.turn import unpack_ids
from tertulia.drills.listener import Listener, Seen
from tertulia.drills.loopback import loopback
from tests.e2e.processes import Service, Victim, fake_service, installed_models, rows

QUESTIONS = (
    "Write a long story about a ship.",
    "Explain how bread is made, step by step.",
    "Tell me about the history of Lisbon.",
    "List ten animals and say something about each.",
)
VICTIMS: tuple[Victim, ...] = get_args(Victim)
PLAN = """
[plans.plus]
answer_tokens = 160
budgets = []
replies_running = 4
"""
REAL = '[models]\nlarge = "off"\nthreads = 1\n' + PLAN
# The fake is slow enough to be killed in the middle of an answer; what is left comes at once.
FAKE_STEP_S = 0.015
FAKE_REST_S = 0.001
# A reply that was killed goes on within seconds; on two busy cores it takes longer.
GIVE_UP_S = 90.0


@dataclass
class Tally:
    """What a run has shown."""

    points: int = 0
    replies: int = 0
    events: int = 0
    resets: int = 0
    pauses: int = 0
    continued: int = 0
    gaps_s: list[float] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


@dataclass
class Stage:
    """The service of one run, and what a fake engine answers in peace."""

    service: Service
    undisturbed: dict[str, str] = field(default_factory=dict)

    async def new_conversation(self) -> str:
        """A conversation to ask in."""
        made = await self._call("POST", "/v1/conversations", {})
        assert made.status_code == 201, made.text
        conversation: str = made.json()["id"]
        return conversation

    async def ask(self, seen: Seen, turn_key: str) -> Seen:
        """Asks and follows to the end, whatever breaks on the way."""
        listener = Listener(
            self.service.key, [self.service.url], time.monotonic, lambda _line: None
        )
        return await listener.ask(seen, turn_key, until_s=GIVE_UP_S)

    async def stored(self, conversation: str) -> list[dict[str, Any]]:
        """The messages as the store tells them."""
        kept = await self._call("GET", f"/v1/conversations/{conversation}/messages")
        items: list[dict[str, Any]] = kept.json()["items"]
        return items

    async def _call(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.service.key}"}
        async with loopback(20, headers=headers) as http:
            return await http.request(method, self.service.url + path, json=body)


async def run(points: int, seed: int, folder: Path, *, engine: str) -> Tally:
    """Kills at `points` random moments of real replies and checks every reply afterwards."""
    chance, tally = random.Random(seed), Tally()
    is_fake = engine == "fake"
    service = fake_service(folder, PLAN, step_s=FAKE_STEP_S) if is_fake else Service(folder, REAL)
    stage = Stage(service)
    service.start()
    try:
        await service.ready()
        if is_fake:
            await asyncio.gather(*(_listen_in_peace(stage, question) for question in QUESTIONS))
        while tally.points < points:
            await _point(stage, chance, tally)
    finally:
        service.end()
    return tally


async def _listen_in_peace(stage: Stage, question: str) -> None:
    conversation = await stage.new_conversation()
    seen = await stage.ask(Seen(question, conversation), f"calm-{conversation}")
    assert seen.faults == []
    stage.undisturbed[question] = seen.text


async def _point(stage: Stage, chance: random.Random, tally: Tally) -> None:
    """Two replies at once, one kill somewhere in them."""
    await stage.service.pace(FAKE_STEP_S)
    replies = [Seen(chance.choice(QUESTIONS), await stage.new_conversation()) for _ in range(2)]
    asked = [
        asyncio.ensure_future(stage.ask(seen, f"kill-{tally.points}-{seen.conversation}"))
        for seen in replies
    ]
    victim, moment = chance.choice(VICTIMS), chance.uniform(0.05, 2.5)
    await asyncio.sleep(moment)
    running = sum(not task.done() for task in asked)
    stage.service.kill(victim)
    await stage.service.pace(FAKE_REST_S)
    await asyncio.gather(*asked)
    tally.points += running > 0
    tally.kills[victim] = tally.kills.get(victim, 0) + 1
    await stage.service.ready()
    for seen in replies:
        await _check(stage, seen, tally)
    print(
        f"{tally.points:3} {victim:6} after {moment:4.2f} s, {running} running, "
        f"{[seen.connections for seen in replies]} connections, "
        f"longest silence {max(seen.longest_gap_s for seen in replies):.2f} s",
        flush=True,
    )


async def _check(stage: Stage, seen: Seen, tally: Tally) -> None:
    messages = await stage.stored(seen.conversation)
    replies = [m for m in messages if m["role"] == "assistant"]
    faults = list(seen.faults)
    if stage.undisturbed.get(seen.question, seen.text) != seen.text:
        faults.append("not the undisturbed answer")
    if len(messages) != 2 or len(replies) != 1:
        faults.append(f"{len(messages)} messages stored instead of 2")
    reply = replies[0]
    if seen.text != reply["content"]:
        faults.append(f"client has {len(seen.text)} chars, store {len(reply['content'])}")
    if seen.last != reply["lastEventId"]:
        faults.append(f"last id {seen.last}, stored {reply['lastEventId']}")
    if seen.end is None or seen.end[0] != "done":
        faults.append(f"ended with {seen.end}")
    database = stage.service.database
    settled = rows(
        database,
        "SELECT charged, 1000 * input_tokens - 900 * cached_tokens + 4000 * output_tokens,"
        " output_tokens FROM settlements"
        " WHERE reply_id = ?",
        reply["id"],
    )
    if len(settled) != 1 or settled[0][0] != settled[0][1]:
        faults.append(f"settled {settled}")
    ((ids,),) = rows(database, "SELECT ids FROM messages WHERE id = ?", reply["id"])
    packed = ids if isinstance(ids, bytes) else b""  # a failed reply may have none
    count = len(packed) // 4
    if settled and count != settled[0][2]:
        faults.append(f"{count} tokens stored, {settled[0][2]} settled")
    if _decoded(packed) != reply["content"]:
        faults.append("the stored tokens do not spell the stored text")
    tally.replies += 1
    tally.events += seen.last
    tally.resets += seen.resets
    tally.pauses += seen.pauses
    tally.continued += seen.is_moved
    tally.gaps_s.append(seen.longest_gap_s)
    tally.faults += [f"{reply['id']}: {fault}" for fault in faults]
    for fault in faults:
        print("FAULT", reply["id"], fault, flush=True)


def _decoded(packed: bytes) -> str:
    """The text of stored tokens, by the model's own vocabulary."""
    return _vocabulary().decode(unpack_ids(packed))


@cache
def _vocabulary() -> ModelVocabulary:
    return load_vocabulary(installed_models() / "small")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--engine", choices=("real", "fake"), default="real")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tertulia-kills-") as folder:
        tally = asyncio.run(run(given.points, given.seed, Path(folder), engine=given.engine))
    gaps = sorted(tally.gaps_s)
    summary = {
        "points": tally.points,
        "kills": tally.kills,
        "replies": tally.replies,
        "events": tally.events,
        "continued": tally.continued,
        "pauses": tally.pauses,
        "resets": tally.resets,
        "silence_p50_s": round(gaps[len(gaps) // 2], 2),
        "silence_p95_s": round(gaps[int(len(gaps) * 0.95)], 2),
        "faults": len(tally.faults),
        "took_s": round(time.monotonic() - began),
    }
    print(json.dumps(summary))
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
