"""Whether what was said first is known after forty further turns, when a summary alone holds it.

`python -m bench remembering` tells a code word in each of ten talks, talks of other things until
that has been cut, and asks for it. The talks go on side by side, a turn of each at a time, so that
the engine answers all of them in one batch; between two turns it writes what summaries are due.
Nothing here is a test.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

from bench.context import message
from bench.longtalk import OWNER, SLOT_TOKENS, Desk, desk_with
from tertulia.core.remembering import scribe_of
from tertulia.core.types import ModelState, Turn

RUNS: Final = 10
TURNS: Final = 40
WINDOW: Final = 1_600
ANSWER_TOKENS: Final = 16
GOAL: Final = 0.8
# All summaries of one moment, by the larger model on two threads.
PAUSE_S: Final = 300.0
# What somebody asks to be remembered is kept by other means than what is said in passing.
TOLD: Final = {
    "to remember": "Hello! My code word is {word}. Please remember it.",
    "in passing": "Hello! My code word is {word}.",
}
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


@dataclass
class Talk:
    """One of the talks: its number, and in how many of its turns something was cut."""

    number: int
    n_cut: int = 0

    @property
    def name(self) -> str:
        """Its conversation."""
        return f"c_{self.number}"

    @property
    def word(self) -> str:
        """What is to be remembered."""
        return CODE_WORDS[self.number % len(CODE_WORDS)]


async def all_say(desk: Desk, talks: Sequence[Talk], contents: Sequence[str]) -> list[Turn]:
    """A message in each talk, once all are answered, and then once all summaries are written."""
    asked = [
        desk.say(talk.name, said, model="large") for talk, said in zip(talks, contents, strict=True)
    ]
    turns = await asyncio.gather(*asked)
    for talk, turn in zip(talks, turns, strict=True):
        talk.n_cut += "context_shortened" in turn.notices
    await desk.pause(at_most_s=PAUSE_S)
    return turns


async def talked(desk: Desk, talks: Sequence[Talk], n_turns: int, first: str) -> list[bool]:
    """All talks to their ends; which of them know the word that the `first` message tells."""
    begun = time.monotonic()
    for talk in talks:
        await desk.open(talk.name)
    await all_say(desk, talks, [first.format(word=talk.word) for talk in talks])
    for n in range(n_turns):
        turns = await all_say(desk, talks, [message(n + talk.number) for talk in talks])
        cached = sum(turn.usage.cached for turn in turns) / sum(turn.usage.input for turn in turns)
        print(
            f"  turn {n + 1} of {n_turns}: {time.monotonic() - begun:.0f} s, {cached:.0%} cached, "
            f"{sum(talk.n_cut > 0 for talk in talks)} talks are cut, "
            f"{len(desk.backend.store.summaries)} summaries",
            flush=True,
        )
    asked = await all_say(desk, talks, ["What is my code word?"] * len(talks))
    return [await told(desk, talk, turn) for talk, turn in zip(talks, asked, strict=True)]


async def told(desk: Desk, talk: Talk, turn: Turn) -> bool:
    """Prints how a talk ended, and says whether its word is known."""
    summary = await desk.backend.summaries.find(OWNER, talk.name, turn.summary_id or "")
    is_known = talk.word in turn.text.casefold()
    is_told = "context_shortened" in turn.notices
    in_summary = summary is not None and talk.word in summary.text.casefold()
    print(
        f"run {talk.number}: {talk.word} is {'known' if is_known else 'LOST'}, "
        f"{'in' if in_summary else 'NOT in'} the summary; {talk.n_cut} turns were cut, the last "
        f"reply {'says so' if is_told else 'does not say so'}: {turn.text!r}",
        flush=True,
    )
    assert is_known or is_told, "nobody was told that something is missing"
    return is_known


async def measure(options: argparse.Namespace) -> None:
    """All talks on one engine."""
    models = {"large": "large"}
    if options.scribe == "small":
        models["small"] = "small"
    talks = [Talk(options.first + n) for n in range(options.runs)]
    made = desk_with(
        models,
        window=options.window,
        answer_tokens=ANSWER_TOKENS,
        tasks=len(talks),
        threads=options.threads,
        # Some are kept free of what nobody waits for.
        slots=2 * len(talks),
        n_cache=2 * len(talks) * SLOT_TOKENS,
        arithmetic=options.arithmetic,
    )
    scribe = _small if options.scribe == "small" else scribe_of
    with patch("tertulia.worker.remember.scribe_of", scribe):
        async with made as desk:
            known = await talked(desk, talks, options.turns, TOLD[options.told])
            if options.show:
                for made_of in desk.backend.store.summaries.values():
                    print(f"  {made_of.upto} {made_of.tokens}: {made_of.text!r}")
    verdict = "reaches" if sum(known) >= GOAL * len(known) else "misses"
    print(f"known in {sum(known)} of {len(known)} runs; that {verdict} the goal of {GOAL:.0%}")


def _small(models: Sequence[ModelState], _own: str | None) -> ModelState | None:
    """Has the small model write down what the larger one talks about."""
    return scribe_of(models, None)


def main(arguments: Sequence[str] = ()) -> None:
    """Prints a line for each turn and each run, and how many knew the word."""
    parser = argparse.ArgumentParser(prog="python -m bench remembering", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--first", type=int, default=0, help="the number of the first run")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--arithmetic", choices=("llama.cpp", "openvino"), default="llama.cpp")
    parser.add_argument("--told", choices=tuple(TOLD), default="to remember")
    parser.add_argument("--scribe", choices=("large", "small"), default="large")
    parser.add_argument("--show", action="store_true", help="print the summaries")
    asyncio.run(measure(parser.parse_args(arguments)))
