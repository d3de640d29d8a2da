"""A fleet under virtual time: routers with the service's own ledgers, engines, caches and people.

The same scene with the same seed always goes the same way. It reads no clock.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from tertulia.core.fleet import Home, Wanted
from tertulia.core.ledger import DispatchLedger
from tertulia.core.placement import Candidate
from tertulia.simulator.caching.caches import CACHES, Cache
from tertulia.simulator.caching.engine import NEVER, Engine, EngineBounds
from tertulia.simulator.caching.outcome import Outcome, Targets
from tertulia.simulator.caching.policies import POLICIES, Choice
from tertulia.simulator.caching.timing import ROOFLINE, EngineTiming
from tertulia.simulator.caching.turns import Turn

_MODEL: Final = "model"
# What happens, in the order in which it happens at the same moment.
_ENGINE, _REPORT, _ASK = range(3)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The machines and what is known of them. `slow` maps a replica's number to how many times as
    long its steps last. Each router counts what it sent itself; the rest it knows from reports."""

    replicas: int = 8
    cache_tokens: int = 10_000_000
    timing: EngineTiming = ROOFLINE
    bounds: EngineBounds = field(default_factory=EngineBounds)
    cache: str = "spans"
    routers: int = 1
    report_s: float = 0.25
    slow: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """What is measured: from `warm_s` on, for `measured_s`."""

    warm_s: float = 180.0
    measured_s: float = 240.0

    @property
    def ends_at(self) -> float:
        return self.warm_s + self.measured_s


class Traffic(Protocol):
    """Who asks. Keys of turns are given out by the stage."""

    def begin(self) -> Iterator[tuple[float, int]]:
        """When those who wait for nobody ask, and their numbers."""

    def ask(self, who: int, now: float, key: int, /) -> Turn:
        """What is asked now."""

    def after(self, who: int, now: float, turn: Turn, /) -> tuple[float, int] | None:
        """Who asks once this turn has been answered, and when."""


def play(
    fleet: Fleet,
    traffic: Traffic,
    policy: str,
    *,
    seed: int = 1,
    span: Span | None = None,
    targets: Targets | None = None,
) -> Outcome:
    """One run."""
    return _Stage(fleet, traffic, policy, seed, span or Span(), targets or Targets()).play()


class _Stage:
    """All that one run consists of. Invariant: `_open` are the turns asked and not ended."""

    def __init__(
        self,
        fleet: Fleet,
        traffic: Traffic,
        policy: str,
        seed: int,
        span: Span,
        targets: Targets,
    ) -> None:
        self._fleet = fleet
        self._traffic = traffic
        self._policy = POLICIES[policy]()
        self._dice = random.Random(f"policy {seed}")
        self._span = span
        self._names = [f"r{number}" for number in range(fleet.replicas)]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._engines = [self._engine(number) for number in range(fleet.replicas)]
        self._ledgers = [[DispatchLedger() for _ in self._names] for _ in range(fleet.routers)]
        self._held_shares = [0.0] * fleet.replicas
        # What each router sees of each replica; None: it has changed and is to be looked at.
        self._sights: list[list[Candidate | None]] = [
            [None] * fleet.replicas for _ in range(fleet.routers)
        ]
        self._homes: dict[str, Home] = {}
        self._open: dict[int, tuple[Turn, int]] = {}
        self._events: list[tuple[float, int, int]] = []
        self._n_turns = 0
        self._outcome = Outcome(span.measured_s, targets, turns_by_replica=[0] * fleet.replicas)

    def play(self) -> Outcome:
        """From the first question to the end of what is measured."""
        self._events = [(at, _ASK, who) for at, who in self._traffic.begin()]
        self._events.append((self._fleet.report_s, _REPORT, 0))
        heapq.heapify(self._events)
        while self._events and self._events[0][0] <= self._span.ends_at:
            now, what, whose = heapq.heappop(self._events)
            if what == _ENGINE:
                self._happen(whose, now)
            elif what == _ASK:
                self._ask(whose, now)
            else:
                self._report(now)
        self._outcome.n_late = sum(self._is_late(turn) for turn, _ in self._open.values())
        return self._outcome

    def _is_late(self, turn: Turn) -> bool:
        seen_at = turn.first_at or self._span.ends_at
        return seen_at - turn.asked_at > self._outcome.targets.ttft_s

    def _engine(self, number: int) -> Engine:
        fleet = self._fleet
        cache: Cache = CACHES[fleet.cache](fleet.cache_tokens)
        slowness = fleet.slow.get(number, 1.0)
        return Engine(fleet.timing, cache, fleet.bounds, slowness=slowness)

    def _ask(self, who: int, now: float) -> None:
        self._n_turns += 1
        turn = self._traffic.ask(who, now, self._n_turns)
        turn.router = self._n_turns % self._fleet.routers
        self._open[turn.key] = turn, who
        home = self._homes.get(turn.conversation)
        name = self._policy(self._choice(turn, home))
        turn.replica = self._numbers[name]
        turn.has_moved = home is not None and home.replica != name
        known = home.tokens if home is not None and home.replica == name else 0
        ledger = self._ledger(turn.router, turn.replica)
        ledger.dispatch(str(turn.key), max(0, turn.prompt - known), now)
        ledger.sent(str(turn.key), now)
        self._homes[turn.conversation] = Home(name, turn.prompt)
        engine = self._engines[turn.replica]
        before = engine.next_at
        engine.add(turn, now)
        self._schedule(turn.replica, before)

    def _choice(self, turn: Turn, home: Home | None) -> Choice:
        sights = self._sights[turn.router]
        candidates = [
            sight if sight is not None else self._look(turn.router, number)
            for number, sight in enumerate(sights)
        ]
        wanted = Wanted(str(turn.key), _MODEL, turn.conversation, turn.prompt)

        def known(name: str) -> int:
            return self._engines[self._numbers[name]].cache.known(turn.text, turn.prompt)

        shared_tokens = min(turn.prompt, turn.text.owner.n_shared)
        return Choice(wanted, home, candidates, self._dice.random(), known, shared_tokens)

    def _look(self, router: int, number: int) -> Candidate:
        ledger = self._ledgers[router][number]
        sight = self._sights[router][number] = Candidate(
            self._names[number],
            self._fleet.bounds.slots,
            running=ledger.running,
            owed_tokens=ledger.owed_tokens,
            prefill_per_s=ledger.prefill_per_s,
            gap_s=ledger.gap_s,
            cache_used_share=self._held_shares[number],
        )
        return sight

    def _ledger(self, router: int, number: int) -> DispatchLedger:
        """To be changed."""
        self._sights[router][number] = None
        return self._ledgers[router][number]

    def _happen(self, number: int, now: float) -> None:
        engine = self._engines[number]
        if engine.next_at != now:
            return  # an arrival has changed what happens next
        begun, ended = engine.happen()
        for turn in begun:
            self._ledger(turn.router, number).began(str(turn.key), now)
        for turn in ended:
            self._end(turn, number, now)
        self._schedule(number, NEVER)

    def _end(self, turn: Turn, number: int, now: float) -> None:
        _, who = self._open.pop(turn.key)
        ledger = self._ledger(turn.router, number)
        ledger.ended(str(turn.key))
        if turn.reply > 1:
            ledger.said(turn.gap_s)
        if self._homes.get(turn.conversation) is not None:
            self._homes[turn.conversation] = Home(self._names[number], turn.prompt + turn.reply)
        if self._span.warm_s <= now:
            self._outcome.count(turn)
        following = self._traffic.after(who, now, turn)
        if following is not None:
            self._push(following[0], _ASK, following[1])

    def _report(self, now: float) -> None:
        self._push(now + self._fleet.report_s, _REPORT, 0)
        for number, engine in enumerate(self._engines):
            self._held_shares[number] = engine.cache.held_share
            for router in range(self._fleet.routers):
                self._ledger(router, number).reported(
                    running=engine.n_running,
                    owed_tokens=engine.owed_tokens,
                    prefill_per_s=self._fleet.timing.prefill_per_s,
                    at=now,
                    now=now,
                )

    def _schedule(self, number: int, before: float) -> None:
        at = self._engines[number].next_at
        if at not in (before, NEVER):
            self._push(at, _ENGINE, number)

    def _push(self, at: float, what: int, whose: int) -> None:
        heapq.heappush(self._events, (at, what, whose))
