"""Whether one owner can tell by the time of a first token what another has sent.

Three arms of requests, in random order, again and again: what somebody else has just sent, a text
that nobody has sent, and, to show that the measurement can tell, one's own text.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.engine.contestants import Ask, Engine, running
from bench.engine.parts import ours
from bench.engine.run import MODELS
from bench.engine.words import words_of

PROMPT_TOKENS: Final = 96
SAME, LEAST, MOST = 0.001, 1e-6, 250


def main(arguments: Sequence[str] = ()) -> None:
    """Prints the medians of the arms, and how likely such differences are by chance."""
    parser = argparse.ArgumentParser(prog="python -m bench isolation", description=__doc__)
    parser.add_argument("--samples", type=int, default=MOST, help="of each arm")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with running(ours(), MODELS / "small", threads=1) as engine:
        arms = asyncio.run(_measure(engine, MODELS / "small", options.samples, options.seed))
    for name, times_s in arms.items():
        print(f"{name:34} median {statistics.median(times_s) * 1000:7.2f} ms")
    others, fresh, own = arms.values()
    hidden, shown = ks_chance(others, fresh), ks_chance(own, fresh)
    print(f"another's text against a new one: p = {hidden:.3g} (no difference: at least {SAME})")
    print(f"one's own text against a new one: p = {shown:.3g} (a difference: below {LEAST})")


async def _measure(
    engine: Engine, folder: Path, n_samples: int, seed: int
) -> dict[str, list[float]]:
    dice = random.Random(seed)
    words = words_of(folder).seeded(seed)
    others: list[float] = []
    fresh: list[float] = []
    own: list[float] = []

    async def first_token_s(text: list[int], owner: str) -> float:
        return (await engine.complete(Ask(tuple(text), 1, owner, 0))).ttft_s

    for _ in range(n_samples):
        sent = words.draw(PROMPT_TOKENS)
        await first_token_s(sent, "ada")
        new = words.draw(PROMPT_TOKENS)
        arms = [(others, sent, "bob"), (fresh, new, "bob"), (own, sent, "ada")]
        dice.shuffle(arms)
        for times_s, text, owner in arms:
            times_s.append(await first_token_s(text, owner))
    return {
        "another owner's text": others,
        "a text that nobody has sent": fresh,
        "one's own text, sent again": own,
    }


def ks_chance(one: Sequence[float], other: Sequence[float]) -> float:
    """The chance of so large a distance between two samples of one distribution.

    Kolmogorov's and Smirnov's test: the series of the limit distribution, with Stephens' correction
    for finite samples (Press et al., Numerical Recipes, 14.3).
    """
    first, second = sorted(one), sorted(other)
    distance = max(
        abs(bisect_right(first, value) / len(first) - bisect_right(second, value) / len(second))
        for value in (*first, *second)
    )
    root = math.sqrt(len(first) * len(second) / (len(first) + len(second)))
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:  # the series does not converge there, and the chance is 1 to six digits
        return 1.0
    series: float = sum((-1.0) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * series))
