"""Which keys were found of late, and whose they are: looked up without the file, as nobody else
writes it. It must never outlive a change of what it holds."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tertulia.core.types import ApiKey, User

# Of so many programs that are at work at the same time each is looked up once.
KEYS: Final = 4_096

Found = tuple[User, ApiKey]


class KnownKeys:
    """Keys with their users by the hash of their secret. Invariant: each is as the file has it, but
    for commits whose callers have not been answered yet.

    `changes` says how often something was forgotten: what was read before that may be old.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[str, Found] = OrderedDict()
        self.changes = 0

    def find(self, secret_hash: str) -> Found | None:
        """The key, if it is known; nobody knows of a key that there is none."""
        return self._found.get(secret_hash)

    def keep(self, secret_hash: str, found: Found, *, since: int) -> None:
        """Notes what was read after so many changes, unless there was another meanwhile."""
        if since != self.changes:
            return
        self._found[secret_hash] = found
        if len(self._found) > KEYS:
            self._found.popitem(last=False)

    def forget(self, secret_hash: str) -> None:
        """One key was changed."""
        self.changes += 1
        self._found.pop(secret_hash, None)

    def forget_all(self) -> None:
        """Any key, or any user, may have changed."""
        self.changes += 1
        self._found.clear()
