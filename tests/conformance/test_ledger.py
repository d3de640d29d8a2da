"""Promises of the ledger: no limit is ever passed, and every balance follows from its settlements.

`books` has the machine that asks for all of it at once.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tertulia.backends.memory import MemoryBackend, MemoryStore
from tertulia.backends.memory import turns as memory_turns
from tertulia.backends.memory.turns import MemoryTurns
from tertulia.backends.sqlite import SqliteBackend
from tertulia.backends.transitions import Entrance, entrance
from tertulia.core.types import (
    Admission,
    Admitted,
    Balance,
    Budget,
    BudgetExhausted,
    Drift,
    Held,
    Holding,
    Lane,
    Limits,
    NewTurn,
    Outcome,
    Spent,
    TooManyRunning,
    Turn,
    Usage,
)
from tertulia.drills.postgres_server import PostgresServer
from tests.conformance.books import Books
from tests.conformance.postgres import open_again, open_empty, run_sql
from tests.conformance.world import (
    DAY_MS,
    PLENTY,
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    message,
    stateless,
    tokens_a_day,
    used_and_held,
)
from tests.sim.mutants import patched

pytestmark = pytest.mark.anyio

GATEWAYS = 3
PARALLEL = 30


async def test_of_thirty_at_once_a_budget_for_three_lets_in_three(backend: Backend) -> None:
    limits = tokens_a_day(3 * 300, min_answer_tokens=200)
    answers = await asyncio.gather(
        *(backend.turns.admit(stateless(n), limits) for n in range(PARALLEL))
    )
    assert Counter(map(type, answers)) == {Admitted: 3, BudgetExhausted: 27}
    assert (await used_and_held(backend, "ana"))[:2] == (0, 900)


async def test_three_gateways_let_in_three_of_thirty_together(
    postgres_server: PostgresServer, anyio_backend: str
) -> None:
    url = postgres_server.url
    stores = [await open_empty(url, None)]
    stores += [await open_again(url, None) for _ in range(GATEWAYS - 1)]
    limits = tokens_a_day(3 * 300, min_answer_tokens=200)
    answers = await asyncio.gather(
        *(stores[n % GATEWAYS].turns.admit(stateless(n), limits) for n in range(PARALLEL))
    )
    assert Counter(map(type, answers)) == {Admitted: 3, BudgetExhausted: 27}
    assert (await used_and_held(stores[0], "ana"))[:2] == (0, 900)
    for store in stores:
        await store.close()


async def test_the_tightest_budget_decides(backend: Backend) -> None:
    minute = Budget("minute", "tokens", 250_000, 60_000)
    day = Budget("day", "tokens", 900_000, DAY_MS)
    turns = Budget("turns", "turns", 1_000, 3_600_000)
    limits = Limits((day, minute, turns), 10, Lane.FREE)
    turn = await admitted(backend, stateless(1), limits)
    assert (turn.answer_tokens, turn.notices) == (150, ("answer_capped",))
    answer = await backend.turns.admit(stateless(2), limits)
    assert isinstance(answer, BudgetExhausted)
    assert answer.budget == "turns", "it comes back last"


async def test_a_running_turn_keeps_lane_budgets_and_patience_of_its_plan(
    backend: Backend,
) -> None:
    """Also when the plan is gone: the worker that ends it does not know it."""
    gold = Budget("gold", "units", 5_000_000, 60_000)
    limits = Limits((gold,), 1, Lane.PLUS, abandon_s=7.5)
    turn = await admitted(backend, message(1, kind="stateless", plan="gold"), limits)
    assert (turn.lane, turn.budgets, turn.abandon_s) == (Lane.PLUS, (gold,), 7.5)
    held = await claimed(backend)
    assert (held.lane, held.budgets, held.abandon_s) == (Lane.PLUS, (gold,), 7.5)
    seized = await backend.turns.seize("ana", turn.reply_id, "stopped")
    assert seized is not None
    assert (seized.lane, seized.budgets, seized.abandon_s) == (Lane.PLUS, (gold,), 7.5)
    assert await backend.turns.finish(seized.held, completed())
    spent = await backend.accounts.spent("ana")
    assert {name: balance.used for name, balance in spent.balances.items()} == {"gold": 282_000}
    ended = await backend.turns.find("ana", turn.reply_id)
    assert ended is not None
    assert (ended.lane, ended.budgets, ended.abandon_s) == (Lane.PLUS, (), None)


async def test_a_batch_and_a_chat_have_places_of_their_own(backend: Backend) -> None:
    chat = tokens_a_day(1000, replies_running=1)
    batch = Limits((), 1, Lane.BATCH)
    await admitted(backend, stateless(1), chat)
    await admitted(backend, stateless(2), batch)
    assert await backend.turns.admit(stateless(3), chat) == TooManyRunning(1)
    assert await backend.turns.admit(stateless(4), batch) == TooManyRunning(1)
    assert (await used_and_held(backend, "ana"))[2] == ("m_r1", "m_r2")


async def test_a_usage_beyond_the_reservation_is_an_error_and_changes_nothing(
    backend: Backend,
) -> None:
    await admitted(backend, stateless(1))
    held = await claimed(backend)
    before = await backend.accounts.spent("ana")
    for usage in (Usage(101, 0, 1), Usage(1, 0, 201), Usage(1, 2, 1), Usage(1, -1, 1)):
        with pytest.raises(ValueError, match="reserved"):
            await backend.turns.finish(held.held, completed(usage=usage))
    assert await backend.accounts.spent("ana") == before
    assert await backend.turns.finish(held.held, completed())


async def test_the_ledger_names_everybody_who_was_settled_page_by_page(backend: Backend) -> None:
    for n, owner in enumerate(("cleo", "ana", "ben")):
        await answered(backend, stateless(n, owner=owner))
    await admitted(backend, stateless(9, owner="dora"))
    assert await backend.ledger.owners(after="", limit=2) == ("ana", "ben")
    assert await backend.ledger.owners(after="ben", limit=2) == ("cleo",)
    assert await backend.ledger.check("ana") == {}
    assert await backend.ledger.check("nobody") == {}


async def test_a_balance_that_drifted_is_found_and_put_right() -> None:
    backend = MemoryBackend(ManualClock())
    await answered(backend, stateless(1))
    right = backend.store.balances["ana"]["tokens_day"]
    wrong = replace(right, used=right.used - 1)
    backend.store.balances["ana"] = {"tokens_day": wrong, "odd": wrong}
    found = {"odd": Drift(wrong, None), "tokens_day": Drift(wrong, right)}
    assert await backend.ledger.check("ana") == found
    assert await backend.ledger.rebuild("ana") == found
    assert await backend.ledger.rebuild("ana") == {}
    assert backend.store.balances["ana"] == {"tokens_day": right}


async def test_sqlite_finds_a_drift_and_puts_it_right(
    tmp_path: Path, clock: ManualClock, empty_file: Path
) -> None:
    shutil.copyfile(empty_file, tmp_path / "tertulia.db")
    store = SqliteBackend(tmp_path / "tertulia.db", clock)
    await answered(store, stateless(1))
    (right,) = (await store.accounts.spent("ana")).balances.values()
    await store._writer.put(lambda database: _spoil(database))
    wrong = replace(right, used=right.used - 1)
    found = {"odd": Drift(Balance(1, 1, 1, 1), None), "tokens_day": Drift(wrong, right)}
    assert await store.ledger.check("ana") == found
    assert await store.ledger.rebuild("ana") == found
    assert await store.ledger.check("ana") == {}
    await store.close()


async def test_postgres_finds_a_drift_and_puts_it_right(
    postgres_server: PostgresServer, anyio_backend: str
) -> None:
    store = await open_empty(postgres_server.url, None)
    await answered(store, stateless(1))
    (right,) = (await store.accounts.spent("ana")).balances.values()
    await run_sql(postgres_server.url, *SPOIL, "SELECT 1")
    wrong = replace(right, used=right.used - 1)
    found = {"odd": Drift(Balance(1, 1, 1, 1), None), "tokens_day": Drift(wrong, right)}
    assert await store.ledger.check("ana") == found
    assert await store.ledger.rebuild("ana") == found
    assert await store.ledger.check("ana") == {}
    await answered(store, stateless(2))
    assert await store.ledger.check("ana") == {}
    await store.close()


SPOIL = (
    "UPDATE balances SET used = used - 1",
    "INSERT INTO balances VALUES ('ana', 'odd', 1, 1, 1, 1)",
)


def _spoil(database: Any) -> None:
    database.execute("UPDATE balances SET used = used - 1")
    database.execute(
        "INSERT INTO balances (owner, budget, used, at_ms, size, refill_ms)"
        " VALUES ('ana', 'odd', 1, 1, 1, 1)"
    )


# The machine, on every store.


class BooksInMemory(Books):
    """One process."""

    async def open_stores(self) -> Sequence[Backend]:
        return [MemoryBackend(self.clock)]


class BooksInSqlite(Books):
    """One process and its file."""

    empty: Path

    async def open_stores(self) -> Sequence[Backend]:
        self.folder = Path(tempfile.mkdtemp(prefix="books-"))
        shutil.copyfile(self.empty, self.folder / "tertulia.db")
        return [SqliteBackend(self.folder / "tertulia.db", self.clock)]

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


class BooksInPostgres(Books):
    """Three gateways of a fleet."""

    url: str

    async def open_stores(self) -> Sequence[Backend]:
        first = await open_empty(self.url, self.clock, connections=2)
        others = [await open_again(self.url, self.clock, connections=2) for _ in range(2)]
        return [first, *others]


def _often(n: int, **more: Any) -> settings:
    return settings(
        max_examples=n,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        **more,
    )


def test_the_books_balance_in_memory() -> None:
    run_state_machine_as_test(BooksInMemory, settings=_often(60))


def test_the_books_balance_in_sqlite(empty_file: Path) -> None:
    class OnThisFile(BooksInSqlite):
        empty = empty_file

    run_state_machine_as_test(OnThisFile, settings=_often(25))


def test_the_books_balance_in_postgres(postgres_server: PostgresServer) -> None:
    class OnThisServer(BooksInPostgres):
        url = postgres_server.url

    run_state_machine_as_test(OnThisServer, settings=_often(10))


# Bugs that are planted: the machine must see each of them.

_FINISH = MemoryTurns.finish
_SPENT = MemoryStore.spent
_BEGIN = MemoryTurns._begin


async def _settle_twice(self: MemoryTurns, held: Held, outcome: Outcome) -> bool:
    turn = self._store.turns.get(held.reply_id)
    done = await _FINISH(self, held, outcome)
    if done and turn is not None:
        again = turn._replace(epoch=turn.epoch + 1000)
        self._store.settle(again, outcome.usage, self._store.clock.now())
    return done


async def _free_without_charging(self: MemoryTurns, held: Held, outcome: Outcome) -> bool:
    if outcome.failure is not None:
        outcome = replace(outcome, usage=Usage())
    return await _FINISH(self, held, outcome)


async def _check_then_act(self: MemoryTurns, turn: NewTurn, limits: Limits) -> Admission:
    store, now = self._store, self._store.clock.now()
    store.pass_door(turn.owner, now)
    known = await self.find_by_key(turn.owner, turn.key)
    answer = entrance(turn, known, limits, memory_turns._Lookup(store, turn, now))
    if not isinstance(answer, Entrance):
        return answer
    await asyncio.sleep(0)  # others look, too
    if known is None:
        return Admitted(self._begin(turn, limits, answer, now))
    return Admitted(self._again(known, turn, limits, answer, now))


@contextmanager
def _counter_instead_of_open_turns() -> Iterator[None]:
    """Counted up at admission, down at the finish; nobody counts what is deleted."""
    counts: Counter[tuple[int, str]] = Counter()

    def begin(self: MemoryTurns, new: NewTurn, *more: Any) -> Turn:
        turn = _BEGIN(self, new, *more)
        counts[id(self._store), new.owner] += not turn.status.is_final
        return turn

    async def finish(self: MemoryTurns, held: Held, outcome: Outcome) -> bool:
        done = await _FINISH(self, held, outcome)
        counts[id(self._store), held.owner] -= done
        return done

    def spent(self: MemoryStore, owner: str, now: float) -> Spent:
        seen = _SPENT(self, owner, now)
        ghosts = counts[id(self), owner] - len(seen.holdings)
        return replace(
            seen,
            holdings=(
                *seen.holdings,
                *(Holding(f"?{n}", Lane.FREE, Usage(), ()) for n in range(ghosts)),
            ),
        )

    with patched(
        (MemoryTurns, "_begin", begin),
        (MemoryTurns, "finish", finish),
        (MemoryStore, "spent", spent),
    ):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "settled twice": lambda: patched((MemoryTurns, "finish", _settle_twice)),
    "freed without charging": lambda: patched((MemoryTurns, "finish", _free_without_charging)),
    "looked, waited, then acted": lambda: patched((MemoryTurns, "admit", _check_then_act)),
    "a counter instead of open turns": _counter_instead_of_open_turns,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_bug_is_caught(mutant: str) -> None:
    """By the first run that shows it; nothing is made smaller."""
    hasty = _often(1_000, phases=(Phase.generate,), database=None, derandomize=True)
    with MUTANTS[mutant](), pytest.raises(AssertionError):
        run_state_machine_as_test(BooksInMemory, settings=hasty)


def test_plenty_is_plenty() -> None:
    """A limit that other tests pass by mistake would hide what they are about."""
    assert PLENTY.budgets[0].limit == 10**9
