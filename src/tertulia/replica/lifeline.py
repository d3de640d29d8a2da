"""Ends this process when its parent is gone, so that no engine is left holding memory and a port.

It must never outlive the parent by more than a second, whatever the step thread is doing; nor go on
for long when that thread is stuck, since a supervisor starts only what has ended.
"""

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

log = logging.getLogger("tertulia.replica")

PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
LOOK_S = 1.0
# Times in a row that it must look stuck: whoever was frozen by the system looks so once.
STUCK_LOOKS = 5


def die_with_parent(parent_pid: int) -> None:
    """Asks the kernel where it can be asked, and looks for the parent every second everywhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before the kernel was asked
        os._exit(1)
    threading.Thread(target=_watch, args=(parent_pid,), name="lifeline", daemon=True).start()


def die_when_stuck(is_stuck: Callable[[], bool]) -> None:
    """Ends the process with 1 when it has been stuck for a few seconds: nothing gentler is left."""
    threading.Thread(target=_look, args=(is_stuck,), name="stuck", daemon=True).start()


def _look(is_stuck: Callable[[], bool]) -> None:
    pause = threading.Event()
    n_looks = 0
    while n_looks < STUCK_LOOKS:
        pause.wait(LOOK_S)
        n_looks = n_looks + 1 if is_stuck() else 0
    log.critical("a step does not end: the engine must be started again")
    os._exit(1)


def _watch(parent_pid: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent_pid:
        pause.wait(LOOK_S)
    os._exit(1)
