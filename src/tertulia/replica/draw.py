"""Chooses a token from the logits of one row, with the meaning of llama.cpp's samplers.

A pure function: it must never keep anything from one token to the next.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.replica.model import Choice
from tertulia.replica.sampling import recent_tokens, reply_biases, seed_at

MOST_LIKELY = 256  # sorted first for top-p, and mostly enough: all would take 20 times longer
COLDEST = 1e-6  # below it the likeliest weighs all anyway, and 32 bits would not hold the others

Floats = NDArray[np.floating[Any]]
Places = NDArray[np.int64]


def draw(
    logits: Floats,
    choice: Choice,
    tokens: Sequence[int],
    n_prompt: int,
    controls: Collection[int],
) -> int:
    """The token after `tokens`, the first `n_prompt` of which are the prompt.

    Penalties leave `controls` alone. `Stuck` if the choice's constraint allows no token.
    """
    weighed = _weighed(logits, choice, tokens, n_prompt, controls)
    if choice.temperature <= 0:
        return int(weighed.argmax())
    # In llama.cpp's order, so that there is less to do from one to the next.
    ids = _likeliest(weighed, choice.top_k)
    weights = np.exp((weighed[ids] - weighed.max()) / max(choice.temperature, COLDEST))
    kept = np.flatnonzero(weights >= choice.min_p)
    if choice.top_p < 1:
        kept = kept[_making_up(weights[kept], choice.top_p)]
    summed = np.cumsum(weights[kept], dtype=np.float64)
    drawn = np.random.Generator(np.random.Philox(seed_at(choice.seed, len(tokens)))).random()
    # To the right of equals: what weighs nothing is never drawn.
    place = int(np.searchsorted(summed, drawn * summed[-1], side="right"))
    return int(ids[kept[min(place, len(kept) - 1)]])


def _weighed(
    logits: Floats, choice: Choice, tokens: Sequence[int], n_prompt: int, controls: Collection[int]
) -> Floats:
    """The logits after biases, penalties and constraint, in vLLM's order."""
    weighed = logits.astype(np.float32)  # a copy: the row is the model's
    _add(weighed, choice.biases)
    if choice.repetition_penalty != 1.0:
        said = np.array(sorted(set(recent_tokens(tokens, controls))), np.int64)
        factor = choice.repetition_penalty
        weighed[said] *= np.where(weighed[said] > 0, 1 / factor, factor)
    reply = tokens[n_prompt:]
    _add(weighed, reply_biases(choice, reply, controls))
    if choice.constraint is not None:
        _add(weighed, choice.constraint.biases(reply))
    return weighed


def _add(weighed: Floats, biases: Sequence[tuple[int, float]]) -> None:
    if biases:
        ids, added = zip(*biases, strict=True)
        np.add.at(weighed, np.array(ids, np.int64), np.array(added, np.float32))


def _likeliest(values: Floats, n_most: int) -> Places:
    """The places of so many of the highest, in their order; of all if 0."""
    if not 0 < n_most < len(values):
        return np.arange(len(values))
    return np.sort(np.argpartition(values, -n_most)[-n_most:])


def _making_up(weights: Floats, share: float) -> Places:
    """The places of as few of the heaviest as make up this share of all, heaviest first."""
    goal = share * weights.sum(dtype=np.float64)
    some = _likeliest(weights, MOST_LIKELY)
    if weights[some].sum(dtype=np.float64) < goal:
        some = np.arange(len(weights))
    some = some[np.argsort(-weights[some], kind="stable")]
    summed = np.cumsum(weights[some], dtype=np.float64)
    return some[: int(np.searchsorted(summed, goal)) + 1]
