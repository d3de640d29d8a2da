"""What models say behind a conversation's back is bounded and clean before anybody sees it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.prompt import Exchange
from tertulia.core.remembering import (
    PIECES,
    RETRY_S,
    TITLE_CHARS,
    TRIES,
    Task,
    asked_tokens,
    clean_summary,
    clean_title,
    covered_ids,
    pieces_of,
    retry_after_s,
    scribe_of,
    shortened_to,
    summary_id,
    summary_request,
    title_request,
)
from tertulia.core.types import ModelState


def tried(tries: int) -> Task:
    return Task("ann", "c_1", "title", "", 12, tries=tries, epoch=tries)


def test_a_task_waits_longer_after_each_failure_and_is_given_up_after_the_last() -> None:
    waits = [retry_after_s(tried(tries)) for tries in range(1, TRIES + 1)]
    assert waits == [RETRY_S, 2 * RETRY_S, None]


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Decode and memory", "Decode and memory"),
        ('"Decode and Memory."', "Decode and Memory"),
        ("**Title:** Decode and memory\n\nIt is about ...", "Decode and memory"),
        ("\n  \n# A   trip to\tOslo \n", "A trip to Oslo"),
        ("«Ñandú y niños»", "Ñandú y niños"),
        ("...", ""),
        ("", ""),
        ("  \n\n", ""),
    ],
)
def test_a_title_is_one_plain_line(said: str, title: str) -> None:
    assert clean_title(said, is_whole=True) == title


def model(name: str, *, room: int = 1, state: str = "ready") -> ModelState:
    return ModelState(name, f"lab/{name}", state, room=room)  # type: ignore[arg-type]  # a test's own words


@pytest.mark.parametrize(
    ("models", "own", "asked"),
    [
        ((model("large"), model("small")), "lab/large", "large"),
        ((model("large"), model("small")), "lab/small", "small"),
        ((model("large", room=0), model("small")), "lab/large", "small"),
        ((model("large"), model("small", room=0)), None, "small"),
        ((model("large", state="starting"), model("small")), "lab/large", "small"),
        ((model("large", room=0),), "lab/large", "large"),
        ((model("large"), model("small", state="failed")), "lab/gone", "large"),
        ((model("large", state="failed"),), "lab/large", None),
        ((), None, None),
    ],
)
def test_the_conversations_own_model_is_asked_while_it_has_room_and_then_the_small_one(
    models: Sequence[ModelState], own: str | None, asked: str | None
) -> None:
    found = scribe_of(models, own)
    assert (found.name if found is not None else None) == asked


def test_a_title_that_was_cut_off_loses_its_last_word_alone() -> None:
    assert clean_title("Why decode is memory bou", is_whole=False) == "Why decode is memory"
    assert clean_title("Antidisestablishmentarian", is_whole=False) == "Antidisestablishmentarian"
    assert clean_title("Why decode\nis slow, because it", is_whole=False) == "Why decode"


def test_a_long_title_ends_with_a_whole_word() -> None:
    at_border = "a" * (TITLE_CHARS - 2) + " b"
    assert clean_title(at_border + " c", is_whole=True) == at_border
    assert clean_title(at_border + "c", is_whole=True) == "a" * (TITLE_CHARS - 2)


@given(said=st.text(max_size=300), is_whole=st.booleans())
def test_a_title_is_short_and_has_no_edges_to_trim(said: str, is_whole: bool) -> None:
    title = clean_title(said, is_whole=is_whole)
    assert len(title) <= TITLE_CHARS
    assert title == title.strip()
    assert len(title.splitlines()) <= 1


def test_a_summary_that_was_cut_off_ends_with_its_last_whole_sentence() -> None:
    said = " Ann has 2.5 figs. She asked: “Why?” And then sh"
    assert clean_summary(said, is_whole=False) == "Ann has 2.5 figs. She asked: “Why?”"
    assert clean_summary(said, is_whole=True) == said.strip()
    assert clean_summary("- figs\n- pea", is_whole=False) == "- figs"
    assert clean_summary("no end at all", is_whole=False) == "no end at all"


def exchanges(*tokens: int) -> list[Exchange]:
    return [Exchange((f"u{n}",), (tokens_,), f"a{n}", 0) for n, tokens_ in enumerate(tokens)]


def test_what_is_covered_may_end_at_each_reply() -> None:
    assert covered_ids([*exchanges(1, 1), Exchange(("u9",), (1,))]) == ("a0", "a1")


@given(tokens=st.lists(st.integers(1, 50), max_size=30), room=st.integers(-5, 60))
def test_pieces_fit_and_lose_only_the_oldest(tokens: Sequence[int], room: int) -> None:
    given_ = exchanges(*tokens)
    pieces = pieces_of(given_, room_tokens=room)
    read = [one for piece in pieces for one in piece]
    assert len(pieces) <= PIECES
    assert given_[len(given_) - len(read) :] == read
    assert len(read) == len(given_) or len(pieces) == PIECES
    for piece in pieces:
        assert sum(one.tokens for one in piece) <= room or len(piece) == 1


@given(text=st.text(max_size=200), tokens=st.integers(-3, 120))
def test_a_long_text_keeps_its_beginning_and_its_end(text: str, tokens: int) -> None:
    kept = shortened_to(text, tokens, count=len)
    if len(text) <= tokens:
        assert kept == text
    else:
        assert len(kept) <= max(0, tokens)
        begin, _, end = kept.partition(" … ")
        assert text.startswith(begin) or " … " in text
        assert text.endswith(end) or " … " in text


def test_a_text_that_is_far_too_long_is_never_counted_whole() -> None:
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text) // 4

    kept = shortened_to("many words " * 10_000, 100, count=count)
    assert 300 < len(kept) < 404
    assert max(counted) < 1_300
    assert len(counted) <= 3


def test_a_summary_is_known_by_what_it_says_and_where_it_ends() -> None:
    assert summary_id("m_1", "figs") == summary_id("m_1", "figs")
    assert (
        len({summary_id(*one) for one in (("m_1", "figs"), ("m_2", "figs"), ("m_1", "fig"))}) == 3
    )


def test_less_than_the_room_is_asked_for_as_another_tokenizer_may_count_more() -> None:
    assert asked_tokens(400) == 300
    assert "150 words" in summary_request(300).content
    assert "20 words" in summary_request(10).content
    assert title_request().role == "user"
