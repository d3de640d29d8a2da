"""Whether a replica still lives, and who of a pool is so slow that it should rest.

Busy is not dead: tokens are the sign of life, whoever they are for. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Final, Literal

# A replica that was giving tokens and has given none for so many of its usual gaps is asked whether
# it lives, between these two times: sooner would ask at every long step, later would be noticed.
USUAL_GAPS: Final = 10
SOONEST_S: Final = 0.4
LATEST_S: Final = 0.8
# After so long without any sign, be it a token, a report or an answer, it is taken for dead. With
# what a continuation takes, readers then wait less than 2.5 s.
GONE_S: Final = 1.5
# One that answers, says that it runs something, and computes nothing of it, is stuck in a step.
STUCK_S: Final = 10.0
# Without any figures of its work, only a sequence that was forgotten is silent for so long.
FORGOTTEN_S: Final = 120.0
# One that was never begun may wait in an engine's own queue; no turn waits for longer before.
UNBEGUN_S: Final = 600.0

# A reader notices neither 20 nor 50 ms between tokens, whatever the others do.
SLOW_GAP_S: Final = 0.05
SLOW_TIMES: Final = 3.0
# A moment of slowness is anybody's: it must last so long without a break.
SLOW_S: Final = 0.7
# A slow one rests so long, then carries little until it has shown how fast it is now.
REST_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Signs:
    """Seconds since each sign of life; None: never seen, or not applicable.

    `silent_s` since the last token of any of our sequences that had begun, `heard_s` since it last
    answered or reported, `idle_s` since its own figures last moved while it had something to do.
    """

    silent_s: float | None
    usual_gap_s: float | None
    heard_s: float
    idle_s: float | None


def verdict(signs: Signs) -> Literal["alive", "ask", "stalled"]:
    """What to think of a replica that runs sequences of ours; "ask" means: for a sign, at once."""
    if signs.silent_s is None:
        return "alive"
    patience_s = min(LATEST_S, max(SOONEST_S, USUAL_GAPS * (signs.usual_gap_s or 0.0)))
    if signs.silent_s <= patience_s:
        return "alive"
    if signs.idle_s is None:
        is_stuck = signs.silent_s > FORGOTTEN_S
    else:
        is_stuck = min(signs.silent_s, signs.idle_s) > STUCK_S
    is_gone = min(signs.silent_s, signs.heard_s) > GONE_S
    return "stalled" if is_gone or is_stuck else "ask"


def is_forgotten(silent_s: float, *, has_begun: bool) -> bool:
    """Whether one sequence has been silent for so long that nothing will come of it, however well
    its replica is."""
    return silent_s > (FORGOTTEN_S if has_begun else UNBEGUN_S)


def slow_ones(gaps_s: Mapping[str, float]) -> frozenset[str]:
    """Those of a pool whose tokens come far slower than usual there: at most half of it."""
    if len(gaps_s) < 2:
        return frozenset()
    limit_s = max(SLOW_GAP_S, SLOW_TIMES * median_low(gaps_s.values()))
    slowest = sorted(gaps_s, key=lambda name: (-gaps_s[name], name))[: len(gaps_s) // 2]
    return frozenset(name for name in slowest if gaps_s[name] > limit_s)
