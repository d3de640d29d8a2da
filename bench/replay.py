"""The simulator beside the embedded engine: the same requests, first played, then predicted.

`python -m bench replay [--seconds 180]` fits how long a step takes to two loads, and compares the
prediction on three others: 50, 80 and 120 % of what the engine can. It needs the small model. Time
is counted in CPU seconds of one thread, and what is idle is skipped: other processes make it last
longer, and a CPU second worth less, by turns; the fewer of them the better.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tertulia.config import load_settings
from tertulia.core.blocks import Owner
from tertulia.core.costs import NOTHING, StepCost, Work
from tertulia.core.prefix import CacheLimits
from tertulia.core.steps import StepBounds
from tertulia.replica.description import read_description
from tertulia.replica.engine import Engine, EngineSettings
from tertulia.replica.generation import Emission, Generation
from tertulia.replica.inbox import QueueBounds
from tertulia.replica.llama import LlamaModel
from tertulia.replica.model import Choice, ModelSettings
from tertulia.replica.spill import Spill
from tertulia.replica.tuning import measure_step_cost
from tertulia.simulator.replica import Asked, Recording, replay

GREEDY = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)
N_SLOTS, N_ANCHORS, N_CACHE, BATCH, TARGET_S = 8, 64, 16_384, 256, 0.03
FIT_PERCENT = (35, 65)
SHOWN_PERCENT = (50, 80, 120)
IN_TIME = 3  # times what half the load waits in the middle: beyond that a first token is late
WITHIN = 0.15
# A piece of work of a millisecond or so that the machine's speed is known by, like that of an
# engine: numbers from memory, multiplied. How often, and over how many looks.
PROBE, PROBE_TIMES, LOOK_S, PROBES = 1_000_000, 8, 0.25, 5
PROMPT, ANSWER = (40, 400), (20, 120)  # tokens, evenly


@dataclass
class Steps:
    """The steps that are fitted: their decodes, their prefill, and how long each took in all."""

    fitted: list[tuple[Work, Work, float]] = field(default_factory=list)
    is_fitted: bool = False
    last: tuple[Work, Work] = (NOTHING, NOTHING)


class Noted(StepCost):
    """The engine's own formula, which also notes what each step held."""

    noted: Steps

    def observed(self, decodes: Work, prefill: Work, took_s: float) -> StepCost:
        """As the engine's, and noted."""
        found = super().observed(decodes, prefill, took_s)
        self.noted.last = (decodes, prefill)
        object.__setattr__(found, "noted", self.noted)
        return found


def main(given: list[str]) -> None:
    """Fits, predicts and compares."""
    asked = argparse.ArgumentParser(prog="python -m bench replay", description=__doc__)
    asked.add_argument("--seconds", type=float, default=180.0, help="of each load")
    options = asked.parse_args(given)
    machine = Machine(load_settings(None).models_folder / "small")
    capacity = machine.capacity(options.seconds / 3)
    print(f"the engine can about {capacity:.2f} requests/s of this kind", flush=True)
    seen = played(machine, capacity, options.seconds)
    formula, error = fit(machine.steps.fitted)
    print(f"{len(machine.steps.fitted):,} steps fitted, middle error {error:.1%}")
    in_time_s = IN_TIME * seen[0][2].first_s(50)
    for percent, asked_for, recording in seen:
        told = replay(
            asked_for,
            formula,
            bounds=machine.bounds.steps,
            limits=machine.bounds.cache,
            cost=machine.cost,
            seconds=options.seconds,
        )
        compare(percent, recording, told, in_time_s)


def played(
    machine: Machine, capacity: float, seconds: float
) -> list[tuple[int, list[Asked], Recording]]:
    """The loads that are compared, and between them those that are fitted: where a machine's speed
    drifts, both have as much of it."""
    seen = []
    for number, percent in enumerate(SHOWN_PERCENT):
        for part, fit_percent in enumerate(FIT_PERCENT):
            seed = 10 + 2 * number + part
            few_s = seconds / (2 * len(SHOWN_PERCENT))
            machine.steps.is_fitted = True
            machine.play(requests(capacity * fit_percent / 100, few_s, seed), few_s)
        machine.steps.is_fitted = False
        asked_for = requests(capacity * percent / 100, seconds, 20 + number)
        seen.append((percent, asked_for, machine.play(asked_for, seconds)))
    return seen


def requests(per_s: float, seconds: float, seed: int) -> list[Asked]:
    """A Poisson stream of requests."""
    dice, at_s, found = random.Random(seed), 0.0, []
    while (at_s := at_s + dice.expovariate(per_s)) < seconds:
        found.append(Asked(at_s, dice.randint(*PROMPT), dice.randint(*ANSWER)))
    return found


class BusyClock:
    """CPU seconds of this process at an even speed, and the time that was skipped, being idle.

    Others make a shared processor slower, by turns and for minutes at a time. So now and then a
    piece of work is timed that is always the same, and seconds count as much as it says.
    """

    def __init__(self) -> None:
        self._numbers = np.random.default_rng(1).random(PROBE, dtype=np.float32)
        self._products = np.empty_like(self._numbers)
        self._usual_s = statistics.median(self._probe() for _ in range(200))
        self._recent = deque([self._usual_s], maxlen=PROBES)
        self._counted_s, self._weight = 0.0, 1.0
        self._since = time.process_time()

    def __call__(self) -> float:
        return self._counted_s + (time.process_time() - self._since) * self._weight

    def skip(self, seconds: float) -> None:
        """So much later at once."""
        self._counted_s += max(0.0, seconds)

    def look(self) -> None:
        """At the machine's speed, if that was some time ago; the look takes no time."""
        if time.process_time() - self._since < LOOK_S:
            return
        self._counted_s = self()
        self._recent.append(self._probe())
        self._weight = self._usual_s / statistics.median(self._recent)
        self._since = time.process_time()

    def _probe(self) -> float:
        began_s = time.process_time()
        for _ in range(PROBE_TIMES):
            np.multiply(self._numbers, self._numbers, out=self._products)
        return time.process_time() - began_s


class Machine:
    """The embedded engine in this process, stepped by hand."""

    def __init__(self, folder: Path) -> None:
        wanted = ModelSettings(
            threads=1,  # whose CPU time is the clock
            n_cache=N_CACHE,
            n_sequences=2 * N_SLOTS + N_ANCHORS,
            n_batch=BATCH,
        )
        self._model = LlamaModel(folder, read_description(folder), wanted)
        limits = self._model.limits
        self._clock = BusyClock()
        self.cost, block_bytes = measure_step_cost(
            self._model, limits.block_tokens, time.process_time
        )
        n_blocks = limits.n_cache // limits.block_tokens
        self.bounds = EngineSettings(
            steps=StepBounds(N_SLOTS, TARGET_S, n_batch=limits.n_batch, n_mixed=limits.n_mixed),
            cache=CacheLimits(n_blocks, limits.block_tokens, int(n_blocks * limits.idle_share)),
            n_anchors=N_ANCHORS,
            queue=QueueBounds(100_000, 2**63),
        )
        self.steps = Steps()
        self._heard: Callable[[Emission], None] = lambda _: None
        self._engine = self._made(block_bytes)

    def _made(self, block_bytes: int) -> Engine:
        cost = Noted(
            self.cost.fixed_s, self.cost.token_s, self.cost.attended_s, self.cost.scanned_s
        )
        object.__setattr__(cost, "noted", self.steps)
        return Engine(
            self._model, self.bounds, cost, Spill(block_bytes, 0), self._deliver, self._clock
        )

    def _deliver(self, emissions: list[Emission]) -> None:
        for emission in emissions:
            self._heard(emission)

    def capacity(self, seconds: float) -> float:
        """How many requests a second it can: so many at once that it is always full."""
        asked = [Asked(0.0, one.prompt_tokens, one.answer_tokens) for one in requests(5, 400, 1)]
        n_tokens = 0

        def heard(emission: Emission) -> None:
            nonlocal n_tokens
            n_tokens += len(emission.tokens)

        self._run(asked, seconds, heard)
        self._engine.abort(lambda _: True, lambda _: None)
        self._engine.step()
        return max(0.01, n_tokens / seconds / (sum(ANSWER) / 2))

    def play(self, asked: list[Asked], seconds: float) -> Recording:
        """What clients see of these requests."""
        recording, moments = Recording(seconds=seconds), {}

        def heard(emission: Emission) -> None:
            n = len(emission.tokens)
            recording.n_tokens += n
            if emission.is_first:
                moments[emission.key] = True
                recording.firsts.append((0.0, emission.since_arrival_s))
            elif n:
                recording.gaps_s += [emission.since_last_s / n] * n

        self._run(asked, seconds, heard)
        recording.n_open = len([one for one in asked if one.at_s < seconds]) - len(moments)
        self._engine.abort(lambda _: True, lambda _: None)
        self._engine.step()
        return recording

    def _run(self, asked: list[Asked], seconds: float, heard: Callable[[Emission], None]) -> None:
        self._heard = heard
        clock, coming = self._clock, 0
        began_s = clock()
        dice = random.Random(7)
        while (now_s := clock() - began_s) < seconds:
            while coming < len(asked) and asked[coming].at_s <= now_s:
                self._submit(asked[coming], dice)
                coming += 1
            clock.look()
            before_s = clock()
            if self._engine.step():
                took_s = clock() - before_s
                if self.steps.is_fitted and self.steps.last != (NOTHING, NOTHING):
                    self.steps.fitted.append((*self.steps.last, took_s))
                self.steps.last = (NOTHING, NOTHING)
            elif coming < len(asked):
                clock.skip(asked[coming].at_s - now_s)
            else:
                break
        self._heard = lambda _: None

    def _submit(self, one: Asked, dice: random.Random) -> None:
        prompt = tuple(dice.randrange(300, 10_000) for _ in range(one.prompt_tokens))
        self._engine.submit(
            Generation(
                id=f"{dice.random()}",
                prompt=prompt,
                max_tokens=one.answer_tokens,
                choice=GREEDY,
                ignore_end=True,
                owner=Owner(salt=f"{dice.random()}"),
            )
        )


def fit(steps: list[tuple[Work, Work, float]]) -> tuple[Callable[[Work, Work], float], float]:
    """A step's seconds by its work, least squares on the relative error; terms below 0 are left
    out. With the middle error."""
    rows = np.array([_terms(decodes, prefill) for decodes, prefill, _ in steps])
    took = np.array([took_s for _, _, took_s in steps])
    kept = list(range(rows.shape[1]))
    while True:
        found = np.linalg.lstsq(rows[:, kept] / took[:, None], np.ones(len(took)), rcond=None)[0]
        if (found >= 0).all():
            break
        kept = [one for one, value in zip(kept, found, strict=True) if value >= 0]
    values = np.zeros(rows.shape[1])
    values[kept] = found
    error = float(np.median(np.abs(rows @ values / took - 1)))
    return lambda decodes, prefill: float(np.dot(_terms(decodes, prefill), values)), error


def _terms(decodes: Work, prefill: Work) -> list[float]:
    return [
        1.0,
        decodes.n_tokens,
        prefill.n_tokens,
        decodes.n_attended + prefill.n_attended,
        decodes.n_scanned + prefill.n_scanned,
        float(prefill.n_tokens > 0),
    ]


def compare(percent: int, seen: Recording, told: Recording, in_time_s: float) -> None:
    """Prints what was seen beside what was predicted."""
    print(f"\n{percent} % of its capacity, {seen.seconds:.0f} s: seen, predicted, off by")
    rows = [
        ("first token p50", seen.first_s(50), told.first_s(50)),
        ("first token p95", seen.first_s(95), told.first_s(95)),
        ("gap p50", seen.gap_s(50), told.gap_s(50)),
        ("gap p95", seen.gap_s(95), told.gap_s(95)),
        ("tokens/s", seen.tokens_per_s, told.tokens_per_s),
    ]
    if percent > 100:  # the line only grows: how fast, and who is in time
        rows = [
            *rows[2:],
            ("waiting at the end", seen.n_open, told.n_open),
            (f"within {in_time_s:.0f} s", seen.within(in_time_s), told.within(in_time_s)),
        ]
    for name, one, other in rows:
        off = other / one - 1 if one else 0.0
        verdict = "" if abs(off) <= WITHIN else f"   more than {WITHIN:.0%}"
        print(f"{name:20} {one:10.3f} {other:10.3f} {off:+8.1%}{verdict}")
