"""Which questions have a ready reply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.canned import QUESTION_CHARS, plainly, ready_replies

READY = ready_replies([(["Hello", "Hi there!"], "Hello to you."), (["What are you?"], "A lamp.")])


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("hello", "Hello to you."),
        ("  HELLO!!  ", "Hello to you."),
        ("Hi,\n there", "Hello to you."),
        ("\u00bfWhat are you?", "A lamp."),
        ("hello you", None),
        ("hell o", None),
        ("", None),
        ("!?", None),
        ("hello" + " " * QUESTION_CHARS, None),
    ],
)
def test_a_question_is_compared_whole_but_for_case_spaces_and_marks(
    question: str, reply: str | None
) -> None:
    assert READY.get(plainly(question)) == reply


@given(st.text())
def test_a_plain_question_is_plain_already(question: str) -> None:
    plain = plainly(question)
    assert plainly(plain) in (plain, "")
    assert plain == plain.strip()


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(["Hello"], "a"), (["hello!"], "b")], "two replies"),
        ([(["?"], "a")], "no words"),
        ([(["x" * (QUESTION_CHARS + 1)], "a")], "over 200 characters"),
    ],
)
def test_what_can_not_be_a_question_is_refused(
    pairs: list[tuple[list[str], str]], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        ready_replies(pairs)


def test_one_reply_may_be_given_to_the_same_question_twice() -> None:
    assert ready_replies([(["Hello"], "a"), (["hello"], "a")]) == {"hello": "a"}
