"""What throw-away servers have in common: a bounded wait, and the ways they fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.01
# Another process may take a port between our look and the server's bind.
PORTS_TRIED: Final = 5


class ServerMissing(Exception):
    """No such server program is installed, or none that this user can run."""


class ServerFailed(Exception):
    """A server did not start, refused a command, or can't use its folder."""


def comes_true(is_so: Callable[[], bool], *, within_s: float) -> bool:
    """Looks until it is so, or for so long."""
    never = threading.Event()
    for _ in range(int(within_s / _POLL_S)):
        if is_so():
            return True
        never.wait(_POLL_S)
    return False


def is_alive(pid: int) -> bool:
    """Whether it runs; what is left of a dead one waits for its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
