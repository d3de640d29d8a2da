"""Users in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tertulia.backends.changes import USER_FIELDS, demand_changeable
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.deletions import name_mark
from tertulia.core.types import Page, Spent, User


class MemoryAccounts:
    """The `Accounts` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def add(self, user: User) -> User | None:
        """The new user, or None if the name is taken in any case."""
        name = user.name.casefold()
        if name in self._store.names or name_mark(name) in self._store.departed.values():
            return None
        self._store.users[user.id] = user
        self._store.names[name] = user.id
        return user

    async def find(self, user_id: str) -> User | None:
        """The user, disabled or not."""
        return self._store.users.get(user_id)

    async def by_name(self, name: str) -> User | None:
        """The user of that name in any case."""
        user_id = self._store.names.get(name.casefold())
        return self._store.users[user_id] if user_id is not None else None

    async def change(self, user_id: str, changes: Mapping[str, Any]) -> User | None:
        """Touches only the named fields; None if there is no such user."""
        demand_changeable(changes, USER_FIELDS)
        if user_id not in self._store.users:
            return None
        self._store.users[user_id] = replace(self._store.users[user_id], **changes)
        return self._store.users[user_id]

    async def count(self) -> int:
        """How many users there are."""
        return len(self._store.users)

    async def page(self, *, plan: str | None, after: str | None, limit: int) -> Page[User]:
        """Users by id."""
        users = [
            user
            for user_id, user in sorted(self._store.users.items())
            if user_id > (after or "") and plan in (None, user.plan)
        ]
        items = tuple(users[:limit])
        return Page(items, items[-1].id if len(users) > limit and items else None)

    async def spent(self, user_id: str) -> Spent:
        """What `admit` would look at."""
        return self._store.spent(user_id, self._store.clock.now())
