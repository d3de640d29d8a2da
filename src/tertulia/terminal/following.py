"""Follows one reply to its end over any number of connections.

The call is sent until the reply's id is known and only resumed after that; no text is taken twice
and none is skipped. Time and chance are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2

from tertulia.terminal.client import Ask, Server, json_object, refusal

# A server that restarts is usually back within a second: three quick tries, then slower ones.
_QUICK_TRIES = 3
_QUICK_S = 0.4
_LONGEST_S = 10.0
# About two minutes without any progress.
TRIES = 16
# The whole text of a stored reply comes as one event.
_EVENT_BYTES = 16_000_000

_ID = re.compile(r"[0-9]{1,10}\Z")
_PLACE = re.compile(r"/messages/([\w-]{1,100})/stream\Z")
_WITHOUT_ID = frozenset({"queue", "reset", "message"})
_LAST = frozenset({"done", "fail"})


class Lost(Exception):
    """The server was tried many times and did not answer."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a reply, in order and once; or one of the connection.

    `reset` means that the text so far is void; `broken` that the connection is gone for now.
    """

    kind: str
    data: dict[str, Any] = field(default_factory=dict)


class Following:
    """Where a client is in a reply.

    Invariant: every event up to `last` of `attempt` has been given out, and nothing after it.
    `events` may be called again after it was interrupted, and goes on.
    """

    def __init__(
        self,
        server: Server,
        ask: Ask,
        wait: Callable[[float], object],
        dice: Callable[[], float],
    ):
        self.ask = ask
        self.reply_id: str | None = None
        self.last = 0
        self.attempt: int | None = None
        self._server = server
        self._wait = wait
        self._dice = dice
        self._retry_s = 0.0

    def events(self) -> Iterator[Event]:
        """Every event not yet given out, to the end. Refused or Lost when it can't go on."""
        failures = 0
        while True:
            before = self.last
            if (yield from self._connection()):
                return
            failures = 1 if self.last > before else failures + 1
            if failures > TRIES:
                raise Lost(f"{self._server.url} does not answer any more")
            yield Event("broken")
            self._wait(wait_s(failures, self._dice(), self._retry_s))

    def _connection(self) -> Generator[Event, None, bool]:
        """One connection's events; True when the reply is over."""
        self._retry_s = 0.0
        try:
            with self._open() as response:
                known = _PLACE.search(response.headers.get("location", ""))
                if response.is_success and known is not None:
                    self.reply_id = known[1]
                if response.status_code == 200:
                    return (yield from self._read(response))
                if response.status_code == 204:
                    return True  # everything was seen: there is nothing left to ask for
                response.read()
                yield from self._refusal(response)
        except (httpx2.TransportError, httpx2.StreamError, httpx2.DecodingError):
            pass  # a broken line is expected: the next connection goes on after `last`
        return False

    def _open(self) -> Any:
        if self.reply_id is None:
            return self._server.ask(self.ask)
        return self._server.resume(self.reply_id, self.last, self.attempt)

    def _read(self, response: httpx2.Response) -> Generator[Event, None, bool]:
        for block in httpx2.EventSource(response, max_event_size=_EVENT_BYTES):
            if block.retry is not None:
                self._retry_s = min(max(block.retry / 1000, 0.0), _LONGEST_S)
            if not block.data:
                continue
            data = json_object(block.data)
            if data is None:
                return False  # not ours: ask again from the last good event
            verdict = self._place(block.event, block.id)
            if verdict == "gap":
                return False
            if verdict == "seen":
                continue
            if block.event == "meta":
                self._note(data)
            yield Event(block.event, data)
            if block.event in _LAST:
                return True
        return False

    def _place(self, kind: str, given: str) -> Literal["next", "seen", "gap"]:
        """Whether an event is the next one; moves on when it is."""
        if kind == "reset":
            self.last, self.attempt = 0, None
        if kind in _WITHOUT_ID:
            return "next"
        number = int(given) if _ID.match(given) else 0
        if number <= self.last:
            return "seen"
        if number > self.last + 1:
            return "gap"
        self.last = number
        return "next"

    def _note(self, meta: dict[str, Any]) -> None:
        if isinstance(meta.get("messageId"), str):
            self.reply_id = meta["messageId"]
        if isinstance(meta.get("attempt"), int):
            self.attempt = meta["attempt"]

    def _refusal(self, response: httpx2.Response) -> Iterator[Event]:
        """Passing trouble returns, to be tried again; everything else is raised."""
        problem, status = refusal(response), response.status_code
        passing = status >= 500 or status == 408
        if self.reply_id is None:
            # `busy` is the door: the message was not taken in, and a person decides what next.
            if passing and problem.code != "busy":
                return
            raise problem
        if status in (400, 409) and self.last:
            self.last, self.attempt = 0, None
            yield Event("reset", {"reason": problem.code})
            return
        if passing or status == 429:
            return
        raise problem


def wait_s(failures: int, drawn: float, server_s: float) -> float:
    """How long to wait after so many failures in a row; `drawn` in [0, 1) spreads a crowd."""
    if failures <= _QUICK_TRIES:
        bound = _QUICK_S * failures
    else:
        bound = min(_LONGEST_S, 2.0 ** (failures - _QUICK_TRIES))
    return max(bound, server_s) * (0.5 + drawn / 2)
