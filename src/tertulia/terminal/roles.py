"""The roles of a fleet as commands: gateway, worker, and both in one process.

It parses, says and exits; what it starts lives in the wiring.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tertulia.config import Settings
from tertulia.terminal.logs import start_log
from tertulia.terminal.options import Config, fail, settings_from

DieWithParent = Annotated[
    int | None, typer.Option("--die-with-parent", hidden=True, help="End with this process.")
]

# New objects that may be in cycles before the collector looks at them: some megabytes of memory.
_YOUNG_OBJECTS = 20_000


def lanes(
    config: Config = None,
    print_link: Annotated[
        bool, typer.Option("--print-link", help="Print a one-time sign-in link.")
    ] = False,
    die_with_parent: DieWithParent = None,
) -> None:
    """Run gateway and worker in one process, without engines (`serve` starts this for you)."""
    settings = settings_from(config)
    start_log(settings)
    _live_with(die_with_parent)
    from tertulia.listening import LISTEN_VARIABLE, listen, listening_on
    from tertulia.wiring.lanes import run_lanes

    inherited = os.environ.pop(LISTEN_VARIABLE, None)
    with starting():
        if inherited is not None:
            listening = listening_on(socket.socket(fileno=int(inherited)))
        else:
            listening = listen(settings.server.host, settings.server.port)
        _run_role(run_lanes(settings, listening, _say_link if print_link else None))


def gateway(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 takes any free one.")
    ] = None,
    die_with_parent: DieWithParent = None,
) -> None:
    """Run one gateway of a fleet: it takes turns and shows replies, and computes nothing.

    Start as many as you like over the same `[fleet]` and put a proxy in front: any of them can show
    any reply, from any event on. It waits up to a minute for its stores, so the order of starting
    does not matter. `/readyz` says whether it can serve.

    SIGTERM ends it in good order: `/readyz` and new turns get 503 for `server.drain_s`, then open
    streams are closed between two events and their clients go on elsewhere; no reply is touched. A
    second SIGTERM does not wait.
    """
    settings = _fleet_settings(
        config, {"TERTULIA_SERVER__HOST": host, "TERTULIA_SERVER__PORT": port}
    )
    _live_with(die_with_parent)
    from tertulia.listening import bind
    from tertulia.wiring.gateway import run_gateway

    with starting():
        bound = bind(settings.server.host, settings.server.port)
        _run_role(run_gateway(settings, bound))


def worker(
    config: Config = None,
    health_port: Annotated[
        int | None, typer.Option(help="Port of its own probes and figures; none if not given.")
    ] = None,
    die_with_parent: DieWithParent = None,
) -> None:
    """Run one worker of a fleet: it claims turns and answers them through the replicas.

    Start as many as you like over the same `[fleet]`; nobody connects to them. One that dies is
    missed after `worker.lease_s`, and another goes on with its replies from the last word. It waits
    up to a minute for its stores. With a health port, orchestrators ask `/livez` and `/readyz`
    there and Prometheus `/metrics`.

    SIGTERM ends it in good order: it claims nothing more, lets replies end for `worker.drain_s`,
    and gives the others back, so that another worker goes on at once. A second SIGTERM does not
    wait.
    """
    settings = _fleet_settings(config, {"TERTULIA_WORKER__HEALTH_PORT": health_port})
    _live_with(die_with_parent)
    from tertulia.wiring.worker import run_worker

    with starting():
        _run_role(run_worker(settings))


def _fleet_settings(config: Path | None, given: dict[str, object]) -> Settings:
    """The settings of a role that runs beside others; ends the command where there is no fleet."""
    os.environ.update({name: str(value) for name, value in given.items() if value is not None})
    settings = settings_from(config)
    if settings.fleet.database is None:
        fail(
            "This role needs the stores of a fleet: set database and valkey under [fleet], as in "
            "docs/howto/fleet.md. On one machine `tertulia serve` needs neither."
        )
    start_log(settings)
    return settings


@contextmanager
def starting() -> Iterator[None]:
    """What another start would not help ends the command with one sentence and its own status."""
    from tertulia.leaving import CANT_START
    from tertulia.ports import StoreUnavailable
    from tertulia.wiring.stores import CantOpen

    try:
        yield
    except (OSError, StoreUnavailable, CantOpen) as error:
        fail(str(error), status=CANT_START)


def _run_role(role: Coroutine[Any, Any, None]) -> None:
    import uvloop

    # What was loaded stays, and nearly all else is freed by its reference count: looking for cycles
    # at Python's own pace takes a twentieth of a full gateway.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    uvloop.run(role)


def _live_with(parent_pid: int | None) -> None:
    if parent_pid is not None:
        from tertulia.replica.lifeline import die_with_parent

        die_with_parent(parent_pid)


def _say_link(link: str) -> None:
    address = link.partition("/#")[0]
    typer.echo(f"\n  Tertulia is at {address}\n  Sign in once as admin: {link}\n")
