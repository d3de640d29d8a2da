"""Many conversations with pauses for thought, and what their readers see.

It must play the same script to both engines: who says how much when, and how long replies are.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.engine.contestants import Ask, Engine
from bench.engine.streams import Answer
from bench.engine.words import Words

MESSAGE_TOKENS = (20, 80)


@dataclass(frozen=True)
class Load:
    """How much is said, and how fast."""

    n_conversations: int
    n_turns: int
    n_system: int  # tokens that all conversations begin with
    reply_tokens: tuple[int, int]
    think_s: float  # at the mean, between a reply's end and the next message


@dataclass(frozen=True)
class Turn:
    """One message, and the length of its reply."""

    think_s: float  # before it is sent
    message: tuple[int, ...]
    n_reply: int


@dataclass(frozen=True)
class Figures:
    """What readers saw of one run."""

    tokens_per_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    gap_p95_s: float
    cached_share: float  # of the prompt tokens
    n_lost_ids: int  # tokens whose ids the engine did not tell


async def play(engine: Engine, words: Words, load: Load, seed: int) -> list[Answer]:
    """All conversations of the script to their end."""
    words = words.seeded(seed)
    system = words.draw(load.n_system)
    script = [_conversation(words, load) for _ in range(load.n_conversations)]
    talks = (_talk(engine, system, f"owner-{n}", turns) for n, turns in enumerate(script))
    return [answer for answers in await asyncio.gather(*talks) for answer in answers]


def figures(runs: Sequence[list[Answer]]) -> Figures:
    """Of several runs of one script: all their replies together."""
    answers = [answer for run in runs for answer in run]
    ttfts = [answer.ttft_s for answer in answers]
    gaps = [gap for answer in answers for gap in answer.gaps_s]
    busy_s = sum(
        max(answer.token_s[-1] for answer in run) - min(answer.sent_s for answer in run)
        for run in runs
    )
    return Figures(
        sum(len(answer.token_s) for answer in answers) / busy_s,
        statistics.median(ttfts),
        percentile(ttfts, 95),
        percentile(gaps, 95),
        sum(answer.n_cached for answer in answers) / sum(answer.n_prompt for answer in answers),
        sum(answer.n_lost for answer in answers),
    )


def percentile(values: Sequence[float], share: int) -> float:
    """By linear interpolation between the two nearest."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _conversation(words: Words, load: Load) -> list[Turn]:
    chance: random.Random = words.chance
    return [
        Turn(
            chance.expovariate(1 / load.think_s),
            tuple(words.draw(chance.randint(*MESSAGE_TOKENS))),
            chance.randint(*load.reply_tokens),
        )
        for _ in range(load.n_turns)
    ]


async def _talk(
    engine: Engine, system: list[int], owner: str, turns: Sequence[Turn]
) -> list[Answer]:
    prompt, answers = list(system), []
    for turn in turns:
        await asyncio.sleep(turn.think_s)
        prompt += turn.message
        answer = await engine.complete(Ask(tuple(prompt), turn.n_reply, owner, len(system)))
        answer.n_lost = turn.n_reply - len(answer.ids)
        prompt += answer.ids
        answers.append(answer)
    return answers
