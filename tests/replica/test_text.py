"""Text leaves only as whole characters, and never the beginning of a stop string."""

from hypothesis import given
from hypothesis import strategies as st

from tertulia.replica.text import Shown, TextCutter, unfinished_tail


def test_an_emoji_split_over_four_tokens_comes_out_once_and_whole() -> None:
    cutter = TextCutter(())
    assert [cutter.feed(bytes([byte])).text for byte in "🌧".encode()] == ["", "", "", "🌧"]


def test_a_stop_string_over_three_tokens_is_cut_and_named() -> None:
    cutter = TextCutter(("END",))
    assert cutter.feed(b"so E") == Shown("so ")
    assert cutter.feed(b"N") == Shown("")
    assert cutter.feed(b"D and more") == Shown("", "END")


def test_text_held_for_a_stop_string_that_does_not_come_is_given_out() -> None:
    cutter = TextCutter(("END",))
    assert cutter.feed(b"E") == Shown("")
    assert cutter.feed(b"x") == Shown("Ex")
    assert cutter.feed(b"EN") == Shown("")
    assert cutter.rest() == "EN"


def test_the_earliest_of_several_stop_strings_ends_the_text() -> None:
    assert TextCutter(("c", "b")).feed(b"abc") == Shown("a", "b")


def test_a_prompt_that_ends_inside_a_character_is_finished_by_the_first_token() -> None:
    euro = "€".encode()
    assert TextCutter((), b"it costs " + euro[:2]).feed(euro[2:] + b"5").text == "€5"


def test_bytes_that_are_no_text_become_a_mark_and_do_not_stop_the_rest() -> None:
    assert TextCutter(()).feed(b"a\xffb").text == "a\ufffdb"


@given(st.text(max_size=40), st.integers(1, 5))
def test_whatever_the_split_the_text_comes_out_unchanged(text: str, n_bytes: int) -> None:
    cutter = TextCutter(())
    data = text.encode()
    pieces = [data[at : at + n_bytes] for at in range(0, len(data), n_bytes)]
    assert "".join(cutter.feed(piece).text for piece in pieces) + cutter.rest() == text


@given(st.text(alphabet="ab🌧", max_size=20), st.text(alphabet="ab🌧", min_size=1, max_size=4))
def test_a_stop_string_is_found_wherever_tokens_break_it(text: str, stop: str) -> None:
    cutter = TextCutter((stop,))
    shown = ""
    for byte in text.encode():
        one = cutter.feed(bytes([byte]))
        shown += one.text
        if one.stop is not None:
            break
    else:
        shown += cutter.rest()
    assert shown == text.split(stop)[0]


@given(st.text(min_size=1, max_size=3))
def test_an_unfinished_tail_is_exactly_what_the_last_character_lacks(text: str) -> None:
    data = text.encode()
    last = len(text[-1].encode())
    for n_missing in range(1, last):
        assert unfinished_tail(data[:-n_missing]) == data[len(data) - last : -n_missing]
    assert unfinished_tail(data) == b""
