"""`tertulia serve`: keeps the lanes and the embedded engines running, and fetches the large model.

It holds no state of the service: whatever dies is started again and goes on from the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from tertulia.backends.replicas.fleet import Fleet, ReplicaAddress, write_fleet
from tertulia.backends.sqlite.file import FileLock
from tertulia.config import Settings
from tertulia.core.types import ModelState
from tertulia.leaving import CANT_START
from tertulia.listening import LISTEN_VARIABLE, Listening, free_port, listen
from tertulia.ports import StoreUnavailable
from tertulia.replica.catalogue import CatalogueModel, model_named
from tertulia.replica.main import KEY_VARIABLE
from tertulia.replica.placing import InstallFailed, Progress
from tertulia.replica.shelf import is_installed

_log = structlog.get_logger(__name__)

# An engine ends so when it can't start: its model is damaged, OpenVINO or a graph is missing, its
# port is taken. Only the last passes, and quickly: what is still so at the third start stays so.
_ENGINE_CANT_START = 2
_STARTS = 3

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
# A child that lived this long did not die of its start: the next pause is the first again.
_SETTLED_S = 30.0
_STOP_S = 10.0
_PROGRESS_EVERY_S = 0.5


class _Hopeless(Exception):
    """A child said why it can't start: starting it again would not help."""


@dataclass(slots=True)
class _Child:
    """One supervised process and how to start it."""

    name: str
    arguments: list[str]
    environment: dict[str, str]
    pass_fds: tuple[int, ...] = ()
    stdout: int | None = None
    process: asyncio.subprocess.Process | None = None


@dataclass(slots=True)
class _Board:
    """What the lanes are told, rewritten whenever it changes."""

    path: Path
    models: dict[str, ModelState] = field(default_factory=dict)
    replicas: dict[str, ReplicaAddress] = field(default_factory=dict)

    def tell_large(self, **changes: Any) -> None:
        """Says something new of the larger model."""
        self.models["large"] = replace(self.models["large"], **changes)
        self.write()

    def write(self) -> None:
        # `auto` prefers the first: the larger one, once it is there.
        models = sorted(self.models.values(), key=lambda model: model.name)
        write_fleet(self.path, Fleet(tuple(models), tuple(self.replicas.values())))


async def serve(settings: Settings, config: Path | None, say: Callable[[str], None]) -> int:
    """Runs the whole service until SIGTERM or SIGINT; the exit status.

    `say` is for the person at the terminal. Errors of the start are said in one sentence.
    """
    try:
        settings.run_dir.mkdir(parents=True, exist_ok=True)
        # Before anything is written: a second service would tell the first one's lanes of engines
        # that are about to end, and theirs would be gone for good.
        lock = FileLock(settings.data_dir / "run.lock")
    except (OSError, StoreUnavailable) as error:
        say(f"Can't use the folder {settings.data_dir}: {error}")
        return 1
    try:
        return await _serve(settings, config, say)
    finally:
        settings.address_file.unlink(missing_ok=True)
        lock.release()


async def _serve(settings: Settings, config: Path | None, say: Callable[[str], None]) -> int:
    try:
        listening = listen(settings.server.host, settings.server.port)
    except OSError as error:
        say(_taken(settings, error))
        return 1
    if settings.server.is_exposed:
        say(_exposed(settings))
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.set)
    board = _Board(settings.fleet_file)
    board.write()
    settings.address_file.write_text(listening.address, encoding="utf-8")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_run(settings, config, listening, board, say))
        left = tasks.create_task(leaving.wait())
        await asyncio.wait({running, left}, return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        left.cancel()
    if not running.cancelled():
        return running.result()
    return 0


async def _run(
    settings: Settings,
    config: Path | None,
    listening: Listening,
    board: _Board,
    say: Callable[[str], None],
) -> int:
    small = model_named("small")
    if settings.models.embedded and not is_installed(small, settings.models_folder):
        say(f"Fetching {small.title} once ({_megabytes(small.bytes_total)}).")
        try:
            await _fetch(settings, small, _Said(say))
        except InstallFailed as error:
            say(f"The small model could not be installed: {error}")
            return 1
    status = 0
    try:
        await _keep_all(settings, config, listening, board, small, say)
    except* _Hopeless:
        status = CANT_START
    return status


async def _keep_all(
    settings: Settings,
    config: Path | None,
    listening: Listening,
    board: _Board,
    small: CatalogueModel,
    say: Callable[[str], None],
) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_keep(_lanes(config, listening.socket), ["--print-link"]))
        if settings.models.embedded:
            tasks.create_task(_keep_engine(settings, small, "small", board, say))
            if settings.models.large != "off":
                tasks.create_task(_large(settings, board, say))


async def _large(settings: Settings, board: _Board, say: Callable[[str], None]) -> None:
    """Fetches the larger model while the small one already answers, then runs it."""
    model = model_named(settings.models.large)
    if not is_installed(model, settings.models_folder):
        board.models["large"] = ModelState(
            "large", model.served_id, "fetching", total_bytes=model.bytes_total
        )
        board.write()
        say(f"Fetching {model.title} behind ({_megabytes(model.bytes_total)}); chat works already.")
        progress = _Said(say, board=board)
        try:
            await _fetch(settings, model, progress)
        except InstallFailed as error:
            say(f"{model.title} could not be installed: {error}")
            board.tell_large(state="failed", message=str(error), done_bytes=0)
            return
    await _keep_engine(settings, model, "large", board, say)


async def _keep_engine(
    settings: Settings,
    model: CatalogueModel,
    name: str,
    board: _Board,
    say: Callable[[str], None],
) -> None:
    """Runs an engine until cancelled, or until it is known not to start; the others go on."""
    try:
        await _keep(_engine(settings, model, name, board))
    except _Hopeless:
        say(f"{model.title} can't be started; its engine said above why and what helps.")
        message = "its engine can't start: the service's log says why"
        board.models[name] = replace(board.models[name], state="failed", message=message)
        del board.replicas[name]
        board.write()


async def _fetch(
    settings: Settings, model: CatalogueModel, report: Callable[[Progress], None]
) -> None:
    """Installs a model in a process of its own, which a shutdown ends at once; InstallFailed.

    What was fetched by then is kept, and the next start goes on from it.
    """
    arguments = ["models", "pull", model.name, "--source", settings.models.source]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tertulia", *arguments, "--report-json"),
        env={**os.environ, "TERTULIA_MODELS_DIR": str(settings.models_folder.absolute())},
        stdout=asyncio.subprocess.PIPE,
        # A group of its own: pip works in a further process, and both are ended together.
        start_new_session=True,
    )
    assert process.stdout is not None
    failure = "`tertulia models pull` ended without a word"
    try:
        async for line in process.stdout:
            told = json.loads(line)
            if "failed" in told:
                failure = told["failed"]
            else:
                report(Progress(**told))
        if await process.wait():
            raise InstallFailed(failure)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


class _Said:
    """Tells terminal and page how far a download is, not too often."""

    def __init__(self, say: Callable[[str], None], *, board: _Board | None = None):
        self._say = say
        self._board = board
        self._tenth = -1
        self._written_at = 0.0
        self._whole = False

    def __call__(self, progress: Progress) -> None:
        if progress.stage in ("wait", "done"):
            return
        if progress.stage != "download":
            self._tell_whole()
            return
        self._whole = False
        tenth = 10 * progress.done // progress.total if progress.total else 0
        if tenth != self._tenth:
            self._tenth = tenth
            self._say(f"  fetched {10 * tenth} %")
        now = time.monotonic()  # noqa: TID251  # paces a display
        if self._board is not None and now - self._written_at >= _PROGRESS_EVERY_S:
            self._written_at = now
            total = progress.total or self._board.models["large"].total_bytes
            self._board.tell_large(done_bytes=progress.done, total_bytes=total)

    def _tell_whole(self) -> None:
        """Checking and unpacking takes a while: nobody should take it for a download that hangs."""
        if self._whole:
            return
        self._whole = True
        self._say("  fetched; now it is checked and unpacked")
        if self._board is not None:
            self._board.tell_large(done_bytes=self._board.models["large"].total_bytes)


def _lanes(config: Path | None, bound: socket.socket) -> _Child:
    arguments = [sys.executable, "-m", "tertulia", "lanes"]
    if config is not None:
        arguments += ["--config", str(config)]
    return _Child(
        "lanes",
        arguments,
        {LISTEN_VARIABLE: str(bound.fileno())},
        pass_fds=(bound.fileno(),),
    )


def _engine(settings: Settings, model: CatalogueModel, name: str, board: _Board) -> _Child:
    """An engine on a port of its own, which stays the same when it is started again."""
    port, key = free_port(), secrets.token_urlsafe(32)
    board.models[name] = ModelState(name, model.served_id, "starting", window=model.window_tokens)
    board.replicas[name] = ReplicaAddress(
        name=f"{name}-0",
        model=model.served_id,
        url=f"http://127.0.0.1:{port}",
        slots=settings.models.slots,
        key=key,
        engine="tertulia",
    )
    board.write()
    arguments = [sys.executable, "-m", "tertulia", "replica", model.name]
    arguments += ["--models-dir", str(settings.models_folder), "--port", str(port)]
    arguments += ["--arithmetic", settings.models.arithmetic]
    arguments += ["--threads", str(_threads(settings)), "--slots", str(settings.models.slots)]
    arguments += ["--cache-memory-mb", str(settings.models.cache_memory_mb)]
    arguments += ["--cache-disk-mb", str(settings.models.cache_disk_mb)]
    arguments += ["--step-target-ms", str(settings.models.step_target_ms)]
    # Its first line is for programs that start it on any free port.
    quiet = asyncio.subprocess.DEVNULL
    return _Child(f"engine {name}", arguments, {KEY_VARIABLE: key}, stdout=quiet)


def _threads(settings: Settings) -> int:
    """Engines that spin on more threads than there are cores slow each other to a crawl."""
    if settings.models.threads:
        return settings.models.threads
    engines = 1 if settings.models.large == "off" else 2
    return max(1, len(os.sched_getaffinity(0)) // engines)


async def _keep(child: _Child, first_arguments: list[str] | None = None) -> None:
    """Starts a child again whenever it ends, until cancelled; then it is asked to end.

    `_Hopeless` if it will not start.
    """
    pause_s = _FIRST_PAUSE_S
    n_refused = 0
    extra = first_arguments or []
    try:
        while True:
            began = time.monotonic()  # noqa: TID251  # measures a process, decides no turn
            child.process = await asyncio.create_subprocess_exec(
                *child.arguments,
                *extra,
                "--die-with-parent",
                str(os.getpid()),
                env={**os.environ, **child.environment},
                pass_fds=child.pass_fds,
                stdout=child.stdout,
                # Its own group, so that Ctrl-C reaches it once, through us.
                start_new_session=True,
            )
            extra = []
            status = await child.process.wait()
            n_refused = n_refused + 1 if status == _ENGINE_CANT_START else 0
            if status == CANT_START or n_refused == _STARTS:
                raise _Hopeless(child.name)
            lived_s = time.monotonic() - began  # noqa: TID251  # measures a process, as at its start
            pause_s = _FIRST_PAUSE_S if lived_s > _SETTLED_S else min(2 * pause_s, _LONGEST_PAUSE_S)
            _log.warning("child_ended", child=child.name, status=status, again_in_s=pause_s)
            await asyncio.sleep(pause_s)  # noqa: TID251  # this is the supervisor's own clock
    finally:
        await _end(child)


async def _end(child: _Child) -> None:
    process = child.process
    if process is None or process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _taken(settings: Settings, error: OSError) -> str:
    where = f"{settings.server.host}:{settings.server.port}"
    return (
        f"Can't listen on {where}: {error.strerror}. Is Tertulia running already? "
        "Choose another port with --port."
    )


def _exposed(settings: Settings) -> str:
    who = "may make an account" if settings.server.registration == "open" else "may try to sign in"
    return (
        f"Listening on {settings.server.host}: whoever reaches this machine {who}, and what is "
        "said crosses the network unencrypted unless a proxy with TLS stands in front."
    )


def _megabytes(count: int) -> str:
    return f"{count / 1_000_000:.0f} MB"
