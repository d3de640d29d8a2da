"""Models of one's own: taken by hash, converted beside the old one, verified, and taken away."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tertulia.replica import own as owning
from tertulia.replica import placing
from tertulia.replica.card import MADE, WEIGHTS, Card, describe, record_files
from tertulia.replica.catalogue import HubFile, UnknownModel
from tertulia.replica.hub import hub_file
from tertulia.replica.own import OwnModel, adopt, quantise
from tertulia.replica.placing import InstallFailed, Progress, Report, placed, safe_name, sha256_of
from tertulia.replica.shelf import (
    InUse,
    folder_of,
    hold,
    names,
    remove,
    state_of,
    verify,
)
from tests.replica.gguf_files import Row, chat_fields, gguf_bytes
from tests.replica.hub_server import Hub

WHOLE = gguf_bytes(rows=[Row(shape=(32, 800), n_bytes=32 * 800 * 4)])


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnModel:
    """A GGUF file that no engine can load; its description is written without one."""
    monkeypatch.setattr(owning, "describe", _describe)
    given = tmp_path / "given.gguf"
    given.write_bytes(WHOLE)
    return OwnModel("toy", given, None)


def _describe(card: Card, ready: Path, report: Report) -> None:
    (ready / "tokenizer.json").write_text("{}")
    described = {
        "format": 1,
        "title": card.title,
        "licence": card.licence,
        "source_sha256": card.source_sha256,
        "gguf_bytes": (ready / WEIGHTS).stat().st_size,
        "gguf_sha256": sha256_of(ready / WEIGHTS),
        "tokenizer_sha256": sha256_of(ready / "tokenizer.json"),
        "made_from": card.made_from,
    }
    (ready / "model.json").write_text(json.dumps(described))
    record_files(ready, {name: sha256_of(ready / name) for name in MADE})


def quiet(_: Progress) -> None:
    return


def described(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "model.json").read_text()))


def test_a_file_of_ones_own_is_installed_with_what_it_says(toy: OwnModel, tmp_path: Path) -> None:
    folder = adopt(toy, tmp_path / "models", quiet)
    assert (folder / WEIGHTS).read_bytes() == WHOLE
    assert (described(folder)["title"], described(folder)["licence"]) == ("Toy", "mit")
    assert state_of("toy", tmp_path / "models") == "verified"
    assert names(tmp_path / "models") == ["small", "large", "larger", "toy"]


def test_the_same_file_again_does_nothing_and_another_is_refused(
    toy: OwnModel, tmp_path: Path
) -> None:
    seen: list[Progress] = []
    adopt(toy, tmp_path, quiet)
    adopt(toy, tmp_path, seen.append)
    assert seen == []
    other = tmp_path / "other.gguf"
    other.write_bytes(gguf_bytes(chat_fields(general__name="Other")))
    with pytest.raises(InstallFailed, match="remove it first, or choose another name"):
        adopt(replace(toy, source=other), tmp_path, quiet)


def test_a_file_with_another_hash_is_refused(toy: OwnModel, tmp_path: Path) -> None:
    with pytest.raises(InstallFailed, match="expected 0000"):
        adopt(replace(toy, sha256="0" * 64), tmp_path / "models", quiet)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "../a", ".a", "a.", "-a", "a b", "A", "a\n", "é", "a..b", "x" * 33],
)
def test_a_name_that_is_no_folders_name_is_refused(
    toy: OwnModel, tmp_path: Path, name: str
) -> None:
    with pytest.raises(InstallFailed, match="can't be a model's name"):
        adopt(replace(toy, name=name), tmp_path, quiet)
    with pytest.raises(UnknownModel):
        folder_of(name, tmp_path)
    with pytest.raises(UnknownModel):
        remove(name, tmp_path)


@pytest.mark.parametrize("name", ["a", "qwen3-0.6b", "a_b.c-d", "x" * 32])
def test_an_ordinary_name_is_taken(name: str) -> None:
    assert safe_name(name) == name


def test_a_name_of_the_catalogue_is_refused(toy: OwnModel, tmp_path: Path) -> None:
    with pytest.raises(InstallFailed, match="the catalogue's name"):
        adopt(replace(toy, name="small"), tmp_path, quiet)


@pytest.fixture
def hub() -> Iterator[Hub]:
    opened = Hub(WHOLE)
    yield opened
    opened.close()


def test_a_hub_file_is_taken_by_its_hash(toy: OwnModel, tmp_path: Path, hub: Hub) -> None:
    pinned = replace(toy, source=HubFile("o/r", "d/f.gguf", "v1"), sha256=sha256_of(toy_file(toy)))
    folder = adopt(pinned, tmp_path / "models", quiet, hub_address=hub.address)
    assert (folder / WEIGHTS).read_bytes() == WHOLE
    assert hub.asked == [("/o/r/resolve/v1/d/f.gguf", None)]
    with pytest.raises(InstallFailed, match="refused"):
        adopt(
            replace(pinned, name="forged", sha256="0" * 64),
            tmp_path / "models",
            quiet,
            hub_address=hub.address,
        )
    assert state_of("forged", tmp_path / "models") == "no"


def toy_file(toy: OwnModel) -> Path:
    assert isinstance(toy.source, Path)
    return toy.source


def test_what_was_fetched_whole_is_not_fetched_again_after_a_death(
    toy: OwnModel, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    pinned = replace(toy, source=HubFile("o/r", "f.gguf"), sha256=sha256_of(toy_file(toy)))
    monkeypatch.setattr(owning, "describe", dies)
    with pytest.raises(KeyboardInterrupt):
        adopt(pinned, tmp_path, quiet, hub_address=hub.address)
    assert state_of("toy", tmp_path) == "no"
    monkeypatch.setattr(owning, "describe", _describe)
    folder = adopt(pinned, tmp_path, quiet, hub_address=hub.address)
    assert len(hub.asked) == 1
    assert (folder / WEIGHTS).stat().st_nlink == 1


def test_an_unpinned_file_is_never_joined_from_two_runs(
    toy: OwnModel, tmp_path: Path, hub: Hub
) -> None:
    incoming = tmp_path / "models" / ".incoming-toy"
    incoming.mkdir(parents=True)
    (incoming / "hub-unpinned.gguf").write_bytes(WHOLE[:1000])
    first = replace(toy, source=HubFile("o/r", "f.gguf"))
    folder = adopt(first, tmp_path / "models", quiet, hub_address=hub.address)
    assert hub.asked == [("/o/r/resolve/main/f.gguf", None)]
    assert described(folder)["source_sha256"] == sha256_of(toy_file(toy))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("hf:o/r/f.gguf", HubFile("o/r", "f.gguf", "main")),
        ("hf:o/r.x/d/e/f-1.gguf@0a1b", HubFile("o/r.x", "d/e/f-1.gguf", "0a1b")),
        ("hf:o/f.gguf", None),
        ("hf:o/r/f.bin", None),
        ("hf:o/r/../f.gguf", None),
        ("hf:o/r/f.gguf@a/b", None),
        ("hf:o/r/f.gguf?x=.gguf", None),
        ("hf:o@x/r/f.gguf", None),
        ("http://o/r/f.gguf", None),
    ],
)
def test_an_address_names_one_file_or_none(address: str, expected: HubFile | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="not of the form"):
            hub_file(address)
    else:
        assert hub_file(address) == expected


@pytest.mark.parametrize("file", MADE)
def test_a_changed_file_is_found_by_its_hash(toy: OwnModel, tmp_path: Path, file: str) -> None:
    changed = adopt(toy, tmp_path, quiet) / file
    data = bytearray(changed.read_bytes())
    data[-2 if file == "model.json" else -1] ^= 1
    changed.write_bytes(data)
    wrong = [each for each in verify("toy", tmp_path) if each.problem]
    assert file in [each.file for each in wrong]
    assert state_of("toy", tmp_path) != "verified"


def test_what_is_verified_stays_so_until_it_changes(toy: OwnModel, tmp_path: Path) -> None:
    folder = adopt(toy, tmp_path, quiet)
    shutil.copyfile(folder / WEIGHTS, folder / "copy")
    (folder / "copy").rename(folder / WEIGHTS)
    assert state_of("toy", tmp_path) == "installed", "its time has changed, perhaps its bytes"
    assert [each.problem for each in verify("toy", tmp_path)] == [""] * 3
    assert state_of("toy", tmp_path) == "verified"


def test_a_model_that_recorded_no_hash_of_its_description_is_verified_by_the_rest(
    toy: OwnModel, tmp_path: Path
) -> None:
    folder = adopt(toy, tmp_path, quiet)
    (folder / "files.json").unlink()
    assert state_of("toy", tmp_path) == "installed"
    assert not any(each.problem for each in verify("toy", tmp_path))
    (folder / "files.json").unlink()
    (folder / "tokenizer.json").write_text("{ }")
    assert any(each.problem for each in verify("toy", tmp_path))


def test_a_model_is_removed_with_what_a_pull_left(toy: OwnModel, tmp_path: Path) -> None:
    adopt(toy, tmp_path / "models", quiet)
    (tmp_path / "models" / ".incoming-toy").mkdir()
    remove("toy", tmp_path / "models")
    assert [each.name for each in (tmp_path / "models").iterdir()] == [".toy.lock"]


def test_a_model_that_an_engine_runs_is_not_removed(toy: OwnModel, tmp_path: Path) -> None:
    folder = adopt(toy, tmp_path, quiet)
    script = "from pathlib import Path; from tertulia.replica.shelf import hold; "
    script += "import sys; hold(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    engine = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert engine.stdout is not None
    assert engine.stdout.readline() == "held\n"
    with pytest.raises(InUse, match="end it first"):
        remove("toy", tmp_path)
    assert state_of("toy", tmp_path) == "verified"
    engine.kill()
    engine.communicate()
    remove("toy", tmp_path)
    assert state_of("toy", tmp_path) == "no"


def test_holding_what_is_not_there_is_left_to_the_engine(tmp_path: Path) -> None:
    hold(tmp_path)


def test_a_model_that_is_being_pulled_is_not_removed(toy: OwnModel, tmp_path: Path) -> None:
    adopt(toy, tmp_path, quiet)
    with placing.locked("toy", tmp_path, quiet_wait), pytest.raises(InUse, match="works on toy"):
        remove("toy", tmp_path)


def quiet_wait() -> None:
    return


def test_a_second_pull_says_that_it_waits(toy: OwnModel, tmp_path: Path) -> None:
    waits = threading.Event()

    def report(step: Progress) -> None:
        if step.stage == "wait":
            waits.set()

    with placing.locked("toy", tmp_path, quiet_wait):
        second = threading.Thread(target=adopt, args=(toy, tmp_path, report))
        second.start()
        assert waits.wait(20)
    second.join(20)
    assert state_of("toy", tmp_path) == "verified"


@pytest.mark.parametrize("dies_at", range(4))
def test_a_death_at_any_step_into_place_leaves_a_whole_model_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    """Each change of a name is one step; the process ends before one of them."""
    old = tmp_path / "toy"
    old.mkdir()
    (old / "content").write_text("old")
    steps = iter(range(100))
    renames = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if next(steps) == dies_at:
            raise KeyboardInterrupt
        return renames(self, target)

    def make(incoming: Path) -> Path:
        ready = incoming / "ready"
        ready.mkdir(exist_ok=True)
        (ready / "content").write_text("new")
        return ready

    monkeypatch.setattr(Path, "rename", rename)
    try:
        placed("toy", tmp_path, quiet, lambda: False, make)
    except KeyboardInterrupt:
        assert dies_at < 2
    else:
        assert dies_at >= 2
    left = (tmp_path / "toy" / "content").read_text() if (tmp_path / "toy").exists() else None
    assert left == {0: "old", 1: None}.get(dies_at, "new")


def test_a_full_disk_while_it_is_made_says_what_helps(tmp_path: Path) -> None:
    def make(_incoming: Path) -> Path:
        raise OSError(28, "No space left on device")

    with pytest.raises(InstallFailed, match=r"is full: free some, or set models_dir"):
        placed("toy", tmp_path, quiet, lambda: False, make)


def test_an_unknown_type_names_the_known_ones(toy: OwnModel, tmp_path: Path) -> None:
    source = adopt(toy, tmp_path, quiet)
    with pytest.raises(InstallFailed, match="Q4_0, Q4_K_M, Q6_K, Q8_0, F16"):
        quantise(source, "Q1_0", "toy-small", tmp_path, quiet)


def test_a_child_that_dies_leaves_no_model(
    toy: OwnModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho 'GGML_ASSERT failed' >&2\nkill -ABRT $$\n")
    bare.chmod(0o755)
    source = adopt(toy, tmp_path, quiet)
    monkeypatch.setattr("sys.executable", str(bare))
    with pytest.raises(InstallFailed, match="as Q8_0 failed: GGML_ASSERT"):
        quantise(source, "q8_0", "toy-q8", tmp_path, quiet)
    assert state_of("toy-q8", tmp_path) == "no"


@pytest.mark.model
@pytest.mark.slow
def test_a_converted_model_stands_beside_the_old_one(small_folder: Path, tmp_path: Path) -> None:
    folder = quantise(small_folder, "q8_0", "small-q8", tmp_path, quiet)
    told = described(folder)
    assert (folder / WEIGHTS).stat().st_size > (small_folder / WEIGHTS).stat().st_size
    assert (told["served_id"], told["requantised"]) == ("small-q8", "Q8_0")
    assert str(told["made_from"]).startswith("small (Q4_0, SHA-256 ")
    assert state_of("small-q8", tmp_path) == "verified"
    with pytest.raises(InstallFailed, match="installed already"):
        quantise(small_folder, "q8_0", "small-q8", tmp_path, quiet)


@pytest.mark.slow
def test_a_file_that_the_engine_can_not_load_is_refused_by_its_child(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(WHOLE)
    card = Card("toy", "toy", "Toy", "mit", "the file", "here", sha256_of(tmp_path / WEIGHTS))
    with pytest.raises(InstallFailed, match="Toy: our tokenizer disagrees with the engine's"):
        describe(card, tmp_path, quiet)
