"""One bounded pool of connections: every statement has an end, and every failure is a port's own.

Nothing is tried twice here: whether a lost answer was a commit is for the caller's key or epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from weakref import WeakValueDictionary

import asyncpg

from tertulia.backends.migrations.postgres import migrate
from tertulia.backends.postgres.durable import demand_durable
from tertulia.backends.postgres.errors import BROKEN, store_error
from tertulia.backends.postgres.statement import Statement
from tertulia.backends.postgres.text import keep_every_character
from tertulia.ports import Clock, StoreUnavailable

# Each is a process of the server. So many keep more than one of its cores busy; what a moment
# brings beyond them waits here instead of there, where it would only take memory.
CONNECTIONS: Final = 16
# Of them, those that wait here for their next statement: to give one back to the driver's pool and
# to take it again (a task, two time limits) costs half as much as a statement. More are rarely at
# work at once; the pool has the others, and closes those that nobody needs for long.
RESTING: Final = 8
# Callers that may wait at once; the next one is told to come back.
WAITING: Final = 1024
# Callers of one owner that may wait in a line of his. They are not among those, or one person with
# a loop could have everybody told to come back.
IN_LINE: Final = 512
# A statement takes milliseconds: one that takes seconds has met a broken disk or a stuck lock.
# Ours ends after the server's, so that a server that is only slow says so itself.
STATEMENT_S: Final = 4.0
ANSWER_S: Final = 5.0
# A transaction here awaits nothing but the database and, when a turn runs again, the log.
IDLE_S: Final = 10.0
# A vacuum reads what changed of its tables, and their indexes whole: not for each deletion anew.
VACUUM_AGAIN_S: Final = 300.0
# One that takes longer is left to the server's own.
VACUUM_S: Final = 120.0
# After this an orderly end is given up.
CLOSE_S: Final = 10.0

_NOW: Final = "SELECT CAST(extract(epoch FROM statement_timestamp()) AS DOUBLE PRECISION)"

_SETTINGS: Final = {
    "application_name": "tertulia",
    "statement_timeout": str(int(STATEMENT_S * 1000)),
    "idle_in_transaction_session_timeout": str(int(IDLE_S * 1000)),
    # A plan of its own for each owner would find the partition a little earlier and cost more to
    # make than to run; compiling is for statements that take seconds.
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    # Every statement looks up a few rows by their keys. A planner that sees young tables, or that
    # can't know that one partition is enough, would rather read all of them.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
}


class Transaction:
    """The statements of one transaction, on its connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def row(self, statement: Statement, values: Mapping[str, Any]) -> Any:
        """The first row, or None."""
        return await self._connection.fetchrow(statement.text, *statement.arguments(values))

    async def rows(self, statement: Statement, values: Mapping[str, Any]) -> list[Any]:
        """All rows."""
        found: list[Any] = await self._connection.fetch(
            statement.text, *statement.arguments(values)
        )
        return found


class Database:
    """The pool. All callers live in one event loop.

    Invariant: nobody waits for the pool while a connection that was in use goes to rest.
    """

    def __init__(self, pool: Any, clock: Clock | None) -> None:
        self._pool = pool
        self._clock = clock
        self._resting: list[Any] = []
        self._most_resting = RESTING
        self._waiting = 0
        # When the last whole vacuum of some tables was begun; they are as many as partitions.
        self._vacuumed: dict[tuple[str, ...], float] = {}
        self._vacuuming = asyncio.Lock()
        self._lines: WeakValueDictionary[tuple[str, str], _Line] = WeakValueDictionary()

    @classmethod
    async def open(
        cls, url: str, clock: Clock | None, *, connections: int = CONNECTIONS
    ) -> Database:
        """Migrates the database and looks at its promises, before anybody uses it.

        StoreUnavailable says why it can't be used. NewerSchema: a newer version wrote it.
        """
        pool = asyncpg.create_pool(
            url,
            min_size=0,
            max_size=connections,
            timeout=ANSWER_S,
            command_timeout=ANSWER_S,
            server_settings=_SETTINGS,
            max_cached_statement_lifetime=0,  # ours are few and the same for ever
            init=keep_every_character,
            reset=_nothing_to_reset,
        )
        try:
            await pool
            async with pool.acquire() as connection:
                await demand_durable(connection)
                await migrate(connection)
        except BaseException as error:
            pool.terminate()
            raise store_error(error) from error
        return cls(pool, clock)

    async def close(self) -> None:
        """Lets what runs end, for as long as it may take, and closes every connection."""
        self._most_resting = 0
        with suppress(TimeoutError):  # then they are cut off
            async with asyncio.timeout(CLOSE_S):
                await self.give_back_resting()
                await self._pool.close()

    async def give_back_resting(self) -> None:
        """Hands every connection that rests here to the pool."""
        while self._resting:
            await self._pool.release(self._resting.pop())

    def now(self) -> float | None:
        """A test's time; None lets the database look at its own clock."""
        return self._clock.now() if self._clock is not None else None

    async def row(self, statement: Statement, values: Mapping[str, Any]) -> Any:
        """The first row of a statement that is a transaction by itself, or None."""
        async with self._connection() as connection:
            return await connection.fetchrow(statement.text, *statement.arguments(values))

    async def rows(self, statement: Statement, values: Mapping[str, Any]) -> list[Any]:
        """All rows of a statement that is a transaction by itself."""
        async with self._connection() as connection:
            found: list[Any] = await connection.fetch(statement.text, *statement.arguments(values))
            return found

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Several statements, all or none."""
        async with self._connection() as connection:
            try:
                await connection.execute("BEGIN")
                yield Transaction(connection)
                await connection.execute("COMMIT")
            except BaseException:
                # Whatever state it is in. If this fails too, the pool closes the connection.
                with suppress(*BROKEN):
                    await connection.execute("ROLLBACK")
                raise

    async def vacuum(self, tables: Sequence[str], *, since: float) -> bool:
        """Removes the dead rows of these tables, unless that was begun after `since` already; False
        if it must be tried again later: it is too soon after the last time, or did not come to its
        end. Times are the server's."""
        async with self._vacuuming, self._connection() as connection:
            now: float = await connection.fetchval(_NOW)
            begun_at = self._vacuumed.get(tuple(tables), -VACUUM_AGAIN_S)
            if begun_at > since:
                return True
            if now - begun_at < VACUUM_AGAIN_S:
                return False
            await connection.execute(f"SET statement_timeout = {int(VACUUM_S * 1000)}")
            try:
                await connection.execute(f"VACUUM {', '.join(tables)}", timeout=VACUUM_S)
            finally:
                await connection.execute("RESET statement_timeout")
            self._vacuumed[tuple(tables)] = now
        return True

    @asynccontextmanager
    async def in_line(self, owner: str, what: str) -> AsyncIterator[None]:
        """Callers for one owner go one by one, and hold no connection while they wait.

        So no owner can keep the others from the database; and of those who would meet at his door
        in the database, only one a process has to look twice.
        """
        line = self._lines.get((owner, what))
        if line is None:
            line = self._lines[owner, what] = _Line()
        await line.enter()
        try:
            yield
        finally:
            line.release()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        try:
            connection = await self._take()
            is_whole = False
            try:
                yield connection
                is_whole = True
            except asyncpg.InternalClientError:
                connection.terminate()  # the driver lost its way: nobody may go on from there
                raise
            finally:
                # In which state a failure or a cancel left it, the pool finds out.
                if is_whole and not self._waiting and len(self._resting) < self._most_resting:
                    self._resting.append(connection)
                else:
                    await self._pool.release(connection, timeout=ANSWER_S)
        except asyncpg.DataError:
            # A mistake of ours. The driver's words repeat the value, which may be a user's text.
            raise ValueError("the database can't take a value") from None
        except BROKEN as error:
            raise store_error(error) from error

    async def _take(self) -> Any:
        """The connection that was last at rest, or one of the pool."""
        while self._resting:
            connection = self._resting.pop()
            if _is_open(connection):
                return connection
            await self._pool.release(connection)
        with self._counted():
            async with asyncio.timeout(ANSWER_S):
                return await self._pool.acquire()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._waiting >= WAITING:
            raise StoreUnavailable("too many callers wait for the database: try again in a moment")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


class _Line(asyncio.Lock):
    """One owner's callers, one of whom is let in at a time."""

    waiting = 0

    async def enter(self) -> None:
        """Waits for its turn; StoreUnavailable if that would be too long."""
        if self.waiting >= IN_LINE:
            raise StoreUnavailable(_TOO_MUCH)
        if not self.locked() and not self.waiting:
            await self.acquire()  # at once: no time limit need be set
            return
        self.waiting += 1
        try:
            async with asyncio.timeout(ANSWER_S):
                await self.acquire()
        except TimeoutError:
            raise StoreUnavailable(_TOO_MUCH) from None
        finally:
            self.waiting -= 1


_TOO_MUCH: Final = "too much is asked for one user at once"


def _is_open(connection: Any) -> bool:
    """The pool takes back a connection that its server ended, wherever it rests: then it can't even
    be asked."""
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        return False


async def _nothing_to_reset(_connection: Any) -> None:
    """No statement of ours leaves anything in a session: the usual round trip is saved."""
