"""The porter of the imports: reads their files and brings conversations in, a few at a time.

What he keeps is in the store: any gateway goes on where another ended, and what came in is written
together with how far he is, so that no crash brings anything in twice. Files are unpacked, parsed
and counted in a thread, and he rests as long as he works, so that replies go on beside him.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import structlog

from tertulia.core.choice import AUTO
from tertulia.core.imports import Found, Import, Progress, failed, moved_on
from tertulia.core.pieces import Piece, TooLong
from tertulia.core.transcripts import Arrival, Flaw, arranged
from tertulia.gateway.archive import Archive, Cut, NoExport, StoredBytes
from tertulia.gateway.desk import Desk
from tertulia.gateway.footing import version_for_new
from tertulia.gateway.formats import read_conversation
from tertulia.gateway.imports import IMPORTS_BELL
from tertulia.ports import StoreUnavailable

_log = structlog.get_logger(__name__)

_Result = TypeVar("_Result")

# What one step brings in, whichever is reached first: it is written in one transaction, which keeps
# others from writing for some milliseconds, and is what a crash does again.
_STEP_MESSAGES: Final = 200
_STEP_CONVERSATIONS: Final = 50
_STEP_BYTES: Final = 1_000_000
# The longest rest after a step, however long that took.
_LONGEST_REST_S: Final = 1.0
# A part of the file that takes this long to come will not come.
_PART_S: Final = 10.0
# Reports that end today are not missed an hour earlier.
_SWEEP_EVERY_S: Final = 3600.0


async def carry_imports(desk: Desk) -> None:
    """Runs until cancelled."""
    rules, swept_at = desk.rules.imports, desk.clock.now()
    while True:
        await desk.bell.wait(IMPORTS_BELL, timeout_s=rules.pause_s)
        try:
            while await carry_one(desk):
                pass
            if desk.clock.now() - swept_at >= _SWEEP_EVERY_S:
                swept_at = desk.clock.now()
                await desk.import_work.sweep(kept_s=rules.kept_s)
        except StoreUnavailable:
            _log.warning("imports_interrupted", cause="store_unavailable")
        except Exception as error:  # noqa: BLE001  # no fault of an import may end the gateway
            # Its words could be a user's.
            _log.error("imports_interrupted", kind=type(error).__name__)


async def carry_one(desk: Desk) -> bool:
    """Works through the import that waits longest, to its end; False if there is none."""
    job = await desk.import_work.claim(lease_s=desk.rules.imports.lease_s)
    if job is None:
        return False
    if job.is_fruitless:
        message = "It was interrupted again and again and came no further."
        await _end(desk, failed(job, "interrupted", message))
        return True
    try:
        await _carry(desk, job)
    except NoExport as error:
        latest = await desk.imports.find(job.owner, job.id)
        if latest is not None and latest.epoch == job.epoch:
            await _end(desk, failed(latest, error.code, error.message))
    return True


async def _carry(desk: Desk, job: Import) -> None:
    # All of a file's conversations begin on one version of the system prompt.
    version = await version_for_new(desk, job.id)
    reading = _Reading(desk, job, version, asyncio.get_running_loop())
    await _or_release(desk, job, asyncio.to_thread(reading.begin))
    while True:
        began = desk.clock.now()
        step = await _or_release(desk, job, asyncio.to_thread(reading.step))
        told = await desk.import_work.save(_progress(desk, job, step))
        if told is None:  # cancelled, deleted, or another's
            return
        if step.is_last:
            await _put_away(desk, told)
            return
        job = told
        rest_s = min(_LONGEST_REST_S, desk.clock.now() - began)
        await _or_release(desk, job, desk.clock.sleep(rest_s))


async def _or_release(desk: Desk, job: Import, waiting: Awaitable[_Result]) -> _Result:
    """Where this gateway ends meanwhile, another one need not wait for the lease."""
    try:
        return await waiting
    except asyncio.CancelledError:
        with suppress(StoreUnavailable):
            await desk.import_work.save(Progress(job, then="release"))
        raise


def _progress(desk: Desk, job: Import, step: _Step) -> Progress:
    job = replace(
        job,
        total=step.total,
        total_bytes=step.total_bytes,
        read_bytes=max(job.read_bytes, step.read_bytes),
    )
    if step.is_last:
        return Progress(moved_on(job, "complete"), step.found, then="release")
    return Progress(job, step.found, lease_s=desk.rules.imports.lease_s)


async def _end(desk: Desk, job: Import) -> None:
    told = await desk.import_work.save(Progress(job, then="release"))
    if told is not None:
        await _put_away(desk, told)


async def _put_away(desk: Desk, job: Import) -> None:
    await desk.files.delete(job.owner, job.file_id)
    _log.info(
        "import_ended",
        state=job.state,
        code=job.failure and job.failure[0],
        read=job.read,
        made=job.made,
        refused=job.refused,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """What was read, and how far that is."""

    found: tuple[Found, ...]
    read_bytes: int
    total: int | None
    total_bytes: int
    is_last: bool


class _Reading:
    """The file of one import as it is read in a thread, one call at a time."""

    def __init__(
        self, desk: Desk, job: Import, prompt_version: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._desk = desk
        self._job = job
        self._prompt_version = prompt_version
        self._loop = loop
        self._n = job.read
        self._pieces: Iterator[Cut] = iter(())
        self._total: int | None = None
        self._total_bytes = 0
        self._broken: NoExport | None = None

    def begin(self) -> None:
        """Opens the file and passes over what was read before; NoExport if that can't be done."""
        stored = StoredBytes(self._part, self._job.file_bytes)
        archive = Archive(stored, self._desk.rules.imports)
        self._total, self._total_bytes = archive.total, archive.total_bytes
        self._pieces = archive.pieces()
        for _ in range(self._n):
            next(self._pieces, None)

    def step(self) -> _Step:
        """Reads on until there is enough for one transaction. What is broken behind it is told by
        the next one, with NoExport."""
        if self._broken is not None:
            raise self._broken
        found: list[Found] = []
        n_messages = n_bytes = read_bytes = 0
        while (
            n_messages < _STEP_MESSAGES
            and n_bytes < _STEP_BYTES
            and len(found) < _STEP_CONVERSATIONS
        ):
            try:
                cut = next(self._pieces, None)
                if cut is None:
                    return self._last(found)
                found.append(self._read(cut.piece))
            except NoExport as error:
                self._broken = error
                break
            read_bytes = cut.read_bytes
            n_bytes += 0 if isinstance(cut.piece, TooLong) else len(cut.piece)
            what = found[-1].what
            n_messages += len(what.messages) if isinstance(what, Arrival) else 0
        return _Step(tuple(found), read_bytes, self._total, self._total_bytes, is_last=False)

    def _last(self, found: list[Found]) -> _Step:
        if self._n == 0:
            raise NoExport("not_an_export", "There are no conversations in it.")
        return _Step(tuple(found), self._total_bytes, self._n, self._total_bytes, is_last=True)

    def _read(self, piece: Piece) -> Found:
        rules = self._desk.rules
        if self._n >= rules.imports.conversations:
            message = f"It has more than {rules.imports.conversations} conversations."
            raise NoExport("too_large", message)
        self._n += 1
        if isinstance(piece, TooLong):
            message = f"It has more than {rules.imports.conversation_bytes} bytes."
            return Found(self._n, "", Flaw("too_long", message))
        source_id, what = read_conversation(piece)
        if isinstance(what, Flaw):
            return Found(self._n, source_id, what)
        arrival = arranged(
            what,
            owner=self._job.owner,
            import_id=self._job.id,
            prompt_version=self._prompt_version,
            now=self._desk.clock.now(),
        )
        if isinstance(arrival, Arrival):
            arrival = self._counted(arrival)
        return Found(self._n, source_id, arrival)

    def _counted(self, arrival: Arrival) -> Arrival:
        """With the tokens of every message, and without a model that nobody serves here."""
        vocabulary = self._desk.vocabulary(AUTO)
        messages = tuple(
            one._replace(tokens=len(vocabulary.encode(one.content)), tokenizer=vocabulary.name)
            for one in arrival.messages
        )
        conversation = arrival.conversation
        if conversation.model not in {state.served for state in self._desk.replicas.models()}:
            conversation = replace(conversation, model=None)
        return replace(arrival, conversation=conversation, messages=messages)

    def _part(self, at: int, size: int) -> bytes:
        """Bytes of the file, from the store and so from the event loop."""
        job = self._job
        asked = self._desk.files.read(job.owner, job.file_id, at=at, size=size)
        waiting = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            data = waiting.result(_PART_S)
        except TimeoutError:
            waiting.cancel()
            raise StoreUnavailable("a part of a file did not come") from None
        if not data:
            raise NoExport("file_gone", "Its file was deleted or has expired.")
        return data
