"""What it takes to copy a large account out and to bring it in again: seconds, and memory.

Each measurement runs in a process of its own, over a SQLite file. Prints one line a figure; nothing
here is a test. Run it with `python -m bench moving`.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from zipfile import ZipFile

import uvloop

from bench.admission import MODELS, stores_of
from tertulia.backends.clock import SystemClock
from tertulia.backends.sqlite import SqliteBackend
from tertulia.config import Settings
from tertulia.core.files import PART_BYTES, FilePart, FileRoom, NewFile
from tertulia.core.imports import Import, NewImport
from tertulia.core.types import User
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.exports import archive_of
from tertulia.gateway.front import Front
from tertulia.gateway.porter import carry_one
from tertulia.wiring.desks import Parts, gateway_desk
from tertulia.wiring.gateway import keep_prompt

CONVERSATIONS: Final = 15_000
LONG: Final = 5_000  # messages of one conversation
ROOM: Final = FileRoom(files=10, size=2_000_000_000)
# The promise of bounded memory: so much has the whole process, with interpreter, gateway and the
# tokenizer, at most.
MOST_MB: Final = 200
TEXT: Final = "The weights are read once for each token, whoever asks and however short it is. "
ANA: Final = User("u_ana", "ana", "user", "plus", None, 1.0)
BEN: Final = User("u_ben", "ben", "user", "plus", None, 1.0)


def node(name: str, parent: str | None, n: int) -> dict[str, Any]:
    said = {
        "author": {"role": "assistant" if n % 2 else "user"},
        "create_time": 1_700_000_000 + n,
        "content": {"content_type": "text", "parts": [f"{n} " + TEXT * (n % 7 + 1)]},
        "metadata": {"model_slug": "gpt-4o"},
    }
    return {"id": name, "message": said, "parent": parent, "children": []}


def conversation(n: int, n_messages: int) -> bytes:
    """One of ChatGPT's."""
    nodes = [node(f"m{i}", f"m{i - 1}" if i else None, i) for i in range(n_messages)]
    value = {
        "title": f"Conversation {n}",
        "create_time": 1_600_000_000 + n,
        "update_time": 1_700_000_000 + n,
        "mapping": {one["id"]: one for one in nodes},
        "current_node": nodes[-1]["id"],
        "id": f"conv-{n}",
    }
    return json.dumps(value).encode()


def many() -> Iterator[bytes]:
    """A file of many conversations, as it would come."""
    for n in range(CONVERSATIONS):
        yield (b"[" if n == 0 else b",") + conversation(n, 4 + n % 9)
    yield b"]"


def long() -> Iterator[bytes]:
    yield b"[" + conversation(0, LONG) + b"]"


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Waits:
    """How long others were kept from this event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_s = max(self.longest_s, time.perf_counter() - before - 0.001)

    def end(self) -> float:
        self._watching.cancel()
        return self.longest_s * 1e3


def cost(before_mb: float, waits: Waits) -> str:
    """The memory and the waits of it, in words."""
    peak = peak_mb()
    within = "within" if peak <= MOST_MB else "BEYOND"
    return (
        f"half of that is rest; peak {peak:.0f} MB, {within} the bound of {MOST_MB}, "
        f"{peak - before_mb:.0f} of them for it; nobody waited longer than {waits.end():.0f} ms"
    )


async def send(desk: Desk, owner: str, texts: Iterator[bytes]) -> int:
    """Stores a file as a client would send it; its length."""
    held, at = bytearray(), 0
    file = NewFile(owner, "file_1", "import", "import", 86_400.0)
    for text in texts:
        held += text
        while len(held) > PART_BYTES:
            await desk.files.write(
                file, FilePart(at, bytes(held[:PART_BYTES]), is_last=False), ROOM
            )
            del held[:PART_BYTES]
            at += PART_BYTES
    await desk.files.write(file, FilePart(at, bytes(held), is_last=True), ROOM)
    return at + len(held)


def chunks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(PART_BYTES):
            yield data


async def bring(desk: Desk, owner: str, what: str, texts: Iterator[bytes]) -> Import:
    """Imports a file and says what that took."""
    size = await send(desk, owner, texts)
    before_mb, waits, began = peak_mb(), Waits(), time.perf_counter()
    made = await desk.imports.create(
        NewImport(owner, desk.new_id("import"), "file_1", size), limit=9
    )
    assert isinstance(made, Import)
    assert await carry_one(desk)
    took = time.perf_counter() - began
    job = await desk.imports.find(owner, made.id)
    assert job is not None
    assert job.state == "completed", job
    while await desk.files.sweep(parts=1_000):
        pass
    print(
        f"import of {what}: {job.made} conversations made, {job.known} known, {job.messages} "
        f"messages of {size / 1e6:.1f} MB in {took:.1f} s; {cost(before_mb, waits)}",
        flush=True,
    )
    return job


async def copy(desk: Desk, user: User, what: str, to: Path) -> None:
    """Exports an account to a file and says what that took."""
    front = cast("Front", SimpleNamespace(desk=desk, copying=asyncio.Lock()))
    total = await desk.transcripts.count(user.id)
    before_mb, waits, began = peak_mb(), Waits(), time.perf_counter()
    with to.open("wb") as out:
        async for chunk in archive_of(front, Caller(user, ""), total):
            out.write(chunk)
    took = time.perf_counter() - began
    size_mb = to.stat().st_size / 1e6  # noqa: ASYNC240  # nobody else is on this loop
    print(
        f"export of {what}: {total} conversations, {size_mb:.1f} MB in {took:.1f} s; "
        f"{cost(before_mb, waits)}",
        flush=True,
    )
    with ZipFile(to) as archive:
        assert len(archive.namelist()) == 3 + 2 * total


async def import_many(folder: Path) -> None:
    async with opened(folder) as desk:
        await bring(desk, ANA.id, "ChatGPT's", many())


async def import_again(folder: Path) -> None:
    async with opened(folder) as desk:
        await bring(desk, ANA.id, "the same again", many())


async def export_many(folder: Path) -> None:
    async with opened(folder) as desk:
        await copy(desk, ANA, "all of it", folder / "many.zip")


async def import_own(folder: Path) -> None:
    async with opened(folder) as desk:
        await bring(desk, BEN.id, "our own archive", chunks_of(folder / "many.zip"))


async def import_long(folder: Path) -> None:
    async with opened(folder) as desk:
        await bring(desk, ANA.id, f"one conversation of {LONG} messages", long())


async def export_long(folder: Path) -> None:
    async with opened(folder) as desk:
        await copy(desk, ANA, f"one conversation of {LONG} messages", folder / "long.zip")


class opened:  # noqa: N801  # it reads as a word in `async with`
    """A store in a folder, and a desk over it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __aenter__(self) -> Desk:
        clock = SystemClock()
        self._store = SqliteBackend(self._folder / "bench.sqlite3", clock)
        settings = Settings(data_dir=self._folder, models_dir=MODELS)
        desk = gateway_desk(Parts(settings, clock, stores_of(self._store, clock)))
        await keep_prompt(settings, desk)
        return desk

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()


def apart(folder: Path, measure: Callable[[Path], Awaitable[None]]) -> None:
    """In a process of its own, so that its peak is its own."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(folder, measure))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{measure} ended with {process.exitcode}")


def _run(folder: Path, measure: Callable[[Path], Any]) -> None:
    uvloop.run(measure(folder))


def main() -> None:
    """A large account, and one with a very long conversation."""
    with tempfile.TemporaryDirectory(prefix="tertulia-bench-") as folder:
        for measure in (import_many, import_again, export_many, import_own):
            apart(Path(folder), measure)
    with tempfile.TemporaryDirectory(prefix="tertulia-bench-") as folder:
        for measure in (import_long, export_long):
            apart(Path(folder), measure)
