"""Remembers what each of the last requests used, for whoever settles a reply whose reader is gone.

It must never hold text, and never grow: it is a ring.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tertulia.replica.generation import Finish

KEPT = 10_000  # finished requests, about 3 MB: hours of one engine on a CPU


@dataclass(frozen=True)
class Use:
    """What one request used so far; `finish` is null while it waits or runs."""

    number: int  # grows with every request that begins or ends, over all of them
    request_id: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish: Finish | None


class UsageLog:
    """The ring. Used by one event loop.

    A request has a number from when it begins and gets a new one when it ends, so that a reader who
    asks for what came after the last number it has seen hears of both. Requests under way are as
    many as the engine lets in.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._number = 0
        self._running: dict[int, Use] = {}
        self._finished: deque[Use] = deque(maxlen=kept)

    def begin(self, key: int, request_id: str, prompt_tokens: int) -> None:
        self._running[key] = Use(self._next(), request_id, prompt_tokens, 0, 0, None)

    def add(self, key: int, n_output: int, n_cached: int, finish: Finish | None) -> None:
        """Counts what a step produced for the request that began under this key."""
        use = self._running[key]
        n_output += use.completion_tokens
        grown = replace(use, completion_tokens=n_output, cached_tokens=n_cached, finish=finish)
        if finish is None:
            self._running[key] = grown
        else:
            del self._running[key]
            self._finished.append(replace(grown, number=self._next()))

    def listed(self, ids: frozenset[str] | None, after: int, limit: int) -> list[Use]:
        """The oldest uses after that number, in order; with `ids`, of those requests alone."""
        found = [use for use in self._all() if use.number > after]
        if ids is not None:
            found = [use for use in found if use.request_id in ids]
        return sorted(found, key=lambda use: use.number)[:limit]

    def _all(self) -> Iterator[Use]:
        yield from self._running.values()
        yield from self._finished

    def _next(self) -> int:
        self._number += 1
        return self._number
