"""What a link to a conversation shows: one branch, as far as it was settled when the link was made.

A snapshot names messages and copies none, so that whatever deletes a message reaches every link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tertulia.core.turn import TRANSITIONS
from tertulia.core.types import Branch, BranchMessage, Head, Role, Status


@dataclass(frozen=True, slots=True)
class NewShare:
    """A link at the door: whose, to the branch that ends at `leaf`, and the hash of its secret."""

    owner: str
    id: str
    conversation_id: str
    leaf: str | Head
    token_hash: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A branch up to `leaf_id`: so many messages from the root, those that were not settled left
    out."""

    leaf_id: str
    path_messages: int
    left_out: tuple[str, ...] = ()

    @property
    def shown_messages(self) -> int:
        """How many are shown."""
        return self.path_messages - len(self.left_out)


@dataclass(frozen=True, slots=True)
class Share:
    """A stored link. `title` is the conversation's when the link was made."""

    owner: str
    id: str
    conversation_id: str
    title: str
    snapshot: Snapshot
    created_at: float


@dataclass(frozen=True, slots=True)
class NothingToShare:
    """There is no settled message on that branch yet."""


@dataclass(frozen=True, slots=True)
class TooManyShares:
    """The owner has as many links as anybody may."""

    limit: int


@dataclass(frozen=True, slots=True)
class SharedMessage:
    """A message as a link shows it; `place` counts from the root, from 1."""

    place: int
    role: Role
    content: str
    model: str | None
    status: Status


@dataclass(frozen=True, slots=True)
class SharedPage:
    """Some messages of a link, oldest first; `next_after` is the place to go on after, if any."""

    title: str
    created_at: float
    messages: tuple[SharedMessage, ...]
    next_after: int | None


def snapshot_of(branch: Branch, leaf: str | Head) -> Snapshot | NothingToShare | None:
    """What a link to the branch would show; None if there is no such leaf.

    A reply that is being written, or that failed and may be run again under its key, would change
    under its readers: it is left out, and the branch ends before it where it is the last.
    """
    if not branch.messages:
        return NothingToShare() if isinstance(leaf, Head) else None
    path = list(branch.messages)
    while path and not _is_settled(path[-1]):
        path.pop()
    if not path:
        return NothingToShare()
    left_out = tuple(message.id for message in path if not _is_settled(message))
    return Snapshot(path[-1].id, len(path), left_out)


def shared_page(
    title: str, created_at: float, found: Sequence[SharedMessage], *, limit: int
) -> SharedPage:
    """A page of up to `limit` messages, of up to one more that were found."""
    shown = tuple(found[:limit])
    return SharedPage(title, created_at, shown, shown[-1].place if len(found) > limit else None)


def _is_settled(message: BranchMessage) -> bool:
    """Whether it never changes again."""
    return not TRANSITIONS[message.status]
