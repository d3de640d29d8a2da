"""One replica under virtual time: requests at their moments, steps by the engine's own scheduler.

How long a step takes is a formula that was fitted to steps of a machine; nothing else is invented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tertulia.core.blocks import Owner
from tertulia.core.costs import StepCost, Work
from tertulia.core.prefix import CacheLimits, PrefixCache
from tertulia.core.steps import Sequence as Running
from tertulia.core.steps import Step, StepBounds, StepScheduler
from tertulia.simulator.outcome import percentile

# More than any run that is replayed takes.
_MOST_STEPS: Final = 10_000_000
# Tokens of different requests differ, so that none finds another's prefix.
_APART: Final = 1_000_000

Machine = Callable[[Work, Work], float]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: when it comes, in seconds, and how many tokens its prompt and answer have."""

    at_s: float
    prompt_tokens: int
    answer_tokens: int


@dataclass(slots=True)
class Recording:
    """What clients of one replica saw: first tokens by the moment of asking, and all gaps."""

    firsts: list[tuple[float, float]] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    n_tokens: int = 0
    n_open: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """What all clients got together."""
        return self.n_tokens / self.seconds if self.seconds else 0.0

    def first_s(self, percent: int) -> float:
        """Until the first token, of so many of a hundred at most."""
        return percentile([first_s for _, first_s in self.firsts], percent)

    def gap_s(self, percent: int) -> float:
        """Between two tokens, of so many of a hundred at most."""
        return percentile(self.gaps_s, percent)

    def within(self, first_s: float) -> float:
        """The share of those asked whose first token came in time; who waits still has not."""
        n_asked = len(self.firsts) + self.n_open
        return sum(one <= first_s for _, one in self.firsts) / max(1, n_asked)


def replay(
    asked: Sequence[Asked],
    machine: Machine,
    *,
    bounds: StepBounds,
    limits: CacheLimits,
    cost: StepCost,
    seconds: float,
) -> Recording:
    """What clients would see of these requests within `seconds`; `cost` is what the scheduler
    believes of the machine at first."""
    run = _Run(asked, machine, StepScheduler(PrefixCache(limits), cost, bounds))
    for _ in range(_MOST_STEPS):
        if not run.step(seconds):
            break
    run.recording.seconds = seconds
    run.recording.n_open = sum(
        one.at_s < seconds and not found for one, found in zip(asked, run.has_begun, strict=True)
    )
    return run.recording


class _Run:
    """Invariant: every request before `_next` was given to the scheduler."""

    def __init__(self, asked: Sequence[Asked], machine: Machine, scheduler: StepScheduler) -> None:
        self.recording = Recording()
        self.has_begun = [False] * len(asked)
        self._asked, self._machine, self._scheduler = asked, machine, scheduler
        self._next = 0
        self._now = 0.0
        self._last: dict[int, float] = {}

    def step(self, until: float) -> bool:
        """One step, if there is one before `until`."""
        asked = self._asked
        while self._next < len(asked) and asked[self._next].at_s <= self._now:
            self._add(self._next)
            self._next += 1
        step = self._scheduler.next_step()
        if not step.batch:
            if step.moves:
                return True
            if self._next == len(asked):
                return False
            self._now = asked[self._next].at_s
            return self._now < until
        took_s = self._machine(step.decodes, step.prefill)
        self._now += took_s
        if self._now >= until:
            return False
        self._scheduler.computed(step, took_s)
        self._choose(step)
        return True

    def _add(self, key: int) -> None:
        one = self._asked[key]
        tokens = list(range(key * _APART, key * _APART + one.prompt_tokens))
        n_limit = one.prompt_tokens + one.answer_tokens
        owner = Owner(salt=str(key))
        self._scheduler.add(Running(key, lane=0, tokens=tokens, n_limit=n_limit, owner=owner))

    def _choose(self, step: Step) -> None:
        """The next token of each that has been computed whole."""
        for chunk in step.batch:
            sequence = self._scheduler.running[chunk.key]
            if sequence.n_left:
                continue
            one = self._asked[chunk.key]
            last = self._last.get(chunk.key)
            if last is None:
                self.has_begun[chunk.key] = True
                self.recording.firsts.append((one.at_s, self._now - one.at_s))
            else:
                self.recording.gaps_s.append(self._now - last)
            self._last[chunk.key] = self._now
            self.recording.n_tokens += 1
            sequence.tokens.append(0)
            if len(sequence.tokens) >= one.prompt_tokens + one.answer_tokens:
                del self._last[chunk.key]
                self._scheduler.end(chunk.key)
