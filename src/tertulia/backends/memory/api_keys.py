"""API keys in memory, by the hash of their secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tertulia.backends.changes import LAST_USED_STEP_S
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.types import ApiKey, User


class MemoryApiKeys:
    """The `ApiKeys` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def add(self, key: ApiKey) -> None:
        """Stores a key; its secret is known only by its hash."""
        if key.id in self._store.api_keys:
            raise ValueError(f"a key {key.id} is there already")
        self._store.api_keys[key.id] = key

    async def list(self, user_id: str) -> Sequence[ApiKey]:
        """The user's keys, oldest first."""
        found = (key for key in self._store.api_keys.values() if key.owner == user_id)
        return tuple(sorted(found, key=lambda key: (key.created_at, key.id)))

    async def revoke(self, user_id: str, key_id: str) -> bool:
        """Removes the user's own key."""
        key = self._store.api_keys.get(key_id)
        if key is None or key.owner != user_id:
            return False
        del self._store.api_keys[key_id]
        return True

    async def by_secret(self, secret_hash: str) -> tuple[User, ApiKey] | None:
        """The enabled user and the key of this secret."""
        now = self._store.clock.now()
        for key in self._store.api_keys.values():
            if key.secret_hash != secret_hash:
                continue
            user = self._store.enabled(key.owner)
            if user is None:
                return None
            if key.last_used_at is None or key.last_used_at <= now - LAST_USED_STEP_S:
                key = replace(key, last_used_at=now)
                self._store.api_keys[key.id] = key
            return user, key
        return None

    async def alive(self, secret_hashes: Sequence[str]) -> frozenset[str]:
        """Those that are keys of enabled users."""
        asked, store = frozenset(secret_hashes), self._store
        return frozenset(
            key.secret_hash
            for key in store.api_keys.values()
            if key.secret_hash in asked and store.enabled(key.owner) is not None
        )
