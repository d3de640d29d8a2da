"""The rollout of system prompts in memory, who is on which version, and who moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tertulia.backends.memory.store import MemoryStore
from tertulia.core.opening import Footing
from tertulia.core.rollout import PromptUse, Rollout


class MemoryPrompts:
    """The `Prompts` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def rollout(self) -> Rollout | None:
        """What was last rolled out."""
        return self._store.rollout

    async def roll_out(self, seen: Rollout | None, to: Rollout) -> bool:
        """Done exactly if nobody else did anything since."""
        if self._store.rollout != seen:
            return False
        self._store.rollout = to
        return True

    async def used(self, *, limit: int, most: int) -> Sequence[PromptUse]:
        """The newest versions."""
        users = Counter(one.prompt_version for one in self._store.conversations.values())
        found = [
            PromptUse(version, text, created_at, min(users[version], most))
            for version, (text, created_at) in self._store.prompts.items()
        ]
        found.sort(key=lambda use: (use.created_at, use.version), reverse=True)
        return found[:limit]

    async def move(
        self, owner: str, conversation_id: str, *, seen: Footing, to: Footing
    ) -> Footing | None:
        """From one footing to another, once."""
        known = self._store.conversations.get((owner, conversation_id))
        if known is None:
            return None
        holds = Footing(known.prompt_version, known.instructions)
        if holds != seen:
            return holds
        self._store.conversations[owner, conversation_id] = replace(
            known, prompt_version=to.prompt_version, instructions=to.instructions
        )
        return to
