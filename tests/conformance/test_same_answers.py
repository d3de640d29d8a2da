"""Memory and SQLite get the same random calls, the wrong ones too, and must give the same answers.

In between SQLite's server restarts, forgets its tails or loses a log, which nobody may notice.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from tertulia.backends.memory import MemoryBackend
from tertulia.backends.migrations import migrate
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.quota import charge
from tertulia.core.types import (
    Append,
    Failure,
    Finish,
    Limits,
    Status,
    Turn,
    Usage,
)
from tests.conformance.world import (
    Backend,
    ManualClock,
    completed,
    entries,
    message,
    note,
    refused,
    regenerate,
    stateless,
)

OWNERS = ("ana", "ben")
CONVERSATIONS = ("c_1", "c_2")
LIMITS = Limits(tokens_per_day=5_000, replies_running=4)
NUMBERS = range(12)

owners = st.sampled_from(OWNERS)
conversations = st.sampled_from(CONVERSATIONS)
numbers = st.sampled_from(NUMBERS)
epochs = st.integers(0, 5)
attempts = st.integers(1, 4)


class SameAnswers(RuleBasedStateMachine):
    """Two stores, one clock. `held` are the turns as they were claimed or seized."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.folder = Path(tempfile.mkdtemp(prefix="same-answers-"))
        (self.folder / "tertulia.db").write_bytes(_empty_file())
        self.memory = MemoryBackend(self.clock)
        self.sqlite = SqliteBackend(self.folder / "tertulia.db", self.clock)
        self.held: list[Turn] = []

    def teardown(self) -> None:
        self.everything_is_equal()
        self.runner.run(self.sqlite.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[Backend], Awaitable[Any]]) -> Any:
        """The answer of both; an error is an answer too."""
        answers = [self.runner.run(_answer(call, store)) for store in (self.memory, self.sqlite)]
        assert answers[0] == answers[1]
        return answers[0]

    # What people do.

    @rule(owner=owners, name=conversations, key=st.sampled_from([None, "k1", "k2"]))
    def create(self, owner: str, name: str, key: str | None) -> None:
        self.both(
            lambda store: store.conversations.create(owner, name, key=key, prompt_version="v1")
        )

    @rule(
        n=numbers,
        owner=owners,
        name=conversations,
        parent=st.one_of(st.none(), numbers),
        plan=st.sampled_from(["free", "plus"]),
        body=st.sampled_from(["sha-a", "sha-a", "sha-a", "sha-b"]),
        prompt=st.sampled_from([50, 100, 2000]),
    )
    def ask(
        self,
        n: int,
        owner: str,
        name: str,
        parent: int | None,
        plan: str,
        body: str,
        prompt: int,
    ) -> None:
        new = message(
            n,
            owner=owner,
            conversation=name,
            parent_id=None if parent is None else f"m_r{parent}",
            plan=plan,
            body_sha=body,
            prompt_tokens=prompt,
        )
        self.both(lambda store: store.turns.admit(new, LIMITS))

    @rule(n=numbers, parent=numbers, name=conversations)
    def go_on(self, n: int, parent: int, name: str) -> None:
        """A message under a reply that is there, most likely."""
        known = self.runner.run(self.memory.turns.find("ana", f"m_r{parent}"))
        if known is not None and known.conversation_id is not None:
            new = message(n, conversation=known.conversation_id, parent_id=known.reply_id)
            self.both(lambda store: store.turns.admit(new, LIMITS))

    @rule(n=numbers, user=numbers, name=conversations)
    def regenerate(self, n: int, user: int, name: str) -> None:
        new = regenerate(n, f"m_u{user}", conversation_id=name)
        self.both(lambda store: store.turns.admit(new, LIMITS))

    @rule(n=numbers, owner=owners)
    def ask_statelessly(self, n: int, owner: str) -> None:
        self.both(lambda store: store.turns.admit(stateless(n, owner=owner), LIMITS))

    @rule(n=numbers)
    def ask_what_is_refused(self, n: int) -> None:
        self.both(lambda store: store.turns.admit(refused(n), LIMITS))

    @rule(n=numbers)
    def ask_again(self, n: int) -> None:
        known = self.runner.run(self.memory.turns.find("ana", f"m_r{n}"))
        if known is not None and known.conversation_id is not None:
            new = replace(
                message(n, conversation=known.conversation_id),
                key=known.key,
                body_sha=known.body_sha,
                kind=known.kind,
                user_message_id=known.user_message_id,
            )
            self.both(lambda store: store.turns.admit(new, LIMITS))

    @rule(owner=owners, n=numbers)
    def stop(self, owner: str, n: int) -> None:
        self._hold(self.both(lambda store: store.turns.seize(owner, f"m_r{n}", "stopped")))

    @rule(owner=owners, name=conversations)
    def delete(self, owner: str, name: str) -> None:
        self.both(lambda store: store.conversations.delete(owner, name))

    @rule(
        owner=owners,
        name=conversations,
        changes=st.dictionaries(st.sampled_from(["pinned", "archived"]), st.booleans()),
    )
    def change(self, owner: str, name: str, changes: dict[str, bool]) -> None:
        self.both(lambda store: store.conversations.change(owner, name, changes))

    @rule(n=numbers, rating=st.sampled_from(["up", "down", None]))
    def rate(self, n: int, rating: Any) -> None:
        self.both(lambda store: store.messages.rate("ana", f"m_r{n}", rating, "why"))

    # What workers do.

    @rule(lease=st.sampled_from([1.0, 2.0]), skip=st.lists(numbers, max_size=3))
    def claim(self, lease: float, skip: list[int]) -> None:
        names = [f"m_r{n}" for n in skip]
        self._hold(self.both(lambda store: store.queue.claim(lease_s=lease, skip=names)))

    @rule(pick=st.randoms(use_true_random=False), pin=st.sampled_from(["pin", "keep"]))
    def note(self, pick: Any, pin: Any) -> None:
        if self.held:
            turn = pick.choice(self.held)
            self.both(lambda store: note(store, turn, pin=pin))

    @rule(
        pick=st.randoms(use_true_random=False),
        end=st.sampled_from([Status.COMPLETED, Status.STOPPED, Status.FAILED, Status.FAILED]),
    )
    def finish(self, pick: Any, end: Status) -> None:
        if not self.held:
            return
        turn = pick.choice(self.held)
        usage = Usage(turn.prompt_tokens, 0, pick.randrange(300))
        outcome = completed(
            status=end,
            finish=Finish.STOP if end is Status.COMPLETED else None,
            text=f"Answer {turn.epoch}",
            usage=usage,
            charged=charge(usage, reserved=turn.reserved),
            failure=Failure("x", "y", retryable=True) if end is Status.FAILED else None,
        )
        self.both(lambda store: store.turns.finish(turn.reply_id, turn.epoch, outcome))

    @rule(pick=st.randoms(use_true_random=False))
    def answer(self, pick: Any) -> None:
        """As a worker does it: claim, fence, append."""
        turn = self.both(lambda store: store.queue.claim(lease_s=2))
        self._hold(turn)
        if turn is not None:
            fenced = self.both(
                lambda store: store.log.fence(turn.reply_id, turn.epoch, turn.attempt)
            )
            if fenced is None:  # somebody else's wrong call fenced higher
                return
            first = len(fenced.entries) + 1
            more = entries(first, first + pick.randrange(3), mark=f"{turn.epoch}-")
            done = self.both(
                lambda store: store.log.append(turn.reply_id, turn.epoch, fenced.attempt, more)
            )
            assert done is Append.DONE

    @rule(held=st.lists(st.tuples(numbers, epochs), max_size=4))
    def renew(self, held: list[tuple[int, int]]) -> None:
        pairs = [(f"m_r{n}", epoch) for n, epoch in held]
        self.both(lambda store: store.queue.renew(pairs, lease_s=2))

    @rule(held=st.lists(st.tuples(numbers, epochs), max_size=4))
    def release(self, held: list[tuple[int, int]]) -> None:
        pairs = [(f"m_r{n}", epoch) for n, epoch in held]
        self.both(lambda store: store.queue.release(pairs))

    @rule(n=numbers, epoch=epochs, attempt=attempts)
    def fence(self, n: int, epoch: int, attempt: int) -> None:
        self.both(lambda store: store.log.fence(f"m_r{n}", epoch, attempt))

    @rule(
        n=numbers, epoch=epochs, attempt=attempts, first=st.integers(0, 6), more=st.integers(0, 3)
    )
    def append(self, n: int, epoch: int, attempt: int, first: int, more: int) -> None:
        wanted = entries(first, first + more - 1)
        self.both(lambda store: store.log.append(f"m_r{n}", epoch, attempt, wanted))

    @rule(n=numbers, epoch=epochs, attempt=attempts, last=st.integers(0, 4))
    def reseed(self, n: int, epoch: int, attempt: int, last: int) -> None:
        wanted = entries(1, last, mark="again-")
        self.both(lambda store: store.log.reseed(f"m_r{n}", epoch, attempt, wanted))

    @rule(n=numbers, after=st.integers(0, 8))
    def read(self, n: int, after: int) -> None:
        self.both(lambda store: _view(store, f"m_r{n}", after))

    @rule(
        seen=st.lists(numbers, max_size=4),
        grace=st.dictionaries(
            st.sampled_from(["free", "plus"]), st.sampled_from([None, 1.0, 30.0])
        ),
    )
    def follow(self, seen: list[int], grace: dict[str, float | None]) -> None:
        self.both(lambda store: store.presence.seen([f"m_r{n}" for n in seen]))
        self.both(lambda store: store.queue.abandoned(grace))
        self.both(lambda store: store.queue.stale(held_age_s=2, queued_age_s=50))

    # What happens to them.

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 40.0, 90_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.pass_(seconds)

    @rule(n=st.one_of(st.none(), numbers), age=st.sampled_from([0.0, 30.0, 4000.0]))
    def logs_are_lost(self, n: int | None, age: float) -> None:
        if n is None:
            self.both(lambda store: store.log.drop(older_than_s=age))
        else:
            self.both(lambda store: store.log.drop(reply_ids=[f"m_r{n}"]))

    @rule()
    def the_server_restarts(self) -> None:
        self.runner.run(self.sqlite.close())
        self.sqlite = SqliteBackend(self.folder / "tertulia.db", self.clock)
        self.both(lambda store: store.queue.restarted())

    @rule()
    def tails_are_forgotten(self) -> None:
        self.sqlite.log._tails.clear()
        self.sqlite.log._size = 0

    @rule()
    def everything_is_equal(self) -> None:
        self.both(_everything)

    def _hold(self, turn: Turn | None) -> None:
        if turn is not None:
            self.held.append(turn)


async def _answer(call: Callable[[Backend], Awaitable[Any]], store: Backend) -> Any:
    try:
        return await call(store)
    except ValueError as error:
        return str(error)


async def _view(store: Backend, reply_id: str, after: int) -> object:
    view = await store.log.read(reply_id, after)
    return None if view is None else (view.attempt, view.last, tuple(view.entries))


async def _everything(store: Backend) -> object:
    found: list[object] = []
    for owner in OWNERS:
        spent = await store.accounts.spent(owner)
        assert spent.used_today + spent.reserved <= LIMITS.tokens_per_day
        assert len(spent.running) <= LIMITS.replies_running
        found.append(spent)
        for archived in (False, True):
            for query in ("", "question 1", "answer"):
                found.append(
                    await store.conversations.list(
                        owner, cursor=None, limit=1, query=query, archived=archived
                    )
                )
        for name in CONVERSATIONS:
            kept = await store.conversations.get(owner, name)
            found.append(kept)
            found.append(await store.messages.page(owner, name, before=None, limit=50))
            leaf = kept.head_message_id if kept is not None else None
            found.append(await store.messages.branch(owner, name, leaf))
        replies = [f"m_r{n}" for n in NUMBERS]
        found += [await store.turns.find(owner, reply_id) for reply_id in replies]
        found += [await store.turns.find_by_key(owner, f"key-{n}") for n in NUMBERS]
        found.append(await store.messages.texts(owner, replies))
    found += [await _view(store, f"m_r{n}", 0) for n in NUMBERS]
    return found


@cache
def _empty_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        migrate(path)
        return path.read_bytes()


TestSameAnswers = SameAnswers.TestCase
TestSameAnswers.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
