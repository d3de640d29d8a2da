"""Wakes sleepers in every process. It carries no news and may be lost; whoever wakes looks."""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import Final

from tertulia.backends.bell import LocalBell
from tertulia.backends.valkey.client import Client
from tertulia.ports import StoreUnavailable

_ID_BYTES: Final = 8


class ValkeyBell:
    """The `Bell` port: a ring is heard here at once, and elsewhere while Valkey is there."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._here = LocalBell()
        self._id = secrets.token_hex(_ID_BYTES).encode()

    def ring(self, topic: str) -> None:
        """Wakes everyone who waits on `topic`; never waits and never fails."""
        self._here.ring(topic)
        self._client.tell(_channel(topic), "SPUBLISH", _channel(topic), self._id)

    async def wait(self, topic: str, *, timeout_s: float) -> None:
        """Returns at a ring, or after `timeout_s`."""
        if self._client.feed.has_joined(_channel(topic)):
            await self._here.wait(topic, timeout_s=timeout_s)
            return
        until = asyncio.get_running_loop().time() + timeout_s
        async with asyncio.TaskGroup() as tasks:
            joining = tasks.create_task(self._join(topic, until))
            await self._here.wait(topic, timeout_s=timeout_s)
            joining.cancel()

    async def _join(self, topic: str, until: float) -> None:
        try:
            await self._client.feed.join(
                _channel(topic), until, heard=partial(self._heard, topic), broken=_nothing
            )
        except StoreUnavailable:
            return  # rings of others are missed: a bell may be

    def _heard(self, topic: str, ringer: bytes) -> None:
        if ringer != self._id:
            self._here.ring(topic)


def _channel(topic: str) -> str:
    return f"tertulia:bell:{topic}"


def _nothing() -> None:
    """The next wait joins again."""
