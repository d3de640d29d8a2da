"""What titles and summaries need from a store, beside `ports`: work that is no turn, and its fruit.

Every promise is a test of `tests/conformance`, run on every back end. Nothing here does anything.
Times are seconds of the store's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tertulia.core.remembering import Made, Summary, Task, TaskKind


class Tasks(Protocol):
    """What is to be made of conversations. A conversation that is deleted takes its tasks along.

    Promises
    * `want` is idempotent: a conversation has one task of a kind and an `upto`, which stays after
      it was given up, so that it is not begun again. False: it is wanted already, the conversation
      is not this owner's, or it has a title that a model or a person gave it.
    * `claim` gives the task that is due longest, at epoch + 1, as one try more, and not due before
      `lease_s` have passed; two claimers never get the same. None if there is none. One that was
      claimed `core.remembering.TRIES` times is not claimed again.
    * `renew` puts that off again, under the epoch; False: it is another's or gone.
    * `finish` is one transaction, under the epoch: the task goes, and what was made is stored.
      False: it is another's or gone, and nothing is stored. A title replaces the first words alone,
      never one that a person gave, and moves neither `updated_at` nor the head.
    * `fail`, under the epoch: due in `due_in_s`, or given up for good where that is None.
    """

    async def want(
        self, owner: str, conversation_id: str, kind: TaskKind, upto: str, *, room_tokens: int
    ) -> bool: ...
    async def claim(self, *, lease_s: float) -> Task | None: ...
    async def renew(self, task: Task, *, lease_s: float) -> bool: ...
    async def finish(self, task: Task, made: Made) -> bool: ...
    async def fail(self, task: Task, *, due_in_s: float | None) -> bool: ...


class Summaries(Protocol):
    """Summaries of one owner's conversations; deleted with them, and with the message that they end
    at (`Branches.delete`).

    Promises
    * A message is the end of one summary at most: a second one replaces the first.
    * `latest` gives the summary that ends at the last of these messages that has one; so a branch
      that names its own messages sees no other branch's.
    * `find` gives one by its id.
    """

    async def latest(
        self, owner: str, conversation_id: str, upto: Sequence[str]
    ) -> Summary | None: ...
    async def find(self, owner: str, conversation_id: str, summary_id: str) -> Summary | None: ...
