"""What people asked to be remembered stays as they said it, through every summary."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.kept_words import (
    KEPT_CHARS,
    KEPT_HEAD,
    KEPT_OF_MESSAGE,
    asked_to_keep,
    carried,
    parted,
    with_kept,
)


def by_points(text: str) -> Sequence[str]:
    """Sentences, as simple as that."""
    parts = text.split(".")
    return [*(f"{part}." for part in parts[:-1]), parts[-1]]


def kept_of(said: str) -> tuple[str, ...]:
    return asked_to_keep(said, split=by_points)


@pytest.mark.parametrize(
    "said",
    [
        "My code word is quince. Please remember it.",
        "Don’t forget: Ann comes at seven",
        "From now on, call me Ishmael.",
        "Merk dir bitte: mein Hund heißt Bello.",
        "Ab jetzt bitte auf Deutsch",
        "Recuerda que soy alérgica a los cacahuetes",
        "Souviens-toi que je m'appelle Zoé.",
        "Ricordati che domani è il 3 giugno",
        "Lembre-se: o código é 4711",
        "Запомни: меня зовут Анна",
        "Zapamiętaj, że jestem z Gdańska",
        "Onthoud dat ik vegetariër ben",
        "Unutma, adım Deniz",
        "请记住我的生日是五月四日",
        "私の名前はケンです。覚えておいて",
        "내 이름은 민수야. 기억해 줘",
        "تذكر أن اسمي ليلى",
        "याद रखना, मेरा नाम आशा है",
    ],
)
def test_what_is_to_be_remembered_is_kept_as_it_was_said(said: str) -> None:
    assert kept_of(f" {said}\n") == (said,)


@pytest.mark.parametrize(
    "said", ["What have bees and salt in common?", "Write a poem.", "", "Unforgettable members"]
)
def test_what_nobody_asked_to_be_remembered_is_not_kept(said: str) -> None:
    assert kept_of(said) == ()


def test_of_a_long_message_the_sentences_are_kept_that_ask_and_those_beside_them() -> None:
    padding = "This goes on for a while. " * 20
    said = f"{padding}My cat is Mia. Remember that. She is ten. {padding}"
    assert kept_of(said) == ("My cat is Mia. Remember that. She is ten.",)


def test_a_long_sentence_keeps_its_beginning_and_its_end() -> None:
    (kept,) = kept_of("Remember this " + "very " * 200 + "well")
    assert kept.startswith("Remember this very")
    assert " … " in kept
    assert kept.endswith("very well")
    assert len(kept) <= KEPT_CHARS


def test_of_a_text_that_asks_on_every_page_the_first_are_kept() -> None:
    pages = [f"Page {n}. Remember page {n}. Turn it. " + "Blah. " * 40 for n in range(30)]
    kept = kept_of("".join(pages))
    assert len(kept) == KEPT_OF_MESSAGE
    assert kept[0] == "Page 0. Remember page 0. Turn it."


lines = st.text(min_size=1).map(lambda text: " ".join(text.split())).filter(bool)


@given(kept=st.lists(lines), rest=st.text())
def test_what_a_summary_keeps_can_be_read_from_it(kept: list[str], rest: str) -> None:
    assert parted(with_kept(kept, rest)) == (tuple(kept), rest) or not kept


@given(text=st.text())
def test_any_other_text_keeps_nothing(text: str) -> None:
    assert parted(text) == ((), text)
    assert parted(f"{KEPT_HEAD}\n{text} x") == ((), f"{KEPT_HEAD}\n{text} x") or text[:2] == "- "


@given(older=st.lists(lines), newer=st.lists(lines), room=st.integers(0, 400))
def test_what_is_carried_has_room_and_is_the_newest(
    older: list[str], newer: list[str], room: int
) -> None:
    kept = carried(older, newer, room_tokens=room, count=len)
    assert len(with_kept(kept, "")) <= room or not kept
    assert len(set(kept)) == len(kept)
    everything = [*older, *newer]
    assert set(kept) <= set(everything)
    if everything and len(with_kept(everything[-1:], "")) <= room:
        assert kept[-1] == everything[-1]
    roomy = carried(older, newer, room_tokens=10**6, count=len)
    assert set(roomy) == set(everything)


def test_who_says_it_again_says_it_last() -> None:
    kept = carried(["a", "b"], ["c", "a"], room_tokens=999, count=len)
    assert kept == ("b", "c", "a")
