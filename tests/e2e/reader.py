"""A client that never gives up: posts a turn and follows its reply through every break.

It keeps what each connection gave it, as the rules for clients demand: ids 1, 2, 3 ... without gap
or repeat, from the id it asked for.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

Event = tuple[int, str, dict[str, Any]]


class BrokenRule(AssertionError):
    """The server gave what a client may never see."""


@dataclass
class History:
    """What one client has seen of one reply."""

    text: str = ""
    last: int = 0
    attempt: int | None = None
    reply_id: str | None = None
    resets: int = 0
    pauses: int = 0
    connections: int = 0
    end: tuple[str, dict[str, Any]] | None = None
    events: dict[int, tuple[str, str]] = field(default_factory=dict)
    gaps_s: list[float] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Applies one event by the client's rules."""
        number, kind, data = event
        if kind == "reset":
            self.text, self.last, self.attempt = "", 0, None
            self.events.clear()
            self.resets += 1
            return
        if number != self.last + 1:
            raise BrokenRule(f"id {number} came after {self.last}")
        said = (kind, json.dumps(data, sort_keys=True))
        if self.events.setdefault(number, said) != said:
            raise BrokenRule(f"id {number} changed its meaning")
        self.last = number
        if kind == "meta":
            self.attempt, self.reply_id = data["attempt"], data["messageId"]
        elif kind == "delta":
            self.text += data["text"]
        elif kind == "pause":
            self.pauses += 1
        elif kind in ("done", "fail"):
            self.end = (kind, data)


async def sse(response: httpx2.Response) -> AsyncIterator[Event]:
    """The whole events of a stream; a block that was cut off is no event."""
    number, kind, data = 0, "message", ""
    async for line in response.aiter_lines():
        if line == "":
            if data:
                yield number, kind, json.loads(data)
            number, kind, data = 0, "message", ""
        elif line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            data = line[6:]


async def ask(
    url: str,
    key: str,
    conversation_id: str,
    content: str,
    turn_key: str,
    *,
    history: History | None = None,
    give_up_s: float = 90.0,
) -> History:
    """Posts one turn and follows it to its end, whatever breaks on the way."""
    seen = history or History()
    last_at = time.monotonic()
    until = last_at + give_up_s
    headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
    async with httpx2.AsyncClient(trust_env=False, timeout=20, headers=headers) as http:
        while seen.end is None:
            assert time.monotonic() < until, f"no end after {give_up_s} s: {seen.last} events"
            seen.connections += 1
            try:
                if seen.reply_id is None:
                    request = http.stream(
                        "POST",
                        f"{url}/v1/conversations/{conversation_id}/messages",
                        json={"content": content},
                        headers={"Idempotency-Key": turn_key},
                    )
                else:
                    request = http.stream(
                        "GET",
                        f"{url}/v1/messages/{seen.reply_id}/stream",
                        params={"attempt": seen.attempt or 1},
                        headers={"Last-Event-ID": str(seen.last)} if seen.last else {},
                    )
                async with request as response:
                    if response.status_code in (502, 503):
                        await asyncio.sleep(0.1)
                        continue
                    if response.status_code != 200:
                        body = (await response.aread()).decode()
                        raise BrokenRule(f"{response.status_code}: {body}")
                    async for event in sse(response):
                        seen.take(event)
                        now = time.monotonic()
                        # Across connections too: what a person waits for the next words.
                        seen.gaps_s.append(now - last_at)
                        last_at = now
            except httpx2.HTTPError:
                await asyncio.sleep(0.05)
    return seen


async def new_conversation(url: str, key: str) -> str:
    """A conversation to ask in."""
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as http:
        answer = await http.post(
            f"{url}/v1/conversations", json={}, headers={"Authorization": f"Bearer {key}"}
        )
        assert answer.status_code == 201, answer.text
        made: str = answer.json()["id"]
        return made


async def stored(url: str, key: str, conversation_id: str) -> list[dict[str, Any]]:
    """The messages as the store tells them."""
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as http:
        answer = await http.get(
            f"{url}/v1/conversations/{conversation_id}/messages",
            headers={"Authorization": f"Bearer {key}"},
        )
        items: list[dict[str, Any]] = answer.json()["items"]
        return items
