"""Tasks and summaries in memory: what is to be made of conversations, and what was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tertulia.backends.memory.store import MemoryStore, StoredTask
from tertulia.core.remembering import TRIES, Made, Summary, Task, TaskKind, Title


class MemoryTasks:
    """The `Tasks` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def want(
        self, owner: str, conversation_id: str, kind: TaskKind, upto: str, *, room_tokens: int
    ) -> bool:
        """Notes a task once."""
        store, key = self._store, (owner, conversation_id, kind, upto)
        conversation = store.conversations.get((owner, conversation_id))
        if conversation is None or key in store.tasks:
            return False
        if kind == "title" and conversation.titled_by != "words":
            return False
        task = Task(owner, conversation_id, kind, upto, room_tokens, tries=0, epoch=0)
        store.tasks[key] = StoredTask(task, store.clock.now())
        return True

    async def claim(self, *, lease_s: float) -> Task | None:
        """The task that is due longest, at its next epoch."""
        now = self._store.clock.now()
        due = [
            (stored.due_at, key)
            for key, stored in self._store.tasks.items()
            if stored.due_at is not None and stored.due_at <= now and stored.task.tries < TRIES
        ]
        if not due:
            return None
        key = min(due)[1]
        task = self._store.tasks[key].task
        task = replace(task, tries=task.tries + 1, epoch=task.epoch + 1)
        self._store.tasks[key] = StoredTask(task, now + lease_s)
        return task

    async def renew(self, task: Task, *, lease_s: float) -> bool:
        """Puts the next claim off."""
        return self._put_off(task, self._store.clock.now() + lease_s)

    async def finish(self, task: Task, made: Made) -> bool:
        """The task goes, what was made comes."""
        store = self._store
        if not self._is_held(task):
            return False
        del store.tasks[_key(task)]
        place = (task.owner, task.conversation_id)
        if isinstance(made, Title):
            conversation = store.conversations[place]
            if conversation.titled_by == "words":
                store.conversations[place] = replace(
                    conversation, title=made.text, titled_by="model"
                )
        else:
            store.summaries[(*place, made.upto)] = made
        return True

    async def fail(self, task: Task, *, due_in_s: float | None) -> bool:
        """Another time, or never."""
        due_at = None if due_in_s is None else self._store.clock.now() + due_in_s
        return self._put_off(task, due_at)

    def _put_off(self, task: Task, due_at: float | None) -> bool:
        if not self._is_held(task):
            return False
        stored = self._store.tasks[_key(task)]
        self._store.tasks[_key(task)] = replace(stored, due_at=due_at)
        return True

    def _is_held(self, task: Task) -> bool:
        stored = self._store.tasks.get(_key(task))
        return stored is not None and stored.task.epoch == task.epoch


class MemorySummaries:
    """The `Summaries` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def latest(self, owner: str, conversation_id: str, upto: Sequence[str]) -> Summary | None:
        """That of the last message that has one."""
        for message_id in reversed(upto):
            found = self._store.summaries.get((owner, conversation_id, message_id))
            if found is not None:
                return found
        return None

    async def find(self, owner: str, conversation_id: str, summary_id: str) -> Summary | None:
        """The one of this id."""
        for (its_owner, its_conversation, _), summary in self._store.summaries.items():
            if (its_owner, its_conversation, summary.id) == (owner, conversation_id, summary_id):
                return summary
        return None


def _key(task: Task) -> tuple[str, str, TaskKind, str]:
    return task.owner, task.conversation_id, task.kind, task.upto
