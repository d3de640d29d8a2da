"""What the conformance tests share: the back ends, a clock that tests move, and short ways to say
who asks what. It never looks inside a back end."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

from tertulia.backends.memory import MemoryBackend
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.types import (
    Admission,
    Admitted,
    Entry,
    Finish,
    Limits,
    NewTurn,
    Note,
    Outcome,
    Reason,
    Refusal,
    Sampling,
    Status,
    Turn,
    Usage,
    User,
)
from tertulia.ports import (
    Accounts,
    ApiKeys,
    Conversations,
    Log,
    Messages,
    Presence,
    Queue,
    Sessions,
    Turns,
)

START = 1_796_000_000.0  # some second of 2026, not the first of its day
PLENTY = Limits(tokens_per_day=1_000_000, replies_running=1000)
BACKENDS = ("memory", "sqlite")
LEASE_S = 2.0


class Backend(Protocol):
    """Every back end: all ports over one store. A new one joins the list in `open_backend`."""

    @property
    def turns(self) -> Turns: ...
    @property
    def queue(self) -> Queue: ...
    @property
    def presence(self) -> Presence: ...
    @property
    def log(self) -> Log: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def accounts(self) -> Accounts: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def api_keys(self) -> ApiKeys: ...
    async def close(self) -> None: ...


class ManualClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = START

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds


def open_backend(kind: str, folder: Path, clock: ManualClock, empty: Path) -> Backend:
    """A fresh back end. `empty` is a migrated file without rows: migrating each time takes long."""
    if kind == "memory":
        return MemoryBackend(clock)
    if kind == "sqlite":
        shutil.copyfile(empty, folder / "tertulia.db")
        return SqliteBackend(folder / "tertulia.db", clock)
    raise ValueError(kind)


def message(n: int | str, *, owner: str = "ana", conversation: str = "c_1", **more: Any) -> NewTurn:
    """The owner's message `n` in a conversation; its reply is `m_r{n}`."""
    new = NewTurn(
        owner=owner,
        key=f"key-{n}",
        body_sha=f"sha-{n}",
        kind="message",
        reply_id=f"m_r{n}",
        plan="free",
        requested="auto",
        answer_tokens=200,
        prompt_tokens=100,
        sampling=Sampling(seed=7, stop=("END",)),
        conversation_id=conversation,
        user_message_id=f"m_u{n}",
        content=f"Question {n}",
        content_tokens=3,
        tokenizer="small",
        title=f"Title {n}",
    )
    return replace(new, **more)


def regenerate(n: int | str, user_message_id: str, **more: Any) -> NewTurn:
    """A further reply to a stored message."""
    return replace(message(n), kind="regenerate", user_message_id=user_message_id, **more)


def stateless(n: int | str, *, owner: str = "ana", **more: Any) -> NewTurn:
    """A turn that brings its own messages."""
    new = replace(
        message(n, owner=owner), kind="stateless", conversation_id=None, user_message_id=None
    )
    return replace(new, **more)


def refused(n: int | str) -> NewTurn:
    """A message whose text a check refused."""
    return message(n, refusal=Refusal("input", "harm", "I can't help with that."))


async def conversation(backend: Backend, *names: str, owner: str = "ana") -> None:
    for name in names or ("c_1",):
        await backend.conversations.create(owner, name, key=None, prompt_version="v1")


async def admitted(backend: Backend, new: NewTurn, limits: Limits = PLENTY) -> Turn:
    answer: Admission = await backend.turns.admit(new, limits)
    assert isinstance(answer, Admitted), answer
    return answer.turn


async def claimed(backend: Backend, *, skip: tuple[str, ...] = ()) -> Turn:
    turn = await backend.queue.claim(lease_s=LEASE_S, skip=skip)
    assert turn is not None
    return turn


async def answered(
    backend: Backend, new: NewTurn, *, text: str = "Answer", charged: int = 150
) -> Turn:
    """Admits, claims and completes a turn; the finished turn."""
    turn = await admitted(backend, new)
    held = await claimed(backend)
    assert held.reply_id == turn.reply_id
    assert await note(backend, held)
    assert await backend.turns.finish(
        held.reply_id, held.epoch, completed(text=text, charged=charged)
    )
    ended = await backend.turns.find(turn.owner, turn.reply_id)
    assert ended is not None
    return ended


async def note(
    backend: Backend, turn: Turn, *, epoch: int | None = None, pin: Literal["pin", "keep"] = "pin"
) -> bool:
    noted = Note(
        attempt=turn.attempt,
        model="small-1",
        reason=Reason.AUTO,
        replica="replica-a",
        request_id=f"{turn.reply_id}-{turn.epoch}",
        prompt_tokens=100,
        pin=pin,
        notices=("context_shortened",),
    )
    return await backend.turns.note(turn.reply_id, turn.epoch if epoch is None else epoch, noted)


async def used_and_held(backend: Backend, owner: str) -> tuple[int, int, tuple[str, ...]]:
    """What the owner has settled today, what is reserved, and for which open replies."""
    spent = await backend.accounts.spent(owner)
    return spent.used_today, spent.reserved, spent.running


def completed(*, text: str = "Answer", charged: int = 150, **more: Any) -> Outcome:
    outcome = Outcome(
        status=Status.COMPLETED,
        attempt=1,
        finish=Finish.STOP,
        text=text,
        usage=Usage(100, 20, 50),
        charged=charged,
        last_event_id=4,
        ids=(1, 70_000, 3),
        tokenizer="small",
    )
    return replace(outcome, **more)


def entries(first: int, last: int, *, mark: str = "") -> tuple[Entry, ...]:
    """Entries `first` to `last`, each with its own bytes."""
    return tuple(
        Entry(n, "delta", f'{{"text":"{mark}{n}"}}'.encode(), bytes((n % 256, 0, 0, 0)))
        for n in range(first, last + 1)
    )


def person(name: str, **more: Any) -> User:
    return replace(User(f"u_{name}", name, "user", "free", "hash", START), **more)
