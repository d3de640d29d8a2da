"""Eight replies under way while somebody sends one huge prompt: how long their next token takes.

It must end the streams it began, so that what follows finds an idle engine.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
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
    """Eight streams without and with the huge prompt, and when its own first token came."""

    calm: Gaps
    disturbed: Gaps
    ttft_s: float


async def measure_interference(engine: Engine, words: Words, huge_tokens: int) -> Interference:
    """The disturbed streams, then as many others alone, up to the same number of tokens.

    A stream is slower the longer it is: only gaps at the same places can be compared.
    """
    streams = await _begun(engine, words)
    try:
        await asyncio.sleep(CALM_S)
        huge = await engine.complete(Ask(words.draw(huge_tokens), 1, owner="huge"))
    finally:
        for stream in streams:
            stream.close()
    begin_s, end_s = huge.sent_s, huge.token_s[0]
    places = [_within(stream.answer.token_s, begin_s, end_s) for stream in streams]
    alone = await _begun(engine, words)
    try:
        reached = (one.reached(last) for one, (_, last) in zip(alone, places, strict=True))
        await asyncio.wait_for(asyncio.gather(*reached), ANSWER_S)
    finally:
        for stream in alone:
            stream.close()
    return Interference(_gaps(alone, places), _gaps(streams, places), huge.ttft_s)


async def _begun(engine: Engine, words: Words) -> list[Stream]:
    streams = [
        await engine.begin(Ask(words.draw(START_TOKENS), LONG_REPLY_TOKENS, owner=f"u{n}"))
        for n in range(STREAMS)
    ]
    await asyncio.wait_for(asyncio.gather(*(stream.reached(1) for stream in streams)), ANSWER_S)
    return streams


def _within(token_s: list[float], begin_s: float, end_s: float) -> tuple[int, int]:
    """How many tokens there were at the beginning, and at the end."""
    return bisect_right(token_s, begin_s), bisect_right(token_s, end_s)


def _gaps(streams: list[Stream], places: list[tuple[int, int]]) -> Gaps:
    gaps = []
    for stream, (first, last) in zip(streams, places, strict=True):
        gaps += [b - a for a, b in pairwise(stream.answer.token_s[max(0, first - 1) : last])]
    return Gaps(percentile(gaps, 50), percentile(gaps, 99), max(gaps))
