"""What other threads want of the one that steps: new requests, and things to do between two steps.

It must never make anybody wait for a step, and never take more than its bounds.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tertulia.replica.generation import Request


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
class Asked:
    """Something to do between two steps, and what to do instead if there will be no other step."""

    act: Callable[[], None]
    when_dead: Callable[[], None]


class Inbox:
    """Holds both in their order until they are taken: who comes after an abort is not its business.

    `n_tokens` are those of prompts not begun, taken or not.
    """

    def __init__(self, bounds: QueueBounds) -> None:
        self._bounds = bounds
        self._changed = threading.Condition()
        self._came: deque[Request | Asked] = deque()
        self._n_requests = 0
        self._n_tokens = 0
        self._is_closed = False

    @property
    def n_requests(self) -> int:
        return self._n_requests

    @property
    def n_tokens(self) -> int:
        return self._n_tokens

    def put(self, request: Request, n_waiting: int, n_free: int) -> None:
        """Adds a request to `n_waiting` that were taken before, of whom `n_free` find a slot."""
        n_prompt = len(request.generation.prompt)
        with self._changed:
            if self._is_closed:
                raise EngineDead("the engine has stopped")
            n_waiting += self._n_requests
            if n_waiting >= self._bounds.n_requests + n_free:
                raise QueueFull(f"{n_waiting} requests are waiting", "max_num_queued_reqs")
            # One prompt alone is never refused, or it could never be served.
            if self._n_tokens and self._n_tokens + n_prompt > self._bounds.n_tokens:
                raise QueueFull(
                    f"{self._n_tokens} prompt tokens are waiting", "max_num_queued_tokens"
                )
            self._n_tokens += n_prompt
            self._came.append(request)
            self._n_requests += 1
            self._changed.notify()

    def begun(self, request: Request) -> None:
        """Its prompt waits no longer."""
        with self._changed:
            self._n_tokens -= len(request.generation.prompt)

    def ask(self, act: Callable[[], None], when_dead: Callable[[], None]) -> None:
        """Has something done before the next step, or `when_dead` if there will be none."""
        with self._changed:
            is_closed = self._is_closed
            if not is_closed:
                self._came.append(Asked(act, when_dead))
                self._changed.notify()
        if is_closed:
            when_dead()

    def take(self) -> Request | Asked | None:
        """The next of what has come. One at a time: whatever fails, the others are still told."""
        with self._changed:
            if not self._came:
                return None
            one = self._came.popleft()
            self._n_requests -= isinstance(one, Request)
            return one

    def wait(self, seconds: float) -> None:
        """Returns when something has come, or the time is over."""
        with self._changed:
            if not (self._came or self._is_closed):
                self._changed.wait(seconds)

    def close(self) -> list[Request]:
        """Takes nothing more; tells those who asked, and gives the requests that nobody took."""
        with self._changed:
            self._is_closed = True
            came, self._came, self._n_requests = self._came, deque(), 0
            self._changed.notify()
        for one in came:
            if isinstance(one, Asked):
                one.when_dead()
        return [one for one in came if isinstance(one, Request)]
