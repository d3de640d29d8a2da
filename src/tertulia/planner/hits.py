"""Which share of prompt tokens a fleet's prefix caches hold, by playing conversations against them.

Counts tokens and nothing else: no time passes in a batch or a queue. The simulator does that.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

BEGIN_WITHIN_S: Final = 600.0  # conversations begin at any moment of so long
THINK_S: Final = 60.0  # at the mean, between two turns
# Above, a simulation inside a plan would take too long to be worth it.
MOST_TURNS: Final = 400_000


@dataclass(slots=True)
class _Cache:
    """A replica's prefix cache: the longest unused goes first. Invariant: `used` is their sum.

    What is asked for is kept anew at once, and so is the last to go.
    """

    room: float
    used: float = 0.0
    kept: OrderedDict[int, float] = field(default_factory=OrderedDict)

    def known(self, conversation: int) -> float:
        return self.kept.get(conversation, 0.0)

    def keep(self, conversation: int, n_tokens: float) -> None:
        self.used += n_tokens - self.kept.pop(conversation, 0.0)
        self.kept[conversation] = n_tokens
        while self.used > self.room and self.kept:
            _, dropped = self.kept.popitem(last=False)
            self.used -= dropped


@lru_cache(maxsize=64)  # the same scene is asked for by several figures of one plan
def prefix_hits(
    replicas: float,
    cache_tokens: float,
    conversations: float,
    turns: float,
    system_tokens: float,
    new_tokens: float,
    answer_tokens: float,
    strays: float = 0.0,
    seed: float = 1,
) -> float:
    """The share of all prompt tokens that is found in a cache, 0 to 1.

    `strays` is the share of turns that go to any replica, by chance, and not to their
    conversation's own: 0 is perfect affinity, 1 is random routing. A stray's history is kept where
    it went. The system prompt is known everywhere.
    """
    if conversations * turns > MOST_TURNS:
        raise ValueError(
            f"Hits are simulated for at most {MOST_TURNS:,} turns; take fewer conversations."
        )
    dice = random.Random(int(seed))
    n_replicas = int(replicas)
    caches = [_Cache(cache_tokens) for _ in range(n_replicas)]
    coming = [(dice.uniform(0, BEGIN_WITHIN_S), one, 0) for one in range(int(conversations))]
    heapq.heapify(coming)
    history = [system_tokens] * int(conversations)
    found = asked = 0.0
    while coming:
        at, one, turn = heapq.heappop(coming)
        prompt = history[one] + new_tokens
        place = one % n_replicas
        if strays >= 1 or (strays and dice.random() < strays):
            place = dice.randrange(n_replicas)
        found += min(max(caches[place].known(one), system_tokens), prompt)
        asked += prompt
        history[one] = prompt + answer_tokens
        caches[place].keep(one, history[one])
        if turn + 1 < turns:
            heapq.heappush(coming, (at + dice.expovariate(1 / THINK_S), one, turn + 1))
    return found / asked
