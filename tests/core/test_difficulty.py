"""How hard a question looks: what the shipped weights separate, and that no text is too much."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.config import ChoiceTable
from tertulia.core.difficulty import (
    FEATURES,
    HARDEST,
    SMALL_BELOW,
    Question,
    contributions,
    crude_difficulty,
    difficulty,
    has_code,
)
from tertulia.core.lexicon import (
    CONDITIONS,
    DEMANDING,
    PLAIN,
    STAKES,
    THINKING,
    Lexicon,
    Words,
    words_of,
)

# Written for this project, and labelled by hand: is a small model's answer likely to be worse?
QUESTIONS = [
    json.loads(line)
    for line in (Path(__file__).parent / "questions.jsonl").read_text(encoding="utf-8").splitlines()
]
HARD = [one["text"] for one in QUESTIONS if one["kind"] == "hard"]
EASY = [one["text"] for one in QUESTIONS if one["kind"] == "easy"]
SHIPPED = ChoiceTable()


def question(text: str, tokens: int | None = None) -> Question:
    """About four bytes make a token; the prompt is the question alone."""
    counted = len(text.encode(errors="replace")) // 4 if tokens is None else tokens
    return Question(text, counted, counted)


def crude(asked: Question) -> int:
    return crude_difficulty(asked, easy_tokens=SHIPPED.easy_tokens)


def area(grade: Callable[[Question], int]) -> float:
    """The chance that a hard question is graded above an easy one; ties count half."""
    hard = [grade(question(text)) for text in HARD]
    easy = [grade(question(text)) for text in EASY]
    above = sum((h > e) + 0.5 * (h == e) for h in hard for e in easy)
    return above / (len(hard) * len(easy))


def test_the_list_is_about_as_much_easy_as_hard_and_in_many_languages() -> None:
    assert min(len(HARD), len(EASY)) > 100
    assert len({one["lang"] for one in QUESTIONS}) > 10
    assert len(set(HARD + EASY)) == len(QUESTIONS)


def test_the_shipped_weights_tell_hard_from_easy_and_far_better_than_the_crude_rule() -> None:
    assert area(difficulty) >= 0.95
    assert area(crude) <= 0.6


def test_the_weights_know_more_than_that_hard_questions_are_long() -> None:
    assert area(difficulty) >= area(lambda asked: len(asked.text)) + 0.05


@pytest.mark.parametrize("lang", sorted({one["lang"] for one in QUESTIONS}))
def test_no_language_is_graded_as_one(lang: str) -> None:
    grades = {
        kind: [
            difficulty(question(one["text"]))
            for one in QUESTIONS
            if (one["lang"], one["kind"]) == (lang, kind)
        ]
        for kind in ("easy", "hard")
    }
    middle = SMALL_BELOW
    assert sum(grade < middle for grade in grades["easy"]) >= 0.85 * len(grades["easy"])
    assert sum(grade >= middle for grade in grades["hard"]) >= 0.8 * len(grades["hard"])


def test_where_auto_divides_few_hard_questions_go_to_the_small_model() -> None:
    """The list is no sample of what people ask: what share of all turns is easy, it can't say."""
    lost = [text for text in HARD if difficulty(question(text)) < SMALL_BELOW]
    wasted = [text for text in EASY if difficulty(question(text)) >= SMALL_BELOW]
    assert len(lost) <= 0.06 * len(HARD), lost
    assert len(wasted) <= 0.08 * len(EASY), wasted


SHORT = "Tell me about the moon."


@pytest.mark.parametrize(
    ("feature", "asked"),
    [
        ("length", SHORT + " It is up there at night and I like to look at it with my friends."),
        ("code", "Tell me about this:\n```\nmoon()\n```"),
        ("code", "Tell me about this:\ndef moon(size):\n    return size;"),
        ("maths", "Tell me about x^2 + 3x = 7."),
        ("demanding", "Prove something about the moon."),
        ("thinking", "Compare the moons."),
        ("stakes", "Tell me about the tax on moons."),
        ("conditions", "Tell me about the moon without its name."),
        ("conditions", "Tell me:\n- about the moon\n- about the sun"),
        ("numbers", "Tell me about 3 moons, 4 suns, 5 stars."),
        ("questions", "What is the moon? Where is it?"),
        ("sentences", "I saw the moon. It was red."),
    ],
)
def test_each_feature_of_a_text_makes_it_harder(feature: str, asked: str) -> None:
    without, with_it = contributions(question(SHORT)), contributions(question(asked))
    assert with_it[feature] > without[feature]


def test_what_a_small_model_does_as_well_makes_a_text_easier() -> None:
    assert contributions(question("Translate: the moon."))["plain"] < 0
    assert difficulty(question("Translate: the moon.")) < difficulty(question(SHORT))


def test_a_long_conversation_and_a_second_try_make_the_same_words_harder() -> None:
    asked = question(SHORT)
    in_a_long_one = replace(asked, prompt_tokens=asked.tokens + 7_000)
    assert difficulty(asked) < difficulty(in_a_long_one)
    for text in (SHORT, "Hi!", "Hello, thanks! Translate: bye."):
        once, again = question(text), replace(question(text), asked="again")
        assert difficulty(once) < SMALL_BELOW <= difficulty(again)


def test_every_feature_says_why_it_is_there_and_none_is_there_twice() -> None:
    names = [feature.name for feature in FEATURES]
    assert len(set(names)) == len(names)
    assert all(feature.weight and len(feature.why.split()) > 5 for feature in FEATURES)
    assert list(contributions(question(SHORT))) == names


@given(
    text=st.text(max_size=4_000),
    tokens=st.integers(0, 100_000),
    before=st.integers(0, 1_000_000),
    again=st.booleans(),
)
def test_any_text_has_one_grade_within_the_scale(
    text: str, tokens: int, before: int, again: bool
) -> None:
    asked = Question(text, tokens, tokens + before, "again" if again else "first")
    assert 0 <= difficulty(asked) <= HARDEST
    assert difficulty(asked) == difficulty(replace(asked))
    assert crude(asked) in (0, HARDEST)


@given(before=st.integers(-1_000_000, 0))
def test_a_prompt_that_was_cut_below_its_question_is_no_history(before: int) -> None:
    asked = question("And the other one?", 1_000_000)
    assert contributions(replace(asked, prompt_tokens=1_000_000 + before))["history"] == 0


def test_only_both_ends_of_a_long_text_are_read() -> None:
    """So that a text of any length costs the same; what is asked stands at one of its ends."""
    head, tail = "Why? " * 600, " Thanks. " * 300
    middles = ("m" * 500, "Prove it. " * 50, "```\n1\n" * 83 + "12", "证" * 500)
    assert {len(middle) for middle in middles} == {500}
    grades = {difficulty(question(head + middle + tail, 9)) for middle in middles}
    assert len(grades) == 1


MILLION = 1_000_000
HOSTILE = {
    "one letter": "a" * MILLION,
    "spaces": " " * MILLION,
    "ends of lines": "\n" * MILLION,
    "control characters": "\x00\x01\x02\x1b\x7f" * (MILLION // 5),
    "right to left": "\u202eאבג \u202c" * (MILLION // 6),
    "combining marks": ("a" + "\u0301" * 99) * (MILLION // 100),
    "ligatures that grow": "\ufdfa" * MILLION,
    "without spaces": "证" * MILLION,
    "emoji": "👩‍👩‍👧" * (MILLION // 5),
    "digits": "1" * MILLION,
    "points": "a." * (MILLION // 2),
    "open brackets": "f(" * (MILLION // 2),
    "half formulas": "$x=" * (MILLION // 3),
    "half statements": "def " * (MILLION // 4),
    "backslashes": "\\frac" * (MILLION // 5),
    "question marks": "?" * MILLION,
    "words": "wonderful worlds of words " * (MILLION // 26),
    "half of a surrogate pair": "\ud800" * MILLION,
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_megabyte_of_anything_is_graded_in_less_than_the_door_waits(name: str) -> None:
    asked = question(HOSTILE[name])
    took_s = []
    for _ in range(3):
        began = time.process_time()
        grade = difficulty(asked)
        crude(asked)
        took_s.append(time.process_time() - began)
        assert 0 <= grade <= HARDEST
    assert min(took_s) < 0.03  # it takes 2 to 4 ms; the door waits 30


def test_a_text_of_nothing_is_easy() -> None:
    for text in ("", " ", "\n\t", "\x00", "…", "\u202e"):
        assert difficulty(question(text)) < SMALL_BELOW


@pytest.mark.parametrize(
    ("text", "tokens", "is_easy"),
    [
        ("Short.", 199, True),
        ("Long.", 200, False),
        ("```\nx\n```", 5, False),
        ("for (int i = 0; i < n; i++) {\n  sum += i;\n}", 20, False),
        ("One sign may be chance: a -> b.", 9, True),
    ],
)
def test_the_crude_rule(text: str, tokens: int, is_easy: bool) -> None:
    assert crude(question(text, tokens)) == (0 if is_easy else HARDEST)
    assert has_code(text) == (not is_easy and tokens < 200)


def test_words_are_found_whole_by_their_beginning_and_anywhere_each_once() -> None:
    words = words_of("why Prov* prov*", "step by step, 证明,")
    assert words == Words(
        frozenset({"why"}), frozenset({"prov"}), frozenset({"step by step", "证明"})
    )
    text = "why prove, proven? whyever step by step 请证明 why"
    lexicon = Lexicon(words, words_of("whyever prove*", "prove"))
    assert lexicon.counts({"why", "prove", "proven", "whyever"}, text) == [4, 3]
    assert lexicon.counts({"why"}, "why, step by step") == [2, 0]
    assert lexicon.counts({"pro"}, "pro") == [0, 0]
    assert lexicon.counts(set(), "") == [0, 0]


def test_no_word_speaks_for_two_sides() -> None:
    hard = [DEMANDING, THINKING, STAKES, CONDITIONS]
    for other in hard:
        assert not PLAIN.whole & other.whole
        assert not PLAIN.beginnings & other.beginnings
        assert not set(PLAIN.anywhere) & set(other.anywhere)
        whole = PLAIN.whole | PLAIN.beginnings
        assert not [w for w in whole for b in other.beginnings if w.startswith(b)]
