"""What a chat that outgrows its window finds in the cache: cut in steps, and with a sliding window.

`python -m bench context` talks for some minutes with the real engine, once for each policy, and
prints the cached share of every prompt after the first cut. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

from bench.longtalk import Desk, desk_with
from tertulia.core.prompt import Context, Course
from tertulia.core.types import Turn

TURNS: Final = 60
WINDOW: Final = 2_000
ANSWER_TOKENS: Final = 24
GOAL_SHARE, GOAL_TURNS = 0.8, 0.9
PAUSE_S: Final = 4.0

POLICIES: Final = {
    "steps": "cut in steps, with summaries",
    "sliding": "a sliding window",
}
_WORDS: Final = [
    "the sea",
    "old maps",
    "bread",
    "rain",
    "bees",
    "chess",
    "rivers",
    "glass",
    "trains",
    "stars",
    "salt",
    "wool",
    "bridges",
    "clocks",
    "tea",
    "mountains",
    "paper",
    "horses",
    "ice",
    "gardens",
]


@dataclass(frozen=True)
class Figure:
    """A turn: the part of its prompt that was cached, and whether anything was cut from it."""

    tokens: int
    cached_share: float
    is_cut: bool
    has_summary: bool


def message(n: int) -> str:
    """The message of a turn: no two are alike."""
    one, other = _WORDS[n % len(_WORDS)], _WORDS[(n * 7 + 3) % len(_WORDS)]
    return f"Question {n}: what have {one} and {other} in common, as you see it?"


def sliding(course: Course, *, room_tokens: int) -> Context:
    """What others do: the newest exchanges that fit, chosen anew each turn."""
    exchanges = course.exchanges
    first, total = len(exchanges), 0
    while first > 0 and (not total or total + exchanges[first - 1].tokens <= room_tokens):
        first -= 1
        total += exchanges[first].tokens
    return Context(tuple(exchanges[first:]), first, total, None, first > 0)


@contextmanager
def slid() -> Iterator[None]:
    """Has the worker slide its window."""
    with patch("tertulia.worker.context.context_of", sliding):
        yield


async def talk(desk: Desk, name: str, turns: int) -> list[Figure]:
    """All turns of a chat."""
    await desk.open(name)
    figures = []
    for n in range(turns):
        begun = time.monotonic()
        figures.append(_figure(await desk.say(name, message(n), model="small")))
        took_s = time.monotonic() - begun
        await desk.pause(at_most_s=PAUSE_S)
        print(
            f"  turn {n + 1}: {figures[-1].cached_share:.0%} of {figures[-1].tokens} cached, "
            f"{took_s:.1f} s, then {time.monotonic() - begun - took_s:.1f} s",
            flush=True,
        )
    return figures


def _figure(turn: Turn) -> Figure:
    share = turn.usage.cached / turn.usage.input if turn.usage.input else 0.0
    return Figure(
        turn.usage.input, share, "context_shortened" in turn.notices, turn.summary_id is not None
    )


def told(name: str, figures: Sequence[Figure]) -> None:
    """Prints the shares of a policy."""
    overflow = next((n for n, figure in enumerate(figures) if figure.is_cut), len(figures))
    after = figures[overflow + 1 :]
    print(f"{POLICIES[name]}: the first cut is in turn {overflow + 1} of {len(figures)}")
    print("  cached %: " + " ".join(f"{figure.cached_share:.0%}"[:-1] for figure in after))
    if not after:
        return
    well = sum(figure.cached_share >= GOAL_SHARE for figure in after) / len(after)
    mean = sum(figure.cached_share for figure in after) / len(after)
    summed = sum(figure.has_summary for figure in after)
    verdict = "reaches" if well >= GOAL_TURNS else "misses"
    print(
        f"  {well:.1%} of {len(after)} turns have {GOAL_SHARE:.0%} or more cached, {mean:.1%} on "
        f"average; {summed} have a summary; that {verdict} the goal of {GOAL_TURNS:.0%}",
        flush=True,
    )


async def measure(options: argparse.Namespace) -> None:
    """Each policy with an engine of its own."""
    for name, tasks, policy in (
        ("steps", 1, nullcontext()),
        ("sliding", 0, slid()),
    ):
        if name not in options.policies:
            continue
        made = desk_with(
            {"small": options.model},
            window=options.window,
            answer_tokens=ANSWER_TOKENS,
            tasks=tasks,
            threads=options.threads,
        )
        async with made as desk:
            with policy:
                told(name, await talk(desk, f"c_{tasks}", options.turns))


def main(arguments: Sequence[str] = ()) -> None:
    """Prints the shares of both policies."""
    parser = argparse.ArgumentParser(prog="python -m bench context", description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", default="small")
    parser.add_argument("--policies", nargs="*", default=["steps", "sliding"])
    asyncio.run(measure(parser.parse_args(arguments)))
