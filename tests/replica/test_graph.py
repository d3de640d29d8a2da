"""A graph is made beside a model, known to `verify`, and never stands there in half."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tertulia.replica import graph
from tertulia.replica.card import GRAPH, GRAPH_WEIGHTS, MADE, WEIGHTS, record_files
from tertulia.replica.graph import convert
from tertulia.replica.placing import InstallFailed, Progress, sha256_of
from tertulia.replica.shelf import state_of, verify
from tests.replica.gguf_files import Row, chat_fields, gguf_bytes

Child = Callable[[list[str]], "subprocess.CompletedProcess[str]"]
Q4_K = 12
Q4_K_ROW = Row(shape=(256, 8), kind=Q4_K, n_bytes=8 * 144)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed model, on a machine where OpenVINO makes something of any file."""
    monkeypatch.setattr(graph, "find_spec", lambda _name: True)
    monkeypatch.setattr(graph, "ended_child", child(b"new"))
    return installed(tmp_path, gguf_bytes(chat_fields()))


def installed(models_dir: Path, gguf: bytes) -> Path:
    folder = models_dir / "toy"
    folder.mkdir()
    (folder / WEIGHTS).write_bytes(gguf)
    (folder / "tokenizer.json").write_text("{}")
    described = {
        "format": 1,
        "gguf_bytes": len(gguf),
        "gguf_sha256": sha256_of(folder / WEIGHTS),
        "tokenizer_sha256": sha256_of(folder / "tokenizer.json"),
    }
    (folder / "model.json").write_text(json.dumps(described))
    record_files(folder, {name: sha256_of(folder / name) for name in MADE})
    return folder


def child(weights: bytes, status: int = 0) -> Child:
    """What the child does: writes a graph, and its weights unless it dies before."""

    def run(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
        readable = Path(arguments[-1])
        assert readable.read_bytes()[:4] == b"GGUF"
        (readable.parent / GRAPH).write_text("<net/>")
        if not status:
            (readable.parent / GRAPH_WEIGHTS).write_bytes(weights)
        return subprocess.CompletedProcess(arguments, status, "", "no more memory")

    return run


def quiet(_: Progress) -> None:
    return


def test_a_graph_is_made_recorded_and_verified(toy: Path) -> None:
    assert convert(toy, quiet) == toy
    assert (toy / GRAPH_WEIGHTS).read_bytes() == b"new"
    assert state_of("toy", toy.parent) == "verified"
    assert {each.file for each in verify("toy", toy.parent)} == {*MADE, GRAPH, GRAPH_WEIGHTS}
    assert [each.name for each in toy.parent.iterdir() if each.is_dir()] == ["toy"]
    (toy / GRAPH_WEIGHTS).write_bytes(b"bad")
    assert [each.file for each in verify("toy", toy.parent) if each.problem] == [GRAPH_WEIGHTS]


def test_a_graph_that_has_gone_leaves_the_model_as_it_was(toy: Path) -> None:
    convert(toy, quiet)
    (toy / GRAPH).unlink()
    assert state_of("toy", toy.parent) == "installed"
    convert(toy, quiet)
    assert state_of("toy", toy.parent) == "verified"


def test_a_conversion_that_dies_changes_nothing(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(toy, quiet)
    monkeypatch.setattr(graph, "ended_child", child(b"newer", status=-9))
    with pytest.raises(InstallFailed, match="made no graph of toy: no more memory"):
        convert(toy, quiet)
    assert (toy / GRAPH_WEIGHTS).read_bytes() == b"new"
    assert state_of("toy", toy.parent) == "verified"


@pytest.mark.parametrize("last", [GRAPH, GRAPH_WEIGHTS])
def test_killed_before_both_files_are_there_there_is_no_graph(
    last: str, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(toy, quiet)
    monkeypatch.setattr(graph, "ended_child", child(b"newer"))
    rename = Path.rename

    def dies(self: Path, target: Path) -> Path:
        if self.name == last:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as killed:
        killed.setattr(Path, "rename", dies)
        with pytest.raises(KeyboardInterrupt):
            convert(toy, quiet)
    assert not (toy / GRAPH).exists()
    convert(toy, quiet)
    assert not any(each.problem for each in verify("toy", toy.parent))


def test_what_is_known_of_the_other_files_stays_as_it_is(toy: Path) -> None:
    (toy / WEIGHTS).write_bytes(gguf_bytes(chat_fields(general__name="Tox")))
    convert(toy, quiet)
    assert state_of("toy", toy.parent) == "installed"


def test_a_type_that_it_cant_read_is_rewritten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: Path
) -> None:
    seen: list[tuple[Path, str]] = []

    def rewrite(source: Path, target: Path, file_type: str) -> None:
        seen.append((source, file_type))
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr(graph, "requantise", rewrite)
    convert(toy, quiet)
    assert seen == []
    other = tmp_path / "more"
    other.mkdir()
    folder = installed(other, gguf_bytes(chat_fields(), rows=[Q4_K_ROW]))
    convert(folder, quiet)
    assert seen == [(folder / WEIGHTS, "Q8_0")]
    assert (folder / GRAPH).exists()


def test_without_openvino_or_a_model_it_says_what_helps(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (toy / "model.json").unlink()
    with pytest.raises(InstallFailed, match="is not a complete model"):
        convert(toy, quiet)
    monkeypatch.setattr(graph, "find_spec", lambda _name: None)
    with pytest.raises(InstallFailed, match="scripts/setup openvino"):
        convert(toy, quiet)
