"""Search: no text is told apart from a word that it holds, and what is shown holds the word."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from tertulia.core.search import (
    LOOKED_THROUGH,
    LOOKED_THROUGH_WHOLLY,
    QUERY_CHARS,
    SIGNATURE_BITS,
    SIGNATURE_WORDS,
    SNIPPET_CHARS,
    Snippet,
    folded,
    looked_through,
    searched,
    signature,
    snippet,
    words_of,
)

# Letters of alphabets and wide ones, beside each other, and what folding makes longer.
letters = st.sampled_from("abcABC ß İ\u0130ǰé\n\t的字ひカ한🙂\U0001f469\u200d%_\"'\\")
texts = st.text(alphabet=letters, max_size=60) | st.text(max_size=60)


@given(before=texts, word=texts, after=texts)
def test_a_text_that_holds_a_word_has_all_bits_of_the_word(
    before: str, word: str, after: str
) -> None:
    mask = signature(searched(word))
    assert signature(folded(before + word + after)) & mask == mask


@given(before=texts, word=texts.filter(bool), after=texts)
@example(before="ß" * 50, word="İ", after="ǰ")
def test_a_snippet_is_a_piece_of_the_text_and_holds_the_word(
    before: str, word: str, after: str
) -> None:
    text = before + word + after
    found = snippet(text, searched(word))
    piece = "".join(found)
    on_one_line = "".join(" " if letter.isspace() else letter for letter in text)
    assert piece in on_one_line
    assert on_one_line.index(piece) + len(found.before) <= len(before) + len(word)
    squeezed = "".join(" " if letter.isspace() else letter for letter in searched(word))
    assert squeezed in folded(found.match)
    assert len(piece) <= max(SNIPPET_CHARS, len(found.before) + len(found.match))


def test_a_snippet_shows_what_stands_before_and_after() -> None:
    text = "x" * 100 + "\nIn der STRASSE\n" + "y" * 300
    found = snippet(text, searched("straße"))
    assert found == Snippet("x" * 32 + " In der ", "STRASSE", " " + "y" * 112)
    assert snippet("Straße", searched("rass")) == Snippet("St", "raß", "e")


def test_a_word_that_is_not_there_has_no_snippet() -> None:
    with pytest.raises(ValueError, match="not found"):
        snippet("text", "word")


def test_nearly_all_texts_without_a_word_are_told_apart() -> None:
    text = folded("The quick brown fox jumps over the lazy dog while it rains. " * 3)
    told = [
        word
        for word in ("kubernetes", "postgres", "münchen", "数据库")
        if signature(text) & signature(word) != signature(word)
    ]
    assert len(told) == 4
    assert signature(text).bit_count() < SIGNATURE_BITS // 8


@pytest.mark.parametrize(
    ("word", "looked"),
    [
        ("of", LOOKED_THROUGH_WHOLLY),
        ("to be", LOOKED_THROUGH_WHOLLY),
        ("字", LOOKED_THROUGH_WHOLLY),
        ("字a", LOOKED_THROUGH_WHOLLY),
        ("词典", LOOKED_THROUGH),
        ("now", LOOKED_THROUGH),
        ("50%", LOOKED_THROUGH),
        ("is 404", LOOKED_THROUGH),
    ],
)
def test_a_word_without_a_signature_is_looked_for_in_fewer(word: str, looked: int) -> None:
    assert looked_through(searched(word)) == looked


def test_a_signature_is_the_same_on_every_machine() -> None:
    assert signature("abc") == 1 << 450
    assert signature("") == 0


@given(st.integers(0, (1 << SIGNATURE_BITS) - 1))
def test_a_signature_is_kept_in_signed_integers(bits: int) -> None:
    words = words_of(bits)
    assert len(words) == SIGNATURE_WORDS
    assert all(-(1 << 63) <= word < 1 << 63 for word in words)
    again = b"".join(word.to_bytes(8, "little", signed=True) for word in words)
    assert int.from_bytes(again, "little") == bits


def test_case_is_folded_as_unicode_says() -> None:
    assert searched("STRASSE") == searched("straße") == "strasse"
    assert searched("ΣΊΣΥΦΟΣ") == searched("σίσυφος")
    assert searched("İ") == "i\u0307"  # found by itself, and not by `i` with what follows it
    assert searched("ı") != searched("i")
    assert len(searched("x" * 999)) == QUERY_CHARS
