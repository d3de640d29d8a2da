"""What deletion needs from a store, beside `ports`: the orders, and what makes an end of their
copies.

Every promise is a test of `tests/conformance`, run on every back end. Nothing here does anything.
Times are seconds of the store's own clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from tertulia.core.deletions import Deletion, Place, Scrubbed
from tertulia.core.types import Page


class Claimed(NamedTuple):
    """An order to work on, and what time it was for the store."""

    deletion: Deletion
    now: float


class Aged(NamedTuple):
    """A conversation whose time is over."""

    owner: str
    conversation_id: str


class Deletions(Protocol):
    """The orders to delete, as work and as the proof of it. No row holds a word of anybody's.

    Promises
    * An order is written in the transaction that deletes the rows (`Conversations.delete`,
      `Erasure.close`). There is one for each target of an owner: what is ordered anew begins anew.
      Of somebody who has left there is the account's alone.
    * `claim` gives the order that is not over and has been due longest, and lets nobody else have
      it for `lease_s`; None if there is none.
    * `save` writes what a look found, and when the order is due again: `pause_s` from now on. False
      if it was claimed or ordered anew meanwhile: then nothing is written.
    * `page` is newest first; a cursor that was not made here is a ValueError.
    * `overdue` counts the orders that were given `age_s` ago and are not over.
    * `sweep` removes up to `rows` orders that were over `kept_s` ago; how many.
    """

    async def claim(self, *, lease_s: float) -> Claimed | None: ...
    async def save(self, deletion: Deletion, *, pause_s: float) -> bool: ...
    async def page(self, *, cursor: str | None, limit: int) -> Page[Deletion]: ...
    async def overdue(self, *, age_s: float) -> int: ...
    async def sweep(self, *, rows: int, kept_s: float) -> int: ...


class Erasure(Protocol):
    """What ends accounts and what is old, and removes what deleted rows leave behind.

    Promises
    * `close` ends an account in one transaction, for good: from then on nobody finds the user by
      id, name, session, link or key, no turn of his is admitted, and the order is given. His name
      is gone, and can't be taken by anybody else. False if there is no such user; credentials that
      were still made for one who has left are gone then, too.
    * `left` names the places that hold something of what the order is about; an account's are all
      of its owner's, those of any other order its conversation, unless that stays, and logs that
      are not buried.
    * `scrub` makes an end of what rows of an owner that were deleted before `deleted_at` left in
      the store's own files, as well as it can: what it did, or None if it must be tried again.
    * `aged` looks at the owners in `kept_s`, each with how long his words are kept, and names up to
      `limit` conversations that nobody wrote in for so long (pinned and archived ones as well).
    """

    async def close(self, user_id: str) -> bool: ...
    async def left(self, deletion: Deletion) -> frozenset[Place]: ...
    async def scrub(self, owner: str, deleted_at: float, /) -> Scrubbed | None: ...
    async def aged(self, kept_s: Mapping[str, float], *, limit: int) -> Sequence[Aged]: ...
