"""The simulator beside the embedded engine: the same requests, first played, then predicted.

`python -m bench replay [--seconds 300]` fits how long a step takes to two loads, and compares the
prediction on three others: 50, 80 and 120 % of what the engine can. It needs the small model. Time
is counted in CPU seconds of one thread, and what is idle is skipped. Other processes make a CPU
second worth less, for minutes at a time: so all five loads are played side by side, each on an
engine of its own, a little of each in turn, and each has as much of that as the others.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

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

Numbers = npt.NDArray[np.float64]

GREEDY = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)
N_SLOTS, N_ANCHORS, N_CACHE, BATCH, TARGET_S = 8, 64, 16_384, 256, 0.03
FIT_PERCENT = (35, 65)
SHOWN_PERCENT = (50, 80, 120)
IN_TIME = 10  # times what half the load waits in the middle: beyond that a first token is late
WITHIN = 0.15
SLICE_S = 1.0  # of a load, then the next one's turn
ROUNDS = 4  # of the fit: the third changes nothing that matters
# Tokens, evenly: two are read for each that is written. They are few so that requests are many:
# the slowest twentieth of a hundred is what befell five of them.
PROMPT, ANSWER = (10, 110), (10, 50)


@dataclass
class Steps:
    """Of each step its decodes, its prefill, and how long it took in all."""

    seen: list[tuple[Work, Work, float]] = field(default_factory=list)
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
    asked.add_argument("--seconds", type=float, default=300.0, help="of each load")
    options = asked.parse_args(given)
    folder = load_settings(None).models_folder / "small"
    capacity = Machine(folder).capacity(options.seconds / 3)
    print(f"the engine can about {capacity:.2f} requests/s of this kind", flush=True)
    fitted, shown = played(folder, capacity, options.seconds)
    steps = [step for load in fitted for step in load.machine.steps.seen]
    fitted_steps = FittedSteps(steps)
    print(f"{len(steps):,} steps fitted, middle error {fitted_steps.middle_error:.1%}")
    in_time_s = IN_TIME * shown[0].recording.first_s(50)
    for load in shown:
        machine = load.machine
        told = replay(
            load.asked,
            fitted_steps.drawn(seed=1),
            bounds=machine.bounds.steps,
            limits=machine.bounds.cache,
            cost=machine.cost,
            seconds=options.seconds,
        )
        compare(load.percent, load.recording, told, in_time_s)


@dataclass
class Load:
    """Requests, the engine that they are played on, and what clients saw."""

    percent: int
    asked: list[Asked]
    machine: Machine
    recording: Recording


def played(folder: Path, capacity: float, seconds: float) -> tuple[list[Load], list[Load]]:
    """The loads that are fitted and those that are compared, played side by side."""
    loads = []
    for number, percent in enumerate((*FIT_PERCENT, *SHOWN_PERCENT)):
        asked = requests(capacity * percent / 100, seconds, 10 + number)
        loads.append(Load(percent, asked, Machine(folder), Recording(seconds=seconds)))
    playing = [load.machine.play(load.asked, load.recording) for load in loads]
    while playing:
        playing = [one for one in playing if next(one, None) is not None]
    return loads[: len(FIT_PERCENT)], loads[len(FIT_PERCENT) :]


def requests(per_s: float, seconds: float, seed: int) -> list[Asked]:
    """A Poisson stream of requests."""
    dice, at_s, found = random.Random(seed), 0.0, []
    while (at_s := at_s + dice.expovariate(per_s)) < seconds:
        found.append(Asked(at_s, dice.randint(*PROMPT), dice.randint(*ANSWER)))
    return found


class BusyClock:
    """CPU seconds of this process in which one engine was busy, and the time that was skipped."""

    def __init__(self) -> None:
        self._counted_s = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        running_s = 0.0 if self._since is None else time.process_time() - self._since
        return self._counted_s + running_s

    def run(self) -> None:
        """From now on this engine is the busy one."""
        self._since = time.process_time()

    def rest(self) -> None:
        """From now on another one is."""
        self._counted_s, self._since = self(), None

    def skip(self, seconds: float) -> None:
        """So much later at once."""
        self._counted_s += max(0.0, seconds)


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

        for _ in self._run(asked, seconds, heard):
            pass
        return max(0.01, n_tokens / seconds / (sum(ANSWER) / 2))

    def play(self, asked: list[Asked], recording: Recording) -> Iterator[float]:
        """Notes what clients see of these requests; yields the time after each slice."""
        firsts = set[int]()

        def heard(emission: Emission) -> None:
            n = len(emission.tokens)
            recording.n_tokens += n
            if emission.is_first:
                firsts.add(emission.key)
                recording.firsts.append((0.0, emission.since_arrival_s))
            elif n:
                recording.gaps_s += [emission.since_last_s / n] * n

        yield from self._run(asked, recording.seconds, heard)
        recording.n_open = len(asked) - len(firsts)

    def _run(
        self, asked: list[Asked], seconds: float, heard: Callable[[Emission], None]
    ) -> Iterator[float]:
        self._heard = heard
        clock, coming = self._clock, 0
        clock.run()
        began_s = slice_s = clock()
        dice = random.Random(7)
        while (now_s := clock() - began_s) < seconds:
            if clock() - slice_s >= SLICE_S:
                clock.rest()
                yield now_s
                clock.run()
                slice_s = clock()
            while coming < len(asked) and asked[coming].at_s <= now_s:
                self._submit(asked[coming], dice)
                coming += 1
            before_s = clock()
            if self._engine.step():
                took_s = clock() - before_s
                if self.steps.last != (NOTHING, NOTHING):
                    self.steps.seen.append((*self.steps.last, took_s))
                self.steps.last = (NOTHING, NOTHING)
            elif coming < len(asked):
                clock.skip(asked[coming].at_s - now_s)
            else:
                break
        clock.rest()

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


class FittedSteps:
    """A step's seconds by its work, least squares on the relative error; terms below 0 are left
    out.

    The error is relative to what the formula itself says, in a few rounds, and not to what was
    seen: that would count a slow step for less than a quick one, and with steps of one kind that
    differ by a fifth the sum of many came out a twenty-fifth too short.
    """

    def __init__(self, steps: list[tuple[Work, Work, float]]) -> None:
        rows = np.array([_terms(decodes, prefill) for decodes, prefill, _ in steps])
        took = np.array([took_s for _, _, took_s in steps])
        values = _least_squares(rows, took, took)
        for _ in range(ROUNDS):
            values = _least_squares(rows, took, rows @ values)
        self._values = values
        self._ratios: list[float] = (took / (rows @ values)).tolist()
        self.middle_error = float(np.median(np.abs(rows @ values / took - 1)))

    def drawn(self, *, seed: int) -> Callable[[Work, Work], float]:
        """Steps that differ from the formula as much as those seen did, by the same dice."""
        dice = random.Random(seed)

        def seconds(decodes: Work, prefill: Work) -> float:
            return float(np.dot(_terms(decodes, prefill), self._values)) * dice.choice(self._ratios)

        return seconds


def _least_squares(rows: Numbers, took: Numbers, scale: Numbers) -> Numbers:
    """Coefficients that are none below 0, with errors counted in parts of `scale`."""
    kept = list(range(rows.shape[1]))
    while True:
        found = np.linalg.lstsq(rows[:, kept] / scale[:, None], took / scale, rcond=None)[0]
        if (found >= 0).all():
            break
        kept = [one for one, value in zip(kept, found, strict=True) if value >= 0]
    values = np.zeros(rows.shape[1])
    values[kept] = found
    return values


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
