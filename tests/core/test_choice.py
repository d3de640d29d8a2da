"""Which model answers, why, and which names may be asked for: the whole table."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.choice import (
    AUTO,
    Choice,
    Wish,
    awaited,
    choose_model,
    is_served,
    pickable,
)
from tertulia.core.types import ModelState, Reason

State = Literal["ready", "fetching", "starting", "absent", "failed"]
STATES: tuple[State, ...] = ("ready", "fetching", "starting", "absent", "failed")
Stand = tuple[State, int]


def model(name: str, state: State, *, room: int = 1, served: str | None = None) -> ModelState:
    return ModelState(name, served or f"{name}-served", state, room=room)


FULL = 0
READY: Stand = ("ready", 1)
BUSY: Stand = ("ready", FULL)
STARTING: Stand = ("starting", FULL)
FETCHING: Stand = ("fetching", FULL)
ABSENT: Stand = ("absent", FULL)
FAILED: Stand = ("failed", FULL)

Expected = tuple[str, Reason, str] | None
L, S = "large", "small"
PICKED, AUTOMATIC, OVERFLOW, UNAVAILABLE, LADDER = (
    Reason.PICKED,
    Reason.AUTO,
    Reason.OVERFLOW,
    Reason.UNAVAILABLE,
    Reason.LADDER,
)


def chosen(wish: Wish, large: Stand, small: Stand) -> Expected:
    models = [model(L, large[0], room=large[1]), model(S, small[0], room=small[1])]
    choice = choose_model(wish, models)
    return (choice.model.name, choice.reason, choice.pin) if choice is not None else None


@pytest.mark.parametrize(
    ("requested", "pinned", "large", "small", "expected"),
    [
        # That model, with or without room, or a wait while it starts.
        (L, None, READY, READY, (L, PICKED, "pin")),
        (L, None, BUSY, READY, (L, PICKED, "pin")),
        (S, None, READY, READY, (S, PICKED, "pin")),
        ("small-served", L, READY, READY, (S, PICKED, "pin")),
        (L, None, STARTING, READY, None),
        (L, None, ABSENT, READY, (S, UNAVAILABLE, "keep")),
        (L, None, FETCHING, READY, (S, UNAVAILABLE, "keep")),
        (L, None, FAILED, BUSY, (S, UNAVAILABLE, "keep")),
        (L, None, FAILED, FAILED, None),
        (S, None, READY, FAILED, (L, UNAVAILABLE, "keep")),
        # It was served when the turn was admitted.
        ("gone", None, READY, READY, (L, UNAVAILABLE, "keep")),
        ("gone", None, STARTING, STARTING, None),
    ],
)
def test_the_table_of_picks(
    requested: str, pinned: str | None, large: Stand, small: Stand, expected: Expected
) -> None:
    for easy in (True, False):
        assert chosen(Wish(requested, pinned, easy=easy), large, small) == expected


@pytest.mark.parametrize(
    ("pinned", "large", "small", "expected"),
    [
        # At first, or where the conversation's model is known no more.
        (None, READY, READY, (L, AUTOMATIC, "pin")),
        ("gone", READY, READY, (L, AUTOMATIC, "pin")),
        (None, BUSY, READY, (S, OVERFLOW, "keep")),
        (None, BUSY, BUSY, (S, OVERFLOW, "keep")),
        (None, BUSY, ABSENT, (L, AUTOMATIC, "pin")),
        (None, STARTING, READY, (S, UNAVAILABLE, "keep")),
        (None, ABSENT, READY, (S, AUTOMATIC, "keep")),
        (None, FETCHING, READY, (S, UNAVAILABLE, "keep")),
        (None, FAILED, READY, (S, UNAVAILABLE, "keep")),
        (None, STARTING, STARTING, None),
        (None, FAILED, FAILED, None),
        # With the large model the conversation stays there, whatever the room.
        (L, READY, READY, (L, AUTOMATIC, "pin")),
        ("large-served", BUSY, READY, (L, AUTOMATIC, "pin")),
        (L, STARTING, READY, None),
        (L, FAILED, READY, (S, UNAVAILABLE, "keep")),
        # From the small one it goes up, if the large one is there and has room.
        (S, READY, READY, (L, AUTOMATIC, "pin")),
        (S, READY, BUSY, (L, AUTOMATIC, "pin")),
        (S, BUSY, READY, (S, OVERFLOW, "keep")),
        (S, STARTING, READY, (S, UNAVAILABLE, "keep")),
        (S, ABSENT, READY, (S, AUTOMATIC, "keep")),
        (S, READY, FAILED, (L, AUTOMATIC, "pin")),
        (S, BUSY, STARTING, (L, AUTOMATIC, "pin")),
        (S, FAILED, STARTING, None),
    ],
)
def test_the_table_for_hard_questions(
    pinned: str | None, large: Stand, small: Stand, expected: Expected
) -> None:
    assert chosen(Wish(AUTO, pinned), large, small) == expected


@pytest.mark.parametrize(
    ("pinned", "large", "small", "expected"),
    [
        (None, READY, READY, (S, AUTOMATIC, "pin")),
        (None, FETCHING, READY, (S, AUTOMATIC, "pin")),
        # Whichever has room; a larger model needs no excuse.
        (None, READY, BUSY, (L, AUTOMATIC, "keep")),
        (None, BUSY, BUSY, (S, AUTOMATIC, "pin")),
        (None, FAILED, BUSY, (S, AUTOMATIC, "pin")),
        # A small model that is only away leaves the conversation free to go to it later.
        (None, READY, STARTING, (L, AUTOMATIC, "keep")),
        (None, BUSY, FAILED, (L, AUTOMATIC, "keep")),
        (None, READY, ABSENT, (L, AUTOMATIC, "pin")),
        (None, STARTING, STARTING, None),
        (None, FAILED, ABSENT, None),
        # The conversation stays where it is.
        (S, READY, READY, (S, AUTOMATIC, "pin")),
        (S, READY, BUSY, (S, AUTOMATIC, "pin")),
        (S, READY, STARTING, None),
        (S, READY, FAILED, (L, AUTOMATIC, "keep")),
        (L, READY, READY, (L, AUTOMATIC, "pin")),
        (L, BUSY, READY, (L, AUTOMATIC, "pin")),
        (L, FAILED, READY, (S, UNAVAILABLE, "keep")),
    ],
)
def test_the_table_for_easy_questions(
    pinned: str | None, large: Stand, small: Stand, expected: Expected
) -> None:
    assert chosen(Wish(AUTO, pinned, easy=True), large, small) == expected


@pytest.mark.parametrize("lowered", [LADDER, OVERFLOW])
@pytest.mark.parametrize(
    ("requested", "pinned", "large"),
    [
        (AUTO, None, READY),
        (AUTO, L, READY),
        (AUTO, L, BUSY),
        (AUTO, L, STARTING),
        (L, None, READY),
        (L, L, BUSY),
        (L, None, STARTING),
        ("gone", None, READY),
    ],
)
def test_a_turn_that_must_make_do_with_less_gets_the_small_model_and_the_reason(
    requested: str, pinned: str | None, large: Stand, lowered: Reason
) -> None:
    for small in (READY, BUSY):
        wish = Wish(requested, pinned, lowered=lowered)
        assert chosen(wish, large, small) == (S, lowered, "keep")


def test_what_goes_to_the_small_model_anyway_keeps_its_reason() -> None:
    for wish, reason in (
        (Wish(S), PICKED),
        (Wish(AUTO, easy=True), AUTOMATIC),
        (Wish(AUTO, S, easy=True), AUTOMATIC),
    ):
        assert chosen(replace(wish, lowered=LADDER), READY, READY) == (S, reason, "pin")


def test_without_a_small_model_nobody_is_refused_by_the_choice() -> None:
    wish = Wish(AUTO, lowered=LADDER)
    for small in (ABSENT, FAILED, STARTING):
        assert chosen(wish, READY, small) == (L, AUTOMATIC, "pin")


def test_a_stand_in_with_room_goes_before_one_without() -> None:
    models = [model("a", "failed"), model("b", "ready", room=0), model("c", "ready")]
    choice = choose_model(Wish("a"), models)
    assert choice is not None
    assert choice.model.name == "c"


VERSIONS = [
    model(L, "ready", served="large-1"),
    model(L, "ready", served="large-2"),
    model(S, "ready", served="small-1"),
    model(S, "ready", served="small-2"),
]


@pytest.mark.parametrize(
    ("requested", "pinned", "easy", "served"),
    [
        (AUTO, "large-2", False, "large-2"),
        (AUTO, "small-2", True, "small-2"),
        (L, "large-2", False, "large-2"),
        (S, "small-2", False, "small-2"),
        (L, None, False, "large-1"),
        (L, "small-2", False, "large-1"),
        ("large-2", "large-1", False, "large-2"),
    ],
)
def test_a_conversation_stays_on_its_version(
    requested: str, pinned: str | None, easy: bool, served: str
) -> None:
    choice = choose_model(Wish(requested, pinned, easy=easy), VERSIONS)
    assert choice is not None
    assert choice.model.served == served


def test_a_hard_question_that_finds_no_room_stays_on_the_version_of_its_conversation() -> None:
    models = [replace(m, room=0) if m.name == L else m for m in VERSIONS]
    for pinned in ("small-1", "small-2"):
        choice = choose_model(Wish(AUTO, pinned), models)
        assert choice is not None
        assert (choice.model.served, choice.reason, choice.pin) == (pinned, OVERFLOW, "keep")


def test_a_pool_of_one_kind_answers_everything() -> None:
    for name in (L, S):
        for easy in (True, False):
            choice = choose_model(Wish(AUTO, easy=easy), [model(name, "ready")])
            assert choice is not None
            assert (choice.model.name, choice.reason, choice.pin) == (name, AUTOMATIC, "pin")


def test_without_models_there_is_no_choice() -> None:
    for wish in (Wish(AUTO), Wish(AUTO, easy=True), Wish(L, L), Wish(AUTO, lowered=LADDER)):
        assert choose_model(wish, []) is None


names = st.sampled_from([AUTO, L, S, "large-served", "small-served", "gone"])
pins = st.sampled_from([None, L, S, "large-served", "small-served", "gone"])
stands = st.tuples(st.sampled_from(STATES), st.integers(0, 1))
wishes = st.builds(
    Wish, names, pins, st.booleans(), st.sampled_from([None, Reason.LADDER, Reason.OVERFLOW])
)


@given(wish=wishes, large=stands, small=stands)
def test_only_what_is_ready_is_chosen_and_only_the_lesser_model_is_excused(
    wish: Wish, large: Stand, small: Stand
) -> None:
    choice = chosen(wish, large, small)
    ready = {name for name, stand in ((L, large), (S, small)) if stand[0] == "ready"}
    if choice is None:
        # Somebody is waited for, or nobody is there.
        assert not ready or "starting" in (large[0], small[0])
        return
    name, reason, pin = choice
    assert name in ready
    if reason in (OVERFLOW, UNAVAILABLE, LADDER):
        assert pin == "keep"
        assert name == S or wish.requested != AUTO
    if wish.lowered is not None and S in ready:
        assert name == S
    assert get_args(State) == STATES


@given(wish=wishes, large=stands, small=stands)
def test_a_harder_question_never_gets_a_lesser_model(
    wish: Wish, large: Stand, small: Stand
) -> None:
    easy = chosen(replace(wish, easy=True), large, small)
    hard = chosen(replace(wish, easy=False), large, small)
    if easy is not None and easy[0] == L and hard is not None:
        assert hard[0] == L or large == BUSY


@given(
    large=stands,
    small=stands,
    requested=st.sampled_from([L, S]),
    lowered=st.none() | st.just(Reason.LADDER),
)
def test_a_pick_that_is_ready_is_granted_unless_the_turn_is_lowered(
    large: Stand, small: Stand, requested: str, lowered: Reason | None
) -> None:
    wanted = {L: large, S: small}[requested]
    choice = chosen(Wish(requested, lowered=lowered), large, small)
    if wanted[0] == "ready" and (lowered is None or small[0] != "ready"):
        assert choice == (requested, PICKED, "pin")


@given(turns=st.lists(st.tuples(st.booleans(), stands, stands), max_size=12))
def test_a_conversation_goes_up_once_and_never_down(
    turns: list[tuple[bool, Stand, Stand]],
) -> None:
    pinned: str | None = None
    for easy, large, small in turns:
        choice = chosen(Wish(AUTO, pinned, easy=easy), large, small)
        if choice is None or choice[2] == "keep":
            continue
        assert (pinned, choice[0]) != (L, S)
        pinned = choice[0]


@pytest.mark.parametrize(
    ("allowed", "names_of"),
    [
        ((), (AUTO,)),
        ((S,), (AUTO, S, "small-served")),
        ((L, S), (AUTO, L, S, "large-served", "small-served")),
        (("large-served",), (AUTO, "large-served")),
        ((L, "large-served"), (AUTO, L, "large-served")),
        ((AUTO, "gone"), (AUTO,)),
    ],
)
def test_the_names_that_a_plan_may_pick(
    allowed: tuple[str, ...], names_of: tuple[str, ...]
) -> None:
    models = [model(L, "ready"), model(S, "absent")]
    assert pickable(models, allowed) == names_of
    assert all(is_served(name, models) for name in names_of)
    assert not is_served("gone", models)


def test_models_that_share_a_name_are_listed_once_by_it() -> None:
    assert pickable(VERSIONS, (L,)) == (AUTO, L, "large-1", "large-2")


def test_a_choice_is_of_one_of_the_models() -> None:
    choice = choose_model(Wish(AUTO), VERSIONS)
    assert choice == Choice(VERSIONS[0], Reason.AUTO, "pin")


@given(
    st.sampled_from((AUTO, L, S, "large-served", "large-1", "small-served", "gone")),
    st.sampled_from((None, L, "large-served", "large-1", "small-served", "gone")),
    st.booleans(),
    st.sampled_from((None, LADDER, OVERFLOW)),
    st.lists(stands, min_size=3, max_size=3),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
)
def test_who_awaits_a_model_gets_it_whatever_room_there_is(
    requested: str,
    pinned: str | None,
    easy: bool,
    lowered: Reason | None,
    found: list[Stand],
    rooms: list[int],
) -> None:
    names = ((L, "large-1"), (L, "large-served"), (S, "small-served"))
    models = [
        model(name, state, room=room, served=served)
        for (name, served), (state, _), room in zip(names, found, rooms, strict=True)
    ]
    wish = Wish(requested, pinned, easy=easy, lowered=lowered)
    name, choice = awaited(wish, models), choose_model(wish, models)
    if choice is None:
        return
    if name is not None:
        assert name in (choice.model.name, choice.model.served)
    elif any(m.room for m in models if m.state == "ready"):
        assert choice.model.room, "any would have done"


def test_what_is_awaited() -> None:
    models = [model(L, "ready"), model(S, "ready")]
    assert awaited(Wish(AUTO), models) is None
    assert awaited(Wish(L), models) == L
    assert awaited(Wish(L, pinned="large-served"), models) == "large-served"
    assert awaited(Wish(AUTO, pinned="large-served", easy=True), models) == "large-served"
    assert awaited(Wish(AUTO, pinned="small-served", easy=True), models) == "small-served"
    assert awaited(Wish(AUTO, pinned="small-served"), models) is None, "it may go up"
    assert awaited(Wish(L, lowered=OVERFLOW), models) == S
    away = [model(L, "failed"), model(S, "absent")]
    assert awaited(Wish(L, pinned="large-served", lowered=OVERFLOW), away) is None
    assert awaited(Wish(AUTO, pinned="large-served"), away) is None
