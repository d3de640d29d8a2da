"""Find processes that a test run started and did not end, by a mark in their environment.

A mark is inherited by every descendant, also by one whose parent is gone. Only processes that
carry the mark are ever ended. Linux only; elsewhere nothing is found.
"""

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Python's own bookkeeping process lives as long as the interpreter that started it.
EXPECTED = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@dataclass(frozen=True)
class Leftover:
    """A process still running: its id and its command line."""

    pid: int
    command: str


def find(variable: str, mark: str) -> list[Leftover]:
    """Every process but this one whose environment holds `variable=mark`."""
    wanted = f"{variable}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with suppress(OSError):  # it ended meanwhile, or it is another user's
            if pid != os.getpid() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if not any(name in command for name in EXPECTED):
                    found.append(Leftover(pid, command))
    return found


def end(leftovers: list[Leftover]) -> None:
    """Kill what was found, so that one forgotten process does not spoil the next run."""
    for leftover in leftovers:
        with suppress(ProcessLookupError):
            os.kill(leftover.pid, signal.SIGKILL)


def main() -> int:
    variable, mark = sys.argv[1:3]
    # The script that asks carries the mark as well.
    left = [leftover for leftover in find(variable, mark) if leftover.pid != os.getppid()]
    for leftover in left:
        print(f"left running: {leftover.pid} {leftover.command}")
    end(left)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
