"""Which share of prompt tokens a fleet's prefix caches hold, by conversations that dice begin."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Final

from tertulia.core.hits import Talk, hit_share

BEGIN_WITHIN_S: Final = 600.0  # conversations begin at any moment of so long
THINK_S: Final = 60.0  # at the mean, between two turns
# Above, a simulation inside a plan would take too long to be worth it.
MOST_TURNS: Final = 400_000


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
    begins_s = [dice.uniform(0, BEGIN_WITHIN_S) for _ in range(int(conversations))]

    def replica_of(one: int, _: float) -> int:
        if strays >= 1 or (strays and dice.random() < strays):
            return dice.randrange(n_replicas)
        return one % n_replicas

    return hit_share(
        Talk(turns, system_tokens, new_tokens, answer_tokens),
        [cache_tokens] * n_replicas,
        begins_s,
        lambda: dice.expovariate(1 / THINK_S),
        replica_of,
    )
