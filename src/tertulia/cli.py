"""The command line: one command per role, each with a help text that teaches.

It parses, says and exits; whatever it starts lives elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Literal

import structlog
import typer

from tertulia import __version__
from tertulia.config import MOST_SLOTS, Settings, printed
from tertulia.terminal.models_app import models_app
from tertulia.terminal.options import AsJson, Config, fail, settings_from

app = typer.Typer(
    name="tertulia",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    help="A chat assistant on your own machines. Begin with `tertulia serve`.",
)

app.add_typer(models_app, name="models")

Parent = Annotated[
    int | None, typer.Option("--die-with-parent", hidden=True, help="End with this process.")
]


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
    _start_log(settings)
    from tertulia.supervisor import serve as run

    raise typer.Exit(asyncio.run(run(settings, config, typer.echo)))


@app.command()
def lanes(
    config: Config = None,
    print_link: Annotated[
        bool, typer.Option("--print-link", help="Print a one-time sign-in link.")
    ] = False,
    die_with_parent: Parent = None,
) -> None:
    """Run gateway and worker in one process, without engines (`serve` starts this for you)."""
    settings = settings_from(config)
    _start_log(settings)
    _live_with(die_with_parent)
    import uvloop

    from tertulia.listening import listen, listening_on
    from tertulia.ports import StoreUnavailable
    from tertulia.supervisor import CANT_START, LISTEN_VARIABLE
    from tertulia.wiring import run_lanes

    inherited = os.environ.pop(LISTEN_VARIABLE, None)
    try:
        if inherited is not None:
            listening = listening_on(socket.socket(fileno=int(inherited)))
        else:
            listening = listen(settings.server.host, settings.server.port)
        uvloop.run(run_lanes(settings, listening, _say_link if print_link else None))
    except (OSError, StoreUnavailable) as error:
        fail(str(error), status=CANT_START)


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
    die_with_parent: Parent = None,
) -> None:
    """Run one embedded engine, which speaks the HTTP dialect of vLLM.

    If TERTULIA_REPLICA_KEY is set, clients must present it as a bearer token.
    """
    settings = settings_from(config)
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
            key=os.environ.get(engine.KEY_VARIABLE) or None,
            parent_pid=die_with_parent,
        )
    )
    raise typer.Exit(status)


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
def link(config: Config = None) -> None:
    """Print a new link that signs the administrator of this machine in, once.

    For an administrator without a password who has signed out. `serve` must be running.
    """
    from tertulia.terminal.client import NobodyThere, Refused
    from tertulia.terminal.door import NoKey, server_for

    try:
        with server_for(settings_from(config), None, None, None) as server:
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


@app.command("config")
def show_config(config: Config = None) -> None:
    """Print the settings in force, secrets hidden, and exit. Fails if one of them is wrong."""
    typer.echo(printed(settings_from(config)))


def _say_link(link: str) -> None:
    address = link.partition("/#")[0]
    typer.echo(f"\n  Tertulia is at {address}\n  Sign in once as admin: {link}\n")


def _live_with(parent_pid: int | None) -> None:
    if parent_pid is not None:
        from tertulia.replica.lifeline import die_with_parent

        die_with_parent(parent_pid)


def _start_log(settings: Settings) -> None:
    """One line for each event, on standard error: for a person at a terminal, else JSON."""
    as_text = settings.log_format == "text" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    # A traceback's own lines only: its variables could hold what a user wrote. The console's usual
    # formatter shows them wherever rich is installed.
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if as_text
        else structlog.processors.JSONRenderer()
    )
    errors: structlog.typing.Processor = structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if as_text else [errors]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
