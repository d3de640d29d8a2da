"""Sessions, sign-in links and API keys in memory, by the hash of their secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tertulia.backends.changes import LAST_USED_STEP_S
from tertulia.backends.memory.store import MemoryStore, StoredSession
from tertulia.core.types import ApiKey, Session, User


class MemoryCredentials:
    """The `Credentials` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def open_session(self, user_id: str, token_hash: str, *, lasts_s: float) -> None:
        """A session from now on; expired ones are cleared away."""
        now = self._store.clock.now()
        for stored in list(self._store.sessions.values()):
            if stored.expires_at <= now:
                del self._store.sessions[stored.token_hash]
        session = StoredSession(user_id, token_hash, now, now + lasts_s)
        self._store.sessions[token_hash] = session

    async def session(self, token_hash: str) -> Session | None:
        """The live session of an enabled user."""
        stored = self._store.sessions.get(token_hash)
        if stored is None or stored.expires_at <= self._store.clock.now():
            return None
        user = self._enabled(stored.user_id)
        if user is None:
            return None
        return Session(user, token_hash, stored.created_at, stored.created_at, stored.expires_at)

    async def close_sessions(
        self, *, token_hash: str | None = None, user_id: str | None = None
    ) -> int:
        """Closes the session of that token, or all of that user."""
        closed = [
            stored.token_hash
            for stored in self._store.sessions.values()
            if token_hash in (stored.token_hash, None)
            and user_id in (stored.user_id, None)
            and not (token_hash is None and user_id is None)
        ]
        for closed_hash in closed:
            del self._store.sessions[closed_hash]
        return len(closed)

    async def add_link(self, user_id: str, token_hash: str, *, lasts_s: float) -> None:
        """A one-time link; earlier links of this user die."""
        now = self._store.clock.now()
        for stored in list(self._store.links.values()):
            if stored.user_id == user_id or stored.expires_at <= now:
                del self._store.links[stored.token_hash]
        self._store.links[token_hash] = StoredSession(user_id, token_hash, now, now + lasts_s)

    async def redeem(self, token_hash: str) -> User | None:
        """The link's user, once."""
        stored = self._store.links.get(token_hash)
        if stored is None or stored.expires_at <= self._store.clock.now():
            return None
        user = self._enabled(stored.user_id)
        if user is not None:
            del self._store.links[token_hash]
        return user

    async def add_key(self, key: ApiKey) -> None:
        """Stores a key; its secret is known only by its hash."""
        if key.id in self._store.api_keys:
            raise ValueError(f"a key {key.id} is there already")
        self._store.api_keys[key.id] = key

    async def keys(self, user_id: str) -> Sequence[ApiKey]:
        """The user's keys, oldest first."""
        found = (key for key in self._store.api_keys.values() if key.owner == user_id)
        return tuple(sorted(found, key=lambda key: (key.created_at, key.id)))

    async def revoke_key(self, user_id: str, key_id: str) -> bool:
        """Removes the user's own key."""
        key = self._store.api_keys.get(key_id)
        if key is None or key.owner != user_id:
            return False
        del self._store.api_keys[key_id]
        return True

    async def by_key(self, secret_hash: str) -> tuple[User, ApiKey] | None:
        """The enabled user and the key of this secret."""
        now = self._store.clock.now()
        for key in self._store.api_keys.values():
            if key.secret_hash != secret_hash:
                continue
            user = self._enabled(key.owner)
            if user is None:
                return None
            if key.last_used_at is None or key.last_used_at <= now - LAST_USED_STEP_S:
                key = replace(key, last_used_at=now)
                self._store.api_keys[key.id] = key
            return user, key
        return None

    def _enabled(self, user_id: str) -> User | None:
        user = self._store.users.get(user_id)
        return user if user is not None and not user.disabled else None
