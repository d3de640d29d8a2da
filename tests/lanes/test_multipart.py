"""Forms as they arrive: the same events however they are cut, and a clear no to what is no form."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tertulia.gateway.multipart import (
    FieldBegins,
    FieldEnds,
    FormReader,
    MalformedForm,
    boundary_of,
)

BORDER = b"a-border"
Field = tuple[str, str | None, bytes]


def form(*fields: tuple[str, str | None, bytes], end: bytes = b"--\r\n") -> bytes:
    body = b""
    for name, file_name, data in fields:
        more = f'; filename="{file_name}"' if file_name is not None else ""
        body += b"--" + BORDER + b"\r\n"
        body += f'Content-Disposition: form-data; name="{name}"{more}\r\n'.encode()
        body += b"Content-Type: text/plain\r\n\r\n" + data + b"\r\n"
    return body + b"--" + BORDER + end


def read(body: bytes, cuts: list[int]) -> tuple[list[Field], FormReader]:
    """The fields of a form that arrives in these pieces."""
    reader = FormReader(BORDER)
    fields: list[Field] = []
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    for first, last in pairwise(places):
        for event in reader.feed(body[first:last]):
            if isinstance(event, FieldBegins):
                fields.append((event.name, event.file_name, b""))
            elif not isinstance(event, FieldEnds):
                name, file_name, data = fields.pop()
                fields.append((name, file_name, data + event))
    return fields, reader


# Everything that looks like the beginning of a border, and is none.
PIECES = st.lists(
    st.sampled_from([b"\r", b"\n", b"\r\n", b"--", b"\r\n--", b"\r\n--a-bord", b"x", b"\x00\xff"]),
    max_size=12,
).map(b"".join)


@given(first=PIECES, second=PIECES, cuts=st.lists(st.integers(0, 2_000), max_size=30))
def test_every_way_to_cut_a_form_gives_the_same_fields(
    first: bytes, second: bytes, cuts: list[int]
) -> None:
    body = form(("purpose", None, first), ("file", "a b.jsonl", second))
    fields, reader = read(body, cuts)
    assert fields == [("purpose", None, first), ("file", "a b.jsonl", second)]
    assert reader.is_over


def test_no_more_of_a_field_is_held_than_a_border() -> None:
    reader = FormReader(BORDER)
    reader.feed(form(("file", "f", b""))[: -len(b"\r\n--a-border--\r\n")])
    said = b"".join(e for e in reader.feed(b"x" * 100_000) if isinstance(e, bytes))
    assert 100_000 - len(said) <= len(BORDER) + 4


def test_what_comes_before_and_after_a_form_is_nobodys() -> None:
    body = b"hello\r\n" + form(("a", None, b"1")) + b"\r\nand bye --a-border\r\n"
    fields, reader = read(body, [3, 9, 30])
    assert fields == [("a", None, b"1")]
    assert reader.is_over


def test_a_form_that_is_cut_off_is_not_over() -> None:
    _, reader = read(form(("a", None, b"1"), end=b""), [])
    assert not reader.is_over


@pytest.mark.parametrize(
    "body",
    [
        b"--a-border and more\r\n",
        b"--a-border\r\nContent-Type: text/plain\r\n\r\nx",
        b"--a-border\r\nContent-Disposition: attachment; name=a\r\n\r\nx",
        b"--a-border\r\nContent-Disposition: form-data\r\n\r\nx",
        b"--a-border\r\nX: " + b"y" * 9_000,
        b"--a-border" + b" " * 9_000,
        # What the header's parser does not expect: too long a number, odd encodings.
        b"--a-border\r\nContent-Disposition: form-data; name=f; f*" + b"9" * 5_000 + b"=x\r\n\r\n",
        b"--a-border\r\nContent-Disposition: form-data; name=f; filename*=idna''x\r\n\r\n",
        b"--a-border\r\nContent-Disposition: form-data; name=f; filename*=a%00''x\r\n\r\n",
        b'--a-border\r\nContent-Disposition: form-data; name="' + b";" * 8_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedForm):
        read(body, [12])


@given(head=st.binary(max_size=60), value=st.text(max_size=60))
def test_whatever_stands_in_a_head_is_a_field_or_refused(head: bytes, value: str) -> None:
    for line in (head, b"Content-Disposition: form-data; " + value.encode("utf-8", "replace")):
        with suppress(MalformedForm):
            read(b"--a-border\r\n" + line + b"\r\n\r\nx\r\n--a-border--", [7])
    with suppress(MalformedForm):
        boundary_of("multipart/form-data; " + value)


@pytest.mark.parametrize(
    "content_type",
    ["", "application/json", "multipart/form-data", "multipart/form-data; boundary=" + "x" * 71],
)
def test_a_body_that_names_no_border_is_refused(content_type: str) -> None:
    with pytest.raises(MalformedForm):
        boundary_of(content_type)


def test_a_media_type_takes_no_longer_than_it_is_long() -> None:
    began = time.process_time()
    with pytest.raises(MalformedForm):
        boundary_of('multipart/form-data; boundary="' + ";" * 60_000)
    assert time.process_time() - began < 0.5  # it took four seconds


def test_a_border_may_be_quoted() -> None:
    assert boundary_of('multipart/form-data; boundary="a b"') == b"a b"
