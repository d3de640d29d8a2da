"""`python -m tests.e2e.stops --stops 200`: how soon a stop at another gateway reaches the engine.

The engine counts: a step is a token that it sends. Prints one JSON object, and exits with 1 if more
than one of a hundred stops took longer than one step after it was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from tertulia.drills.loopback import loopback
from tertulia.drills.stage import QUESTION, Stage
from tests.e2e.fleets import a_stage


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop. `steps_after` its answer; the times are from when it was sent."""

    steps_after: int
    answered_s: float
    left_s: float


async def measure(stage: Stage, count: int) -> list[Stop]:
    """Asks at the first gateway and stops at the second, one after the other."""
    headers = {"Authorization": f"Bearer {stage.key}"}
    async with loopback(20, headers=headers) as http:
        return [await _stop_once(stage, http, number) for number in range(count)]


async def _stop_once(stage: Stage, http: httpx2.AsyncClient, number: int) -> Stop:
    asked_at, stopped_at = (role.url for role in stage.fleet.gateways[:2])
    conversation = await stage.conversation()
    posted = await http.post(
        f"{asked_at}/v1/conversations/{conversation}/messages",
        json={"content": f"{QUESTION} ({number})"},
        headers={"Idempotency-Key": f"stop-{number}-{conversation}"},
    )
    reply = posted.json()["messageId"]
    await _in_mid_reply(stage, http, reply)
    sent_at = time.time()
    answer = await http.post(f"{stopped_at}/v1/messages/{reply}/stop")
    answered_at = time.time()
    answer.raise_for_status()
    then = await _generation(stage, http, reply)
    # A step takes a fraction of this; what was going to come has come.
    await asyncio.sleep(0.2)
    later = await _generation(stage, http, reply)
    assert later["ended_at"] is not None, "it still runs"
    return Stop(
        steps_after=later["tokens"] - then["tokens"],
        answered_s=answered_at - sent_at,
        left_s=later["ended_at"] - sent_at,
    )


async def _in_mid_reply(stage: Stage, http: httpx2.AsyncClient, reply: str) -> None:
    while True:
        generation = await _generation(stage, http, reply)
        if generation and generation["tokens"] >= 5:
            assert generation["ended_at"] is None, "it was over before it could be stopped"
            return
        await asyncio.sleep(0.005)


async def _generation(stage: Stage, http: httpx2.AsyncClient, reply: str) -> dict[str, Any]:
    """The reply's newest generation, as its engine tells it."""
    found: list[dict[str, Any]] = []
    for role in stage.fleet.replicas:
        log = (await http.get(role.url + "/log")).json()
        found += [one for one in log if one["request_id"].startswith(f"{reply}-")]
    return max(found, key=lambda one: one["began_at"], default={})


def summary(stops: Sequence[Stop]) -> dict[str, object]:
    """The figures, in steps and milliseconds."""
    return {
        "stops": len(stops),
        "steps_after_answer_p99": _share([stop.steps_after for stop in stops], 0.99),
        "steps_after_answer_max": max(stop.steps_after for stop in stops),
        "left_engine_ms_p50": round(1000 * _share([stop.left_s for stop in stops], 0.5), 1),
        "left_engine_ms_p99": round(1000 * _share([stop.left_s for stop in stops], 0.99), 1),
        "answered_ms_p50": round(1000 * _share([stop.answered_s for stop in stops], 0.5), 1),
        "answered_ms_p99": round(1000 * _share([stop.answered_s for stop in stops], 0.99), 1),
    }


def _share(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def run(count: int, step_s: float) -> int:
    """The measurement on a fleet of its own."""
    async with a_stage(step_s=step_s) as stage:
        stops = await measure(stage, count)
    print(json.dumps({"step_ms": 1000 * step_s, **summary(stops)}, indent=2))
    return int(_share([stop.steps_after for stop in stops], 0.99) > 1)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=20.0)
    given = parser.parse_args()
    return asyncio.run(run(given.stops, given.step_ms / 1000))


if __name__ == "__main__":
    raise SystemExit(main())
