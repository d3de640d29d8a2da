"""A scenario that plays: regions, people who ask, faults and what scales, under one virtual clock.

It is exact: every message goes through the service's own decisions, one after the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from tertulia.simulator.budgets import Budgets
from tertulia.simulator.cell import Cell, home_of
from tertulia.simulator.clock import Clock
from tertulia.simulator.faults import plan_faults
from tertulia.simulator.outcome import SAMPLES, Flow, Outcome, Sample
from tertulia.simulator.people import Crowd, Message
from tertulia.simulator.scaling import Scaler
from tertulia.simulator.scenario import Scenario
from tertulia.simulator.traffic import Arrival, Rate, gaps, rate_of, trace_of

# A client that finds its gateway gone tries another after so long.
RETRY_S: Final = 1.0
# Whoever was in a region that is lost asks again elsewhere, once names lead there.
MOVED_S: Final = 5.0
# Samples are no closer: a look at a run costs more than a message.
_CLOSEST_S: Final = 1.0


def play(scenario: Scenario, seen: Callable[[Sample], None] | None = None) -> Outcome:
    """How the scenario goes; `seen` is given each look at it while it goes."""
    return World(scenario, seen).play()


class World:
    """All regions, and everybody who asks."""

    def __init__(self, scenario: Scenario, seen: Callable[[Sample], None] | None = None) -> None:
        self.scenario = scenario
        self._seen = seen
        self.clock = Clock()
        self.outcome = Outcome()
        # The share of gateways that is gone: whoever meets one tries another.
        self.gateways_lost = 0.0
        budgets = Budgets() if scenario.policy.budgets else None
        self.cells = [
            Cell(scenario, self.clock, self.outcome, self.dice(f"cell {n}"), budgets, n)
            for n in range(scenario.fleet.regions)
        ]
        self._crowd = Crowd(scenario, self.dice("people"))
        self._dice = self.dice("world")
        self._scalers: list[Scaler] = []
        self._counted = (0.0, 0.0)
        self._sampled = (0.0, 0.0)

    def dice(self, name: str) -> random.Random:
        """Dice of their own for each use: a change of one leaves the others as they are."""
        return random.Random(f"{self.scenario.seed} {name}")

    def play(self) -> Outcome:
        """All of it."""
        scenario, clock = self.scenario, self.clock
        self._plan_traffic()
        plan_faults(self)
        if scenario.scaling.kind != "fixed":
            for cell in self.cells:
                self._scale(cell)
        clock.at(scenario.warm_s, self._begin_counting)
        clock.every(max(_CLOSEST_S, scenario.seconds / SAMPLES), self._sample)
        clock.run(scenario.seconds)
        for cell in self.cells:
            for message in cell.line.left():
                message.after = None
                cell.time_out(message)
        busy_s, there_s = self._used()
        paid_s = sum(scaler.paid_s for scaler in self._scalers)
        self.outcome.paid_s = paid_s if self._scalers else there_s
        self.outcome.accelerator_s = there_s - self._counted[1]
        self.outcome.busy = (busy_s - self._counted[0]) / max(1e-9, self.outcome.accelerator_s)
        return self.outcome

    def ask(self, message: Message) -> None:
        """A message comes, to a gateway of the region that its owner belongs to."""
        if self.gateways_lost and self._dice.random() < self.gateways_lost:
            self.clock.at(self.clock.now + RETRY_S, lambda: self._arrive(message))
        else:
            self._arrive(message)

    def leave(self, cell: Cell) -> None:
        """A region is lost: its people ask again where there is one."""
        for message in cell.leave():
            message.at = self.clock.now + MOVED_S
            message.tries = max(1, message.tries)
            self.clock.at(message.at, lambda message=message: self._arrive(message))  # type: ignore[misc]  # bound at once

    def _arrive(self, message: Message) -> None:
        cell = self.cells[self._region_of(message.owner)]
        cell.ask(message)

    def _region_of(self, owner: int) -> int:
        n_regions = len(self.cells)
        home = home_of(owner, n_regions)
        if self.cells[home].size:
            return home
        there = [cell.region for cell in self.cells if cell.size]
        return there[home_of(owner * 17 + 3, len(there))] if there else home

    # Traffic.

    def _plan_traffic(self) -> None:
        traffic = self.scenario.traffic
        if traffic.kind == "burst":
            self.clock.at(traffic.at_s, self._burst)
        elif traffic.kind == "trace":
            self._follow(trace_of(traffic))
        elif traffic.kind == "conversations":
            for owner in range(1, traffic.n + 1):
                self._converse(owner)
        else:
            rate = rate_of(traffic)
            gap = gaps(traffic, self.dice("arrivals"))
            self._come(rate, gap)

    def _come(self, rate: Rate, gap: Callable[[], float]) -> None:
        n_regions = len(self.cells)

        def come() -> None:
            self._come(rate, gap)
            self.ask(self._crowd.message(self.clock.now))

        # One after the other: each gap is as long as the rate of its beginning says.
        self.clock.at(self.clock.now + gap() / (rate(self.clock.now) * n_regions), come)

    def _burst(self) -> None:
        for _ in range(self.scenario.traffic.n):
            self.ask(self._crowd.message(self.clock.now))

    def _follow(self, trace: Iterator[Arrival]) -> None:
        arrival = next(trace, None)
        if arrival is None:
            return
        people = self.scenario.people

        def come() -> None:
            self._follow(trace)
            message = self._crowd.message(self.clock.now)
            message.prompt_tokens = arrival.prompt_tokens
            message.answer_tokens = arrival.answer_tokens
            cached = arrival.cached_tokens
            if cached is None:  # the trace does not say: the share that people usually find
                share = people.cached_tokens / people.prompt_tokens
                cached = int(share * arrival.prompt_tokens)
            message.cached_tokens = cached
            self.ask(message)

        self.clock.at(arrival.at_s, come)

    def _converse(self, owner: int) -> None:
        """Somebody thinks, asks, reads the answer, and thinks again; now and then it is about
        something else. A conversation that outgrows its window is cut to half of it at once."""
        traffic, people = self.scenario.traffic, self.scenario.people
        dice = self._dice
        name = self._crowd.plan_of(owner)
        new = people.prompt_tokens - people.cached_tokens
        window = self.scenario.plan(name).window_tokens
        state = {"known": people.cached_tokens}

        def think() -> None:
            self.clock.at(self.clock.now + dice.expovariate(1 / traffic.think_s), say)

        def say() -> None:
            message = self._crowd.of(self.clock.now, name, owner=owner)
            if dice.random() < 1 / traffic.turns:
                state["known"] = 0
            message.prompt_tokens = state["known"] + new
            message.cached_tokens = state["known"]
            if message.prompt_tokens + message.answer_tokens > window:
                message.prompt_tokens = window // 2
                message.cached_tokens = 0
            state["known"] = message.prompt_tokens + message.answer_tokens
            message.after = think
            self.ask(message)

        think()

    def _scale(self, cell: Cell) -> None:
        scaler = Scaler(self.scenario)
        self._scalers.append(scaler)
        cell.resize(scaler.first)

        def look() -> None:
            busy_s, _ = cell.used
            waiting = cell.line.n_waiting
            size = scaler.look(self.clock.now, size=cell.size, busy_s=busy_s, waiting=waiting)
            if size != cell.size:
                cell.resize(size)

        self.clock.every(self.scenario.scaling.every_s, look)

    # What is seen.

    def _used(self) -> tuple[float, float]:
        pairs = [cell.used for cell in self.cells]
        return sum(busy for busy, _ in pairs), sum(there for _, there in pairs)

    def _begin_counting(self) -> None:
        self._counted = self._used()

    def _sample(self) -> None:
        flow = _drained(self.cells)
        now = self.clock.now
        before = self.outcome.samples[-1].at if self.outcome.samples else 0.0
        seconds = max(1e-9, now - before)
        used = self._used()
        there_s = used[1] - self._sampled[1]
        loads = [cell.watch.load for cell in self.cells if cell.watch.load is not None]
        fullest = max(loads, key=lambda load: load.on_rung[0], default=None)
        rung = max(cell.ladder.rung for cell in self.cells)
        self.outcome.samples.append(
            Sample(
                at=now,
                asked_per_s=flow.n_asked / seconds,
                begun_per_s=flow.n_begun / seconds,
                refused_per_s=flow.n_refused / seconds,
                timed_out_per_s=flow.n_timed_out / seconds,
                waiting=sum(cell.line.n_waiting for cell in self.cells),
                busy=(used[0] - self._sampled[0]) / there_s if there_s else 0.0,
                rung=rung,
                load=fullest.on_rung[0] if fullest else 0.0,
                seen=fullest.on_rung[min(2, rung)] if fullest else 0.0,
                accelerators=sum(cell.size for cell in self.cells),
                wait_s=flow.waited_s / max(1, flow.n_begun),
                cold=flow.n_cold / max(1, flow.n_begun),
            )
        )
        self._sampled = used
        if self._seen is not None:
            self._seen(self.outcome.samples[-1])


def _drained(cells: list[Cell]) -> Flow:
    """What all have done since the last look."""
    total = Flow()
    for cell in cells:
        flow, cell.flow = cell.flow, Flow()
        total.n_asked += flow.n_asked
        total.n_begun += flow.n_begun
        total.n_refused += flow.n_refused
        total.n_timed_out += flow.n_timed_out
        total.n_cold += flow.n_cold
        total.waited_s += flow.waited_s
    return total
