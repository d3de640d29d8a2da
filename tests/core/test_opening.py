"""A prompt begins the same from cut to cut: the platform's words, and then the person's own."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.opening import (
    INSTRUCTIONS_TOKENS,
    Opening,
    asked,
    has_cut_moved,
    is_cut,
    most_instructions,
    opening,
)
from tertulia.core.prompt import choose_context, exchanges_of, system_ids
from tertulia.core.types import BranchMessage, Status, TokenIds

TEXTS = st.text(max_size=40)


def encode(text: str) -> TokenIds:
    return tuple(text.encode())


@given(system=TEXTS, own=TEXTS)
def test_the_platforms_words_come_first_and_are_the_same_for_everybody(
    system: str, own: str
) -> None:
    begun, plain = opening(encode, system, own), opening(encode, system, "")
    assert begun.text.startswith(system)
    assert begun.ids[: begun.shared_tokens] == plain.ids == system_ids(encode, system)
    assert begun.shared_tokens == len(plain.ids)


@given(system=TEXTS, own=st.text(min_size=1, max_size=40))
def test_the_persons_words_follow_whole_and_count_as_what_they_take(system: str, own: str) -> None:
    begun = opening(encode, system, own)
    assert begun.text == system + asked(own)
    assert begun.text.endswith(own)
    assert len(begun.ids) == begun.shared_tokens + len(encode(asked(own)))


def test_without_instructions_nothing_follows() -> None:
    assert opening(encode, "Be kind.", "") == Opening("Be kind.", encode("Be kind."), 8)


def test_what_people_write_is_not_kept_in_memory() -> None:
    counts: list[str] = []

    def counting(text: str) -> TokenIds:
        counts.append(text)
        return (1,)

    for _ in range(2):
        opening(counting, "platform", "mine")
    assert counts == ["platform", asked("mine"), asked("mine")]


def test_instructions_leave_most_of_a_small_window_free() -> None:
    assert [most_instructions(window) for window in (2_048, 4_000, 32_000)] == [
        512,
        INSTRUCTIONS_TOKENS,
        INSTRUCTIONS_TOKENS,
    ]


def talk(sizes: Sequence[tuple[int, int]], turns: int) -> list[BranchMessage]:
    """What turn `turns` is asked after: earlier ones answered, the newest not yet."""
    branch = []
    for n, (question, answer) in enumerate(sizes[: turns + 1]):
        branch.append(BranchMessage(f"u{n}", "user", Status.COMPLETED, question, "t"))
        if n < turns:
            branch.append(BranchMessage(f"a{n}", "assistant", Status.COMPLETED, answer, "t"))
    return branch


def first_of(path: Sequence[BranchMessage], room: int) -> str:
    exchanges = exchanges_of(path, per_message_tokens=3)
    return choose_context(exchanges, room_tokens=room).message_ids[0]


def moved(path: Sequence[BranchMessage], room: int) -> bool:
    return has_cut_moved(path, per_message_tokens=3, room_tokens=room)


SIZES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=40)


@given(sizes=SIZES, room=st.integers(1, 400))
def test_a_cut_has_moved_exactly_where_the_prompt_before_began_elsewhere(
    sizes: list[tuple[int, int]], room: int
) -> None:
    firsts = [first_of(talk(sizes, turns), room) for turns in range(len(sizes))]
    for turns in range(len(sizes)):
        expected = turns > 0 and firsts[turns] != firsts[turns - 1]
        assert moved(talk(sizes, turns), room) is expected


def test_in_a_long_talk_few_turns_may_begin_anew() -> None:
    sizes = [(30, 70)] * 200
    cuts = sum(moved(talk(sizes, turns), 4_000) for turns in range(len(sizes)))
    assert 4 <= cuts <= 20


def test_a_failed_reply_moves_no_cut() -> None:
    path = talk([(10, 10)] * 3, 2)
    path.insert(-1, BranchMessage("f", "assistant", Status.FAILED, 5, "t"))
    assert not moved(path, 1_000)


@pytest.mark.parametrize("room", [1, 1_000])
def test_a_first_turn_was_never_cut(room: int) -> None:
    assert not moved(talk([(50, 1)], 0), room)


def test_a_prompt_is_cut_where_its_first_exchange_is_left_out() -> None:
    path = talk([(20, 20)] * 5, 5)
    for room in (1_000, 60):
        cut = is_cut(path, per_message_tokens=3, room_tokens=room)
        assert cut == (first_of(path, room) != path[0].id)
    assert is_cut(path, per_message_tokens=3, room_tokens=60)
