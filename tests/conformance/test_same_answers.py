"""Memory and another store get the same random calls, the wrong ones too: the answers are the same.

In between the other's server restarts, and SQLite forgets its tails or loses a log, which nobody
may notice.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from tertulia.backends.memory import MemoryBackend
from tertulia.backends.migrations.sqlite import migrate
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.deletions import Reach
from tertulia.core.opening import Footing
from tertulia.core.quota import accepted, taken
from tertulia.core.shares import NewShare
from tertulia.core.types import (
    HEAD,
    Admitted,
    Append,
    Budget,
    Failure,
    Finish,
    Held,
    Lane,
    Limits,
    Repeated,
    Status,
    Turn,
    Usage,
)
from tertulia.core.waiting import Claimable
from tertulia.drills.postgres_server import PostgresServer
from tertulia.ports_of_deletions import Claimed
from tests.conformance.postgres import PostgresAndMemory, open_empty
from tests.conformance.world import (
    DAY_MS,
    Backend,
    ManualClock,
    completed,
    entries,
    message,
    note,
    person,
    refused,
    regenerate,
    stateless,
)

OWNERS = ("ana", "ben")
CONVERSATIONS = ("c_1", "c_2")
# What bursts, what a day holds, and what another plan has beside them; a batch is apart.
MINUTE = Budget("tokens_minute", "tokens", 2_500_000, 60_000)
DAY = Budget("units_day", "units", 9_000_000, DAY_MS)
TURNS = Budget("turns_minute", "turns", 6_000, 60_000)
LIMITS = {
    "free": Limits((MINUTE, DAY), 4, Lane.FREE, abandon_s=30.0),
    "plus": Limits((MINUTE, DAY, TURNS), 4, Lane.PLUS, abandon_s=1.0),
    "batch": Limits((replace(DAY, name="batch"),), 2, Lane.BATCH),
}
NUMBERS = range(12)
BENS = 100  # his ids begin here: nobody ever makes an id of another's

owners = st.sampled_from(OWNERS)
conversations = st.sampled_from(CONVERSATIONS)
numbers = st.sampled_from(NUMBERS)
EVERY_NUMBER = (*NUMBERS, *(n + BENS for n in NUMBERS))
anyones = st.one_of(numbers, numbers.map(lambda n: n + BENS))
epochs = st.integers(0, 5)
attempts = st.integers(1, 4)


class SameRows(RuleBasedStateMachine):
    """Two stores, one clock. `held` are the turns as they were claimed or seized, by each store."""

    other: Backend

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.memory = MemoryBackend(self.clock)
        self.held: list[tuple[Turn, Turn]] = []
        self.links = 0

    def teardown(self) -> None:
        self.everything_is_equal()
        self.runner.run(self.other.close())
        self.runner.close()

    def both(self, call: Callable[[Backend], Awaitable[Any]]) -> Any:
        """The answer of both; an error is an answer too."""
        return self.each(call, call)[0]

    def each(
        self,
        in_memory: Callable[[Backend], Awaitable[Any]],
        elsewhere: Callable[[Backend], Awaitable[Any]],
    ) -> tuple[Any, Any]:
        """The answers of the two, which are as good as equal."""
        ours = self.runner.run(_answer(in_memory, self.memory))
        theirs = self.runner.run(_answer(elsewhere, self.other))
        assert self.plain(ours) == self.plain(theirs)
        return ours, theirs

    def plain(self, answer: Any) -> Any:
        """What of an answer has to be the same."""
        return answer

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
        parent=st.one_of(st.none(), anyones),
        plan=st.sampled_from(["free", "plus", "batch"]),
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
            _own(owner, n),
            owner=owner,
            conversation=name,
            parent_id=None if parent is None else f"m_r{parent}",
            plan=plan,
            body_sha=body,
            prompt_tokens=prompt,
        )
        self.both(lambda store: store.turns.admit(new, LIMITS[plan]))

    @rule(n=numbers, parent=numbers, name=conversations)
    def go_on(self, n: int, parent: int, name: str) -> None:
        """A message under a reply that is there, most likely."""
        known = self.runner.run(self.memory.turns.find("ana", f"m_r{parent}"))
        if known is not None and known.conversation_id is not None:
            new = message(n, conversation=known.conversation_id, parent_id=known.reply_id)
            self.both(lambda store: store.turns.admit(new, LIMITS["free"]))

    @rule(n=numbers, user=numbers, name=conversations)
    def regenerate(self, n: int, user: int, name: str) -> None:
        new = regenerate(n, f"m_u{user}", conversation_id=name)
        self.both(lambda store: store.turns.admit(new, LIMITS["free"]))

    @rule(n=numbers, owner=owners)
    def ask_statelessly(self, n: int, owner: str) -> None:
        new = stateless(_own(owner, n), owner=owner)
        self.both(lambda store: store.turns.admit(new, LIMITS["free"]))

    @rule(n=numbers)
    def ask_what_is_refused(self, n: int) -> None:
        self.both(lambda store: store.turns.admit(refused(n), LIMITS["free"]))

    @rule(n=numbers)
    def ask_again(self, n: int) -> None:
        known = self.runner.run(self.memory.turns.find("ana", f"m_r{n}"))
        if known is not None and known.conversation_id is not None:
            new = message(n, conversation=known.conversation_id)._replace(
                key=known.key,
                body_sha=known.body_sha,
                kind=known.kind,
                user_message_id=known.user_message_id,
            )
            self.both(lambda store: store.turns.admit(new, LIMITS["free"]))

    @rule(owner=owners, n=anyones)
    def stop(self, owner: str, n: int) -> None:
        def seize(store: Backend) -> Awaitable[Turn | None]:
            return store.turns.seize(owner, f"m_r{n}", "stopped")

        self._hold(self.each(seize, seize))

    @rule(
        owner=owners, name=conversations | st.none(), idle_s=st.sampled_from([None, None, 0.0, 9.0])
    )
    def delete(self, owner: str, name: str | None, idle_s: float | None) -> None:
        aged_s = idle_s if name is not None else None
        self.both(lambda store: store.conversations.delete(owner, name, idle_s=aged_s))

    @rule(kept_s=st.sampled_from([0.0, 1.0, 50.0]))
    def look_for_what_is_old(self, kept_s: float) -> None:
        kept = {"ana": kept_s, "ben": 2 * kept_s}
        self.both(lambda store: store.erasure.aged(kept, limit=3))

    @rule(is_over=st.booleans())
    def look_at_an_order(self, is_over: bool) -> None:
        claim = self.both(lambda store: store.deletions.claim(lease_s=2))
        if isinstance(claim, Claimed):
            deletion, now = claim
            self.both(lambda store: store.erasure.left(deletion))
            found = replace(
                deletion,
                looks=deletion.looks + 1,
                reached={"cache:a": Reach("pending", now)},
                done_at=now if is_over else None,
            )
            self.both(lambda store: store.deletions.save(found, pause_s=1))
            self.both(lambda store: store.deletions.save(found, pause_s=1))

    @rule(
        owner=owners,
        name=conversations,
        changes=st.dictionaries(st.sampled_from(["pinned", "archived"]), st.booleans()),
    )
    def change(self, owner: str, name: str, changes: dict[str, bool]) -> None:
        self.both(lambda store: store.conversations.change(owner, name, changes))

    @rule(n=anyones, name=conversations, what=st.sampled_from("ur"))
    def switch(self, n: int, name: str, what: str) -> None:
        self.both(lambda store: store.branches.switch("ana", name, f"m_{what}{n}"))

    @rule(owner=owners, n=anyones, what=st.sampled_from("ur"))
    def delete_message(self, owner: str, n: int, what: str) -> None:
        self.both(lambda store: store.branches.running(owner, f"m_{what}{n}"))
        self.both(lambda store: store.branches.delete(owner, f"m_{what}{n}"))

    @rule(n=numbers, before=st.one_of(st.none(), numbers), name=conversations)
    def look_at_a_branch(self, n: int, before: int | None, name: str) -> None:
        def page(store: Backend) -> Awaitable[Any]:
            return store.branches.page(
                "ana",
                name,
                through=f"m_u{n}",
                before=None if before is None else f"m_r{before}",
                limit=3,
            )

        self.both(page)

    @rule(owner=owners, text=st.sampled_from(["Be brief.", "Be long.", None]))
    def tell(self, owner: str, text: str | None) -> None:
        if text is None:
            self.both(lambda store: store.instructions.forget(owner))
        else:
            self.both(lambda store: store.instructions.write(owner, text, tokens=3, tokenizer="s"))

    @rule(
        owner=owners,
        name=conversations,
        seen=st.integers(0, 2),
        to=st.builds(Footing, st.sampled_from(["v1", "v2"]), st.integers(0, 2)),
    )
    def move(self, owner: str, name: str, seen: int, to: Footing) -> None:
        before = Footing("v1", seen)
        self.both(lambda store: store.prompts.move(owner, name, seen=before, to=to))

    @rule(n=numbers, rating=st.sampled_from(["up", "down", None]))
    def rate(self, n: int, rating: Any) -> None:
        self.both(lambda store: store.messages.rate("ana", f"m_r{n}", rating, "why"))

    @initialize()
    def people_come(self) -> None:
        """Only of somebody who has an account are links shown."""
        for owner in OWNERS:
            self.both(partial(_come, owner))

    @rule(owner=owners, name=conversations, leaf=st.one_of(st.just(HEAD), anyones))
    def share(self, owner: str, name: str, leaf: Any) -> None:
        self.links += 1
        new = NewShare(
            owner=owner,
            id=f"s_{self.links}",
            conversation_id=name,
            leaf=leaf if leaf is HEAD else f"m_r{leaf}",
            token_hash=f"hash-{self.links}",
        )
        self.both(lambda store: store.shares.add(new, limit=3))

    @rule(owner=owners, n=st.integers(1, 6))
    def revoke(self, owner: str, n: int) -> None:
        self.both(lambda store: store.shares.revoke(owner, f"s_{n}"))

    @rule(owner=owners, name=st.one_of(conversations, st.none()), after=st.integers(0, 3))
    def read_links(self, owner: str, name: str | None, after: int) -> None:
        self.both(lambda store: store.shares.list(owner, name))
        for n in range(1, self.links + 1):
            self.both(partial(_read_link, f"hash-{n}", after))

    # What workers do.

    @rule(
        lease=st.sampled_from([1.0, 2.0]),
        skip=st.lists(numbers, max_size=3),
        may=st.one_of(
            st.none(),
            st.builds(Claimable, st.one_of(st.none(), st.sampled_from(Lane)), st.integers(0, 3)),
        ),
    )
    def claim(self, lease: float, skip: list[int], may: Claimable | None) -> None:
        names = [f"m_r{n}" for n in skip]

        def claim(store: Backend) -> Awaitable[Turn | None]:
            return store.queue.claim(lease_s=lease, skip=names, may=may)

        self._hold(self.each(claim, claim))

    @rule(pick=st.randoms(use_true_random=False), pin=st.sampled_from(["pin", "keep"]))
    def note(self, pick: Any, pin: Any) -> None:
        if self.held:
            ours, theirs = pick.choice(self.held)
            self.each(
                lambda store: note(store, ours, pin=pin), lambda store: note(store, theirs, pin=pin)
            )

    @rule(
        pick=st.randoms(use_true_random=False),
        end=st.sampled_from([Status.COMPLETED, Status.STOPPED, Status.FAILED, Status.FAILED]),
    )
    def finish(self, pick: Any, end: Status) -> None:
        if not self.held:
            return
        turn, _ = pick.choice(self.held)
        usage = Usage(turn.prompt_tokens, pick.randrange(40), pick.randrange(300))
        if pick.random() < 0.8:  # else more than was reserved, now and then: an error
            usage = accepted(usage, turn.worst_case)
        outcome = completed(
            status=end,
            finish=Finish.STOP if end is Status.COMPLETED else None,
            text=f"Answer {turn.epoch}",
            usage=usage,
            failure=Failure("x", "y", retryable=True) if end is Status.FAILED else None,
        )
        self.both(lambda store: store.turns.finish(turn.held, outcome))

    @rule(more=st.integers(0, 2))
    def answer(self, more: int) -> None:
        """As a worker does it: claim, fence, append."""

        def claim(store: Backend) -> Awaitable[Turn | None]:
            return store.queue.claim(lease_s=2)

        ours, theirs = self.each(claim, claim)
        self._hold((ours, theirs))
        if ours is not None:
            self.each(
                lambda store: _write(store, ours, more), lambda store: _write(store, theirs, more)
            )

    @rule(held=st.lists(st.tuples(numbers, epochs), max_size=4))
    def renew(self, held: list[tuple[int, int]]) -> None:
        pairs = [Held("ana", f"m_r{n}", epoch) for n, epoch in held]
        self.both(lambda store: store.queue.renew(pairs, lease_s=2))

    @rule(held=st.lists(st.tuples(numbers, epochs), max_size=4))
    def release(self, held: list[tuple[int, int]]) -> None:
        pairs = [Held("ana", f"m_r{n}", epoch) for n, epoch in held]
        self.both(lambda store: store.queue.release(pairs))

    @rule(seen=st.lists(numbers, max_size=4))
    def follow(self, seen: list[int]) -> None:
        self.both(lambda store: store.presence.seen([("ana", f"m_r{n}") for n in seen]))
        self.both(lambda store: store.queue.abandoned())
        self.both(lambda store: store.queue.stale(held_age_s=2, queued_age_s=50))

    # What happens to them.

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 40.0, 90_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.pass_(seconds)

    @rule()
    def everything_is_equal(self) -> None:
        self.both(_everything)

    def _hold(self, turns: tuple[Turn | None, Turn | None]) -> None:
        ours, theirs = turns
        if ours is not None and theirs is not None:
            self.held.append((ours, theirs))


class SameInSqlite(SameRows):
    """Logs are compared too: an embedded store keeps them beside the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="same-answers-"))
        (self.folder / "tertulia.db").write_bytes(_empty_file())
        self.sqlite = self.other = SqliteBackend(self.folder / "tertulia.db", self.clock)

    def teardown(self) -> None:
        self.both(_logs)
        super().teardown()
        shutil.rmtree(self.folder)

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

    @rule(n=st.one_of(st.none(), numbers), age=st.sampled_from([0.0, 30.0, 4000.0]))
    def logs_are_lost(self, n: int | None, age: float) -> None:
        if n is None:
            self.both(lambda store: store.log.drop(older_than_s=age))
        else:
            self.both(lambda store: store.log.drop(reply_ids=[f"m_r{n}"]))

    @rule()
    def all_logs_are_equal(self) -> None:
        self.both(_logs)

    @rule()
    def the_server_restarts(self) -> None:
        self.runner.run(self.sqlite.close())
        self.sqlite = self.other = SqliteBackend(self.folder / "tertulia.db", self.clock)
        self.both(lambda store: store.queue.restarted())

    @rule()
    def tails_are_forgotten(self) -> None:
        self.sqlite.log._tails.clear()
        self.sqlite.log._size = 0


class SameInPostgres(SameRows):
    """Attempts may differ: a turn that runs again has one above all before, and a fresh log."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.other = self.runner.run(open_empty(self.url, self.clock, connections=2))

    def plain(self, answer: Any) -> Any:
        if isinstance(answer, Turn):
            return answer._replace(attempt=0)
        if isinstance(answer, Admitted | Repeated):
            return type(answer)(answer.turn._replace(attempt=0))
        if isinstance(answer, list | tuple):
            return [self.plain(part) for part in answer]
        return answer

    @rule()
    def a_process_restarts(self) -> None:
        log = self.other.log
        self.runner.run(self.other.close())
        self.other = self.runner.run(
            PostgresAndMemory.open(self.url, log, clock=self.clock, connections=2)
        )
        self.both(lambda store: store.queue.restarted())


async def _answer(call: Callable[[Backend], Awaitable[Any]], store: Backend) -> Any:
    try:
        return await call(store)
    except ValueError as error:
        return str(error)


async def _come(owner: str, store: Backend) -> object:
    return await store.accounts.add(person(owner, id=owner))


async def _read_link(token_hash: str, after: int, store: Backend) -> object:
    return await store.shares.page(token_hash, after=after, limit=2)


def _own(owner: str, n: int) -> int:
    return n if owner == "ana" else n + BENS


async def _write(store: Backend, turn: Turn, more: int) -> object:
    """What a worker finds in the log, and whether it can go on."""
    fenced = await store.log.fence(turn.reply_id, turn.epoch, turn.attempt)
    if fenced is None:  # somebody else's wrong call fenced higher
        return None
    first = len(fenced.entries) + 1
    new = entries(first, first + more - 1, mark=f"{turn.epoch}-")
    done = await store.log.append(turn.reply_id, turn.epoch, fenced.attempt, new)
    assert done is Append.DONE
    return fenced.entries


async def _view(store: Backend, reply_id: str, after: int) -> object:
    view = await store.log.read(reply_id, after)
    return None if view is None else (view.attempt, view.last, tuple(view.entries))


async def _everything(store: Backend) -> object:
    replies = [f"m_r{n}" for n in EVERY_NUMBER]
    found: list[object] = [
        await store.line.look([(owner, reply) for owner in OWNERS for reply in replies])
    ]
    for owner in OWNERS:
        spent = await store.accounts.spent(owner)
        for limits in LIMITS.values():
            assert len(spent.running_beside(limits.lane)) <= limits.replies_running
            assert all(taken(budget, spent) <= budget.limit for budget in limits.budgets)
        found.append(spent)
        found.append(await store.ledger.owners(after="", limit=10))
        assert await store.ledger.check(owner) == {}
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
            found.append(await store.messages.branch(owner, name, HEAD))
            shown = await store.branches.page(owner, name, through=HEAD, before=None, limit=50)
            found.append(shown)
            if kept is not None and shown is not None and shown.items:
                assert shown.items[-1].id == kept.head_message_id
        found += [await store.turns.find(owner, reply_id) for reply_id in replies]
        keys = [f"key-{_own(owner, n)}" for n in NUMBERS]
        found += [await store.turns.find_by_key(owner, key) for key in keys]
        found.append(await store.messages.texts(owner, replies))
        found.append(await store.instructions.current(owner))
        found += [await store.instructions.find(owner, version) for version in range(6)]
    found.append(await store.deletions.page(cursor=None, limit=50))
    found.append(await store.deletions.overdue(age_s=1))
    return found


async def _logs(store: Backend) -> object:
    return [await _view(store, f"m_r{n}", 0) for n in EVERY_NUMBER]


@cache
def _empty_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        migrate(path)
        return path.read_bytes()


TestSameInSqlite = SameInSqlite.TestCase
TestSameInSqlite.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_postgres_gives_the_answers_of_memory(postgres_server: PostgresServer) -> None:
    class SameOnThisServer(SameInPostgres):
        url = postgres_server.url

    run_state_machine_as_test(
        SameOnThisServer,
        settings=settings(
            max_examples=15,  # each of their hundreds of calls goes to a real server
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
