"""What a replica says is taken as text and ids or not at all: nothing odd reaches the lanes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tertulia.backends.replicas.chunks import ChunkBroken, ChunkReader
from tertulia.core.types import Unit


def chunk(text: Any, ids: Any, finish: Any = None) -> bytes:
    choice = {"text": text, "finish_reason": finish, "token_ids": ids}
    return json.dumps({"choices": [choice]}, separators=(",", ":")).encode()


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
    "a count below zero": usage(prompt_tokens=1, prompt_tokens_details={"cached_tokens": -9}),
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
        assert reader.read(chunk("Hello", [7])) == Unit("Hello", (7,))
    with pytest.raises(ChunkBroken):
        reader.read(data)


def test_the_last_text_may_come_without_ids() -> None:
    """Engines may flush what they held back together with the finish."""
    assert ChunkReader().read(chunk("end.", None, "stop")) == Unit("end.", ())


def test_a_loop_that_the_replica_ended_is_a_finish_like_any_other() -> None:
    reader = ChunkReader()
    assert reader.read(chunk("and on", [7], "repetition")) == Unit("and on", (7,))
    assert reader.finish == "repetition"
