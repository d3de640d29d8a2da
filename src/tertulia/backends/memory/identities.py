"""Who signs in by a provider, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.backends.memory.accounts import MemoryAccounts
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.identities import Identity
from tertulia.core.types import User


class MemoryIdentities:
    """The `Identities` port."""

    def __init__(self, store: MemoryStore, accounts: MemoryAccounts) -> None:
        self._store = store
        self._accounts = accounts

    async def find(self, issuer: str, subject: str) -> User | None:
        """The user, disabled or not."""
        known = self._store.identities.get((issuer, subject))
        return None if known is None else self._store.users.get(known.user_id)

    async def add(self, user: User, identity: Identity) -> User | None:
        """The user who has the identity from now on; None if the name is taken."""
        there = await self.find(identity.issuer, identity.subject)
        if there is not None:
            return there
        added = await self._accounts.add(user)
        if added is not None:
            self._store.identities[identity.issuer, identity.subject] = identity
        return added

    async def of_user(self, user_id: str) -> Sequence[Identity]:
        """All that a user signs in by."""
        found = [one for one in self._store.identities.values() if one.user_id == user_id]
        return sorted(found, key=lambda one: (one.created_at, one.issuer, one.subject))
