"""A disk small enough to be filled: a tmpfs, which only root may mount, and what fills it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BLOCK: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A mounted tmpfs. Invariant: mounted while the value is in use; `unmount` ends that."""

    folder: Path

    @contextmanager
    def full(self) -> Iterator[None]:
        """Nothing more fits until the block ends."""
        ballast = self.folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            size = _BLOCK
            while size:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2  # the last bytes too
        try:
            yield
        finally:
            ballast.unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def small_disk(folder: Path, megabytes: int) -> SmallDisk | None:
    """A new small disk at this folder; None where nobody may mount one."""
    folder.mkdir(parents=True)
    if os.geteuid() != 0:
        return None
    options = f"size={megabytes}m,mode=0755"
    command = ["mount", "-t", "tmpfs", "-o", options, "tertulia-chaos", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True)
    return SmallDisk(folder) if done.returncode == 0 else None
