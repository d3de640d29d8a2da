"""Links to snapshots of branches, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.backends.memory.messages import MemoryMessages
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.shares import (
    NewShare,
    NothingToShare,
    Share,
    SharedMessage,
    SharedPage,
    TooManyShares,
    shared_page,
    snapshot_of,
)
from tertulia.core.types import Message


class MemoryShares:
    """The `Shares` port."""

    def __init__(self, store: MemoryStore, messages: MemoryMessages) -> None:
        self._store = store
        self._messages = messages

    async def add(
        self, new: NewShare, *, limit: int
    ) -> Share | NothingToShare | TooManyShares | None:
        """A new link to what is settled on the branch now."""
        branch = await self._messages.branch(new.owner, new.conversation_id, new.leaf)
        snapshot = snapshot_of(branch, new.leaf) if branch is not None else None
        if snapshot is None or isinstance(snapshot, NothingToShare):
            return snapshot
        if len(self._of(new.owner, None)) >= limit:
            return TooManyShares(limit)
        title = self._store.conversations[new.owner, new.conversation_id].title
        now = self._store.clock.now()
        share = Share(new.owner, new.id, new.conversation_id, title, snapshot, now)
        self._store.shares[new.token_hash] = share
        return share

    async def list(self, owner: str, conversation_id: str | None) -> Sequence[Share] | None:
        """Newest first."""
        key = (owner, conversation_id or "")
        if conversation_id is not None and key not in self._store.conversations:
            return None
        return self._of(owner, conversation_id)

    async def revoke(self, owner: str, share_id: str) -> bool:
        """Removes the owner's own link."""
        for token_hash, share in self._store.shares.items():
            if (share.owner, share.id) == (owner, share_id):
                del self._store.shares[token_hash]
                return True
        return False

    async def page(self, token_hash: str, *, after: int, limit: int) -> SharedPage | None:
        """Some messages of a link, if its branch is whole."""
        share = self._store.shares.get(token_hash)
        if share is None or self._store.enabled(share.owner) is None:
            return None
        path = self._path(share)
        if len(path) != share.snapshot.path_messages:
            return None
        shown = [
            SharedMessage(place, one.role, one.content, one.model, one.status)
            for place, one in enumerate(path, 1)
            if place > after and one.id not in share.snapshot.left_out
        ]
        return shared_page(share.title, share.created_at, shown[: limit + 1], limit=limit)

    def _of(self, owner: str, conversation_id: str | None) -> tuple[Share, ...]:
        found = [
            share
            for share in self._store.shares.values()
            if share.owner == owner and conversation_id in (None, share.conversation_id)
        ]
        return tuple(sorted(found, key=lambda one: (one.created_at, one.id), reverse=True))

    def _path(self, share: Share) -> Sequence[Message]:
        """From the root to the leaf; empty if one of them is gone."""
        path: list[Message] = []
        at: str | None = share.snapshot.leaf_id
        while at is not None:
            message = self._store.messages.get((share.owner, at))
            if message is None:
                return ()
            path.append(message)
            at = message.parent_id
        return path[::-1]
