"""What a replica says is taken as text and ids or not at all: nothing odd reaches the lanes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tertulia.backends.replicas.chunks import ChunkBroken, ChunkReader
from tertulia.core.types import Unit, Usage


def chunk(text: Any, ids: Any, finish: Any = None) -> bytes:
    choice = {"text": text, "finish_reason": finish, "token_ids": ids}
    return json.dumps({"choices": [choice]}, separators=(",", ":")).encode()


def events(*datas: bytes) -> bytes:
    """As they come in one read."""
    return b"\n\n".join(b"data: " + data for data in datas)


def usage(**counts: Any) -> bytes:
    return json.dumps({"choices": [], "usage": counts}).encode()


ODD = {
    "bytes that are no text": b'{"choices":[{"text":"\xff","token_ids":[5]}]}',
    "half of a surrogate pair": chunk("\ud800", [5]),
    "a list for a text": chunk(["a"], [5]),
    "a number for a text": chunk(5, [5]),
    "words for ids": chunk("a", ["b"]),
    "fractions for ids": chunk("a", [1.5]),
    "an id below zero": chunk("a", [-5]),
    "an id of 70 bits": chunk("a", [2**70]),
    "text without ids": chunk("a", None),
    "a list for a finish": chunk("", [], ["stop"]),
    "words for counts": usage(prompt_tokens="many"),
    "no object": b"[]",
    "no choice": b'{"choices":{"a":1}}',
    "brackets without end": b"[" * 100_000,
}


@pytest.mark.parametrize("after_a_plain_one", [False, True])
@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_an_odd_chunk_breaks_the_stream(data: bytes, after_a_plain_one: bool) -> None:
    """After a plain chunk the shape is known and most chunks pass by the parser."""
    reader = ChunkReader()
    if after_a_plain_one:
        assert reader.read(events(chunk("Hello", [7]))) == [Unit("Hello", (7,))]
    with pytest.raises(ChunkBroken):
        reader.read(events(data))


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_odd_chunk_among_plain_ones_breaks_the_stream(data: bytes, place: int) -> None:
    reader = ChunkReader()
    reader.read(events(chunk("Hello", [7])))
    datas = [chunk("a", [1]), chunk("b", [2])]
    datas.insert(place, data)
    with pytest.raises(ChunkBroken):
        reader.read(events(*datas))


PLAIN = [
    Unit("one", (1,)),
    Unit(" two, three", (2, 3)),
    Unit('a "quote", a \\ and\na line', (4,)),
    Unit("日本語 👍🏽", (5, 6, 7)),
    Unit('","token_ids":[9],"text":"', (8,)),
    Unit("}]}\n\ndata: ", (9,)),
]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("at_once", [1, 2, len(PLAIN)])
def test_plain_chunks_are_read_as_a_parser_would(ascii_only: bool, at_once: int) -> None:
    def said(unit: Unit) -> bytes:
        choice = {"text": unit.text, "finish_reason": None, "token_ids": unit.ids}
        document = {"id": "cmpl-1", "choices": [choice]}
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=ascii_only)
        return text.encode()

    reader = ChunkReader()
    units = []
    for first in range(0, len(PLAIN), at_once):
        units += reader.read(events(*map(said, PLAIN[first : first + at_once])))
    assert units == PLAIN


def test_a_chunk_of_another_shape_among_plain_ones_is_read_too() -> None:
    reader = ChunkReader()
    reader.read(events(chunk("Hello", [7])))
    other = json.dumps({"choices": [{"token_ids": [8], "finish_reason": None, "text": "b"}]})
    for datas in (
        [chunk("a", [1]), other.encode(), chunk("c", [3])],
        [other.encode(), chunk("a", [1]), chunk("c", [3])],
        [chunk("a", [1]), chunk("c", [3]), other.encode()],
    ):
        units = reader.read(events(*datas))
        assert sorted(unit.text for unit in units) == ["a", "b", "c"]
        assert len({unit.ids for unit in units}) == 3


def test_counts_that_can_not_be_are_passed_on_for_the_ledger_to_clamp() -> None:
    """The reply was said all the same: it must not break off for its bill."""
    reader = ChunkReader()
    counts = {"prompt_tokens": 10**15, "completion_tokens": -2}
    reader.read(events(usage(**counts, prompt_tokens_details={"cached_tokens": -9})))
    assert reader.usage == Usage(10**15, -9, -2)
    reader.read(events(usage(total_tokens=5)))
    assert reader.usage == Usage(0, 0, 0)


def test_ids_without_text_go_with_the_text_that_follows() -> None:
    reader = ChunkReader()
    assert reader.read(events(chunk("a", [1]), chunk("", [2]))) == [Unit("a", (1,))]
    assert reader.read(events(chunk("", [3]), chunk("é", [4]))) == [Unit("é", (2, 3, 4))]


def test_the_last_text_may_come_without_ids() -> None:
    """Engines may flush what they held back together with the finish."""
    assert ChunkReader().read(events(chunk("end.", None, "stop"))) == [Unit("end.", ())]


def test_a_loop_that_the_replica_ended_is_a_finish_like_any_other() -> None:
    reader = ChunkReader()
    assert reader.read(events(chunk("and on", [7], "repetition"))) == [Unit("and on", (7,))]
    assert reader.finish == "repetition"


def test_tokens_without_end_and_without_text_break_the_stream() -> None:
    """Nobody would hear of them: neither their number nor their end is bounded otherwise."""
    reader = ChunkReader()
    some = events(chunk("", [7] * 1000))
    assert [reader.read(some) for _ in range(4)] == [[]] * 4
    with pytest.raises(ChunkBroken):
        reader.read(some)
