"""What the people of `bench rush` saw, told in figures: how turns ended, whether waits and times to
come back came true. Nothing here asks anybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.engine.chats import percentile

# Of shorter waits a rounded second is a large part.
SHORTEST_WAIT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Told:
    """A place in the line and a wait, as somebody was told them."""

    at_s: float
    position: int
    wait_s: float


@dataclass(slots=True)
class Seen:
    """One turn as its person saw it; moments are seconds after it was first asked.

    `retry_after_s` is when the door said to come back; `was_let_in` what it said then, None: nobody
    came, or not while others asked as well.
    """

    plan: str
    sent_at: float
    told: list[Told] = field(default_factory=list)
    began_s: float | None = None
    first_text_s: float | None = None
    ended_s: float | None = None
    end: str = ""
    retry_after_s: float | None = None
    refused_in_s: float | None = None
    was_let_in: bool | None = None


def tell(name: str, all_seen: Sequence[Seen]) -> None:
    """How the turns of one load ended, and what became of those who were told to come back."""
    first = [
        s.first_text_s for s in all_seen if s.first_text_s is not None and s.retry_after_s is None
    ]
    ends = dict(Counter(seen.end for seen in all_seen))
    print(f"{name}: {len(all_seen)} turns; ends {ends}; first text {_spread(first)}")
    refused = [s.refused_in_s for s in all_seen if s.refused_in_s is not None]
    if not refused:
        return
    back = [s for s in all_seen if s.was_let_in is not None]
    n_in = sum(s.was_let_in is True for s in back)
    share = f", {n_in / len(back):.0%}" if back else ""
    print(
        f"  told to come back {len(refused)}, within {_spread(refused)};"
        f" let in at their first return: {n_in} of {len(back)}{share} (goal 90 %)"
    )


def tell_together(
    alone: Sequence[Seen], plus: Sequence[Seen], free: Sequence[Seen], seconds: float
) -> None:
    """What those with free turns beside them saw, compared with the same without."""
    before, with_free = (
        percentile([s.first_text_s for s in all_seen if s.first_text_s is not None], 95)
        for all_seen in (alone, plus)
    )
    print(
        f"plus first text p95, with free beside it over alone: {with_free / before:.2f} (goal 1.3)"
    )
    wasted = [s for s in (*plus, *free) if s.began_s is not None and s.end != "done"]
    print(f"turns that an engine began and nobody got the end of: {len(wasted)}")
    waits = list(_waits(plus)) + list(_waits(free))
    if not waits:
        print(f"nobody waited {SHORTEST_WAIT_S:g} s after he was told for how long")
        return
    _tell_off("waits that were told", [(told.wait_s, took_s) for told, took_s in waits])
    # The best that can be known beforehand: how fast free turns begin in the end. What that is off
    # by is the chance of when paid ones come.
    n_begun = sum(s.began_s is not None for s in free)
    knowing = [(told.position * seconds / n_begun, took_s) for told, took_s in _waits(free)]
    if knowing:
        _tell_off("  had one known how many begin in the whole time", knowing)


def _waits(all_seen: Sequence[Seen]) -> Iterator[tuple[Told, float]]:
    """What each was told first, and how long it took from then on, of those who waited long."""
    for seen in all_seen:
        if seen.told and seen.began_s is not None:
            first = seen.told[0]
            if seen.began_s - first.at_s >= SHORTEST_WAIT_S:
                yield first, seen.began_s - first.at_s


def _tell_off(name: str, pairs: Sequence[tuple[float, float]]) -> None:
    off = [(said_s - took_s) / took_s for said_s, took_s in pairs]
    p50, p90 = (percentile([abs(one) for one in off], q) for q in (50, 90))
    middle = percentile(off, 50)
    print(
        f"{name}: {len(off)} of {SHORTEST_WAIT_S:g} s and more; off by p50 {p50:.0%},"
        f" p90 {p90:.0%} (goals 15, 25 %), {middle:+.0%} in the middle"
    )


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "nobody"
    p50, p95, p99 = (percentile(seconds, q) for q in (50, 95, 99))
    return f"p50 {p50:.3f}, p95 {p95:.3f}, p99 {p99:.3f} s"
