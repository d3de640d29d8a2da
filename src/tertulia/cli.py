"""The command line: one command per role, each with a help text that teaches.

It parses, says and exits; whatever it starts lives elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tertulia import __version__
from tertulia.config import MOST_SLOTS, Settings, printed
from tertulia.terminal.calibrate_command import calibrate
from tertulia.terminal.drill_command import drill
from tertulia.terminal.ledger_app import ledger_app
from tertulia.terminal.logs import start_log
from tertulia.terminal.models_app import models_app
from tertulia.terminal.moving import export, import_file
from tertulia.terminal.options import AsJson, Config, fail, settings_from
from tertulia.terminal.plan_command import plan
from tertulia.terminal.roles import DieWithParent, gateway, lanes, starting, worker
from tertulia.terminal.scale_command import scale
from tertulia.terminal.simulate_command import simulate

if TYPE_CHECKING:
    from tertulia.replica.main import Registration

app = typer.Typer(
    name="tertulia",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    help="A chat assistant on your own machines. Begin with `tertulia serve`.",
)

app.add_typer(models_app, name="models")
app.add_typer(ledger_app, name="ledger")


def main() -> None:
    """Runs the command line."""
    app()


@app.callback(invoke_without_command=True)
def _about(
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where everything is kept.")] = None,
    large: Annotated[
        str | None, typer.Option(help="The larger model to fetch: large, larger or off.")
    ] = None,
) -> None:
    """Run the whole service on this machine: page, API, worker and engines.

    The first start fetches a small model (98 MB) and prints a link that signs you in. A larger
    model is fetched meanwhile (491 MB; `--large off` for never). Ctrl-C ends everything; answers
    in progress go on at the next start.
    """
    given = {
        "TERTULIA_SERVER__HOST": host,
        "TERTULIA_SERVER__PORT": port,
        "TERTULIA_DATA_DIR": data_dir,
        "TERTULIA_MODELS__LARGE": large,
    }
    # As environment, so that the processes started from here see the same settings.
    os.environ.update({name: str(value) for name, value in given.items() if value is not None})
    settings = settings_from(config)
    start_log(settings)
    from tertulia.supervisor import serve as run

    raise typer.Exit(asyncio.run(run(settings, config, typer.echo)))


app.command()(lanes)
app.command()(gateway)
app.command()(worker)


@app.command()
def replica(
    model: Annotated[str, typer.Argument(help="Name of an installed model, such as small.")],
    config: Config = None,
    models_dir: Annotated[Path | None, typer.Option(help="Folder of the models.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any free one.")] = 8100,
    arithmetic: Annotated[
        Literal["llama.cpp", "openvino"] | None,
        typer.Option(help="What computes; models.arithmetic of the settings if not given."),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of the engine; 0 is all cores.")] = 0,
    slots: Annotated[
        int, typer.Option(min=1, max=MOST_SLOTS, help="Replies generated at once.")
    ] = 8,
    cache_memory_mb: Annotated[
        int, typer.Option(min=0, help="Memory for conversations between two turns.")
    ] = 512,
    cache_disk_mb: Annotated[
        int, typer.Option(min=0, help="Disk for what that memory does not hold.")
    ] = 0,
    step_target_ms: Annotated[
        int, typer.Option(min=1, help="The longest a stream should wait for its next token.")
    ] = 30,
    queue_tokens: Annotated[
        int | None, typer.Option(min=1, help="Prompt tokens that may wait; no bound if not given.")
    ] = None,
    stream_interval: Annotated[
        int, typer.Option(min=1, help="Tokens in one chunk of a stream, as vLLM's option.")
    ] = 1,
    register: Annotated[
        bool, typer.Option("--register", help="Report to the fleet's registry, [fleet] valkey.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name in the registry; host and port if not given.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Where workers reach it, if not where it listens.")
    ] = None,
    pool: Annotated[
        Literal["small", "large"] | None,
        typer.Option(help="What users pick it as; small for the model small, else large."),
    ] = None,
    drain_s: Annotated[
        float, typer.Option(min=0, help="How long running replies may go on at its end.")
    ] = 2.0,
    die_with_parent: DieWithParent = None,
) -> None:
    """Run one embedded engine, which speaks the HTTP dialect of vLLM.

    If TERTULIA_REPLICA_KEY is set, clients must present it as a bearer token; a replica that
    registers asks for `fleet.replica_key` otherwise. Asked to end, it takes nothing new, and what
    still runs after `--drain-s` goes on elsewhere.
    """
    settings = settings_from(config)
    registration, fleet_key = None, None
    if register:
        registration, fleet_key = _registration(settings, model, name, url, pool)
    from tertulia.replica import main as engine

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its start and end are not news
    folder = (models_dir or settings.models_folder) / model
    status = engine.run(
        engine.ReplicaSettings(
            folder=folder,
            host=host,
            port=port,
            arithmetic=arithmetic or settings.models.arithmetic,
            threads=threads,
            n_slots=slots,
            host_bytes=cache_memory_mb * engine.MEGABYTE,
            disk_bytes=cache_disk_mb * engine.MEGABYTE,
            step_target_s=step_target_ms / 1000,
            n_queue_tokens=queue_tokens or engine.NO_BOUND,
            stream_interval=stream_interval,
            drain_s=drain_s,
            key=os.environ.get(engine.KEY_VARIABLE) or fleet_key,
            parent_pid=die_with_parent,
        ),
        registration,
    )
    raise typer.Exit(status)


def _registration(
    settings: Settings, model: str, name: str | None, url: str | None, pool: str | None
) -> tuple[Registration, str | None]:
    """How a replica registers, and the key that all that do so want."""
    from tertulia.wiring.models import replica_key
    from tertulia.wiring.registering import registration
    from tertulia.wiring.stores import CantOpen

    pool = pool or ("small" if model == "small" else "large")
    try:
        return registration(settings, name=name, url=url, pool=pool), replica_key(settings)
    except CantOpen as error:
        fail(str(error))


@app.command()
def chat(
    once: Annotated[
        str | None,
        typer.Option("--once", help="Print the answer to this and exit; - reads the question."),
    ] = None,
    model: Annotated[str, typer.Option(help="Model to ask: auto, small or large.")] = "auto",
    url: Annotated[
        str | None, typer.Option(help="Address of the server; this machine's if not given.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="File with an API key; TERTULIA_API_KEY works as well.")
    ] = None,
    config: Config = None,
) -> None:
    """Chat with a running server in this terminal, or in a pipe.

    Without a key of yours, the one that `serve` leaves for this machine is used, and only for
    this machine. Answers go to standard output, remarks to standard error.
    """
    from tertulia.terminal.door import NoKey, server_for
    from tertulia.terminal.entry import chat as run

    try:
        server = server_for(
            settings_from(config), url, key_file, os.environ.get("TERTULIA_API_KEY")
        )
    except NoKey as error:
        fail(str(error))
    with server:
        raise typer.Exit(run(server, model, once))


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print how it is now and exit.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Address of a gateway; this machine's if not given.")
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="File with an administrator's key; TERTULIA_API_KEY works as well."),
    ] = None,
    config: Config = None,
) -> None:
    """Watch the fleet in this terminal: replicas, lanes, waits and the ladder. Ctrl-C ends it.

    It shows what one gateway sees, two seconds old at most, to administrators.
    """
    from rich.console import Console

    from tertulia.terminal.client import NobodyThere, Refused
    from tertulia.terminal.door import NoKey, server_for
    from tertulia.terminal.top import watch

    settings = settings_from(config)
    try:
        with server_for(settings, url, key_file, os.environ.get("TERTULIA_API_KEY")) as server:
            watch(server, Console(), once=once)
    except (NoKey, NobodyThere, Refused) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def link(
    config: Config = None,
    url: Annotated[
        str | None, typer.Option(help="In a fleet: the address that people type.")
    ] = None,
) -> None:
    """Print a new link that signs the administrator in, once.

    For the first sign-in to a fleet, and for an administrator without a password who has signed
    out. On one machine `serve` must be running; with `[fleet]` whoever may open the database gets
    it.
    """
    settings = settings_from(config)
    from tertulia.terminal.client import NobodyThere, Refused
    from tertulia.terminal.door import NoKey, local_address, server_for

    if settings.fleet.database is not None:
        from tertulia.wiring.door import new_sign_in_token

        with starting():
            token = asyncio.run(new_sign_in_token(settings))
        typer.echo(f"{(url or local_address(settings)).rstrip('/')}/#signin={token}")
        return
    try:
        with server_for(settings, None, None, None) as server:
            typer.echo(server.sign_in_link())
    except (NoKey, NobodyThere, Refused) as error:
        fail(str(error))


@app.command()
def doctor(
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Look at everything a start needs, and say what to do. Exits with 1 if something is wrong."""
    from tertulia.terminal import findings
    from tertulia.terminal.doctor import examine

    found = examine(config)
    typer.echo(findings.as_json(found) if as_json else findings.as_lines(found))
    raise typer.Exit(1 if findings.has_failed(found) else 0)


app.command()(export)
app.command("import")(import_file)
app.command()(drill)
app.command()(plan)
app.command()(calibrate)
app.command()(scale)
app.command()(simulate)


@app.command("config")
def show_config(config: Config = None) -> None:
    """Print the settings in force, secrets hidden, and exit. Fails if one of them is wrong."""
    typer.echo(printed(settings_from(config)))
