"""What a plan leaves for a text."""

import pytest

from tertulia.core.plans import Plan, Plans
from tertulia.core.types import Limits

PLAN = Plan("free", window_tokens=8000, answer_tokens=1000, limits=Limits(100_000, 2))


@pytest.mark.parametrize(("fixed_tokens", "room"), [(0, 7936), (100, 7836), (7936, 0), (9000, 0)])
def test_a_text_has_the_window_less_the_fixed_parts_and_a_short_answer(
    fixed_tokens: int, room: int
) -> None:
    assert PLAN.room_for_text(32_000, fixed_tokens=fixed_tokens) == room


@pytest.mark.parametrize(("model_window_tokens", "window"), [(4096, 4096), (32_000, 8000)])
def test_the_smaller_of_the_plans_and_the_models_window_counts(
    model_window_tokens: int, window: int
) -> None:
    assert PLAN.window_on(model_window_tokens) == window
    assert PLAN.room_for_text(model_window_tokens, fixed_tokens=0) == window - 64


def test_a_plan_that_is_configured_no_longer_is_served_as_free() -> None:
    plans = Plans(free=PLAN)
    assert plans["gold"] is PLAN
    assert "gold" not in plans
