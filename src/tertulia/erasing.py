"""Removes everything that somebody left, whose account is closed.

Gateway and worker do it alike: the one at once, the other once more, for what was still on its way.
"""

from __future__ import annotations

from typing import Final, Protocol

from tertulia.ports import Conversations
from tertulia.ports_of_batches import Batches, Files
from tertulia.ports_of_moving import Imports
from tertulia.ports_of_prompts import Instructions

_PAGE: Final = 100
# Pages of conversations that one go may take; the next look goes on.
_PAGES: Final = 10_000


class Erasing(Protocol):
    """The ports that it needs."""

    @property
    def conversations(self) -> Conversations: ...
    @property
    def batches(self) -> Batches: ...
    @property
    def files(self) -> Files: ...
    @property
    def imports(self) -> Imports: ...
    @property
    def instructions(self) -> Instructions: ...


async def erase_all(tools: Erasing, owner: str) -> None:
    """Deletes batches, imports, conversations, calls, instructions and files of an owner. Batches
    and imports go first: who works through them would otherwise go on."""
    await tools.batches.delete(owner)
    await tools.imports.delete(owner, None)
    for archived in (False, True):
        for _ in range(_PAGES):
            page = await tools.conversations.list(
                owner, cursor=None, limit=_PAGE, query="", archived=archived
            )
            for conversation in page.items:
                await tools.conversations.delete(owner, conversation.id)
            if not page.items:
                break
    await tools.conversations.delete(owner, None)
    await tools.instructions.forget(owner)
    await tools.files.delete(owner, None)
