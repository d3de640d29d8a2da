"""A file on its way in: no more of it is in memory than one part, and nobody sees it before it is
whole. Files of batches and of imports come in alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Literal

from starlette.requests import ClientDisconnect, Request

from tertulia.core.files import PART_BYTES, FilePart, FileRoom, NewFile, Purpose, Written
from tertulia.gateway.desk import Desk
from tertulia.gateway.intake import BODY_S, drain, too_large
from tertulia.gateway.multipart import MalformedForm
from tertulia.gateway.problems import Problem, invalid

# What a form adds to a file: borders, heads and a few words.
FORM_BYTES: Final = 65_536


class IncomingFile:
    """Invariant: `held` is what of the file is not stored yet, `stored` how many bytes are."""

    def __init__(self, desk: Desk, owner: str) -> None:
        self.id = desk.new_id("file")
        self.held = bytearray()
        self.stored = 0
        self._desk = desk
        self._owner = owner
        self._was_written = False
        self._is_whole = False

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return self.stored + len(self.held)

    async def store(
        self,
        which: Literal["more", "last"],
        *,
        name: str,
        purpose: Purpose,
        kept_s: float,
    ) -> None:
        """Stores the next part, or all that is held as the last one."""
        size = PART_BYTES if which == "more" else len(self.held)
        rules = self._desk.rules.batches
        file = NewFile(self._owner, self.id, name, purpose, kept_s)
        part = FilePart(self.stored, bytes(self.held[:size]), is_last=which == "last")
        self._was_written = True
        room = FileRoom(rules.user_files, rules.user_bytes)
        answer = await self._desk.files.write(file, part, room)
        if answer is Written.FULL:
            sentence = (
                f"Your files may be {rules.user_files} and {rules.user_bytes} bytes together; "
                "delete some first, or wait until those that you deleted are gone."
            )
            more = {"limit": rules.user_bytes}
            raise Problem("body_too_large", sentence, field="file", more=more)
        if answer is Written.GONE:  # its owner deleted everything while it came
            raise deleted_meanwhile()
        del self.held[:size]
        self.stored += size

    async def end(self) -> None:
        """The file is whole and right. Whoever deletes an account closes it first and then its
        files: one that was still on its way must leave nothing behind."""
        user = await self._desk.accounts.find(self._owner)
        if user is None or user.disabled:
            raise deleted_meanwhile()
        self._is_whole = True

    async def give_up(self) -> None:
        """Nobody will see what was stored of a file that is not whole."""
        if self._was_written and not self._is_whole:
            await self._desk.files.delete(self._owner, self.id)


@asynccontextmanager
async def coming_in(
    request: Request, file: IncomingFile, *, lasts_s: float
) -> AsyncGenerator[None, None]:
    """For all that is done while a file comes. ClientDisconnect if its sender left; Problem says
    what is wrong, and nothing is kept."""
    try:
        async with asyncio.timeout(lasts_s):
            yield
    except ClientDisconnect:
        raise
    except TimeoutError:
        sentence = "The file did not arrive in time."
        headers = {"Connection": "close"}
        raise Problem("invalid_request", sentence, status=408, headers=headers) from None
    except MalformedForm as error:
        await _drain(request)
        raise invalid("body", f"This can't be read as a form: {error}.") from None
    except Exception:
        # The sender reads no answer before all is sent.
        await _drain(request)
        raise
    finally:
        await file.give_up()


async def body_of(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """The body as it comes, up to `limit` bytes, none of it longer in coming than a whole one."""
    size, is_over = 0, False
    while not is_over:
        async with asyncio.timeout(BODY_S):
            message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        request.state.body_is_over = is_over = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        yield chunk


async def _drain(request: Request) -> None:
    """What is still coming; there is nothing to wait for once all of it has."""
    if not getattr(request.state, "body_is_over", False):
        await drain(request.receive)


def deleted_meanwhile() -> Problem:
    """For a file that its owner deleted, or whose owner left."""
    return Problem("not_found", "This file was deleted while it was sent.")
