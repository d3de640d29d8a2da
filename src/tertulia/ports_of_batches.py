"""What batches need from a store, beside `ports`: files, batches as people see them, and as work.

Every promise is a test of `tests/conformance`, run on every back end. Nothing here does anything.
Times are seconds of the store's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from tertulia.core.batches import Batch, BatchLine, NewBatch, Saved, TooManyBatches, Work
from tertulia.core.files import FilePart, FileRoom, NewFile, StoredFile, Written
from tertulia.core.types import KeyReused, Page


class Files(Protocol):
    """Files of one owner, in parts. Another owner's is not there: same answer, same path.

    Promises
    * `write` is one transaction. The part at 0 makes the file; every other one begins where the
      file ends, else GONE. FULL: with it the owner's files, whole or not, would be more or larger
      than `room`, or than `core.files.WITH_DELETED` times that with those that were deleted and are
      not swept yet. Only the last part shows the file to anybody. How long a file is kept, from its
      first part on, is what came with its newest.
    * `find`, `list` and `read` know whole files alone, and none that was deleted or has expired.
      `list` is by id, which is by age; `after` is an id, of whatever file; `purpose` None is any.
    * `read` gives the bytes from `at` on, up to `size` or the end of the file; None if it is gone.
    * `delete` takes unfinished files, too; without an id all of the owner's. What was deleted is
      not there from that moment on; False if nothing was there.
    * `sweep` removes up to `parts` parts of what was deleted or has expired, and of uploads that
      were not finished an hour after their first part; it says how many. A file without a part
      left goes with its last one.
    """

    async def write(self, file: NewFile, part: FilePart, room: FileRoom) -> Written: ...
    async def find(self, owner: str, file_id: str) -> StoredFile | None: ...
    async def list(
        self,
        owner: str,
        *,
        purpose: str | None,
        after: str | None,
        limit: int,
        order: Literal["asc", "desc"],
    ) -> Page[StoredFile]: ...
    async def read(self, owner: str, file_id: str, *, at: int, size: int) -> bytes | None: ...
    async def delete(self, owner: str, file_id: str | None) -> bool: ...
    async def sweep(self, *, parts: int) -> int: ...


class Batches(Protocol):
    """Batches of one owner. Another owner's is not there: same answer, same path.

    Promises
    * `create` with a key seen before returns the batch made then, or KeyReused if its `body_sha`
      is another; TooManyBatches if `limit` of the owner have not ended. Its window begins now.
    * `list` is newest first, by id; `after` is an id, of whatever batch.
    * `cancel` makes a batch that may be cancelled `cancelling`, under the next epoch, and due at
      once; any other is returned as it is; None if it is not there.
    * `delete` removes the owner's batches, whatever their state: from then on nobody finds them,
      and no claim of them may save.
    """

    async def create(self, new: NewBatch, *, limit: int) -> Batch | TooManyBatches | KeyReused: ...
    async def find(self, owner: str, batch_id: str) -> Batch | None: ...
    async def list(self, owner: str, *, after: str | None, limit: int) -> Page[Batch]: ...
    async def cancel(self, owner: str, batch_id: str) -> Batch | None: ...
    async def delete(self, owner: str) -> None: ...


class BatchWork(Protocol):
    """The same batches, seen as work.

    Promises
    * `claim` gives the batch that has not ended, is due and has no live lease, and was saved
      longest ago, at epoch + 1 with a lease; two claimers never get the same; None if there is
      none. It comes with its open lines in order, each with its turn as it stands.
    * `taken` says which of these custom ids a batch has already.
    * `lines` gives up to `limit` lines after the line `after`, in order.
    * `save` is one transaction under the batch's epoch: batch, lines (new ones too) and parts of
      results are written, and False if the epoch is another or the batch is gone: then nothing is.
      A part is written as by `Files.write` without a bound; one that is GONE, as its file expired
      or its owner deleted all, is left out. Released, the batch is due at `due_at`.
    * `sweep` removes up to `rows` lines of batches that ended or were deleted, and leaves their
      turns to `LooseTurns.forget`; when none of a batch is left, it removes a deleted batch, and
      one that ended `kept_s` ago.
    """

    async def claim(self, *, lease_s: float) -> Work | None: ...
    async def taken(
        self, owner: str, batch_id: str, custom_ids: Sequence[str]
    ) -> frozenset[str]: ...
    async def lines(
        self, owner: str, batch_id: str, *, after: int, limit: int
    ) -> Sequence[BatchLine]: ...
    async def save(self, saved: Saved) -> bool: ...
    async def sweep(self, *, rows: int, kept_s: float) -> int: ...
