"""Eight replies under way while somebody sends one huge prompt: how long their next token takes.

It must end the streams it began, so that what follows finds an idle engine.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise

from bench.engine.chats import percentile
from bench.engine.contestants import Ask, Engine
from bench.engine.streams import ANSWER_S, Stream
from bench.engine.words import Words

STREAMS = 8
START_TOKENS = 16
LONG_REPLY_TOKENS = 2000  # more than anybody writes before the huge prompt is read
CALM_S = 4.0  # of undisturbed decoding: some hundred gaps


@dataclass(frozen=True)
class Gaps:
    """Seconds between two tokens of one stream."""

    p50_s: float
    p99_s: float
    longest_s: float


@dataclass(frozen=True)
class Interference:
    """The eight streams without and with the huge prompt, and when its own first token came."""

    calm: Gaps
    disturbed: Gaps
    ttft_s: float


async def measure_interference(engine: Engine, words: Words, huge_tokens: int) -> Interference:
    """One run."""
    streams = [
        await engine.begin(Ask(words.draw(START_TOKENS), LONG_REPLY_TOKENS, owner=f"u{n}"))
        for n in range(STREAMS)
    ]
    try:
        await asyncio.wait_for(asyncio.gather(*(stream.reached(1) for stream in streams)), ANSWER_S)
        calm_s = time.perf_counter()
        await asyncio.sleep(CALM_S)
        huge = await engine.complete(Ask(words.draw(huge_tokens), 1, owner="huge"))
    finally:
        for stream in streams:
            stream.close()
    return Interference(
        _gaps(streams, calm_s, huge.sent_s),
        _gaps(streams, huge.sent_s, huge.token_s[0]),
        huge.ttft_s,
    )


def _gaps(streams: list[Stream], begin_s: float, end_s: float) -> Gaps:
    """Gaps that end within this time, and those that nobody ended."""
    gaps = []
    for stream in streams:
        times = stream.answer.token_s
        gaps += [b - a for a, b in pairwise(times) if begin_s < b <= end_s]
        last = max((at_s for at_s in times if at_s <= end_s), default=begin_s)
        if last < end_s - max(gaps, default=0.0):
            gaps.append(end_s - last)  # still waiting when the time was over
    return Gaps(percentile(gaps, 50), percentile(gaps, 99), max(gaps))
