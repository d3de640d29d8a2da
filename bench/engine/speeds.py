"""How fast an engine reads a prompt, and how fast it writes one reply or many at once.

It must count only the time in which all streams are under way: joining and leaving is not speed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bench.engine.contestants import Ask, Engine
from bench.engine.words import Words

PROMPT_TOKENS = 1000  # of the prefill figure
START_TOKENS = 16  # of each decoding stream's prompt: nothing to speak of
WIDTHS = (1, 4, 8, 16, 32)  # streams at once


@dataclass(frozen=True)
class Speeds:
    """Tokens a second."""

    prefill: float
    decode: dict[int, float]  # by the number of streams


async def measure_speeds(engine: Engine, words: Words, reply_tokens: int) -> Speeds:
    """All of them once, after a warm-up."""
    await engine.complete(Ask(words.draw(START_TOKENS), 8))
    prefill = max([await _prefill(engine, words) for _ in range(2)])
    # One stream writes as much as four do together, or chance would decide.
    lengths = {n: reply_tokens * (4 if n == 1 else 1) for n in WIDTHS}
    decode = {n: await _decode(engine, words, n, length) for n, length in lengths.items()}
    return Speeds(prefill, decode)


def best_of(rounds: list[Speeds]) -> Speeds:
    """Of each figure the best: other work on the machine only ever takes away."""
    return Speeds(
        max(one.prefill for one in rounds),
        {n: max(one.decode[n] for one in rounds) for n in rounds[0].decode},
    )


async def _prefill(engine: Engine, words: Words) -> float:
    answer = await engine.complete(Ask(words.draw(PROMPT_TOKENS), 1))
    assert answer.n_cached < START_TOKENS, "the prompt was meant to be new"
    return PROMPT_TOKENS / answer.ttft_s


async def _decode(engine: Engine, words: Words, n_streams: int, n_tokens: int) -> float:
    asks = [Ask(words.draw(START_TOKENS), n_tokens, owner=f"u{n}") for n in range(n_streams)]
    answers = await asyncio.gather(*(engine.complete(ask) for ask in asks))
    begin_s = max(answer.token_s[0] for answer in answers)
    end_s = min(answer.token_s[-1] for answer in answers)
    n_seen = sum(begin_s < at_s <= end_s for answer in answers for at_s in answer.token_s)
    return n_seen / (end_s - begin_s)
