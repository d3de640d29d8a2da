"""The table that a fleet is planned with: how much of a prompt is found, by where turns go."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Final, Literal

from tertulia.core import hits
from tertulia.core.fleet import Wanted
from tertulia.core.hits import Talk
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

    @property
    def talk(self) -> Talk:
        """What each conversation is like."""
        return Talk(self.turns, self.system_tokens, self.message_tokens, self.reply_tokens)


def hit_share(counted: Counted, *, seed: int = 1) -> float:
    """The part of all prompt tokens that was found."""
    # These draws, in this order, are those of the published program: its figures come out exactly.
    dice = random.Random(seed)
    begins_s = [dice.uniform(0, counted.begin_within_s) for _ in range(counted.conversations)]
    return hits.hit_share(
        counted.talk,
        [counted.cache_tokens] * counted.replicas,
        begins_s,
        lambda: dice.expovariate(1 / counted.think_s),
        _Router(counted, dice, random.Random(f"spill {seed}")).replica_of,
    )


def mean_hit_share(counted: Counted, seeds: Iterable[int]) -> tuple[float, float]:
    """Over all seeds, and by how much they differ."""
    shares = [hit_share(counted, seed=seed) for seed in seeds]
    return mean(shares), stdev(shares) if len(shares) > 1 else 0.0


@dataclass(slots=True)
class _Router:
    """Sends each turn to its conversation's home, or elsewhere: by chance, or as much as spills."""

    counted: Counted
    dice: random.Random
    spilling: random.Random
    homes: dict[int, int] = field(default_factory=dict)

    def replica_of(self, one: int, prompt: float) -> int:
        counted = self.counted
        home = self.homes.get(one)
        replica = self._place(one, prompt) if home is None else home
        chosen = replica
        if counted.spill_share and self.spilling.random() < counted.spill_share:
            replica = self.spilling.randrange(counted.replicas)
        if counted.where != "random":
            self.homes[one] = replica if counted.moves_home else chosen
        return replica

    def _place(self, one: int, prompt: float) -> int:
        counted = self.counted
        if counted.where == "random":
            return self.dice.randrange(counted.replicas)
        if counted.where == "affinity":
            return one % counted.replicas
        idle = [Candidate(str(number), _SLOTS) for number in range(counted.replicas)]
        placement = place(Wanted("turn", "model", f"c{one}", int(prompt)), None, idle)
        assert placement is not None, "all are ready"
        return int(placement.replica)
