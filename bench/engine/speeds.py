"""How fast an engine reads a prompt, and how fast it writes one reply or many at once.

It must count only the time in which all streams are under way: joining and leaving is not speed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bench.engine.contestants import Ask, Engine
from bench.engine.streams import ANSWER_S
from bench.engine.words import Words

PROMPT_TOKENS = 1000  # of the prefill figure
START_TOKENS = 4  # of each decoding stream's prompt: nothing to speak of
LONGEST_REPLY = 480  # more than one stream writes in the time; 32 of them fit our cache
FEWEST_STEPS = 4  # in the time, or the figure would be chance
WIDTHS = (1, 4, 8, 16, 32)  # streams at once


@dataclass(frozen=True)
class Speeds:
    """Tokens a second."""

    prefill: float
    decode: dict[int, float]  # by the number of streams


async def measure_speeds(engine: Engine, words: Words, window_s: float) -> Speeds:
    """All of them after a warm-up, decoding for `window_s` each."""
    await engine.complete(Ask(words.draw(START_TOKENS), 8))
    prefill = max([await _prefill(engine, words) for _ in range(2)])
    decode = {n: await _decode(engine, words, n, window_s) for n in WIDTHS}
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


async def _decode(engine: Engine, words: Words, n_streams: int, window_s: float) -> float:
    streams = [
        await engine.begin(Ask(words.draw(START_TOKENS), LONGEST_REPLY, owner=f"u{n}"))
        for n in range(n_streams)
    ]
    try:
        async with asyncio.timeout(ANSWER_S):
            await asyncio.gather(*(stream.reached(1) for stream in streams))
            # However busy the machine is elsewhere: from no steps nothing can be reckoned.
            last = streams[-1]
            enough = last.reached(len(last.answer.token_s) + FEWEST_STEPS)
            await asyncio.gather(enough, asyncio.sleep(window_s))
    finally:
        for stream in streams:
            stream.close()
    return rate([stream.answer.token_s for stream in streams])


def rate(streams: list[list[float]]) -> float:
    """Tokens a second while all streams were under way; both ends of that time are a step's."""
    begin_s = max(times[0] for times in streams)
    end_s = max(times[-1] for times in streams)
    n_tokens = sum(begin_s < at_s <= end_s for times in streams for at_s in times)
    return n_tokens / (end_s - begin_s)
