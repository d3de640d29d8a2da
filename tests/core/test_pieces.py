"""A JSON text is cut into its pieces however its bytes come."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.pieces import Cutter, NotPieces, TooLong

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)


def cut(data: bytes, *places: int, most: int = 10_000) -> list[object]:
    """The pieces, each parsed, where the bytes come in parts that end at these places."""
    cutter = Cutter(most=most)
    found: list[object] = []
    ends = [*sorted(places), len(data)]
    for begin, end in zip([0, *ends], ends, strict=False):
        for piece in cutter.feed(data[begin:end]):
            found.append(piece if isinstance(piece, TooLong) else json.loads(piece))
    cutter.end()
    return found


@given(st.lists(OBJECTS, max_size=5), st.booleans(), st.integers(0, 4), st.data())
def test_a_list_is_cut_into_its_objects(
    values: list[object], ascii_only: bool, indent: int, data: st.DataObject
) -> None:
    raw = json.dumps(values, ensure_ascii=ascii_only, indent=indent or None).encode(
        "utf-8", "surrogatepass"
    )
    places = data.draw(st.lists(st.integers(0, len(raw)), max_size=6))
    assert cut(raw, *places) == values
    assert cut(raw, *range(len(raw))) == values


@given(OBJECTS)
def test_one_object_is_one_piece(value: object) -> None:
    raw = json.dumps(value).encode()
    assert cut(raw) == cut(b"\xef\xbb\xbf \n" + raw + b"\n ") == [value]
    assert cut(raw, *range(len(raw))) == [value]


def test_what_is_no_object_in_a_list_is_passed_over() -> None:
    assert cut(b'[1, "a]{", null, {"a": 1}, [2]]') == [{"a": 1}, [2]]
    assert cut(b"[]") == []


def test_a_piece_that_is_too_long_is_passed_over_and_the_next_is_not() -> None:
    long = b'{"text": "' + b"x" * 200 + b'"}'
    raw = b"[" + long + b', {"a": 1}, ' + long + b"]"
    for places in ((), range(len(raw)), (30, 150, 215)):
        found = cut(raw, *places, most=100)
        assert [isinstance(one, TooLong) for one in found] == [True, False, True]
        assert found[1] == {"a": 1}


@pytest.mark.parametrize(
    "raw",
    [b"", b"   ", b'"text"', b"12", b"PK\x03\x04", b"[{}", b'[{"a": "', b'{"a": 1', b"[{}] x",
     b"[{}] {}", b"{} {}", b"{}]", b"[]]", b"[] \"", b"\xff\xfe[\x00"],
)  # fmt: skip
def test_what_is_no_list_of_values_is_refused(raw: bytes) -> None:
    with pytest.raises(NotPieces):
        cut(raw)
    with pytest.raises(NotPieces):
        cut(raw, *range(len(raw)))


def test_blanks_without_end_are_refused() -> None:
    cutter = Cutter(most=100)
    for _ in range(10):
        assert cutter.feed(b" " * 10) == []
    with pytest.raises(NotPieces, match="blank"):
        cutter.feed(b" ")
