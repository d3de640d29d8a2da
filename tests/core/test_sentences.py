"""The gate lets whole sentences out, loses and reorders nothing, and stops at a stop string."""

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.sentences import Piece, SentenceGate
from tertulia.core.types import TokenIds, Unit


def split(text: str) -> list[str]:
    """A plain splitter: a sentence ends with a mark and the space after it."""
    return re.findall(r".*?[.!?]+\s+|.+", text, re.DOTALL)


def units_of(texts: Sequence[str], *, width: int = 1) -> list[Unit]:
    return [Unit(text, tuple(range(i * width, (i + 1) * width))) for i, text in enumerate(texts)]


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def run(gate: SentenceGate, batches: Sequence[Sequence[Unit]]) -> list[Piece]:
    pieces = [gate.feed(batch) for batch in batches]
    pieces.append(gate.close())
    return [piece for piece in pieces if piece is not None]


TEXTS = st.lists(st.text("ab.! \n", max_size=5), max_size=40)
WIDTHS = st.integers(1, 3)
CAPS = st.sampled_from([1, 2, 5, 48])
STOPS = st.lists(st.text("ab.", min_size=1, max_size=4), max_size=3).map(tuple)


@st.composite
def batched(draw: st.DrawFn) -> list[list[Unit]]:
    units = units_of(draw(TEXTS), width=draw(WIDTHS))
    cuts = sorted(draw(st.lists(st.integers(0, len(units)), max_size=6)))
    edges = [0, *cuts, len(units)]
    return [units[first:last] for first, last in pairwise(edges)]


@given(batches=batched(), cap=CAPS)
def test_what_comes_out_is_what_went_in(batches: list[list[Unit]], cap: int) -> None:
    units = [unit for batch in batches for unit in batch]
    pieces = run(SentenceGate(split, cap_tokens=cap), batches)
    assert text_of(pieces) == "".join(unit.text for unit in units)
    assert [i for piece in pieces for i in piece.ids] == [i for unit in units for i in unit.ids]


@given(batches=batched(), cap=CAPS, stop=STOPS)
def test_only_whole_units_come_out(
    batches: list[list[Unit]], cap: int, stop: tuple[str, ...]
) -> None:
    units = [unit for batch in batches for unit in batch]
    gate = SentenceGate(split, cap_tokens=cap, stop=stop)
    taken = 0
    for piece in run(gate, batches):
        text = ""
        ids: TokenIds = ()
        while len(ids) < len(piece.ids):
            text, ids = text + units[taken].text, ids + units[taken].ids
            taken += 1
        assert ids == piece.ids
        # Only the very last unit may lose a part of its text, to a stop string.
        assert text == piece.text or (gate.stopped and text.startswith(piece.text))


@given(batches=batched(), cap=CAPS, stop=STOPS)
def test_text_is_checked_up_to_the_end_of_a_sentence_and_released_no_further(
    batches: list[list[Unit]], cap: int, stop: tuple[str, ...]
) -> None:
    gate = SentenceGate(split, cap_tokens=cap, stop=stop)
    held, tokens = "", 0
    for batch in batches:
        held += "".join(unit.text for unit in batch)
        tokens += sum(len(unit.ids) for unit in batch)
        piece = gate.feed(batch)
        if gate.stopped:
            return
        if piece is None:
            continue
        assert piece.sentence.startswith(piece.text)
        assert held.startswith(piece.sentence)
        after_lines = held[held.rfind("\n") + 1 :]
        ends, at = {held.rfind("\n") + 1}, held.rfind("\n") + 1
        for sentence in split(after_lines)[:-1]:
            at += len(sentence)
            ends.add(at)
        if tokens >= cap:
            ends = {len(held)}
        assert len(piece.sentence) in ends
        held = held[len(piece.text) :]
        tokens -= len(piece.ids)


@given(batches=batched(), cap=CAPS)
def test_no_more_than_the_cap_is_ever_held(batches: list[list[Unit]], cap: int) -> None:
    gate = SentenceGate(split, cap_tokens=cap)
    fed = released = 0
    for batch in batches:
        fed += sum(len(unit.ids) for unit in batch)
        piece = gate.feed(batch)
        released += len(piece.ids) if piece is not None else 0
        assert fed - released < cap


@given(batches=batched(), cap=CAPS, stop=STOPS)
def test_what_does_not_ripen_may_wait_and_changes_nothing(
    batches: list[list[Unit]], cap: int, stop: tuple[str, ...]
) -> None:
    eager, lazy = (SentenceGate(split, cap_tokens=cap, stop=stop) for _ in range(2))
    waiting: list[Unit] = []
    for batch in batches:
        waiting += batch
        piece = None
        if lazy.ripens(batch):
            piece, waiting = lazy.feed(waiting), []
        assert piece == eager.feed(batch)
    assert (lazy.feed(waiting), lazy.close()) == (None, eager.close())


def expected_until_stop(text: str, stop: tuple[str, ...]) -> str:
    """All before the stop string that is complete first; written letter by letter, on purpose."""
    for end in range(1, len(text) + 1):
        starts = [end - len(s) for s in stop if text[:end].endswith(s)]
        if starts:
            return text[: min(starts)]
    return text


@given(batches=batched(), cap=CAPS, stop=STOPS)
def test_nothing_from_a_stop_string_on_comes_out(
    batches: list[list[Unit]], cap: int, stop: tuple[str, ...]
) -> None:
    text = "".join(unit.text for batch in batches for unit in batch)
    gate = SentenceGate(split, cap_tokens=cap, stop=stop)
    assert text_of(run(gate, batches)) == expected_until_stop(text, stop)
    assert gate.stopped == any(s in text for s in stop)


@pytest.mark.parametrize("cut", range(len("One. Two END three.") + 1))
@pytest.mark.parametrize("cap", [1, 3, 48])
def test_a_stop_string_is_found_wherever_it_is_cut(cut: int, cap: int) -> None:
    text = "One. Two END three."
    gate = SentenceGate(split, cap_tokens=cap, stop=("END",))
    pieces = run(gate, [[unit] for unit in units_of([text[:cut], text[cut:]])])
    assert text_of(pieces) == "One. Two "


def test_what_may_become_a_stop_string_is_checked_with_its_sentence_but_waits() -> None:
    gate = SentenceGate(split, stop=("!!!!",))
    piece = gate.feed(units_of(["Go", " on", "!!", " ", "Now"]))
    # Withheld is by characters: "!!" could have begun the stop string a moment ago.
    assert piece == Piece("Go on!! ", "Go on!! ", (0, 1, 2, 3))
    late = SentenceGate(split, stop=("x" * 6,)).feed(units_of(["Go", " on", ".", " ", "No"]))
    assert late == Piece("Go on. ", "Go", (0,))


def test_a_token_that_ends_one_sentence_and_begins_the_next_waits() -> None:
    gate = SentenceGate(split)
    assert gate.feed(units_of(["Yes", ". N"])) == Piece("Yes. ", "Yes", (0,))
    assert gate.close() == Piece(". N", ". N", (1,))


def test_a_sentence_may_go_on_and_so_is_held_until_the_next_begins() -> None:
    gate = SentenceGate(split)
    assert gate.feed(units_of(["It costs 3."])) is None
    assert gate.feed([Unit("5 euros. ", (1,))]) is None
    assert gate.feed([Unit("Then", (2,))]) == Piece(
        "It costs 3.5 euros. ", "It costs 3.5 euros. ", (0, 1)
    )


def test_a_line_end_closes_a_sentence_at_once() -> None:
    gate = SentenceGate(split)
    assert gate.feed(units_of(["# Title", "\n"])) == Piece("# Title\n", "# Title\n", (0, 1))


def test_text_that_can_not_end_a_sentence_is_not_split() -> None:
    def never(text: str) -> Sequence[str]:
        raise AssertionError(text)

    assert SentenceGate(never).feed(units_of(["no", " end", " yet"])) is None


def test_a_sentence_without_end_is_forced_out_at_the_cap() -> None:
    gate = SentenceGate(split, cap_tokens=3)
    assert gate.feed(units_of(["a ", "b "])) is None
    assert gate.feed([Unit("c ", (2,))]) == Piece("a b c ", "a b c ", (0, 1, 2))


def test_after_a_stop_string_nothing_more_is_taken() -> None:
    gate = SentenceGate(split, stop=("#",))
    assert gate.feed(units_of(["Hi", "#", " more"])) == Piece("Hi", "Hi", (0,))
    assert gate.feed([Unit("Again. And", (9,))]) is None
    assert gate.close() is None


def test_a_reply_that_begins_with_a_stop_string_is_empty() -> None:
    gate = SentenceGate(split, stop=("#",))
    assert gate.feed(units_of(["#", "Hi"])) is None
    assert gate.stopped


def test_closing_an_empty_gate_gives_nothing() -> None:
    assert SentenceGate(split).close() is None
