"""The head of a GGUF file is read exactly, and a hostile one is refused at no great cost."""

import importlib
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.replica import header as reading
from tertulia.replica.card import checked_header
from tertulia.replica.header import GgufRefused, Header, read_header
from tertulia.replica.placing import InstallFailed
from tertulia.replica.vocabulary import VocabularyRefused, vocabulary_of
from tests.replica.gguf_files import (
    ARRAY,
    F32,
    INT32,
    Q4_0,
    TEXT,
    Raw,
    Row,
    chat_fields,
    gguf_bytes,
    text,
)

HUGE = (1 << 63) - 1
WHOLE = gguf_bytes()


def header_of(folder: Path, data: bytes) -> Header:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return read_header(path)


def test_an_honest_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = header_of(tmp_path, WHOLE)
    assert found.fields == chat_fields()
    assert (found.architecture, found.file_type, found.n_parameters) == ("llama", "F32", 256)
    (tensor,) = found.tensors
    assert (tensor.shape, tensor.kind, tensor.n_bytes) == ((32, 8), "F32", 1024)
    assert tensor.offset + tensor.n_bytes == len(WHOLE)


@pytest.mark.model
def test_the_library_of_the_format_reads_the_same(small_folder: Path) -> None:
    gguf: Any = importlib.import_module("gguf")
    theirs = gguf.GGUFReader(str(small_folder / "model.gguf"))
    ours = read_header(small_folder / "model.gguf")
    names = [name for name in theirs.fields if not name.startswith("GGUF.")]
    assert ours.fields == {name: theirs.fields[name].contents() for name in names}
    assert [(t.name, list(t.shape), t.kind, t.offset, t.n_bytes) for t in ours.tensors] == [
        (t.name, t.shape.tolist(), t.tensor_type.name, t.data_offset, t.n_bytes)
        for t in theirs.tensors
    ]


HOSTILE = {
    "empty": (b"", "not a GGUF file"),
    "a web page": (b"<!DOCTYPE html>", "not a GGUF file"),
    "a zip of pickles": (b"PK\x03\x04" + b"\0" * 100, "pickle"),
    "a bare pickle": (b"\x80\x04\x95" + b"\0" * 100, "pickle"),
    "the magic alone": (b"GGUF", "ends in the middle"),
    "an old version": (gguf_bytes(version=1), "version 1"),
    "a new version": (gguf_bytes(version=4), "version 4"),
    "another byte order": (gguf_bytes(version=3 << 24), "byte order"),
    "no tensors": (gguf_bytes(rows=()), "0 tensors"),
    "too many tensors": (gguf_bytes(n_tensors=HUGE), "tensors"),
    "tensors that are not there": (gguf_bytes(n_tensors=1000), "."),
    "too many fields": (gguf_bytes(n_fields=HUGE), "fields"),
    "fields that are not there": (gguf_bytes(n_fields=1000), "."),
    "a text beyond the end": (gguf_bytes({"a": Raw(TEXT, text("b", 10**6))}), "ends in the middle"),
    "a text of exabytes": (gguf_bytes({"a": Raw(TEXT, text("b", HUGE))}), "text of"),
    "a text that is no text": (gguf_bytes({"a": Raw(TEXT, text(b"\xff\xfe"))}), "UTF-8"),
    "an array of exabytes": (
        gguf_bytes({"a": Raw(ARRAY, struct.pack("<IQ", INT32, HUGE))}),
        "array of",
    ),
    "an array beyond the end": (
        gguf_bytes({"a": Raw(ARRAY, struct.pack("<IQ", INT32, 10**6))}),
        "ends in the middle",
    ),
    "texts beyond the end": (
        gguf_bytes({"a": Raw(ARRAY, struct.pack("<IQ", TEXT, 10**6))}),
        ".",
    ),
    "an array of arrays": (
        gguf_bytes({"a": Raw(ARRAY, struct.pack("<IQ", ARRAY, 10**6))}),
        "unknown kind 9",
    ),
    "an unknown kind": (gguf_bytes({"a": Raw(99, b"")}), "unknown kind 99"),
    "no architecture": (gguf_bytes(chat_fields(general__architecture=None)), "architecture"),
    "a hostile architecture": (
        gguf_bytes(chat_fields(general__architecture="\x1b[31m../..")),
        "architecture",
    ),
    "an alignment of zero": (gguf_bytes(chat_fields(general__alignment=0)), "alignment"),
    "an odd alignment": (gguf_bytes(chat_fields(general__alignment=33)), "alignment"),
    "a vast alignment": (gguf_bytes(chat_fields(general__alignment=1 << 31)), "alignment"),
    "a tensor beyond the end": (gguf_bytes(rows=[Row(n_bytes=512)]), "lies at byte"),
    "a tensor far outside": (gguf_bytes(rows=[Row(offset=1 << 62)]), "lies at byte"),
    "a tensor off its place": (gguf_bytes(rows=[Row(offset=1)], more=bytes(64)), "lies at byte"),
    "a tensor as large as the world": (
        gguf_bytes(rows=[Row(shape=(1 << 62, 1 << 62, 1 << 62))]),
        "lies at byte",
    ),
    "a tensor of nothing": (gguf_bytes(rows=[Row(shape=(0, 8))]), "shape"),
    "a tensor without dimensions": (gguf_bytes(rows=[Row(shape=())]), "0 dimensions"),
    "a tensor of five dimensions": (gguf_bytes(rows=[Row(shape=(1,) * 5)]), "5 dimensions"),
    "half a block": (gguf_bytes(rows=[Row(shape=(33, 8), kind=Q4_0)]), "shape"),
    "an unknown tensor": (gguf_bytes(rows=[Row(kind=4)]), "unknown kind 4"),
    "a tensor's endless name": (gguf_bytes(rows=[Row(name="x" * 65)]), "text of 65"),
    "a tensor twice": (gguf_bytes(rows=[Row(), Row()]), "twice"),
    "tensors over one another": (gguf_bytes(rows=[Row("a"), Row("b", offset=32)]), "overlap"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_and_takes_no_memory(tmp_path: Path, what: str) -> None:
    data, reason = HOSTILE[what]
    importlib.import_module("gguf")  # its own memory is not the file's
    tracemalloc.start()
    try:
        with pytest.raises(GgufRefused, match=reason):
            header_of(tmp_path, data)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_field_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    twice = text("general.architecture") + struct.pack("<I", TEXT) + text("llama")
    data = WHOLE[:16] + struct.pack("<Q", len(chat_fields()) + 1) + twice + WHOLE[24:]
    with pytest.raises(GgufRefused, match="twice"):
        header_of(tmp_path, data)


def test_arrays_share_one_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = chat_fields(a=[0] * 60, b=[0] * 60)
    monkeypatch.setattr(reading, "ENTRIES", 200)
    assert header_of(tmp_path, gguf_bytes(fields)).fields["b"] == [0] * 60
    monkeypatch.setattr(reading, "ENTRIES", 100)
    with pytest.raises(GgufRefused, match="array of 60"):
        header_of(tmp_path, gguf_bytes(fields))


def test_a_header_is_read_to_its_bound_and_not_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "HEADER_BYTES", 100)
    with pytest.raises(GgufRefused, match="header is too long"):
        header_of(tmp_path, WHOLE)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damage_gives_anything_but_a_header_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    damaged = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    folder = tmp_path_factory.mktemp("damaged")
    try:
        found = header_of(folder, cut)
        vocabulary_of(found)
    except (GgufRefused, VocabularyRefused):
        return
    assert all(row.offset + row.n_bytes <= len(cut) for row in found.tensors)


def test_what_a_file_says_is_shown_without_what_moves_a_cursor(tmp_path: Path) -> None:
    fields = chat_fields(general__name="\x1b[2JToy\n" + "x" * 500)
    shown = header_of(tmp_path, gguf_bytes(fields)).text("general.name")
    assert shown.isprintable()
    assert len(shown) <= 200


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no template": ({"tokenizer__chat_template": None}, "no chat template"),
    "one part of several": ({"split__count": 3}, "llama-gguf-split"),
    "no window": ({"llama__context_length": None}, "context_length is None"),
    "a window of none": ({"llama__context_length": 0}, "context_length is 0"),
    "a window without end": ({"llama__context_length": (1 << 32) - 1}, "context_length"),
    "a window in words": ({"llama__context_length": "many"}, "'many'"),
    "no tokens": ({"tokenizer__ggml__tokens": []}, "tokens are missing"),
    "a token twice": ({"tokenizer__ggml__tokens": ["a", "b", "b", "c", "d"]}, "twice"),
    "types for other tokens": ({"tokenizer__ggml__token_type": [1]}, "without types"),
    "tokens that are numbers": ({"tokenizer__ggml__tokens": [1, 2, 3, 4, 5]}, "list of str"),
    "an end outside": ({"tokenizer__ggml__eos_token_id": 5}, "eos_token_id is 5"),
    "a beginning outside": ({"tokenizer__ggml__bos_token_id": 1 << 30}, "bos_token_id"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_a_file_that_is_no_model_for_chats_is_refused(tmp_path: Path, what: str) -> None:
    changes, reason = UNUSABLE[what]
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf_bytes(chat_fields(**changes)))
    with pytest.raises(InstallFailed, match=rf"odd\.gguf is refused: .*{reason}"):
        checked_header(path)


def test_a_quantised_tensor_takes_the_bytes_of_its_blocks(tmp_path: Path) -> None:
    rows = [Row("a", (32, 8), Q4_0, n_bytes=8 * 18), Row("b", (7,), F32, n_bytes=28)]
    found = header_of(tmp_path, gguf_bytes(rows=rows))
    assert [tensor.n_bytes for tensor in found.tensors] == [144, 28]
    assert found.n_tensors_of == {"F32": 1, "Q4_0": 1}
