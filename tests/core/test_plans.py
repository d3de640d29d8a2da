"""What a plan leaves for a message."""

import pytest

from tertulia.core.plans import Plan
from tertulia.core.types import Limits

PLAN = Plan("free", window_tokens=8000, answer_tokens=1000, limits=Limits(100_000, 2))


@pytest.mark.parametrize(("fixed_tokens", "room"), [(0, 7936), (100, 7836), (7936, 0), (9000, 0)])
def test_a_message_has_the_window_less_the_fixed_parts_and_a_short_answer(
    fixed_tokens: int, room: int
) -> None:
    assert PLAN.room_for_message(fixed_tokens=fixed_tokens) == room
