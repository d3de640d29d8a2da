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
from pathlib import Path

from tests.e2e.processes import Program, Service, free_port, installed_models, rows
from tests.e2e.reader import History, ask, new_conversation, stored

QUESTIONS = (
    "Write a long story about a ship.",
    "Explain how bread is made, step by step.",
    "Tell me about the history of Lisbon.",
    "List ten animals and say something about each.",
)
VICTIMS = ("engine", "lanes", "tree")
PLAN = """
[plans.plus]
answer_tokens = 160
tokens_per_day = 100000000
"""
REAL = '[models]\nlarge = "off"\nthreads = 1\n' + PLAN
# The fake is slow enough to be killed in the middle of an answer.
FAKE_STEP_S = 0.015


def fake_service(folder: Path) -> tuple[Service, Program]:
    """A service whose only replica is the fake, which is killed and started from here."""
    port, model = free_port(), installed_models() / "small"
    toml = f"""
[models]
embedded = false
large = "off"
{PLAN}
[[replicas]]
name = "fake"
model = "fake-1"
url = "http://127.0.0.1:{port}"
slots = 8
vocabulary = "{model}"
"""
    command = [sys.executable, "-m", "tests.fake_replica", "--port", str(port)]
    command += ["--model-dir", str(model), "--step-s", str(FAKE_STEP_S)]
    return Service(folder, toml), Program(command, folder / "fake.log")


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
    """The processes of one run. `engine` is the fake, `undisturbed` what it answers in peace."""

    service: Service
    engine: Program | None = None
    undisturbed: dict[str, str] = field(default_factory=dict)

    def kill(self, victim: str) -> None:
        """`kill -9`; what nobody else starts again is started again."""
        if victim == "lanes":
            self.service.kill_child("lanes")
        elif victim == "tree":
            self.service.kill_tree()
            self.service.start()
        elif self.engine is None:
            self.service.kill_child("replica")
        if self.engine is not None and victim != "lanes":
            self.engine.kill()
            self.engine.start()


async def run(points: int, seed: int, folder: Path, *, engine: str) -> Tally:
    """Kills at `points` random moments of real replies and checks every reply afterwards."""
    chance, tally = random.Random(seed), Tally()
    folder.mkdir(parents=True, exist_ok=True)
    stage = Stage(*fake_service(folder)) if engine == "fake" else Stage(Service(folder, REAL))
    stage.service.start()
    if stage.engine is not None:
        stage.engine.start()
    try:
        await stage.service.ready()
        if stage.engine is not None:
            await _listen_in_peace(stage)
        while tally.points < points:
            await _point(stage, chance, tally)
    finally:
        stage.service.end()
        if stage.engine is not None:
            stage.engine.end()
    return tally


async def _listen_in_peace(stage: Stage) -> None:
    service = stage.service
    for question in QUESTIONS:
        conversation = await new_conversation(service.url, service.key)
        seen = await ask(service.url, service.key, conversation, question, f"calm-{conversation}")
        stage.undisturbed[question] = seen.text


async def _point(stage: Stage, chance: random.Random, tally: Tally) -> None:
    """Two replies at once, one kill somewhere in them."""
    service = stage.service
    questions = [chance.choice(QUESTIONS) for _ in range(2)]
    conversations = [await new_conversation(service.url, service.key) for _ in range(2)]
    histories = [History(), History()]
    asked = [
        asyncio.ensure_future(
            ask(
                service.url,
                service.key,
                conversation,
                questions[i],
                f"kill-{tally.points}-{i}-{conversation}",
                history=histories[i],
            )
        )
        for i, conversation in enumerate(conversations)
    ]
    victim, moment = chance.choice(VICTIMS), chance.uniform(0.05, 2.5)
    await asyncio.sleep(moment)
    running = sum(not task.done() for task in asked)
    stage.kill(victim)
    await asyncio.gather(*asked)
    tally.points += running > 0
    tally.kills[victim] = tally.kills.get(victim, 0) + 1
    await service.ready()
    for conversation, history, question in zip(conversations, histories, questions, strict=True):
        expected = stage.undisturbed.get(question)
        if expected not in (None, history.text):
            tally.faults.append(f"{history.reply_id}: not the undisturbed answer")
            print("FAULT not the undisturbed answer", history.reply_id, flush=True)
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

    assert isinstance(packed, bytes)
    return load_vocabulary(installed_models() / "small").decode(unpack_ids(packed))


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
