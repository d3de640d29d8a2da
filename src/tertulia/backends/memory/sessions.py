"""Sessions and sign-in links in memory, by the hash of their secret."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.backends.memory.store import MemoryStore, StoredSession
from tertulia.core.types import OpenSession, Session, User


class MemorySessions:
    """The `Sessions` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def open(self, user_id: str, token_hash: str, *, lasts_s: float) -> None:
        """A session from now on; expired ones are cleared away."""
        now = self._store.clock.now()
        for stored in list(self._store.sessions.values()):
            if stored.expires_at <= now:
                del self._store.sessions[stored.token_hash]
        session = StoredSession(user_id, token_hash, now, now + lasts_s)
        self._store.sessions[token_hash] = session

    async def find(self, token_hash: str) -> Session | None:
        """The live session of an enabled user."""
        stored = self._store.sessions.get(token_hash)
        now = self._store.clock.now()
        if stored is None or stored.expires_at <= now:
            return None
        user = self._store.enabled(stored.user_id)
        if user is None:
            return None
        return Session(user, token_hash, now - stored.created_at)

    async def alive(self, token_hashes: Sequence[str]) -> frozenset[str]:
        """Those that are live sessions of enabled users."""
        return frozenset([one for one in token_hashes if await self.find(one) is not None])

    async def list(self, user_id: str, *, limit: int) -> Sequence[OpenSession]:
        """The live sessions of an enabled user, the newest first."""
        now = self._store.clock.now()
        if self._store.enabled(user_id) is None:
            return ()
        found = [
            OpenSession(stored.token_hash, stored.created_at, stored.expires_at)
            for stored in self._store.sessions.values()
            if stored.user_id == user_id and stored.expires_at > now
        ]
        return sorted(found, key=lambda one: (-one.created_at, one.token_hash))[:limit]

    async def close(self, *, token_hash: str | None = None, user_id: str | None = None) -> int:
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
        user = self._store.enabled(stored.user_id)
        if user is not None:
            del self._store.links[token_hash]
        return user
