"""Conversations brought along from elsewhere: a file is taken in, and worked through afterwards."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.imports import Import, NewImport, TooManyImports
from tertulia.gateway.auth import Asking
from tertulia.gateway.desk import Desk
from tertulia.gateway.front import AtFront
from tertulia.gateway.importfile import take_import_file
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import Problem, not_found, restarting

imports = APIRouter(prefix="/v1/imports", tags=["account"])

# The bell that tells a porter of an import that needs him now.
IMPORTS_BELL: Final = "imports"
# Most imports take seconds, the largest some minutes.
_FULL_RETRY_S: Final = 30

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": {}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
        },
    }
}


@imports.post("", summary="Import conversations", status_code=202, openapi_extra=_BODY)
async def begin_import(request: Request, caller: Asking, front: AtFront) -> Response:
    """A zip archive or JSON: an export of this service, of ChatGPT or of Open WebUI."""
    desk, owner = front.desk, caller.user.id
    if desk.streams.leaving:
        raise restarting()
    await front.imports.demand(owner)
    await _demand_room(desk, owner)
    file = await take_import_file(request, desk, owner)
    if file is None:
        return Response(status_code=499)
    job = await desk.imports.create(
        NewImport(owner, desk.new_id("import"), *file), limit=desk.rules.imports.user_imports
    )
    user = await desk.accounts.find(owner)
    if isinstance(job, TooManyImports) or user is None or user.disabled:
        # An account that was deleted meanwhile takes nothing in any more.
        await desk.files.delete(owner, file[0])
        if isinstance(job, TooManyImports):
            raise _too_many(job.limit)
        await desk.imports.delete(owner, job.id)
        raise not_found()
    desk.bell.ring(IMPORTS_BELL)
    return JSONResponse(import_json(job), 202, {"Location": f"/v1/imports/{job.id}"})


@imports.get("", summary="List your imports")
async def list_imports(
    caller: Asking,
    front: AtFront,
    after: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> JSONResponse:
    """The newest first; `nextAfter` leads to the next page."""
    page = await front.desk.imports.list(caller.user.id, after=after, limit=limit)
    items = [import_json(job) for job in page.items]
    return JSONResponse({"items": items, "nextAfter": page.next_cursor})


@imports.get("/{import_id}", summary="One import")
async def one_import(import_id: str, caller: Asking, front: AtFront) -> JSONResponse:
    """How far it is, what came in, and what stayed out and why."""
    job = await front.desk.imports.find(caller.user.id, import_id)
    if job is None:
        raise not_found()
    return JSONResponse(import_json(job))


@imports.delete("/{import_id}", summary="Cancel an import, or forget one that ended")
async def end_import(import_id: str, caller: Asking, front: AtFront) -> Response:
    """What came in stays. One that had not ended is answered with what it came to; of one that had,
    the report is deleted (204)."""
    desk, owner = front.desk, caller.user.id
    found = await desk.imports.find(owner, import_id)
    if found is None:
        raise not_found()
    if found.state.is_final:
        await desk.imports.delete(owner, import_id)
        return Response(status_code=204)
    job = await desk.imports.cancel(owner, import_id)
    await desk.files.delete(owner, found.file_id)
    if job is None:
        raise not_found()
    return JSONResponse(import_json(job))


def import_json(job: Import) -> dict[str, Any]:
    """An import as clients show it."""
    failure = job.failure
    return {
        "id": job.id,
        "state": job.state,
        "createdAt": rfc3339(job.created_at),
        "endedAt": rfc3339(job.ended_at) if job.ended_at is not None else None,
        "fileBytes": job.file_bytes,
        "readBytes": job.read_bytes,
        "totalBytes": job.total_bytes,
        "conversations": {
            "total": job.total,
            "read": job.read,
            "imported": job.made,
            "alreadyHere": job.known,
            "changedSince": job.differing,
            "refused": job.refused,
        },
        "messages": job.messages,
        "repairedTexts": job.repaired,
        "left": [
            {"n": one.n, "sourceId": one.source_id, "code": one.code, "message": one.message}
            for one in job.left
        ],
        "error": failure and {"code": failure[0], "message": failure[1]},
    }


async def _demand_room(desk: Desk, owner: str) -> None:
    """Before a large file is sent for nothing; `create` decides."""
    page = await desk.imports.list(owner, after=None, limit=100)
    limit = desk.rules.imports.user_imports
    if sum(not job.state.is_final for job in page.items) >= limit:
        raise _too_many(limit)


def _too_many(limit: int) -> Problem:
    sentence = f"You have {limit} import that has not ended; wait for it or cancel it."
    return Problem("too_many_requests", sentence, retry_after_s=_FULL_RETRY_S)
