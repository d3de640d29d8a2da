"""How soon a second message is answered: from the cache, from host memory, and with neither.

It must send enough other conversations for the first one to have left the cache.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.engine.contestants import Ask, Engine
from bench.engine.words import Words

REPLY_TOKENS = 16
NEXT_TOKENS = 40  # of the second


@dataclass(frozen=True)
class SecondTurns:
    """Medians, and how many of the second prompt's tokens were found."""

    cold_s: float
    again_s: float
    n_cached: float


async def measure_second_turns(
    engine: Engine, words: Words, *, turn_tokens: int, n_others: int, repeats: int
) -> SecondTurns:
    """A conversation's second turn after `n_others` others, beside as long a prompt that is new."""
    await engine.complete(Ask(words.draw(NEXT_TOKENS), 1))
    cold, again, cached = [], [], []
    for n in range(repeats):
        prompt = words.draw(turn_tokens)
        first = await engine.complete(Ask(prompt, REPLY_TOKENS, owner=f"one-{n}"))
        for other in range(n_others):
            ask = Ask(words.draw(turn_tokens), 1, owner=f"other-{n}-{other}")
            await engine.complete(ask)
        second = [*prompt, *first.ids, *words.draw(NEXT_TOKENS)]
        answer = await engine.complete(Ask(second, 1, owner=f"one-{n}"))
        again.append(answer.ttft_s)
        cached.append(answer.n_cached)
        new = await engine.complete(Ask(words.draw(len(second)), 1, owner=f"new-{n}"))
        cold.append(new.ttft_s)
    return SecondTurns(statistics.median(cold), statistics.median(again), statistics.median(cached))
