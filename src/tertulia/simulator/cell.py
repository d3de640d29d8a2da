"""One region: its accelerators, the line before them, its door and its ladder.

Every decision is the service's own (`core`); here are only machines. It must never look ahead.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tertulia.core.choice import AUTO, SMALL, Choice, Wish, choose_model
from tertulia.core.ladder import Terms
from tertulia.core.liveness import GONE_S
from tertulia.core.load import Slot
from tertulia.core.quota import Reservation
from tertulia.core.returns import Returns
from tertulia.core.types import Lane, ModelState, Reason, TooManyRunning, Usage
from tertulia.simulator.budgets import Budgets
from tertulia.simulator.clock import Clock
from tertulia.simulator.line import Line
from tertulia.simulator.outcome import Flow, Outcome
from tertulia.simulator.people import Message, spread
from tertulia.simulator.scenario import Scenario
from tertulia.simulator.warmth import Warmth
from tertulia.simulator.watch import LOOK_S, Watch, ladder_of

LARGE: Final = "large"
# As often as a gateway looks at its line.
_LINE_S: Final = 1.0
# Nobody comes back more often than this; most give up sooner.
MOST_TRIES: Final = 5


@dataclass(slots=True, eq=False)
class Reply:
    """An answer that is being made. `run` counts the accelerators that it was on."""

    message: Message
    slot: Slot
    begun_at: float
    seconds: float
    run_at: float
    left_s: float
    run: int = 0


class Cell:
    """Invariant: nobody who could begin waits: after each event no accelerator is free or nobody
    waits. `size` accelerators are there, of which `n_busy` work."""

    def __init__(
        self,
        scenario: Scenario,
        clock: Clock,
        outcome: Outcome,
        dice: random.Random,
        budgets: Budgets | None,
        region: int,
    ) -> None:
        policy = scenario.policy
        self.scenario, self.region = scenario, region
        self.size = scenario.fleet.accelerators
        self.n_busy = 0
        self.flow = Flow()
        self.line = Line(is_fair=policy.fair, by_pool=policy.estimate == "pool")
        self.watch = Watch()
        self.ladder = ladder_of(policy.ladder, policy.plain_gap)
        self.warmth = Warmth()
        self.is_store_lost = False
        self._clock, self._outcome, self._dice = clock, outcome, dice
        self._budgets = budgets
        self._returns: dict[tuple[Lane, int], Returns] = {}
        self._running: dict[int, Reply] = {}
        self._interrupted: deque[Reply] = deque()
        self._n_replies = 0
        self._choices = choices()
        self._timing = {LARGE: scenario.fleet.large.timing, SMALL: scenario.fleet.small.timing}
        self._counted_at = 0.0
        self._busy_s = self._there_s = self._looked_busy_s = self._looked_there_s = 0.0
        clock.every(_LINE_S, lambda: self.line.look(clock.now, n_slots=self.size))
        clock.every(LOOK_S, self._look)

    # The door.

    def ask(self, message: Message) -> None:
        """Lets the message in, or sends its owner away."""
        fate = self._outcome.group(message.group)
        if not message.tries:
            self.flow.n_asked += 1
            fate.n += message.counts
        terms = Terms(self.ladder.rung, message.plan)
        if self.scenario.policy.door and not self._may_join(message, terms):
            return
        message.answer_tokens, notices = terms.shortened(message.answer_tokens)
        message.is_short = bool(notices)
        if self._budgets is not None and not self._reserve(message, self._budgets):
            return
        fate.n_came_back += message.counts and message.tries > 0
        self.line.join(message)
        self._begin_next()

    def _may_join(self, message: Message, terms: Terms) -> bool:
        if self.n_busy < self.size:
            return True
        now, limit_s = self._clock.now, terms.starts_within_s
        n_slots = max(1, self.size)
        wait_s = self.line.wait_s(message.lane, now, n_slots)
        if not self.scenario.policy.returns:
            if wait_s <= limit_s:
                return True
            self._refuse(message, None)
            return False
        gateway = self._dice.randrange(self.scenario.fleet.gateways) if self.is_store_lost else 0
        per_s = self.line.starts_per_s(message.lane, now, n_slots)
        returns = self._returns.setdefault((message.lane, gateway), Returns())
        back_s = returns.ask(
            str(message.owner),
            now,
            wait_s=wait_s,
            limit_s=limit_s,
            kept_s=message.plan.wait_s,
            starts_per_s=per_s,
        )
        if back_s is not None:
            self._refuse(message, back_s)
        return back_s is None

    def _refuse(self, message: Message, back_s: float | None) -> None:
        self.watch.refused()
        self.flow.n_refused += 1
        fate = self._outcome.group(message.group)
        if not message.tries:
            fate.n_refused += message.counts
        message.tries += 1
        if back_s is None or message.tries > MOST_TRIES:
            _over(message)
            return
        # Clients wait for whole seconds, and a little more.
        again_at = self._clock.now + -(-back_s // 1) + self._dice.random()

        def again() -> None:
            message.at = self._clock.now
            self.ask(message)

        self._clock.at(again_at, again)

    def _reserve(self, message: Message, budgets: Budgets) -> bool:
        now = self._clock.now
        found = budgets.reserve(
            str(message.number),
            message.owner,
            message.plan,
            prompt=message.prompt_tokens,
            answer=message.answer_tokens,
            now=now,
        )
        if isinstance(found, Reservation):
            self._outcome.group(message.group).n_capped += message.counts and found.capped
            message.answer_tokens = found.answer_tokens
            return True
        self._outcome.group(message.group).n_over_budget += message.counts
        if not isinstance(found, TooManyRunning) and found.resets_at is not None:
            soonest = self._outcome.figures.setdefault("retry_s", found.resets_at - now)
            self._outcome.figures["retry_s"] = min(soonest, found.resets_at - now)
        _over(message)
        return False

    # The accelerators.

    def resize(self, size: int) -> None:
        """So many accelerators are there from now on; what runs on one that goes ends there."""
        self._count()
        self.size = max(0, size)
        self._begin_next()

    def lose(self, n: int) -> list[Reply]:
        """So many accelerators are gone at once; the replies on them, which go on elsewhere."""
        self._count()
        n = min(n, self.size)
        n_hit = round(len(self._running) * n / self.size) if self.size else 0
        hit = self._dice.sample(sorted(self._running), n_hit)
        self.size -= n
        return [self._interrupt(number) for number in hit]

    def go_on(self, reply: Reply) -> None:
        """An interrupted reply goes on: before all who wait, as its turn was claimed already."""
        self._interrupted.append(reply)
        self._begin_next()

    def notice(self, replies: list[Reply]) -> None:
        """Interrupted replies go on here as soon as it is noticed that their replica is gone."""
        for reply in replies:
            self._clock.at(self._clock.now + GONE_S, lambda reply=reply: self.go_on(reply))  # type: ignore[misc]  # bound at once

    def leave(self) -> list[Message]:
        """The whole region goes: all who waited, or whose reply ran, are without an answer. What
        became of the latter is counted: they had begun."""
        replies, messages = self.lose(self.size), list[Message]()
        self.size = 0
        for reply in [*replies, *self._interrupted]:
            self.line.ended(reply.message.lane)
            self.watch.ended(reply.slot, self._clock.now, reply.seconds)
            self._outcome.group(reply.message.group).n_paused += reply.message.counts
            reply.message.counts = False
            messages.append(reply.message)
        self._interrupted.clear()
        return messages + self.line.left()

    def _interrupt(self, number: int) -> Reply:
        reply = self._running.pop(number)
        now = self._clock.now
        reply.left_s = max(0.0, reply.left_s - (now - reply.run_at))
        reply.run_at = now
        reply.run += 1
        self.n_busy -= 1
        return reply

    def _begin_next(self) -> None:
        while self.n_busy < self.size:
            if self._interrupted:
                self._continue(self._interrupted.popleft())
                continue
            message = self.line.first()
            if message is None:
                return
            if self._is_too_late(message):
                if self.scenario.policy.drops_dead:
                    continue
                message.counts = False  # it was counted as what it is; now it only takes time
            self._begin(message)

    def _is_too_late(self, message: Message) -> bool:
        waited_s = self._clock.now - message.at
        fate = self._outcome.group(message.group)
        if waited_s <= self.scenario.people.patience_s:
            self.flow.waited_s += waited_s
            if message.counts:
                fate.waits_s.append(waited_s)
                fate.n_begun += 1
                self._outcome.longest_wait_s = max(self._outcome.longest_wait_s, waited_s)
            return False
        self.time_out(message)
        return True

    def time_out(self, message: Message) -> None:
        """Its owner has left."""
        self.flow.n_timed_out += 1
        self._outcome.group(message.group).n_timed_out += message.counts
        if self._budgets is not None:
            self._budgets.settle(
                str(message.number), message.owner, message.plan, Usage(), self._clock.now
            )
        _over(message)

    def _begin(self, message: Message) -> None:
        now, fate = self._clock.now, self._outcome.group(message.group)
        terms = Terms(self.ladder.rung, message.plan)
        choice = self._choices[message.is_easy, terms.goes_to_small]
        model = choice.model.name
        if self.warmth.is_cold(message.owner, now, is_at_home=self._is_home_of(message.owner)):
            message.cached_tokens = 0
            self.flow.n_cold += 1
            self._outcome.n_cold += message.counts
        seconds = self._timing[model].seconds(
            new_tokens=message.prompt_tokens - message.cached_tokens,
            answer_tokens=message.answer_tokens,
        )
        home = LARGE if choice.reason is Reason.LADDER else model
        slot = Slot(model, home, message.plan.ladder, message.is_short)
        fate.n_small += message.counts and model == SMALL
        fate.n_short += message.counts and message.is_short
        self.flow.n_begun += 1
        self.line.began(message.lane)
        self.watch.began(slot, now)
        self._run(Reply(message, slot, now, seconds, now, seconds))

    def _continue(self, reply: Reply) -> None:
        """Its prompt and what it has said are read anew."""
        message = reply.message
        share = 1.0 - reply.left_s / reply.seconds if reply.seconds else 0.0
        said = round(share * message.answer_tokens)
        timing = self._timing[reply.slot.model]
        reading_s = timing.read_s * (message.prompt_tokens + said)
        if message.counts:
            self._outcome.group(message.group).n_paused += 1
            self._outcome.pauses_s.append(self._clock.now - reply.run_at + reading_s)
        reply.left_s += reading_s
        reply.run_at = self._clock.now
        self._run(reply)

    def _run(self, reply: Reply) -> None:
        self._count()
        self.n_busy += 1
        self._n_replies += 1
        number, run = self._n_replies, reply.run
        self._running[number] = reply

        def end() -> None:
            if reply.run == run and self._running.pop(number, None) is not None:
                self._end(reply)

        self._clock.at(self._clock.now + reply.left_s, end)

    def _end(self, reply: Reply) -> None:
        self._count()
        self.n_busy -= 1
        message, now = reply.message, self._clock.now
        self.line.ended(message.lane)
        self.watch.ended(reply.slot, now, now - reply.begun_at)
        if self._budgets is not None:
            usage = Usage(message.prompt_tokens, message.cached_tokens, message.answer_tokens)
            self._budgets.settle(str(message.number), message.owner, message.plan, usage, now)
        self._begin_next()
        _over(message)

    def _is_home_of(self, owner: int) -> bool:
        return home_of(owner, self.scenario.fleet.regions) == self.region

    # What is seen.

    def _look(self) -> None:
        self._count()
        now = self._clock.now
        there_s = self._there_s - self._looked_there_s
        busy = (self._busy_s - self._looked_busy_s) / there_s if there_s > 0 else 1.0
        self._looked_busy_s, self._looked_there_s = self._busy_s, self._there_s
        load = self.watch.look(now, waiting=self.line.n_waiting, n_slots=self.size)
        self._outcome.most_waiting = max(self._outcome.most_waiting, self.line.n_waiting)
        if not self.is_store_lost and self.ladder.look(now, load, busy):
            self._outcome.steps.append((now, self.ladder.rung, self.region))

    @property
    def used(self) -> tuple[float, float]:
        """Accelerator-seconds that were used, and that were there, up to now."""
        self._count()
        return self._busy_s, self._there_s

    def _count(self) -> None:
        passed_s = self._clock.now - self._counted_at
        self._counted_at = self._clock.now
        self._busy_s += self.n_busy * passed_s
        self._there_s += max(self.size, self.n_busy) * passed_s


def home_of(owner: int, n_regions: int) -> int:
    """The region that an owner belongs to."""
    # Other bits than those that say whose caches are lost.
    return int(spread(owner * 31 + 7) * n_regions)


def _over(message: Message) -> None:
    after: Callable[[], None] | None = message.after
    if after is not None:
        after()


def choices() -> dict[tuple[bool, bool], Choice]:
    """Who answers an easy question or a hard one, with and without the ladder's word."""
    # In one pool a model has room as long as the pool has: what waits, waits in the line.
    models = [ModelState(name, name, "ready", room=1) for name in (LARGE, SMALL)]
    found = {}
    for is_easy in (True, False):
        for is_lowered in (True, False):
            lowered = Reason.LADDER if is_lowered else None
            choice = choose_model(Wish(AUTO, easy=is_easy, lowered=lowered), models)
            assert choice is not None
            found[is_easy, is_lowered] = choice
    return found
