"""Everything of one account in a zip archive, made while it is sent.

No more of it is in memory than some messages and the names of the files that were sent. It copies
one step at a time for everybody and rests as long as it works, so that replies go on beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import IO, Any, Final, NamedTuple, cast
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tertulia import __version__
from tertulia.core.deletions import DAY_S
from tertulia.core.quota import in_units
from tertulia.core.turn import to_json
from tertulia.core.types import Conversation, DayUse, Message, User
from tertulia.gateway.accounts import Farewell, account_json, demand_fresh
from tertulia.gateway.auth import Asking
from tertulia.gateway.bodies import schema_of
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.exportfiles import (
    JSON_COMMA,
    JSON_END,
    file_stem,
    json_head,
    json_messages,
    markdown_end,
    markdown_head,
    markdown_message,
)
from tertulia.gateway.following import seat_for
from tertulia.gateway.formats import FORMAT, VERSION
from tertulia.gateway.front import AtFront, Front
from tertulia.gateway.messages import message_json
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import restarting
from tertulia.gateway.streams import Seat

exports = APIRouter(prefix="/v1", tags=["account"])

_PAGE_CONVERSATIONS: Final = 100
_PAGE_MESSAGES: Final = 200
# Days of three models for nine years.
_USED: Final = 10_000
# What is written to the client at once: small files are gathered.
_CHUNK_BYTES: Final = 64 * 1024
# Rests shorter than this cost more to take than they give.
_REST_S: Final = 0.01
_LONGEST_REST_S: Final = 0.5
_FIRST_YEAR: Final = 1980  # of the dates that an archive can hold
_MODE: Final = 0o600 << 16  # what is unpacked is its owner's alone


class _NotWelcome(Exception):
    """The caller's credential died, or this gateway ends: the archive must not look whole."""


@exports.post(
    "/me/export", summary="Export everything in your account", openapi_extra=schema_of(Farewell)
)
async def export(request: Request, caller: Asking, front: AtFront) -> Response:
    """Streams a zip archive; asks for the password again as deleting the account does.

    `X-Total-Conversations` says how many there are; each makes two files.
    """
    desk, owner = front.desk, caller.user.id
    if desk.streams.leaving:
        raise restarting()
    await demand_fresh(request, caller, front)
    await front.exports.demand(owner)
    async with seat_for(desk, caller) as seat:
        total = await desk.transcripts.count(owner)
        return ExportStream(front, caller, seat, total)


class ExportStream(StreamingResponse):
    """An export on a seat of its owner's, until its end or the client's."""

    def __init__(self, front: Front, caller: Caller, seat: Seat, total: int) -> None:
        self._front = front
        self._caller = caller
        self._seat = seat
        self._contents = archive_of(front, caller, total)
        now = rfc3339(front.desk.clock.now())
        name = f"tertulia-export-{now[:10]}.zip"
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Total-Conversations": str(total),
            "X-Accel-Buffering": "no",
        }
        super().__init__(self._contents, headers=headers, media_type="application/zip")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._front.desk.streams.running(self._seat, self._caller):
            async with aclosing(self._contents):
                await super().__call__(scope, receive, send)


_Step = Callable[[], None]


class _Writing:
    """The archive as it is written: what is finished waits here until it is sent."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.waiting = 0
        # What can't be sought in is written without a second look at it.
        self._archive = ZipFile(cast("IO[bytes]", self), "w", ZIP_DEFLATED)
        self._entry: IO[bytes] | None = None
        self.is_over = False
        self._at_work = Lock()

    def run(self, step: _Step) -> None:
        """One step, in a thread."""
        with self._at_work:
            step()

    def abandon(self) -> None:
        """Nobody wants the rest. A step that runs ends first, which takes milliseconds."""
        with self._at_work:
            if self._entry is not None:
                self.end_file()
            self._archive.close()

    def write(self, data: bytes) -> int:
        """What the archive calls."""
        self._parts.append(bytes(data))
        self.waiting += len(data)
        return len(data)

    def flush(self) -> None:
        """What the archive calls."""

    def take(self) -> bytes:
        """What was finished since the last time."""
        taken = b"".join(self._parts)
        self._parts.clear()
        self.waiting = 0
        return taken

    def file(self, name: str, at: float, *contents: bytes) -> None:
        """A whole file."""
        self.begin(name, at)
        for content in contents:
            self.add(content)
        self.end_file()

    def begin(self, name: str, at: float) -> None:
        """A file, last changed at this time; what it holds is added to it."""
        date = datetime.fromtimestamp(at, UTC)
        info = ZipInfo(name, (max(_FIRST_YEAR, date.year), *date.timetuple()[1:6]))
        info.compress_type = ZIP_DEFLATED
        info.external_attr = _MODE
        self._entry = self._archive.open(info, "w")

    def add(self, content: bytes) -> None:
        """Bytes of the file that was begun."""
        assert self._entry is not None, "a file was begun"
        self._entry.write(content)

    def end_file(self) -> None:
        """The file that was begun is whole."""
        assert self._entry is not None, "a file was begun"
        self._entry.close()
        self._entry = None

    def end(self) -> None:
        """The archive is whole."""
        self._archive.close()
        self.is_over = True


async def archive_of(front: Front, caller: Caller, total: int) -> AsyncGenerator[bytes, None]:
    """The archive, piece by piece."""
    writing = _Writing()
    desk, tired_s = front.desk, 0.0
    try:
        async with aclosing(_steps(front, caller, total, writing)) as steps:
            while True:
                async with front.copying:
                    began = desk.clock.now()
                    step = await anext(steps, writing.end)
                    await asyncio.to_thread(writing.run, step)
                    tired_s += desk.clock.now() - began
                    if tired_s >= _REST_S:
                        await desk.clock.sleep(min(_LONGEST_REST_S, tired_s))
                        tired_s = 0.0
                if not desk.streams.may_listen(caller) or desk.streams.draining:
                    raise _NotWelcome
                if writing.is_over or writing.waiting >= _CHUNK_BYTES:
                    yield writing.take()
                if writing.is_over:
                    return
    finally:
        writing.abandon()


async def _steps(
    front: Front, caller: Caller, total: int, writing: _Writing
) -> AsyncGenerator[_Step, None]:
    """What there is to be written, each a moment's work of a thread."""
    desk, owner = front.desk, caller.user.id
    now = desk.clock.now()
    for name, value in (await _about(desk, caller.user, total, now)).items():
        yield partial(writing.file, f"{name}.json", now, to_json(value))
    after = ""
    while page := await desk.transcripts.conversations(
        owner, after=after, limit=_PAGE_CONVERSATIONS
    ):
        for conversation in page:
            async with aclosing(_steps_of(desk, conversation, writing)) as steps:
                async for step in steps:
                    yield step
        after = page[-1].id


async def _about(desk: Desk, user: User, total: int, now: float) -> dict[str, dict[str, Any]]:
    account = await account_json(desk, user)
    keys = await desk.api_keys.list(user.id)
    identities = await desk.identities.of_user(user.id)
    told = await desk.instructions.current(user.id)
    used = await desk.transcripts.used(user.id, limit=_USED)
    return {
        "export": {
            "format": FORMAT,
            "version": VERSION,
            "service": f"Tertulia {__version__}",
            "exportedAt": rfc3339(now),
            "conversations": total,
        },
        "profile": {
            **{name: account[name] for name in ("id", "name", "role", "plan")},
            "createdAt": rfc3339(user.created_at),
            "evaluation": user.evaluation,
            "instructions": "" if told is None else told.text,
            "signsInBy": [
                {
                    "issuer": one.issuer,
                    "subject": one.subject,
                    "createdAt": rfc3339(one.created_at),
                }
                for one in identities
            ],
            "apiKeys": [{"name": key.name, "createdAt": rfc3339(key.created_at)} for key in keys],
        },
        "usage": {"budgets": account["budgets"], "used": list(map(_used, used))},
    }


def _used(one: DayUse) -> dict[str, Any]:
    return {
        "day": rfc3339(one.day * DAY_S)[:10],
        "model": one.model,
        "replies": one.replies,
        "input": one.usage.input,
        "cached": one.usage.cached,
        "output": one.usage.output,
        "charged": in_units(one.charged),
    }


async def _steps_of(
    desk: Desk, conversation: Conversation, writing: _Writing
) -> AsyncGenerator[_Step, None]:
    """Both files of one conversation; a long one is read twice, a page at a time."""
    page, after = await _page(desk, conversation, 0)
    if after is None:
        yield partial(_write_whole, writing, conversation, page)
        return
    name, at = f"conversations/{file_stem(conversation)}", conversation.updated_at
    parents: dict[str, str | None] = {}
    yield partial(writing.begin, f"{name}.json", at)
    yield partial(writing.add, json_head(conversation))
    follows = ""
    while page:
        parents.update((one.message.id, one.message.parent_id) for one in page)
        yield partial(_write_json, writing, page, follows)
        page, after = await _page(desk, conversation, after) if after is not None else ((), None)
        follows = JSON_COMMA
    yield partial(writing.add, JSON_END)
    yield writing.end_file
    shown = _path(parents, conversation.head_message_id)
    yield partial(writing.begin, f"{name}.md", at)
    yield partial(writing.add, markdown_head(conversation))
    page, after = await _page(desk, conversation, 0)
    while page:
        yield partial(_write_markdown, writing, page, shown)
        page, after = await _page(desk, conversation, after) if after is not None else ((), None)
    yield partial(writing.add, markdown_end(others=len(parents) - len(shown)))
    yield writing.end_file


class _Copied(NamedTuple):
    """A message, with the text so far if it is a reply in progress, and as the API shows it."""

    message: Message
    shown: dict[str, Any]


async def _page(
    desk: Desk, conversation: Conversation, after: int
) -> tuple[Sequence[_Copied], int | None]:
    """Messages after a number, and the number after which there may be more."""
    rows = await desk.transcripts.messages(
        conversation.owner, conversation.id, after=after, limit=_PAGE_MESSAGES
    )
    page = []
    for message, why in rows:
        shown = await message_json(desk, message)
        if why:
            shown["feedbackReason"] = why
        page.append(_Copied(message._replace(content=shown["content"]), shown))
    return page, rows[-1][0].seq if len(rows) == _PAGE_MESSAGES else None


def _write_whole(writing: _Writing, conversation: Conversation, page: Sequence[_Copied]) -> None:
    name, at = f"conversations/{file_stem(conversation)}", conversation.updated_at
    messages = json_messages([one.shown for one in page])
    writing.file(f"{name}.json", at, json_head(conversation), messages, JSON_END)
    parents = {one.message.id: one.message.parent_id for one in page}
    shown = _path(parents, conversation.head_message_id)
    said = [markdown_message(one.message) for one in page if one.message.id in shown]
    end = markdown_end(others=len(page) - len(shown))
    writing.file(f"{name}.md", at, markdown_head(conversation), *said, end)


def _write_json(writing: _Writing, page: Sequence[_Copied], follows: str) -> None:
    writing.add(follows.encode() + json_messages([one.shown for one in page]))


def _write_markdown(writing: _Writing, page: Sequence[_Copied], shown: frozenset[str]) -> None:
    for one in page:
        if one.message.id in shown:
            writing.add(markdown_message(one.message))


def _path(parents: Mapping[str, str | None], leaf: str | None) -> frozenset[str]:
    """The ids from a leaf up to its root."""
    path: set[str] = set()
    while leaf is not None and leaf in parents and leaf not in path:
        path.add(leaf)
        leaf = parents[leaf]
    return frozenset(path)
