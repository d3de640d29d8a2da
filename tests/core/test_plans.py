"""What a plan leaves for a text, and what of it goes to the store."""

import pytest

from tertulia.core.plans import Plan, Plans
from tertulia.core.types import Budget, Lane, Limits

PLAN = Plan(name="free", window_tokens=8000, answer_tokens=1000)


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


def test_the_store_is_told_of_budgets_places_lane_and_patience() -> None:
    budget = Budget("tokens_day", "tokens", 5_000, 86_400_000)
    plan = Plan(
        name="gold",
        lane=Lane.PLUS,
        window_tokens=8000,
        answer_tokens=1000,
        budgets=(budget,),
        replies_running=7,
        abandon_s=None,
        min_answer_tokens=9,
    )
    assert plan.limits == Limits((budget,), 7, Lane.PLUS, abandon_s=None, min_answer_tokens=9)


def test_a_plan_that_is_configured_no_longer_is_served_as_free() -> None:
    plans = Plans(free=PLAN)
    assert plans["gold"] is PLAN
    assert "gold" not in plans
