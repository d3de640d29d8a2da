"""The commands of `tertulia ledger`: what each takes, and a help text that teaches it.

It parses and exits; what the commands do stands in the wiring.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import typer

from tertulia.terminal.options import Config, fail, settings_from
from tertulia.terminal.roles import starting

ledger_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Compare what users have used of their budgets with what they were charged for.",
)


@ledger_app.command("check")
def check_ledger(config: Config = None) -> None:
    """Say which balances are not what the settlements say. Exits with 1 if there are any.

    A balance is what a user has used of a budget; settlements are what each reply cost. On one
    machine `serve` must not be running; a fleet may go on.

    Example: `tertulia ledger check`
    """
    n_owners, n_drifts = _look(config, "check")
    typer.echo(f"{n_owners} users, {n_drifts} balances are wrong")
    raise typer.Exit(1 if n_drifts else 0)


@ledger_app.command("rebuild")
def rebuild_ledger(config: Config = None) -> None:
    """Compute every balance again from the settlements, and write those that were wrong.

    Example: `tertulia ledger rebuild`
    """
    n_owners, n_drifts = _look(config, "rebuild")
    typer.echo(f"{n_owners} users, {n_drifts} balances were wrong and are right now")


def _look(config: Path | None, what: Literal["check", "rebuild"]) -> tuple[int, int]:
    settings = settings_from(config)
    if settings.fleet.database is None and not settings.database.is_file():
        fail(f"There is no database at {settings.database}: nobody has been charged for anything.")
    from tertulia.wiring.ledger import look_through_ledger

    with starting():
        return asyncio.run(look_through_ledger(settings, what, typer.echo))
