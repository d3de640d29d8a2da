"""Whether what was said first is known after forty further turns, when a summary alone holds it.

`python -m bench remembering` tells a code word, talks of other things until it has been cut, and
asks for it. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Final
from unittest.mock import patch

from bench.context import message
from bench.longtalk import OWNER, Desk, desk_with
from tertulia.core.remembering import scribe_of
from tertulia.core.types import ModelState

RUNS: Final = 10
TURNS: Final = 40
WINDOW: Final = 1_600
ANSWER_TOKENS: Final = 16
PAUSE_S: Final = 30.0  # a summary by the larger model on one thread
CODE_WORDS: Final = [
    "quince",
    "harbour",
    "saffron",
    "lantern",
    "pelican",
    "juniper",
    "anvil",
    "marzipan",
    "tundra",
    "velvet",
]


async def run(desk: Desk, number: int, options: argparse.Namespace) -> bool:
    """One talk; whether it ended well: the word is known, or the reply says what is missing."""
    word, name = CODE_WORDS[number % len(CODE_WORDS)], f"c_{number}"
    begun = time.monotonic()
    await desk.open(name)
    await desk.say(name, f"Hello! My code word is {word}. Please remember it.", model="large")
    n_cut = 0
    for n in range(options.turns):
        turn = await desk.say(name, message(n + number), model="large")
        n_cut += "context_shortened" in turn.notices
        if options.show:
            print(f"  {n} {turn.usage} {turn.text!r}", flush=True)
        await desk.pause(at_most_s=PAUSE_S)
    turn = await desk.say(name, "What is my code word?", model="large")
    summary = await desk.backend.summaries.find(OWNER, name, turn.summary_id or "")
    is_known = word in turn.text.casefold()
    is_told = "context_shortened" in turn.notices
    in_summary = summary is not None and word in summary.text.casefold()
    print(
        f"run {number}: {word} is {'known' if is_known else 'LOST'}, "
        f"{'in' if in_summary else 'NOT in'} the summary; {n_cut} turns were cut, the last reply "
        f"{'says so' if is_told else 'does not say so'}; {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    if options.show:
        print(f"  {turn.text!r}\n  {summary.text if summary else None!r}")
    assert is_known or is_told
    return is_known


async def measure(options: argparse.Namespace) -> None:
    """All runs on one engine, one after another."""
    models = {"large": "large"}
    if options.scribe == "small":
        models["small"] = "small"
    made = desk_with(
        models,
        window=options.window,
        answer_tokens=ANSWER_TOKENS,
        tasks=1,
        threads=options.threads,
    )
    scribe = _small if options.scribe == "small" else scribe_of
    with patch("tertulia.worker.remember.scribe_of", scribe):
        async with made as desk:
            numbers = range(options.first, options.first + options.runs)
            known = [await run(desk, number, options) for number in numbers]
    print(f"known in {sum(known)} of {len(known)} runs")


def _small(models: Sequence[ModelState], _own: str | None) -> ModelState | None:
    """Has the small model write down what the larger one talks about."""
    return scribe_of(models, None)


def main(arguments: Sequence[str] = ()) -> None:
    """Prints a line for each run and how many knew the word."""
    parser = argparse.ArgumentParser(prog="python -m bench remembering", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--first", type=int, default=0, help="the number of the first run")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scribe", choices=("large", "small"), default="large")
    parser.add_argument("--show", action="store_true", help="print last reply and summary")
    asyncio.run(measure(parser.parse_args(arguments)))
