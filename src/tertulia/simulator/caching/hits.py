"""How much of a prompt is found, counted in tokens alone: the table that a fleet is planned with.

No time passes on the replicas, nobody waits, nothing is uneven: what a fleet really finds is less.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Final, Literal

from tertulia.core.fleet import Wanted
from tertulia.core.placement import Candidate, place

Where = Literal["random", "affinity", "ours"]
SIZES: Final = (500_000, 1_000_000, 2_000_000, 8_000_000)
_SLOTS: Final = 256


@dataclass(frozen=True, slots=True)
class Counted:
    """Conversations of equal turns on replicas that keep whole ones, the longest unused out first.

    `spill_share` of the turns go to another than the chosen replica, any of them; `moves_home`: the
    conversation stays there.
    """

    where: Where = "affinity"
    cache_tokens: int = 2_000_000
    replicas: int = 8
    conversations: int = 4_000
    turns: int = 8
    system_tokens: int = 1_500
    message_tokens: int = 150
    reply_tokens: int = 400
    begin_within_s: float = 600.0
    think_s: float = 60.0
    spill_share: float = 0.0
    moves_home: bool = False


def hit_share(counted: Counted, *, seed: int = 1) -> float:
    """The part of all prompt tokens that was found."""
    # These draws, in this order, are those of the published program: its figures come out exactly.
    dice = random.Random(seed)
    caches = [_Kept(counted.cache_tokens) for _ in range(counted.replicas)]
    due = [(dice.uniform(0, counted.begin_within_s), c, 0) for c in range(counted.conversations)]
    heapq.heapify(due)
    spilling = random.Random(f"spill {seed}")
    history = [counted.system_tokens] * counted.conversations
    homes: dict[int, int] = {}
    cached = total = 0
    while due:
        at, one, turn = heapq.heappop(due)
        prompt = history[one] + counted.message_tokens
        replica = homes.get(one, -1)
        if replica < 0:
            replica = _place(counted, one, prompt, dice)
        chosen = replica
        if counted.spill_share and spilling.random() < counted.spill_share:
            replica = spilling.randrange(counted.replicas)
        if counted.where != "random":
            homes[one] = replica if counted.moves_home else chosen
        cached += min(max(caches[replica].find(one), counted.system_tokens), prompt)
        total += prompt
        history[one] = prompt + counted.reply_tokens
        caches[replica].keep(one, history[one])
        if turn + 1 < counted.turns:
            heapq.heappush(due, (at + dice.expovariate(1 / counted.think_s), one, turn + 1))
    return cached / total


def mean_hit_share(counted: Counted, seeds: Iterable[int]) -> tuple[float, float]:
    """Over all seeds, and by how much they differ."""
    shares = [hit_share(counted, seed=seed) for seed in seeds]
    return mean(shares), stdev(shares) if len(shares) > 1 else 0.0


def ceiling(counted: Counted) -> float:
    """What no cache can surpass: of each prompt all but its message was said before."""
    return 1 - counted.turns * counted.message_tokens / _prompt_tokens(counted)


def floor(counted: Counted) -> float:
    """What every replica finds: the system prompt."""
    return counted.turns * counted.system_tokens / _prompt_tokens(counted)


def _prompt_tokens(counted: Counted) -> int:
    grows = counted.message_tokens + counted.reply_tokens
    first = counted.system_tokens + counted.message_tokens
    return counted.turns * first + grows * counted.turns * (counted.turns - 1) // 2


def _place(counted: Counted, one: int, prompt: int, dice: random.Random) -> int:
    if counted.where == "random":
        return dice.randrange(counted.replicas)
    if counted.where == "affinity":
        return one % counted.replicas
    idle = [Candidate(str(number), _SLOTS) for number in range(counted.replicas)]
    placement = place(Wanted("turn", "model", f"c{one}", prompt), None, idle)
    assert placement is not None, "all are ready"
    return int(placement.replica)


@dataclass(slots=True)
class _Kept:
    """Whole conversations, the longest unused first."""

    capacity: int
    lengths: OrderedDict[int, int] = field(default_factory=OrderedDict)
    used: int = 0

    def find(self, one: int) -> int:
        if one not in self.lengths:
            return 0
        self.lengths.move_to_end(one)
        return self.lengths[one]

    def keep(self, one: int, length: int) -> None:
        self.used += length - self.lengths.pop(one, 0)
        self.lengths[one] = length
        while self.used > self.capacity and self.lengths:
            self.used -= self.lengths.popitem(last=False)[1]
