"""Which replica a generation goes to: where its conversation is known, unless waiting costs more.

Every number is an argument; nothing here counts, asks or remembers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from statistics import median
from typing import Final

from tertulia.core.fleet import Home, Wanted

# Nobody's load may pass its fair part by more: in a simulation of eight replicas 1.25 kept 7 % of
# turns from their home, 1.05 a quarter of them, and from 1.5 on the fullest was late.
BOUND: Final = 1.25
# But few are uneven by mere chance, which is the root of their number: without this much of it
# above the fair part, a third of all turns left their home for nothing, and were read anew.
CHANCE: Final = 1.5
# A batch that is a quarter full slows nobody, and neither do two or, whatever a replica says of its
# slots, eight: below, an idle fleet would leave its homes for nothing.
FEW_SHARE: Final = 0.25
LEAST_FEW: Final = 2
MOST_FEW: Final = 8
# A wait that nobody feels; below it two replicas are alike, and the order of names decides.
ALIKE_S: Final = 0.05
# What a replica reads that never said: a small model on two cores. For a faster one it only means
# that a prefix is valued a little too much.
PREFILL_PER_S: Final = 1_000.0
# What is read anew is read in the place of others' tokens: each that runs there counts half of it.
# Without this a busy fleet moves homes, reads more for it, is busier, and moves more of them. As
# many are counted as a replica of the pool has in the mean, not its own: else long prompts all go
# to whoever has the fewest, wait there for seconds, and keep it at the fewest.
OTHERS: Final = 0.5
# Whoever would wait longer for a first token than this goes to where it comes at once, if it does
# anywhere: the one is noticed, the other is not, and what is read anew for it takes no longer.
LATE_S: Final = 0.4
AT_ONCE_S: Final = 0.2
# A full batch makes a reply of a hundred tokens later by about this much (2 ms more a token).
FULL_BATCH_S: Final = 0.2
# Whoever waits for a slot, or for room in a cache that is full of running replies, waits for one of
# them to end.
REPLY_S: Final = 10.0
FULL_CACHE_SHARE: Final = 0.95
# Tokens that come faster than this are faster than the eye: below, slower is as good.
UNSEEN_GAP_S: Final = 0.05
# So far from the usual gap a replica is merely unlucky with what it reads.
USUAL_GAPS: Final = 1.5
REPLY_TOKENS: Final = 100


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica as placement sees it. None is unknown, never 0.

    `running` and `owed_tokens` hold what was dispatched up to now. `share` of its usual load is
    what a replica may carry that has just started. `gap_s` is between two tokens of a reply.
    """

    name: str
    slots: int
    is_ready: bool = True
    running: int = 0
    owed_tokens: int = 0
    prefill_per_s: float | None = None
    gap_s: float | None = None
    cache_used_share: float | None = None
    window: int | None = None
    share: float = 1.0

    @property
    def capacity(self) -> float:
        """What it may carry now, in sequences."""
        return self.slots * self.share

    def begins_s(self, unread: int) -> float:
        """Until it has read what it owes, and so many tokens more."""
        return (self.owed_tokens + unread) / (self.prefill_per_s or PREFILL_PER_S)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where to, and how many of the prompt's tokens are probably known there."""

    replica: str
    cached_tokens: int


def place(wanted: Wanted, home: Home | None, candidates: Sequence[Candidate]) -> Placement | None:
    """The replica for a generation, or None if none can take it.

    A conversation stays at home (without one: at the first in its own order of the replicas) while
    the load there is within the bound and moving would not start it sooner. Else it goes where
    wait + reading + slowness cost least.
    """
    pool = _pool(wanted, candidates)
    if not pool:
        return None
    ranked = by_rendezvous(wanted.conversation, pool)
    cached = _cached(wanted, home)
    first = next((c for c in ranked if c.name in cached), ranked[0])
    total, capacity = 1 + sum(c.running for c in pool), sum(c.capacity for c in pool)
    roomy = [c for c in ranked if _is_within_bound(c, total / capacity)] or ranked
    usual_gap_s = _usual_gap_s(pool)
    others = sum(c.running for c in pool) / len(pool)

    def cost_s(candidate: Candidate) -> float:
        unread = wanted.prompt_tokens - cached.get(candidate.name, 0)
        return _cost_s(candidate, unread, usual_gap_s, others)

    def begins_s(candidate: Candidate) -> float:
        unread = wanted.prompt_tokens - cached.get(candidate.name, 0)
        return candidate.begins_s(unread) + _held_up_s(candidate, usual_gap_s)

    cheapest = min(roomy, key=cost_s)
    stays = first in roomy and cost_s(first) <= cost_s(cheapest) + ALIKE_S
    chosen = first if stays else cheapest
    if begins_s(chosen) > LATE_S:
        soonest = min(roomy, key=begins_s)
        chosen = soonest if begins_s(soonest) <= AT_ONCE_S else chosen
    return Placement(chosen.name, cached.get(chosen.name, 0))


def by_rendezvous(conversation: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """All of them, in an order of the conversation's own that others leave or join undisturbed.

    By weighted rendezvous: -ln(draw) / slots, smallest first, gives each a part as large as its
    slots are.
    """
    return sorted(
        candidates,
        key=lambda c: (-math.log(_draw(conversation, c.name)) / c.slots, c.name),
    )


def _draw(conversation: str, name: str) -> float:
    """A number in (0, 1) that only these two decide. FNV-1a without a finaliser is so skewed that
    of twelve replicas the fullest gets 2.8 times the mean; this one gives 1.03."""
    digest = blake2b(f"{name}\0{conversation}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + 0.5) / 2**64


def _pool(wanted: Wanted, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Who may take it: ready, of a long enough window, and not one that it was just lost on."""
    fitting = [
        c for c in candidates if c.is_ready and (c.window is None or wanted.tokens <= c.window)
    ]
    fresh = [c for c in fitting if c.name not in wanted.avoid]
    pool = fresh or fitting
    # Those with a long window are kept for what fits nowhere else, while others have a slot.
    windows = {c.window for c in pool}
    if len(windows) > 1:
        shortest = min(windows, key=lambda window: math.inf if window is None else window)
        short = [c for c in pool if c.window == shortest]
        if any(c.running < c.slots for c in short):
            return short
    return pool


def _cached(wanted: Wanted, home: Home | None) -> dict[str, int]:
    return {home.replica: min(home.tokens, wanted.prompt_tokens)} if home is not None else {}


def _is_within_bound(candidate: Candidate, fair_share: float) -> bool:
    """`fair_share`: what is in flight in the whole pool, with this turn, for each it may carry."""
    fair = fair_share * candidate.capacity
    few = min(MOST_FEW, max(LEAST_FEW, int(FEW_SHARE * candidate.capacity)))
    by_chance = fair + CHANCE * math.sqrt(fair) + 1
    return candidate.running + 1 <= max(few, int(BOUND * fair), int(by_chance))


def _usual_gap_s(pool: Sequence[Candidate]) -> float:
    gaps = [c.gap_s for c in pool if c.gap_s is not None]
    return max(UNSEEN_GAP_S, USUAL_GAPS * median(gaps)) if gaps else UNSEEN_GAP_S


def _cost_s(candidate: Candidate, unread: int, usual_gap_s: float, others: float) -> float:
    read_s = candidate.begins_s(unread)
    others_s = OTHERS * others * (read_s - candidate.begins_s(0))
    batch_s = FULL_BATCH_S * candidate.running / candidate.slots
    return read_s + others_s + batch_s + _held_up_s(candidate, usual_gap_s)


def _held_up_s(candidate: Candidate, usual_gap_s: float) -> float:
    """By slow tokens, and until there is a slot and room in the cache."""
    slowness_s = REPLY_TOKENS * max(0.0, (candidate.gap_s or 0.0) - usual_gap_s)
    beyond = max(0, candidate.running + 1 - candidate.slots)
    full_s = REPLY_S * beyond / candidate.slots
    if (candidate.cache_used_share or 0.0) > FULL_CACHE_SHARE:
        full_s = max(full_s, REPLY_S / candidate.slots)
    return slowness_s + full_s
