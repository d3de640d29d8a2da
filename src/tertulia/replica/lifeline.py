"""Ends this process when its parent is gone, so that no engine is left holding memory and a port.

It must never outlive the parent by more than a second, whatever the step thread is doing.
"""

import ctypes
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
LOOK_S = 1.0


def die_with_parent(parent_pid: int) -> None:
    """Asks the kernel where it can be asked, and looks for the parent every second everywhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before the kernel was asked
        os._exit(1)
    threading.Thread(target=_watch, args=(parent_pid,), name="lifeline", daemon=True).start()


def _watch(parent_pid: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent_pid:
        pause.wait(LOOK_S)
    os._exit(1)
