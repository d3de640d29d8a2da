"""Sets the stage of a run: throw-away stores, the zygote, and a disk that can be filled."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import asyncpg

from tertulia.backends.postgres import PostgresBackend
from tertulia.backends.valkey import ValkeyBackend
from tertulia.drills.postgres_server import PostgresServer, run_as
from tertulia.drills.valkey_server import primary_and_replica
from tests.chaos.disk import SmallDisk, small_disk
from tests.chaos.nursery import Nursery
from tests.chaos.scene import Stage
from tests.chaos.stores import StoreHands

_DATABASE: Final = "chaos"
# Room for a run's rows; small enough to be filled in a moment.
_DISK_MB: Final = 160
# What the checker's own look at the database needs.
_CONNECTIONS: Final = 2


@asynccontextmanager
async def set_stage(folder: Path, models: Path) -> AsyncGenerator[Stage, None]:
    """Everything that scenes share; all of it has ended when the block has."""
    folder.chmod(0o711)  # the server's user must be able to pass through
    async with AsyncExitStack() as ending:
        disk = small_disk(folder / "disk", _DISK_MB)
        if disk is not None:
            ending.callback(disk.unmount)
        postgres = PostgresServer(folder / "postgres")
        ending.push_async_callback(asyncio.to_thread, postgres.kill)
        await asyncio.to_thread(postgres.start)
        await _make_database(postgres, disk)
        valkeys = await asyncio.to_thread(primary_and_replica, folder)
        ending.push_async_callback(asyncio.to_thread, valkeys.stop)
        nursery = Nursery()
        await nursery.open(folder / "zygote.log")
        ending.push_async_callback(nursery.close)
        stores = StoreHands(postgres, postgres.url_of(_DATABASE), valkeys.servers)
        valkey = await ValkeyBackend.open(valkeys.urls)
        ending.push_async_callback(valkey.close)
        backend = await PostgresBackend.open(stores.database, valkey.log, connections=_CONNECTIONS)
        ending.push_async_callback(backend.close)
        yield Stage(folder, models, nursery, stores, backend, disk)


async def _make_database(postgres: PostgresServer, disk: SmallDisk | None) -> None:
    """On the small disk if there is one: its rows alone then meet the end of it."""
    connection = await asyncpg.connect(postgres.url)
    try:
        place = ""
        if disk is not None:
            rows = disk.folder / "rows"
            rows.mkdir(mode=0o700)
            if user := run_as():
                shutil.chown(rows, user)
            await connection.execute(f"CREATE TABLESPACE small LOCATION '{rows}'")
            place = "TABLESPACE small"
        await connection.execute(f"CREATE DATABASE {_DATABASE} {place}")
    finally:
        await connection.close()
