"""A prompt begins the same from cut to cut: the platform's words, and then the person's own."""

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.opening import (
    INSTRUCTIONS_TOKENS,
    Opening,
    asked,
    most_instructions,
    opening,
)
from tertulia.core.prompt import system_ids
from tertulia.core.types import TokenIds

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
