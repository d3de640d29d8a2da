"""The one thread that computes: whoever opens the model, measures it or steps does it here.

It must never be two: OpenMP makes workers for each thread that computes, and when there are more of
them than cores they stop spinning, which makes every step of a small model take twice as long.
"""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


class ComputeThread:
    """Does what it is given, one after the other. It ends with the process."""

    def __init__(self) -> None:
        self._given: SimpleQueue[Callable[[], None]] = SimpleQueue()
        Thread(target=self._run, name="steps", daemon=True).start()

    def do(self, act: Callable[[], Result]) -> Future[Result]:
        """What `act` returns or raises, once it has been done."""
        future: Future[Result] = Future()

        def done() -> None:
            try:
                future.set_result(act())
            except BaseException as error:  # noqa: BLE001  # whoever asked is told, whatever it is
                future.set_exception(error)

        self._given.put(done)
        return future

    def _run(self) -> None:
        while True:
            self._given.get()()
