"""When those who were refused at the door may come back, so that they are let in when they do.

Each is given a moment of the line's own future, one after the other as fast as turns begin, and
until then newcomers find that place taken. Time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile
from typing import Final

# A promise is made for the middle of what may be waited: a line that is faster than was thought is
# still busy then, one that is slower is not yet too long.
AIM: Final = 0.5
# Seconds are told in whole ones, rounded up, and clients and networks add their own.
GRACE_S: Final = 5.0
# Nobody is sent away for less: asking again sooner only finds the same.
SHORTEST_S: Final = 1.0
# What lies further ahead than this nobody knows. Who would have to wait longer is promised nothing,
# and told a time between this and twice as much: by his name, so that a crowd comes back spread.
LONGEST_S: Final = 300.0
# Promises of one lane at a time: with the bound above, of a hundred a second.
MOST: Final = 30_000
# How many of those who were promised a place come back for it is learned from the last fifty or so,
# beginning with the belief that all do. One that nobody takes would be time that nobody uses.
KEEPS: Final = 0.98
BELIEVED: Final = 8.0
FEWEST: Final = 0.2


@dataclass(slots=True)
class Returns:
    """The promises of one lane. Invariant: `_due` has the moment of each that was
    neither taken nor given up, in the order of their moments, and no owner has two."""

    _due: dict[str, float] = field(default_factory=dict)
    _booked_until: float = 0.0
    _last_due: float = 0.0
    _kept: float = 0.0
    _missed: float = 0.0

    def __len__(self) -> int:
        return len(self._due)

    def ask(
        self,
        owner: str,
        now: float,
        *,
        wait_s: float,
        limit_s: float,
        kept_s: float,
        starts_per_s: float,
    ) -> float | None:
        """None: come in. Otherwise the seconds after which to come back.

        `wait_s` is how long the newcomer would wait, `limit_s` how long that may be, and `kept_s`
        how long for somebody who comes back when he was told: chance makes a line longer than it
        was thought to become, and he has waited already.
        """
        self._forget(now)
        due = self._due.get(owner)
        if due is not None and due - now <= SHORTEST_S / 2:
            if wait_s <= kept_s:
                self._take(owner)
                return None
            del self._due[owner]  # the line is slower than it was: another promise
        elif wait_s + self._owed(owner, now + limit_s) / starts_per_s <= limit_s:
            self._due.pop(owner, None)
            return None
        elif due is not None:
            return due - now
        return self._promise(owner, now, wait_s=wait_s, limit_s=limit_s, starts_per_s=starts_per_s)

    def _promise(
        self, owner: str, now: float, *, wait_s: float, limit_s: float, starts_per_s: float
    ) -> float:
        begins = max(self._booked_until, now + wait_s) + self._share / starts_per_s
        due = max(now + SHORTEST_S, begins - AIM * limit_s, self._last_due)
        if due - now > LONGEST_S or len(self._due) >= MOST:
            return LONGEST_S * (1 + spread(owner))
        self._booked_until, self._last_due = begins, due
        self._due[owner] = due
        return due - now

    def _owed(self, owner: str, until: float) -> float:
        """How many others will take their places by then, as far as one knows."""
        soon = takewhile(lambda promise: promise[1] <= until, self._due.items())
        return self._share * sum(other != owner for other, _ in soon)

    @property
    def _share(self) -> float:
        """Of those who were promised a place, how many come back for it."""
        kept = BELIEVED + self._kept
        return max(FEWEST, kept / (kept + self._missed))

    def _take(self, owner: str) -> None:
        del self._due[owner]
        self._kept, self._missed = KEEPS * self._kept + 1, KEEPS * self._missed

    def _forget(self, now: float) -> None:
        late = takewhile(lambda promise: promise[1] < now - GRACE_S, self._due.items())
        for owner in [owner for owner, _ in late]:
            del self._due[owner]
            self._kept, self._missed = KEEPS * self._kept, KEEPS * self._missed + 1


def spread(owner: str) -> float:
    """A number in [0, 1) that only the name decides."""
    digest = blake2b(owner.encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
