"""Looks at a fleet's stores, Postgres and Valkey. It must never write to one, or show a password.

What a start refuses is refused here, by the same functions.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pydantic import SecretStr

from tertulia.config import Settings
from tertulia.fleet_tables import shown_address
from tertulia.ports import StoreUnavailable
from tertulia.terminal.findings import Finding
from tertulia.wiring.stores import CantOpen, needs_extra

# Whoever is well answers on the same network within milliseconds.
_ANSWER_S = 3.0

_REFUSED = "no process of a fleet starts until then"
_AWAY = "start it, or correct fleet."


def examine_stores(settings: Settings) -> list[Finding]:
    """Whether what `[fleet]` names is there, and keeps what it is given."""
    fleet = settings.fleet
    assert fleet.database is not None
    try:
        with needs_extra("[fleet]"):
            return [
                asyncio.run(_postgres(fleet.database)),
                *_valkey("valkey", fleet.valkey),
                *_valkey("counters", fleet.counters),
            ]
    except CantOpen as missing:
        return [Finding("fleet", "fail", str(missing), "install it")]


async def _postgres(database: SecretStr) -> Finding:
    import asyncpg

    from tertulia.backends.postgres.durable import demand_durable

    where, start = shown_address(database), "start it, or correct fleet.database"
    try:
        line = await asyncpg.connect(
            database.get_secret_value(), timeout=_ANSWER_S, command_timeout=_ANSWER_S
        )
    except (OSError, TimeoutError) as error:
        return Finding("postgres", "fail", f"{where} does not answer ({_kind(error)})", start)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        text = f"{where} lets nobody in as this user ({_kind(error)})"
        return Finding("postgres", "fail", text, "correct user, password and name")
    try:
        await demand_durable(line)
        version = await line.fetchval("SHOW server_version")
    except StoreUnavailable as unfit:
        return Finding("postgres", "fail", f"{where}: {unfit}", _REFUSED)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return Finding("postgres", "fail", f"{where} broke off ({_kind(error)})", start)
    finally:
        await line.close(timeout=_ANSWER_S)
    return Finding("postgres", "ok", f"{where}, Postgres {version}, commits are durable")


def _valkey(name: str, nodes: tuple[SecretStr, ...]) -> list[Finding]:
    """Those of the setting fleet.`name`."""
    findings = [asyncio.run(_node(name, node)) for node in nodes]
    if not any(finding.state == "ok" for finding in findings):
        return findings
    # One that is away may be the one that others stand in for.
    return [
        replace(each, state="warn") if each.advice == _AWAY + name else each for each in findings
    ]


async def _node(name: str, address: SecretStr) -> Finding:
    from tertulia.backends.valkey.address import address_of
    from tertulia.backends.valkey.connection import ConnectionLost
    from tertulia.backends.valkey.node import Node, UnfitServer

    where = shown_address(address)
    try:
        node = Node(
            address_of(address.get_secret_value()),
            patience_s=_ANSWER_S,
            on_lost=_nothing,
            on_push=_nothing,
            on_feed_lost=_nothing,
        )
        try:
            await node.look()
        finally:
            node.close()
    except (UnfitServer, ValueError) as unfit:
        return Finding(name, "fail", f"{where}: {unfit}", _REFUSED)
    except (OSError, ConnectionLost) as error:
        text = f"{where} does not answer ({_kind(error)})"
        return Finding(name, "fail", text, _AWAY + name)
    state = node.state
    assert state is not None
    place = "of a cluster" if state.is_cluster else f"with {state.replicas} replicas"
    role = f"primary {place}" if state.is_primary else "replica"
    return Finding(name, "ok", f"{where}, version {state.version}, a {role}")


def _nothing(*_: object) -> None:
    """Whoever only looks need not hear of it."""


def _kind(error: BaseException) -> str:
    """What went wrong, without the words of a library, which may repeat an address."""
    return type(error).__name__
