"""How a token is drawn from logits, against references that are slow and plain."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.replica.draw import draw
from tertulia.replica.model import Choice, Stuck

CONTROLS = frozenset((1, 2))
N_DRAWS = 1500
# Exact in 32 bits, and apart enough that no rounding changes their order.
logit_lists = st.lists(st.integers(-80, 80), min_size=4, max_size=30, unique=True).map(
    lambda logits: [logit / 8 for logit in logits]
)
choices = st.builds(
    Choice,
    temperature=st.sampled_from([0.25, 0.7, 1.0, 1.9]),
    top_p=st.sampled_from([1e-6, 0.3, 0.8, 0.97, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    seed=st.integers(0, 2**32 - 1),
    top_k=st.sampled_from([0, 1, 3, 100]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.25]),
    biases=st.sampled_from([(), ((0, 2.0), (3, -100.0))]),
)
token_lists = st.lists(st.integers(0, 3), min_size=2, max_size=12)


def weighed(
    logits: list[float], choice: Choice, tokens: Sequence[int], n_prompt: int
) -> list[float]:
    """The logits after biases and penalties, one after the other."""
    logits = list(logits)
    for token, added in choice.biases:
        logits[token] += added
    for token in {token for token in tokens if token not in CONTROLS}:
        penalty = choice.repetition_penalty
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    for token, count in Counter(tokens[n_prompt:]).items():
        if token not in CONTROLS:
            logits[token] -= choice.presence_penalty + choice.frequency_penalty * count
    return logits


def probabilities(logits: list[float], choice: Choice) -> dict[int, float]:
    """What each token that may be drawn is drawn with, the likeliest first."""
    top = max(logits)
    weights = {
        token: math.exp((logit - top) / choice.temperature) for token, logit in enumerate(logits)
    }
    ranked = sorted(weights, key=lambda token: -weights[token])
    ranked = [token for token in ranked if weights[token] >= choice.min_p]
    ranked = ranked[: choice.top_k or None]
    total, summed, kept = sum(weights[token] for token in ranked), 0.0, []
    for token in ranked:
        kept.append(token)
        summed += weights[token]
        if choice.top_p < 1 and summed >= choice.top_p * total:
            break
    return {token: weights[token] / summed for token in kept}


def array(logits: list[float]) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    return np.array(logits, np.float32)


@given(logits=logit_lists, choice=choices, tokens=token_lists)
def test_only_what_the_limits_leave_is_drawn(
    logits: list[float], choice: Choice, tokens: list[int]
) -> None:
    row = array(logits)
    drawn = draw(row, choice, tokens, 2, CONTROLS)
    # A little wider than asked: at a limit itself the last bit decides.
    wide = Choice(
        choice.temperature, choice.top_p + 1e-5, 1.0, 0, choice.top_k, choice.min_p * (1 - 1e-5)
    )
    assert drawn in probabilities(weighed(logits, choice, tokens, 2), wide)
    assert drawn == draw(row, choice, tokens, 2, CONTROLS)
    assert row.tolist() == logits


@given(logits=logit_lists, choice=choices, tokens=token_lists)
def test_without_temperature_the_likeliest_is_taken(
    logits: list[float], choice: Choice, tokens: list[int]
) -> None:
    greedy = replace(choice, temperature=0.0)
    expected = weighed(logits, choice, tokens, 2)
    taken = draw(array(logits), greedy, tokens, 2, CONTROLS)
    assert expected[taken] == pytest.approx(max(expected), abs=1e-4)


@pytest.mark.parametrize(
    "choice",
    [
        Choice(0.9, 1.0, 1.0, 0),
        Choice(0.9, 0.8, 1.0, 0),
        Choice(0.9, 1.0, 1.0, 0, top_k=3),
        Choice(0.9, 1.0, 1.0, 0, min_p=0.2),
        Choice(0.9, 0.9, 1.0, 0, top_k=4, min_p=0.05),
    ],
)
@pytest.mark.parametrize("n_flat", [0, 400])
def test_tokens_are_drawn_as_often_as_they_are_likely(choice: Choice, n_flat: int) -> None:
    logits = [1.0, -1.0, 2.0, 0.25, 1.5, -0.5, *[-9.0 - n / 1000 for n in range(n_flat)]]
    counts = Counter(
        draw(array(logits), replace(choice, seed=seed), [0], 1, CONTROLS) for seed in range(N_DRAWS)
    )
    expected = probabilities(logits, choice)
    assert set(counts) <= set(expected)
    for token, probability in expected.items():
        spread = 4 * math.sqrt(N_DRAWS * probability) + 1
        assert abs(counts[token] - N_DRAWS * probability) < spread


@given(share=st.sampled_from([0.5, 0.9, 0.99]), n_tokens=st.integers(300, 900))
def test_a_flat_choice_keeps_more_than_are_sorted_first(share: float, n_tokens: int) -> None:
    logits = [-n / 10_000 for n in range(n_tokens)]
    choice = Choice(1.0, share, 1.0, 0)
    kept = len(probabilities(logits, choice))
    drawn = {
        draw(array(logits), Choice(1.0, share, 1.0, seed), [0], 1, CONTROLS) for seed in range(100)
    }
    assert max(drawn) <= kept
    assert max(drawn) > kept * 0.8


class Only:
    """A constraint that allows one token, and none after it."""

    def biases(self, reply: Sequence[int]) -> list[tuple[int, float]]:
        if reply:
            raise Stuck("at its end")
        return [(3, 1000.0)]


def test_a_constraint_sees_the_reply_alone_and_decides() -> None:
    choice = Choice(1.0, 1.0, 1.0, 0, constraint=Only())
    assert draw(array([9.0, 1.0, 2.0, -9.0]), choice, [0, 1], 2, CONTROLS) == 3
    with pytest.raises(Stuck, match="at its end"):
        draw(array([9.0, 1.0, 2.0, -9.0]), choice, [0, 1, 3], 2, CONTROLS)


def test_nearly_no_temperature_is_none() -> None:
    choice = Choice(1e-300, 1.0, 1.0, 0)
    assert draw(array([0.0, 3.0, 2.9]), choice, [0], 1, CONTROLS) == 1
