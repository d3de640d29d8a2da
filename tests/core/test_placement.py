"""Which model answers, and why: the whole table."""

from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.placement import choose_model
from tertulia.core.types import ModelState, Reason

State = Literal["ready", "fetching", "starting", "absent", "failed"]
STATES: tuple[State, ...] = ("ready", "fetching", "starting", "absent", "failed")


def model(name: str, state: State, *, room: int = 1) -> ModelState:
    return ModelState(name, f"{name}-served", state, room=room)


FULL = 0


@pytest.mark.parametrize(
    ("requested", "pinned", "large", "small", "expected"),
    [
        # Picked by name: that model, with or without room, or a wait while it starts.
        ("large", None, ("ready", 1), ("ready", 1), ("large", Reason.PICKED, "pin")),
        ("large", None, ("ready", FULL), ("ready", 1), ("large", Reason.PICKED, "pin")),
        ("small", None, ("ready", 1), ("ready", 1), ("small", Reason.PICKED, "pin")),
        ("small-served", "large", ("ready", 1), ("ready", 1), ("small", Reason.PICKED, "pin")),
        ("large", None, ("starting", FULL), ("ready", 1), None),
        ("large", None, ("absent", FULL), ("ready", 1), ("small", Reason.UNAVAILABLE, "keep")),
        ("large", None, ("fetching", FULL), ("ready", 1), ("small", Reason.UNAVAILABLE, "keep")),
        ("large", None, ("failed", FULL), ("ready", FULL), ("small", Reason.UNAVAILABLE, "keep")),
        ("large", None, ("failed", FULL), ("failed", FULL), None),
        # Automatic in a conversation: it stays where it is.
        ("auto", "small", ("ready", 1), ("ready", FULL), ("small", Reason.AUTO, "pin")),
        ("auto", "large-served", ("ready", FULL), ("ready", 1), ("large", Reason.AUTO, "pin")),
        ("auto", "large", ("starting", FULL), ("ready", 1), None),
        ("auto", "large", ("failed", FULL), ("ready", 1), ("small", Reason.UNAVAILABLE, "keep")),
        # Automatic at first, or where the pinned model is known no more: the best that has room.
        ("auto", None, ("ready", 1), ("ready", 1), ("large", Reason.AUTO, "pin")),
        ("auto", "gone", ("ready", 1), ("ready", 1), ("large", Reason.AUTO, "pin")),
        ("auto", None, ("ready", FULL), ("ready", 1), ("small", Reason.OVERFLOW, "keep")),
        ("auto", None, ("ready", FULL), ("absent", FULL), ("large", Reason.AUTO, "pin")),
        ("auto", None, ("starting", FULL), ("ready", 1), ("small", Reason.UNAVAILABLE, "keep")),
        ("auto", None, ("absent", FULL), ("ready", 1), ("small", Reason.AUTO, "keep")),
        ("auto", None, ("fetching", FULL), ("ready", 1), ("small", Reason.UNAVAILABLE, "keep")),
        ("auto", None, ("failed", FULL), ("ready", 1), ("small", Reason.UNAVAILABLE, "keep")),
        ("auto", None, ("starting", FULL), ("starting", FULL), None),
        ("auto", None, ("failed", FULL), ("failed", FULL), None),
    ],
)
def test_the_table_of_choices(
    requested: str,
    pinned: str | None,
    large: tuple[State, int],
    small: tuple[State, int],
    expected: tuple[str, Reason, str] | None,
) -> None:
    models = [model("large", large[0], room=large[1]), model("small", small[0], room=small[1])]
    choice = choose_model(requested, pinned=pinned, models=models)
    assert (choice and (choice.model.name, choice.reason, choice.pin)) == expected


def test_a_stand_in_with_room_goes_before_one_without() -> None:
    models = [model("a", "failed"), model("b", "ready", room=0), model("c", "ready")]
    choice = choose_model("a", pinned=None, models=models)
    assert choice is not None
    assert choice.model.name == "c"


def test_without_models_there_is_no_choice() -> None:
    assert choose_model("auto", pinned=None, models=[]) is None
    assert choose_model("large", pinned="large", models=[]) is None


@given(
    requested=st.sampled_from(["auto", "a", "b", "c", "unknown"]),
    pinned=st.sampled_from([None, "a", "b", "c", "gone"]),
    states=st.lists(st.tuples(st.sampled_from(STATES), st.integers(0, 1)), max_size=3),
)
def test_only_ready_models_are_chosen_and_a_ready_wish_is_granted(
    requested: str, pinned: str | None, states: list[tuple[State, int]]
) -> None:
    models = [
        model(name, state, room=room) for name, (state, room) in zip("abc", states, strict=False)
    ]
    choice = choose_model(requested, pinned=pinned, models=models)
    ready = {m.name for m in models if m.state == "ready"}
    wanted = requested if requested != "auto" else pinned
    if choice is None:
        assert wanted not in ready
        return
    assert choice.model.name in ready
    if wanted in ready:
        assert (choice.model.name, choice.pin) == (wanted, "pin")
    assert get_args(State) == STATES
