"""Two at one owner's door in Postgres, each at the moment that matters to the other."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tertulia.core.types import Admitted, Failure, Status
from tertulia.drills.postgres_server import PostgresServer
from tests.conformance.postgres import Connections, run_sql, with_memory
from tests.conformance.world import (
    PLENTY,
    ManualClock,
    admitted,
    claimed,
    completed,
    stateless,
)

pytestmark = pytest.mark.anyio

AT_THE_DOOR = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
PROMPT_S = 20.0


async def test_a_failed_turn_that_is_forgotten_while_it_is_asked_for_again_begins_anew(
    postgres_server: PostgresServer, connections: Connections, clock: ManualClock
) -> None:
    store = with_memory(await connections.to_empty(postgres_server.url, clock), clock)
    await admitted(store, stateless(1))
    held = (await claimed(store)).held
    failed = completed(status=Status.FAILED, failure=Failure("x", "y", retryable=True))
    assert await store.turns.finish(held, failed)
    forgetting = await asyncpg.connect(postgres_server.url)
    await forgetting.execute("BEGIN; SELECT 1 FROM doors WHERE owner = 'ana' FOR UPDATE")
    again = stateless(1, reply_id="m_r9")
    asking = asyncio.create_task(store.turns.admit(again, PLENTY))
    async with asyncio.timeout(PROMPT_S):
        while await run_sql(postgres_server.url, AT_THE_DOOR) == 0:
            pass  # it has found the failed turn
    await forgetting.execute("DELETE FROM turns WHERE reply_id = 'm_r1'; COMMIT")
    await forgetting.close()
    answer = await asking
    assert isinstance(answer, Admitted), answer
    assert answer.turn.reply_id == "m_r9"
    await store.close()
