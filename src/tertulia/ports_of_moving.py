"""What export and import need from a store, beside `ports`: everything of one owner, in order, and
imports as people see them and as work.

Every promise is a test of `tests/conformance`, run on every back end. Nothing here does anything.
Times are seconds of the store's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tertulia.core.imports import Import, NewImport, Progress, TooManyImports
from tertulia.core.types import Conversation, DayUse, Message, Page


class Transcripts(Protocol):
    """All that one owner has, to be copied out: conversations, archived or not, and what was used.

    Promises
    * `conversations` gives up to `limit` of them after the id `after`, by id, and `count` all.
    * `messages` gives up to `limit` messages of a conversation after the number `after`, by `seq`,
      without `ids`, each with the reason that came with its rating; nothing of what is not there.
    * `used` sums up what was settled by day and model: of the newest `limit`, the oldest day first,
      those of one day by model, those without one first.
    """

    async def count(self, owner: str) -> int: ...
    async def conversations(
        self, owner: str, *, after: str, limit: int
    ) -> Sequence[Conversation]: ...
    async def messages(
        self, owner: str, conversation_id: str, *, after: int, limit: int
    ) -> Sequence[tuple[Message, str]]: ...
    async def used(self, owner: str, *, limit: int) -> Sequence[DayUse]: ...


class Imports(Protocol):
    """Imports of one owner. Another owner's is not there: same answer, same path.

    Promises
    * `create` gives TooManyImports if `limit` of the owner have not ended.
    * `list` is newest first, by id; `after` is an id, of whatever import.
    * `cancel` ends an import that has not ended, under the next epoch: from that moment on nothing
      more comes in. One that has ended is returned as it is; None if it is not there.
    * `delete` removes an import, or all of the owner's, whatever their state: from then on nobody
      finds them, and no claim of them may save. False if nothing was there.
    """

    async def create(self, new: NewImport, *, limit: int) -> Import | TooManyImports: ...
    async def find(self, owner: str, import_id: str) -> Import | None: ...
    async def list(self, owner: str, *, after: str | None, limit: int) -> Page[Import]: ...
    async def cancel(self, owner: str, import_id: str) -> Import | None: ...
    async def delete(self, owner: str, import_id: str | None) -> bool: ...


class ImportWork(Protocol):
    """The same imports, seen as work.

    Promises
    * `claim` gives the import that has not ended, has no live lease and was made first, running, at
      epoch + 1 with a lease; two claimers never get the same; None if there is none.
    * `save` is one transaction under the import's epoch: its arrivals are stored, each whole, and
      the import is written as `core.imports.tallied` says and returned. None if the epoch is
      another or the import is gone: then nothing is written.
    * A conversation that the owner has already, under its key or as `same_as`, is left as it is:
      nothing of it is written or moved (`core.imports.compared` says what it counts as). One that
      was deleted since comes in again.
    * `sweep` removes the imports that ended `kept_s` ago; it says how many.
    """

    async def claim(self, *, lease_s: float) -> Import | None: ...
    async def save(self, progress: Progress) -> Import | None: ...
    async def sweep(self, *, kept_s: float) -> int: ...
