"""Which replica holds a conversation's prefix, in Valkey: a hint that ends by itself."""

from __future__ import annotations

import re
from typing import Final

from tertulia.backends.valkey.client import Client
from tertulia.core.fleet import HOME_KEPT_S, Home

# A placement does not wait for a hint longer than it would cost to read the prefix again.
_BUDGET_S: Final = 0.1
# What `move` writes; no prompt has more tokens than nine digits hold.
_VALUE: Final = re.compile(rb"([0-9]{1,9}) (.{1,1000})")


class ValkeyHomes:
    """The `Homes` port."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def find(self, conversation_id: str) -> Home | None:
        """What was last moved, or None."""
        key = _key(conversation_id)
        kept: bytes | None = await self._client.call(key, "GET", key, budget_s=_BUDGET_S)
        if kept is None:
            return None
        found = _VALUE.fullmatch(kept)
        return Home(found[2].decode(errors="replace"), int(found[1])) if found else None

    async def move(self, conversation_id: str, home: Home) -> None:
        """The conversation's prefix is there now."""
        key = _key(conversation_id)
        value = f"{home.tokens} {home.replica}"
        await self._client.call(key, "SET", key, value, "EX", int(HOME_KEPT_S), budget_s=_BUDGET_S)


def _key(conversation_id: str) -> str:
    return f"tertulia:home:{{{conversation_id}}}"
