"""The ladder: what is given up in an overload, one rung at a time, so that paid work never waits.

A rung is taken and left by the load that there would be without it. By the load that is left, a
rung that helps takes away its own reason, and the ladder steps up and down every ten seconds.
It is taken at once, and left only after a calm: chance makes a load low for a moment, not for long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from tertulia.core.choice import AUTO
from tertulia.core.load import Load, PerRung
from tertulia.core.plans import Plan
from tertulia.core.types import Limits

# What each rung adds to those below it; they are counted from 0, which is always in force.
RUNGS: Final = ("paid_first", "free_to_small", "free_is_short", "free_is_refused")
TOP: Final = len(RUNGS) - 1
# The load without a rung at which it is taken. Paid work comes first at any load: these say how
# early the others are spared a wait.
UP: Final = (0.85, 0.92, 0.97)
# A rung is left only well below its line: figures vary by chance.
GAP: Final = 0.07
# Those of a small fleet vary more: its gap is three and a half times what the load of so many
# replies usually varies by (were their lengths as uneven as those of memoryless ones). An hour has
# about three hundred loads that chance makes anew, and in one of fifteen hours one is so far off.
CHANCES: Final = 3.5
UNEVENNESS: Final = 2.0
# The load must have been below the gap for so long, and for so many times as figures are averaged
# over: of loads at the very edge of the gap, chance keeps one in a hundred there.
CALM_S: Final = 60.0
CALM_TIMES: Final = 3.0
# The widest is as good as any: with it even a ladder that looks at the load that is left changes
# less than twice an hour.
WIDEST_GAP: Final = 0.25
# No two steps are closer: each must have taken effect before the next.
STEP_S: Final = 10.0
# What rung 2 leaves of an answer: two to three paragraphs.
SHORT_TOKENS: Final = 300
# Whoever can't start within this on the last rung is told so at once.
START_S: Final = 2.0
# From rung 2 on a reply to nobody ends so soon: a page that reloads is back in time.
ALONE_S: Final = 5.0

# The notices of a reply that the ladder acted on.
SMALL_NOTICE: Final = "ladder_small"
SHORT_NOTICE: Final = "ladder_short"


@dataclass(frozen=True, slots=True)
class Foothold:
    """Which rung holds, for how long by the clock of whoever keeps it, and how often it changed."""

    rung: int = 0
    held_s: float = 0.0
    changes: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """What the turns of a plan get while a rung holds. Plans that the ladder spares get all."""

    rung: int
    plan: Plan

    @property
    def answer_tokens(self) -> int:
        """The longest answer."""
        longest = self.plan.answer_tokens
        return min(longest, SHORT_TOKENS) if self._gives_up(2) else longest

    def shortened(self, wanted_tokens: int) -> tuple[int, tuple[str, ...]]:
        """An answer of so many tokens as it may be, and the notice if the ladder shortens it."""
        allowed = min(wanted_tokens, self.plan.answer_tokens)
        if self.answer_tokens < allowed:
            return self.answer_tokens, (SHORT_NOTICE,)
        return allowed, ()

    @property
    def goes_to_small(self) -> bool:
        """Whether the small model answers, whatever the question needs."""
        return self._gives_up(1)

    def may_overflow(self, requested: str) -> bool:
        """Whether the small model may answer in place of one that has no room in time. Who asked
        for a model by its name is told when to come back, unless the ladder may act on the plan."""
        return requested == AUTO or self.plan.ladder

    @property
    def may_be_canned(self) -> bool:
        """Whether a ready reply may be given to who would be refused."""
        return self._gives_up(TOP)

    @property
    def starts_within_s(self) -> float:
        """Whoever would wait for longer is refused at the door."""
        longest = self.plan.wait_s
        return min(longest, START_S) if self._gives_up(TOP) else longest

    @property
    def abandon_s(self) -> float | None:
        """How long a reply goes on with nobody following it; None is for ever."""
        longest = self.plan.abandon_s
        if not self._gives_up(2):
            return longest
        return ALONE_S if longest is None else min(longest, ALONE_S)

    @property
    def limits(self) -> Limits:
        """What the admitting transaction checks, and a turn keeps."""
        return replace(self.plan.limits, abandon_s=self.abandon_s)

    def _gives_up(self, rung: int) -> bool:
        return self.plan.ladder and self.rung >= rung


@dataclass(frozen=True, slots=True)
class Calm:
    """For how long the load without each rung has been so low that the rung may be left."""

    low_s: PerRung = (0.0, 0.0, 0.0)

    def after(self, load: Load | None, passed_s: float) -> Calm:
        """What there is of it `passed_s` later. A load that is not known, or may be higher than it
        seems, ends it."""
        assert passed_s >= 0.0, passed_s
        if load is None or not load.is_whole:
            return Calm()
        gap = gap_of(load.n_replies)
        first, second, third = (
            low_s + passed_s if load.on_rung[rung] < UP[rung] - gap else 0.0
            for rung, low_s in enumerate(self.low_s)
        )
        return Calm((first, second, third))


def wanted_rung(rung: int, load: Load | None, calm: Calm) -> int:
    """The rung to be on, one step from `rung` at most; `calm` is as it is after `load`. A load that
    is not known changes nothing."""
    assert 0 <= rung <= TOP, rung
    if load is None:
        return rung
    if rung < TOP and load.on_rung[rung] >= UP[rung]:
        return rung + 1
    if rung > 0 and calm.low_s[rung - 1] >= max(CALM_S, CALM_TIMES * load.averaged_s):
        return rung - 1
    return rung


def may_step(foothold: Foothold, *, seen: Foothold, to: int) -> bool:
    """Whether a step that was decided on what was `seen` is still one: nobody else took it
    meanwhile, the last is long enough ago, and it is to the next rung."""
    is_as_seen = (foothold.rung, foothold.changes) == (seen.rung, seen.changes)
    is_next = 0 <= to <= TOP and abs(to - foothold.rung) == 1
    return is_as_seen and is_next and foothold.held_s >= STEP_S


def gap_of(n_known: float) -> float:
    """How far below its line a load that is reckoned from so many replies must be for a rung to be
    left."""
    assert n_known >= 0, n_known
    varies_by = math.sqrt(UNEVENNESS / max(1.0, n_known))
    return min(WIDEST_GAP, max(GAP, CHANCES * varies_by))
