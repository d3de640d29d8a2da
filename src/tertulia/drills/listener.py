"""One person of a drill: asks at one gateway, follows at any, and keeps what was seen and when.

It keeps to the rules for clients: the same key for the same question, events 1, 2, 3 … from the one
it asked for, and patience with what passes. What breaks a rule is kept as a fault.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

from tertulia.drills.loopback import loopback

# A line that was cut is tried again as our page does it: soon, since another gateway is there.
_SOON_S: Final = 0.3
_LONGEST_S: Final = 2.0
# A connection without a byte for this long is dead: pings come every 15 s, and two may be lost.
_SILENCE_S: Final = 40.0
_CONNECT_S: Final = 5.0
_BUSY: Final = frozenset((429, 502, 503))


class Refused(Exception):
    """The service said no, and another try would not help."""


@dataclass(slots=True)
class Seen:
    """What one person has seen of one reply."""

    question: str
    conversation: str = ""
    reply_id: str | None = None
    text: str = ""
    last: int = 0
    attempt: int | None = None
    resets: int = 0
    pauses: int = 0
    connections: int = 0
    refusals: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    heard_at: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    asked_at: float = 0.0
    first_words_s: float | None = None
    end: tuple[str, dict[str, Any]] | None = None

    @property
    def is_moved(self) -> bool:
        """Whether something happened to it that its reader could notice."""
        return self.connections > 1 or self.pauses > 0

    @property
    def usual_gap_s(self) -> float:
        """The second longest silence: what a sentence takes, if one thing broke."""
        return sorted(self.gaps_s)[-2] if len(self.gaps_s) > 1 else 0.0

    @property
    def longest_gap_s(self) -> float:
        """The longest silence between two events, the first of which was seen."""
        return max(self.gaps_s, default=0.0)


@dataclass(slots=True)
class Listener:
    """A person with a key and a list of gateways. `note` gets a line for each thing of note."""

    key: str
    urls: Sequence[str]
    now: Callable[[], float]
    note: Callable[[str], None]
    at: int = 0
    said: set[str] = field(default_factory=set)

    async def ask(self, seen: Seen, turn_key: str, *, until_s: float) -> Seen:
        """Asks and follows to the end, whatever breaks on the way; gives up after `until_s`."""
        seen.asked_at = self.now()
        try:
            async with asyncio.timeout(until_s):
                await self._follow(turn_key, seen)
        except TimeoutError:
            seen.faults.append(f"no end after {until_s:.0f} s")
        except Refused as refused:
            seen.faults.append(f"refused: {refused}")
        return seen

    async def _follow(self, turn_key: str, seen: Seen) -> None:
        failures = 0
        async with self._http() as http:
            while True:
                before, seen.connections = seen.last, seen.connections + 1
                wait_s = await self._connection(http, turn_key, seen)
                if seen.end is not None:
                    return
                failures = 1 if seen.last > before else failures + 1
                self.at = (self.at + 1) % len(self.urls)
                await asyncio.sleep(max(wait_s, min(_SOON_S * failures, _LONGEST_S)))

    def _http(self) -> httpx2.AsyncClient:
        times = httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S)
        headers = {"Authorization": f"Bearer {self.key}", "Accept": "text/event-stream"}
        return loopback(times, headers=headers)

    async def _connection(self, http: httpx2.AsyncClient, turn_key: str, seen: Seen) -> float:
        """One connection's events; how long its server wants to be left alone after it."""
        url, where = self.urls[self.at], f"gateway {self.at + 1}"
        try:
            async with self._request(http, url, turn_key, seen) as response:
                if response.status_code in _BUSY:
                    wait_s = float(response.headers.get("retry-after", "0"))
                    self._refused(seen, where, response.status_code)
                    return wait_s
                if response.status_code != 200:
                    raise Refused(f"{response.status_code}: {(await response.aread()).decode()}")
                self._place(seen, response)
                retry_s = await self._read(response, seen, where)
            if seen.end is None:
                self._say(f"{where} closed the stream after event {seen.last}")
            return retry_s
        except httpx2.HTTPError as error:
            self._say(f"no line to {where} ({type(error).__name__}) after event {seen.last}")
            return 0.0

    def _request(self, http: httpx2.AsyncClient, url: str, turn_key: str, seen: Seen) -> Any:
        if seen.reply_id is None:
            return http.stream(
                "POST",
                f"{url}/v1/conversations/{seen.conversation}/messages",
                json={"content": seen.question},
                headers={"Idempotency-Key": turn_key},
            )
        return http.stream(
            "GET",
            f"{url}/v1/messages/{seen.reply_id}/stream",
            params={"attempt": seen.attempt or 1},
            headers={"Last-Event-ID": str(seen.last)} if seen.last else {},
        )

    def _refused(self, seen: Seen, where: str, status: int) -> None:
        seen.refusals.append(f"{where} answered {status}")
        self._say(seen.refusals[-1])

    def _say(self, line: str) -> None:
        """Each trouble once, for as long as it lasts."""
        if line not in self.said:
            self.said.add(line)
            self.note(line)

    def _place(self, seen: Seen, response: httpx2.Response) -> None:
        location = response.headers.get("location", "")
        if location:
            seen.reply_id = location.removeprefix("/v1/messages/").removesuffix("/stream")

    async def _read(self, response: httpx2.Response, seen: Seen, where: str) -> float:
        retry_s, goes_on = 0.0, seen.connections > 1
        async for block in httpx2.EventSource(response):
            if block.retry is not None:
                retry_s = block.retry / 1000
            if not block.data:
                continue
            if goes_on:
                self.note(f"goes on at {where} after event {seen.last}")
                goes_on = False
                self.said.clear()
            retry_s = 0.0
            self._take(seen, int(block.id or 0), block.event, json.loads(block.data))
            if seen.end is not None:
                break
        return retry_s

    def _take(self, seen: Seen, number: int, kind: str, data: dict[str, Any]) -> None:
        now = self.now()
        if kind == "queue":
            return
        if seen.heard_at is not None:
            seen.gaps_s.append(now - seen.heard_at)
        seen.heard_at = now
        if kind == "reset":
            self.note(f"reset ({data.get('reason')}): the text begins anew")
            seen.text, seen.last, seen.attempt, seen.resets = "", 0, None, seen.resets + 1
            return
        if number != seen.last + 1:
            seen.faults.append(f"event {number} came after {seen.last}")
        seen.last = number
        if kind == "meta":
            seen.attempt, seen.reply_id = data["attempt"], data["messageId"]
        elif kind == "delta":
            seen.text += data["text"]
            seen.first_words_s = seen.first_words_s or now - seen.asked_at
        elif kind == "pause":
            seen.pauses += 1
            self.note(f"event {number}: a pause, as the page shows it")
        elif kind in ("done", "fail"):
            seen.end = (kind, data)
