"""`python -m tests.e2e.kills --points 60 --seed 1`: kills real processes in the middle of replies.

Prints one line a point and a summary; exits 1 when a client's history is not the stored reply.
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
from pathlib import Path

from tests.e2e.reader import History, ask, new_conversation, stored
from tests.e2e.processes import Service, rows

QUESTIONS = (
    "Write a long story about a ship.",
    "Explain how bread is made, step by step.",
    "Tell me about the history of Lisbon.",
    "List ten animals and say something about each.",
)
VICTIMS = ("engine", "lanes", "tree")
TOML = """
[models]
large = "off"
threads = 1
[plans.plus]
answer_tokens = 160
tokens_per_day = 100000000
"""


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


async def run(points: int, seed: int, folder: Path) -> Tally:
    """Kills at `points` random moments of real replies and checks every reply afterwards."""
    chance, tally = random.Random(seed), Tally()
    service = Service(folder, TOML)
    service.start()
    try:
        await service.ready()
        while tally.points < points:
            await _point(service, chance, tally)
    finally:
        service.end()
    return tally


async def _point(service: Service, chance: random.Random, tally: Tally) -> None:
    """Two replies at once, one kill somewhere in them."""
    conversations = [await new_conversation(service.url, service.key) for _ in range(2)]
    histories = [History(), History()]
    asked = [
        asyncio.ensure_future(
            ask(
                service.url,
                service.key,
                conversation,
                chance.choice(QUESTIONS),
                f"kill-{tally.points}-{i}-{conversation}",
                history=histories[i],
            )
        )
        for i, conversation in enumerate(conversations)
    ]
    victim, moment = chance.choice(VICTIMS), chance.uniform(0.05, 2.5)
    await asyncio.sleep(moment)
    running = sum(not task.done() for task in asked)
    if victim == "tree":
        service.kill_tree()
        service.start()
    else:
        service.kill_child("replica" if victim == "engine" else "lanes")
    await asyncio.gather(*asked)
    tally.points += running > 0
    tally.kills[victim] = tally.kills.get(victim, 0) + 1
    await service.ready()
    for conversation, history in zip(conversations, histories, strict=True):
        await _check(service, conversation, history, tally)
    print(
        f"{tally.points:3} {victim:6} after {moment:4.2f} s, {running} running, "
        f"{[h.connections for h in histories]} connections, "
        f"longest silence {max(max(h.gaps_s, default=0) for h in histories):.2f} s",
        flush=True,
    )


async def _check(service: Service, conversation: str, history: History, tally: Tally) -> None:
    messages = await stored(service.url, service.key, conversation)
    replies = [m for m in messages if m["role"] == "assistant"]
    faults = []
    if len(messages) != 2 or len(replies) != 1:
        faults.append(f"{len(messages)} messages stored instead of 2")
    reply = replies[0]
    if history.text != reply["content"]:
        faults.append(f"client has {len(history.text)} chars, store {len(reply['content'])}")
    if history.last != reply["lastEventId"]:
        faults.append(f"last id {history.last}, stored {reply['lastEventId']}")
    if sorted(history.events) != list(range(1, history.last + 1)):
        faults.append("ids with gaps")
    if history.end is None or history.end[0] != "done":
        faults.append(f"ended with {history.end}")
    settled = rows(
        service.database,
        "SELECT charged, input_tokens + output_tokens, output_tokens FROM settlements"
        " WHERE reply_id = ?",
        reply["id"],
    )
    if len(settled) != 1 or settled[0][0] != settled[0][1]:
        faults.append(f"settled {settled}")
    (ids,) = rows(service.database, "SELECT ids FROM messages WHERE id = ?", reply["id"])
    count = len(ids[0]) // 4  # type: ignore[arg-type]  # a blob of 32-bit integers
    if settled and count != settled[0][2]:
        faults.append(f"{count} tokens stored, {settled[0][2]} settled")
    if _decoded(ids[0]) != reply["content"]:
        faults.append("the stored tokens do not spell the stored text")
    tally.replies += 1
    tally.events += history.last
    tally.resets += history.resets
    tally.pauses += history.pauses
    tally.continued += history.connections > 1 or history.pauses > 0
    tally.gaps_s.append(max(history.gaps_s, default=0.0))
    tally.faults += [f"{reply['id']}: {fault}" for fault in faults]
    for fault in faults:
        print("FAULT", reply["id"], fault, flush=True)


def _decoded(packed: object) -> str:
    """The text of stored tokens, by the model's own vocabulary."""
    from tertulia.backends.vocabulary import load_vocabulary
    from tertulia.core.turn import unpack_ids
    from tests.e2e.processes import installed_models

    assert isinstance(packed, bytes)
    return load_vocabulary(installed_models() / "small").decode(unpack_ids(packed))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tertulia-kills-") as folder:
        tally = asyncio.run(run(given.points, given.seed, Path(folder)))
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
