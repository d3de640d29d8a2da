"""A parent that has imported everything and forks what a run needs: a restart costs no imports.

`python -m tests.chaos.zygote FD MODULE ...` imports these and takes orders on that socket, a JSON
object a line, and tells every exit. It starts no thread and no event loop of its own: a fork would
copy their locks.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any


class Zygote:
    """Forks on orders. Invariant: `_names` holds exactly the children that were not reaped."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._names: dict[int, str] = {}
        self._rest = b""

    def run(self) -> None:
        """Serves until the other end is closed; then every child ends with it."""
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it decides when to leave
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if wake in ready:
                    wake.recv(4096)
                    self._reap()
                if self._control in ready and not self._take_orders():
                    break
        for pid in list(self._names):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _take_orders(self) -> bool:
        data = self._control.recv(65_536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            pid = self._fork(order)
            self._say({"started": pid, "order": order["number"]})
        return bool(data)

    def _fork(self, order: dict[str, Any]) -> int:
        pid = os.fork()
        if pid:
            self._names[pid] = order["name"]
            return pid
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            self._control.close()
            become(order)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001  # nothing of the parent's stack may run in a child
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            name = self._names.pop(pid)
            self._say({"ended": pid, "name": name, "status": os.waitstatus_to_exitcode(status)})

    def _say(self, what: dict[str, Any]) -> None:
        self._control.sendall(json.dumps(what).encode() + b"\n")


def become(order: dict[str, Any]) -> None:
    """Turns this fresh child into what was ordered: its files, its environment, its work."""
    die_with(os.getppid())
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for opened in (null, log):
        os.close(opened)
    os.environ.update(order.get("environment", {}))
    module, _, function = order["run"].partition(":")
    getattr(importlib.import_module(module), function)(**order.get("arguments", {}))


def die_with(parent: int) -> None:
    """Asks the kernel to kill this process when its parent is gone."""
    import ctypes

    set_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """The command."""
    for name in sys.argv[2:]:
        module, _, function = name.partition(":")
        loaded = importlib.import_module(module)
        if function:
            getattr(loaded, function)()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of what is shared
    control = socket.socket(fileno=int(sys.argv[1]))
    control.sendall(b'{"ready": true}\n')
    Zygote(control).run()


if __name__ == "__main__":
    Path("/proc/self/comm").write_text("chaos-zygote")
    main()
