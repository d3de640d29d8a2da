"""`tertulia export` and `tertulia import`: everything of one's own account in a file, and back.

What is copied out stands under its name only once it is whole.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Final
from zipfile import BadZipFile, ZipFile

import httpx2
import typer

from tertulia.terminal.client import NobodyThere, Refused, Server, refusal
from tertulia.terminal.options import Config, fail, remark, settings_from

_LOOK_S: Final = 1.0
_ENDED: Final = ("completed", "failed", "cancelled")
# What stayed out of an import is told up to here.
_LEFT_TOLD: Final = 20

Url = Annotated[
    str | None, typer.Option(help="Address of the server; this machine's if not given.")
]
KeyFile = Annotated[
    Path | None, typer.Option(help="File with an API key; TERTULIA_API_KEY works as well.")
]


def export(
    file: Annotated[Path, typer.Argument(help="Where to write the zip archive.")] = Path(
        "tertulia-export.zip"
    ),
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
) -> None:
    """Copy everything of your account out of a running server, into a zip archive.

    Each conversation is in it twice: as JSON, which `tertulia import` takes back, and as Markdown.
    Asks for your password, for a key alone is not enough; in a pipe it reads a line. An
    administrator's key is.
    """
    if file.exists():
        fail(f"{file} is there already.")
    with _server(config, url, key_file) as server:
        try:
            n_conversations = copy_out(server, file, _password)
        except (NobodyThere, Refused, OSError) as error:
            fail(str(error))
    remark(f"{file}: {n_conversations} conversations, {file.stat().st_size:,} bytes")


def import_file(
    file: Annotated[Path, typer.Argument(help="A zip archive, or JSON.")],
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
) -> None:
    """Bring conversations into your account: an export of this service, ChatGPT or Open WebUI.

    The same file again brings nothing twice. Ctrl-C leaves the import running. Exits with 1 if it
    failed.
    """
    with _server(config, url, key_file) as server:
        try:
            report = bring_in(server, file, Event().wait, remark)
        except (NobodyThere, Refused, OSError) as error:
            fail(str(error))
    for line in told(report):
        typer.echo(line)
    raise typer.Exit(0 if report["state"] == "completed" else 1)


def copy_out(server: Server, file: Path, password: Callable[[], str]) -> int:
    """Writes the archive and looks whether it is whole; how many conversations are in it."""
    partial = file.with_name(f"{file.name}.part")
    is_admin = server.me()["role"] == "admin"
    try:
        # What is in it is for its owner alone.
        with (
            os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out,
            server.export(None if is_admin else password()) as answer,
        ):
            if answer.status_code != 200:
                answer.read()
                raise refusal(answer)
            for chunk in answer.iter_bytes():
                out.write(chunk)
        with ZipFile(partial) as archive:
            n_files = sum(name.startswith("conversations/") for name in archive.namelist())
        partial.rename(file)
    except httpx2.TransportError:
        raise NobodyThere("The server ended the export before it was whole; try again.") from None
    except BadZipFile:
        raise Refused("The archive came incomplete; try again.", "incomplete") from None
    finally:
        partial.unlink(missing_ok=True)
    return n_files // 2


def bring_in(
    server: Server, file: Path, wait: Callable[[float], object], say: Callable[[str], None]
) -> dict[str, Any]:
    """Sends the file and looks until the import has ended; its report."""
    with file.open("rb") as data:
        report = server.begin_import(data)
    said = ""
    while report["state"] not in _ENDED:
        line = _progress(report)
        if line != said:
            said = line
            say(line)
        wait(_LOOK_S)
        report = server.import_report(str(report["id"]))
    return report


def told(report: dict[str, Any]) -> list[str]:
    """What became of an import, line by line."""
    counts = report["conversations"]
    summary = (
        f"{report['state']}: {counts['imported']} conversations with {report['messages']} messages"
        f" came in, {counts['alreadyHere']} were here, {counts['changedSince']} have changed since"
        f" and were left alone, {counts['refused']} could not be read"
    )
    lines = [summary]
    if report["error"] is not None:
        lines.append(report["error"]["message"])
    left = report["left"]
    lines += [f"  {one['n']} {one['sourceId']}: {one['message']}" for one in left[:_LEFT_TOLD]]
    if len(left) > _LEFT_TOLD:
        lines.append(f"  … GET /v1/imports/{report['id']} tells more")
    return lines


def _progress(report: dict[str, Any]) -> str:
    share = report["readBytes"] / max(1, report["totalBytes"])
    return f"{report['state']}: {report['conversations']['read']} conversations, {share:.0%}"


def _server(config: Path | None, url: str | None, key_file: Path | None) -> Server:
    from tertulia.terminal.door import NoKey, server_for

    try:
        return server_for(settings_from(config), url, key_file, os.environ.get("TERTULIA_API_KEY"))
    except NoKey as error:
        fail(str(error))


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    return str(typer.prompt("Password", hide_input=True, err=True))
