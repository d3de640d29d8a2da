"""OpenAI's files, for batches: what is sent for one, and what it wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tertulia.core.files import PART_BYTES, StoredFile
from tertulia.core.types import Page
from tertulia.gateway.auth import Asking
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.following import seat_for
from tertulia.gateway.front import AtFront
from tertulia.gateway.problems import not_found, restarting
from tertulia.gateway.streams import Seat
from tertulia.gateway.uploads import take_upload

files = APIRouter(prefix="/v1", tags=["openai"])

_MOST: Final = 10_000  # as in OpenAI's form; a user has fewer files (`BatchRules.user_files`)

_FORM: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"type": "string", "enum": ["batch"]},
                        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
                        "expires_after[seconds]": {
                            "type": "integer",
                            "minimum": 3_600,
                            "maximum": 2_592_000,
                        },
                    },
                }
            }
        },
    }
}


class _CutMidway(Exception):
    """A file went while it was read, or its reader's credential: the answer must not end as if it
    were whole."""


class _Download(StreamingResponse):
    """The bytes of a file: a stream like any other, with a seat among its user's, and only as long
    as the caller's credential lives."""

    def __init__(
        self, desk: Desk, file: StoredFile, caller: Caller, seat: Seat, headers: Mapping[str, str]
    ) -> None:
        body = _content(desk, file, caller)
        super().__init__(body, headers=headers, media_type="application/octet-stream")
        self._streams = desk.streams
        self._caller = caller
        self._seat = seat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.running(self._seat, self._caller):
            await super().__call__(scope, receive, send)


@files.post("/files", summary="Send a file for a batch", openapi_extra=_FORM)
async def send_file(request: Request, caller: Asking, front: AtFront) -> Response:
    """A form with `file` and `purpose` (`batch`); kept for 30 days unless it says otherwise."""
    if front.desk.streams.leaving:
        raise restarting()
    file = await take_upload(request, front.desk, caller.user.id)
    return JSONResponse(file_json(file)) if file is not None else Response(status_code=499)


@files.get("/files", summary="List your files")
async def list_files(
    caller: Asking,
    front: AtFront,
    purpose: Annotated[str | None, Query(max_length=64)] = None,
    after: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=_MOST)] = _MOST,
    order: Literal["asc", "desc"] = "desc",
) -> JSONResponse:
    """The newest first, unless `order` is `asc`; `after` is the last id of the page before."""
    page = await front.desk.files.list(
        caller.user.id, purpose=purpose, after=after, limit=limit, order=order
    )
    return list_json([file_json(file) for file in page.items], page)


@files.get("/files/{file_id}", summary="One file")
async def one_file(file_id: str, caller: Asking, front: AtFront) -> JSONResponse:
    """What it is called, how long it is and how long it is kept."""
    return JSONResponse(file_json(await _found(front.desk, caller.user.id, file_id)))


@files.get("/files/{file_id}/content", summary="The bytes of a file")
async def file_content(file_id: str, caller: Asking, front: AtFront) -> Response:
    """Exactly what was sent, or written by a batch."""
    file = await _found(front.desk, caller.user.id, file_id)
    headers = {
        "Content-Length": str(file.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
    }
    async with seat_for(front.desk, caller) as seat:
        return _Download(front.desk, file, caller, seat, headers)


@files.delete("/files/{file_id}", summary="Delete a file")
async def delete_file(file_id: str, caller: Asking, front: AtFront) -> JSONResponse:
    """It is gone at once. Lines of a batch that have not begun yet fail without it."""
    if not await front.desk.files.delete(caller.user.id, file_id):
        raise not_found()
    return JSONResponse({"id": file_id, "object": "file", "deleted": True})


def file_json(file: StoredFile) -> dict[str, Any]:
    """A file in OpenAI's words."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": int(file.created_at),
        "expires_at": int(file.expires_at),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def list_json(data: list[dict[str, Any]], page: Page[Any]) -> JSONResponse:
    """A page of a list in OpenAI's form."""
    return JSONResponse(
        {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
            "has_more": page.next_cursor is not None,
        }
    )


async def _found(desk: Desk, owner: str, file_id: str) -> StoredFile:
    file = await desk.files.find(owner, file_id)
    if file is None:
        raise not_found()
    return file


async def _content(desk: Desk, file: StoredFile, caller: Caller) -> AsyncIterator[bytes]:
    """The file, a part at a time: no more of it is in memory."""
    at = 0
    while at < file.size:
        data = await desk.files.read(file.owner, file.id, at=at, size=PART_BYTES)
        if not data or not desk.streams.may_listen(caller):
            raise _CutMidway
        yield data
        at += len(data)
