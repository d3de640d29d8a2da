"""People's own instructions in memory."""

from __future__ import annotations

from tertulia.backends.memory.store import MemoryStore
from tertulia.core.opening import InstructionsVersion


class MemoryInstructions:
    """The `Instructions` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def write(
        self, owner: str, text: str, *, tokens: int, tokenizer: str
    ) -> InstructionsVersion:
        """The next version, unless it says the same."""
        current = self._store.told_now(owner)
        if current is not None and current.text == text:
            return current
        new = self._next(owner, text, tokens, tokenizer)
        kept_to = {
            one.instructions for (its, _), one in self._store.conversations.items() if its == owner
        }
        earlier = [one for one in self._store.told.get(owner, []) if one.version in kept_to]
        self._store.told[owner] = [*earlier, new]
        return new

    async def current(self, owner: str) -> InstructionsVersion | None:
        """The newest, if it says anything."""
        return self._store.told_now(owner)

    async def find(self, owner: str, version: int) -> InstructionsVersion | None:
        """A version that was not removed."""
        found = [one for one in self._store.told.get(owner, []) if one.version == version]
        return found[0] if found and found[0].text else None

    async def forget(self, owner: str) -> None:
        """All of them, at once; the last number stays, without a text."""
        if self._store.told_now(owner) is not None:
            self._store.told[owner] = [self._next(owner, "", 0, "")]

    def _next(self, owner: str, text: str, tokens: int, tokenizer: str) -> InstructionsVersion:
        versions = self._store.told.get(owner)
        number = versions[-1].version + 1 if versions else 1
        return InstructionsVersion(number, text, tokens, tokenizer, self._store.clock.now())
