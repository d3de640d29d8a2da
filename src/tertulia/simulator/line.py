"""The line before the accelerators of a region: who stands where, and how long it will take.

Ranks, waits and the pace are the service's own rules; here is only what a store keeps of it.
"""

from __future__ import annotations

import heapq
from typing import Final

from tertulia.core.quota import cost
from tertulia.core.ranks import rank_of, virtual_time
from tertulia.core.types import Lane, Usage
from tertulia.core.waiting import LaneState, LineView, Pace, starts_per_s, wait_s
from tertulia.simulator.people import Message

# More than anybody waits for: a line so long is a scenario that asks for the impossible.
MOST_WAITING: Final = 2_000_000


class LineTooLong(Exception):
    """More wait than a simulation holds."""


class Line:
    """All who wait, by lane. Invariant: `n_waiting` is how many they are.

    Running turns are counted here as well, as the store's line does.
    """

    def __init__(self, *, is_fair: bool, by_pool: bool) -> None:
        self.pace = Pace()
        self.n_waiting = 0
        self._is_fair = is_fair
        self._by_pool = by_pool
        self._waiting: dict[Lane, list[tuple[int, int, Message]]] = {lane: [] for lane in Lane}
        self._running = dict.fromkeys(Lane, 0)
        self._begun = dict.fromkeys(Lane, 0)
        self._tags: dict[tuple[Lane, int], int] = {}
        self._highest_tag = dict.fromkeys(Lane, 0)
        self._n_come = 0

    def join(self, message: Message) -> None:
        """At its rank: fair between users, or simply behind those that are there."""
        if self.n_waiting >= MOST_WAITING:
            raise LineTooLong(f"more than {MOST_WAITING:,} messages wait")
        line = self._waiting[message.lane]
        self._n_come += 1
        self.n_waiting += 1
        rank = self._rank(message, line) if self._is_fair else 0
        heapq.heappush(line, (rank, self._n_come, message))

    def first(self) -> Message | None:
        """Takes out whoever is next."""
        for line in self._waiting.values():
            if line:
                self.n_waiting -= 1
                return heapq.heappop(line)[2]
        return None

    def left(self) -> list[Message]:
        """Takes out all, in their order."""
        found = []
        while (message := self.first()) is not None:
            found.append(message)
        return found

    def began(self, lane: Lane, *, is_first_time: bool = True) -> None:
        """A turn of this lane runs from now on."""
        self._running[lane] += 1
        self._begun[lane] += is_first_time

    def ended(self, lane: Lane) -> None:
        """It does not run any more."""
        self._running[lane] -= 1
        assert self._running[lane] >= 0, lane

    def view(self, now: float) -> LineView:
        """What a look at the store would show."""
        lanes = {
            lane: LaneState(len(self._waiting[lane]), self._running[lane], self._begun[lane])
            for lane in Lane
        }
        return LineView(now, lanes)

    def look(self, now: float, *, n_slots: int) -> None:
        """Learns how long replies last and how soon turns begin, as gateways do once a second. No
        accelerator puts anybody aside, so none of the slots is ranked."""
        self.pace = self.pace.after(self.view(now), n_slots=n_slots, ranked=0.0)

    def wait_s(self, lane: Lane, now: float, n_slots: int) -> float:
        """How long a newcomer of this lane will wait."""
        view = self.view(now)
        place = view.queued_before(lane) + 1
        if self._by_pool:  # as if no lane went before: what waits, through the whole pool
            return place * self.pace.reply_s(lane) / n_slots
        return wait_s(view, self.pace, lane, place=place, n_slots=n_slots)

    def starts_per_s(self, lane: Lane, now: float, n_slots: int) -> float:
        """How many of this lane begin a second."""
        return starts_per_s(self.view(now), self.pace, lane, n_slots=n_slots)

    def _rank(self, message: Message, line: list[tuple[int, int, Message]]) -> int:
        lane, who = message.lane, (message.lane, message.owner)
        floor = virtual_time(line[0][0] if line else None, self._highest_tag[lane])
        rank = rank_of(tag=self._tags.get(who, 0), floor=floor, last=None)
        usage = Usage(message.prompt_tokens, message.cached_tokens, message.answer_tokens)
        tag = self._tags[who] = rank + cost("units", usage)
        self._highest_tag[lane] = max(self._highest_tag[lane], tag)
        return rank
