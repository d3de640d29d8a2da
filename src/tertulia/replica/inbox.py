"""What other threads want of the one that steps: new requests, and things to do between two steps.

It must never make anybody wait for a step, and never take more than its bounds.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from tertulia.replica.generation import Emission, Request

Act = Callable[[list[Emission]], None]  # done between two steps; adds what it has to say


class QueueFull(RuntimeError):
    """As many requests, or prompt tokens, wait as may; `reason` is vLLM's name for it."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class EngineDead(RuntimeError):
    """The step thread has ended; the process must be started again."""


@dataclass(frozen=True)
class QueueBounds:
    """How much may wait."""

    n_requests: int  # beside those that find a free slot
    n_tokens: int = 2**63  # of prompts that nobody has begun to read


@dataclass(frozen=True)
class _Asked:
    act: Act
    when_dead: Callable[[], None]


class Inbox:
    """Holds both until they are taken. `n_tokens` are those of prompts not begun, taken or not."""

    def __init__(self, bounds: QueueBounds) -> None:
        self._bounds = bounds
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._asked: list[_Asked] = []
        self._n_tokens = 0
        self._is_closed = False

    @property
    def n_requests(self) -> int:
        return len(self._requests)

    def put(self, request: Request, n_waiting: int, n_free: int) -> None:
        """Adds a request to `n_waiting` that were taken before, of whom `n_free` find a slot."""
        n_prompt = len(request.generation.prompt)
        with self._changed:
            if self._is_closed:
                raise EngineDead("the engine has stopped")
            n_waiting += len(self._requests)
            if n_waiting >= self._bounds.n_requests + n_free:
                raise QueueFull(f"{n_waiting} requests are waiting", "max_num_queued_reqs")
            # One prompt alone is never refused, or it could never be served.
            if self._n_tokens and self._n_tokens + n_prompt > self._bounds.n_tokens:
                raise QueueFull(
                    f"{self._n_tokens} prompt tokens are waiting", "max_num_queued_tokens"
                )
            self._n_tokens += n_prompt
            self._requests.append(request)
            self._changed.notify()

    def begun(self, request: Request) -> None:
        """Its prompt waits no longer."""
        with self._changed:
            self._n_tokens -= len(request.generation.prompt)

    def ask(self, act: Act, when_dead: Callable[[], None]) -> None:
        """Has something done before the next step, or `when_dead` if there will be none."""
        with self._changed:
            is_closed = self._is_closed
            if not is_closed:
                self._asked.append(_Asked(act, when_dead))
                self._changed.notify()
        if is_closed:
            when_dead()

    def take(self) -> tuple[list[Request], list[Act]]:
        """Everything that has come since the last call."""
        with self._changed:
            requests, self._requests = self._requests, []
            asked, self._asked = self._asked, []
        return requests, [one.act for one in asked]

    def wait(self, seconds: float) -> None:
        """Returns when something has come, or the time is over."""
        with self._changed:
            if not (self._requests or self._asked or self._is_closed):
                self._changed.wait(seconds)

    def close(self) -> list[Request]:
        """Takes nothing more; tells those who asked, and gives the requests that nobody took."""
        with self._changed:
            self._is_closed = True
            requests, self._requests = self._requests, []
            asked, self._asked = self._asked, []
            self._changed.notify()
        for one in asked:
            one.when_dead()
        return requests
