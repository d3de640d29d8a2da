"""What several commands take and say: the settings' file, remarks, and an end with a sentence.

It parses and says; it must never start anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from tertulia.config import ConfigError, Settings, load_settings

Config = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with settings; ./tertulia.toml if there is one."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]


def settings_from(config: Path | None) -> Settings:
    """The settings in force; a wrong one ends the command and is named."""
    try:
        return load_settings(config)
    except ConfigError as error:
        fail(f"The configuration can't be used:\n{error}")


def remark(line: str) -> None:
    """Says something to the person, where it is in no pipe's way."""
    typer.echo(line, err=True)


def fail(message: str, *, status: int = 1) -> NoReturn:
    """Ends the command with this sentence."""
    remark(message)
    raise typer.Exit(status)
