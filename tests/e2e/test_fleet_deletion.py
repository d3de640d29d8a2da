"""A fleet's deletion, with kills in the middle: no row, no log and no key of Valkey holds it any
more, and what Postgres leaves on its disk is what an operator can clear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from tertulia.drills.listener import Seen
from tertulia.drills.stage import Stage
from tests.e2e.canary import found_in, ways_to_write
from tests.e2e.fleets import a_stage
from tests.e2e.late import age_in_postgres, are_looked_at

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

CANARY = "Zugunruhe7431"
PATIENT_S = 120.0  # on two busy cores

_TABLES = """
SELECT CAST(oid AS REGCLASS) AS name FROM pg_class
WHERE relnamespace = CAST('public' AS REGNAMESPACE) AND relkind = 'r'
"""


async def rows_with(url: str, word: str) -> list[str]:
    """The tables in which any row has the word, in any column and any case."""
    connection = await asyncpg.connect(url)
    try:
        found = []
        for table in await connection.fetch(_TABLES):
            name = table["name"]
            sql = f"SELECT count(*) FROM {name} AS one WHERE CAST(one AS TEXT) ILIKE $1"
            if await connection.fetchval(sql, f"%{word}%"):
                found.append(str(name))
        return found
    finally:
        await connection.close()


async def cleared_by_an_operator(url: str) -> None:
    """What the page on deletion says that an operator can do."""
    connection = await asyncpg.connect(url)
    try:
        for table in await connection.fetch(_TABLES):
            await connection.execute(f"VACUUM FULL {table['name']}")
        for _ in range(2):
            await connection.execute("SELECT pg_switch_wal()")
            await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def recycle_no_wal(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("ALTER SYSTEM SET wal_recycle = off")
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()


async def deleted(stage: Stage, conversation: str) -> None:
    async with asyncio.timeout(PATIENT_S):
        while True:
            answer = await stage.call("DELETE", f"/v1/conversations/{conversation}", gateway=1)
            if answer.status_code in (204, 404):
                return
            await asyncio.sleep(0.2)


async def the_order(stage: Stage, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The one order there is, once this is so."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            answer = await stage.call("GET", "/v1/admin/deletions", gateway=1)
            [order] = answer.raise_for_status().json()["items"]
            assert isinstance(order, dict)
            if is_so(order):
                return order
            await asyncio.sleep(0.5)


async def test_nothing_of_a_deleted_conversation_is_left_in_a_fleet() -> None:
    async with a_stage() as stage:
        fleet = stage.fleet
        url, valkey = fleet.postgres.url, fleet.valkey
        await recycle_no_wal(url)
        valkey.command("CONFIG", "SET", "rdbcompression", "no")
        seen = Seen(f"{CANARY}: write a long story about a ship named {CANARY}.")
        asking = asyncio.create_task(stage.ask(seen))
        await stage.words(seen)
        said = seen.text[:8]  # within its first event
        place = f"/v1/conversations/{seen.conversation}"
        for method, path, body in (
            ("PATCH", place, {"title": f"About {CANARY}"}),
            ("POST", f"{place}/shares", {}),
        ):
            (await stage.call(method, path, body)).raise_for_status()
        await stage.kill(await stage.busy(fleet.workers, "worker"))
        valkey.command("SAVE")
        ways = [*ways_to_write(CANARY), *ways_to_write(said)]
        assert await rows_with(url, CANARY)
        assert {path.partition("/")[0] for path in found_in(fleet.folder, ways)} == {
            "postgres",
            "valkey",
        }
        await asyncio.gather(deleted(stage, seen.conversation), stage.kill(fleet.gateways[0]))
        await asking
        for role in (*fleet.workers, *fleet.gateways):
            await role.start()
        await fleet.ready()
        await the_order(stage, lambda order: are_looked_at([order]))
        await age_in_postgres(url)
        order = await the_order(stage, lambda order: order["doneAt"] is not None)
        valkey.command("SAVE")
        in_rows = [name for word in (CANARY, said) for name in await rows_with(url, word)]
        elsewhere = [
            path for path in found_in(fleet.folder, ways) if not path.startswith("postgres/")
        ]
        await cleared_by_an_operator(url)
        at_last = found_in(fleet.folder, ways)
    hows = {place: reach["how"] for place, reach in order["reached"].items()}
    assert hows["disk"] == "vacuumed"
    assert hows["rows"] == hows["logs"] == "deleted"
    # The fakes of this fleet say that they are vLLM, which can't be told.
    assert {how for place, how in hows.items() if place.startswith("cache:")} == {"unsupported"}
    assert (in_rows, elsewhere) == ([], [])
    assert at_last == {}
