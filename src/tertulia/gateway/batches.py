"""OpenAI's batches: many requests in one file, answered when there is room for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from tertulia.core.batches import WINDOW_NAME, Batch, BatchStatus, NewBatch, TooManyBatches
from tertulia.core.types import KeyReused
from tertulia.gateway.auth import Asking
from tertulia.gateway.bodies import body_sha, read_body, schema_of
from tertulia.gateway.files import list_json
from tertulia.gateway.front import AtFront, Front
from tertulia.gateway.openai import key_of
from tertulia.gateway.problems import Problem, invalid, key_reused, not_found
from tertulia.gateway.uploads import LONGEST_KEPT_S, SHORTEST_KEPT_S

batches = APIRouter(prefix="/v1", tags=["openai"])

# The bell that tells a pump of a batch that needs it now.
BATCHES_BELL: Final = "batches"
_PAIRS: Final = 16  # as OpenAI's form allows, like the lengths of names and words
# A batch of some lines takes seconds to end: asking again sooner finds the same.
_FULL_RETRY_S: Final = 60

Word = Annotated[str, Field(max_length=512)]
Name = Annotated[str, Field(min_length=1, max_length=64)]


class OutputExpiry(BaseModel):
    """How long results are kept after they were written."""

    model_config = ConfigDict(strict=True, extra="forbid")

    anchor: Literal["created_at"]
    seconds: int = Field(ge=SHORTEST_KEPT_S, le=LONGEST_KEPT_S)


class BatchBody(BaseModel):
    """The served part of OpenAI's request."""

    model_config = ConfigDict(strict=True, extra="ignore")

    input_file_id: str = Field(min_length=1, max_length=128)
    endpoint: Literal["/v1/chat/completions"]
    completion_window: Literal["24h"]
    metadata: dict[Name, Word] | None = Field(default=None, max_length=_PAIRS)
    output_expires_after: OutputExpiry | None = None


@batches.post("/batches", summary="Begin a batch", openapi_extra=schema_of(BatchBody))
async def begin_batch(request: Request, caller: Asking, front: AtFront) -> JSONResponse:
    """Its file is looked through first; then its lines run as there is room for them."""
    desk, owner = front.desk, caller.user.id
    body = await read_body(request, BatchBody)
    sha = body_sha({"batch": body.model_dump()})
    if await desk.files.find(owner, body.input_file_id) is None:
        raise invalid("input_file_id", "You have no file with this id.")
    expiry = body.output_expires_after
    batch = await desk.batches.create(
        NewBatch(
            owner=owner,
            id=desk.new_id("batch"),
            key=key_of(request, caller, front, sha),
            body_sha=sha,
            input_file_id=body.input_file_id,
            output_file_id=desk.new_id("file"),
            error_file_id=desk.new_id("file"),
            endpoint=body.endpoint,
            metadata=body.metadata,
            output_kept_s=float(expiry.seconds) if expiry else desk.rules.batches.kept_s,
        ),
        limit=desk.rules.batches.user_batches,
    )
    if isinstance(batch, KeyReused):
        raise key_reused()
    if isinstance(batch, TooManyBatches):
        sentence = f"You have {batch.limit} batches that have not ended; wait for one or cancel it."
        raise Problem("too_many_running", sentence, retry_after_s=_FULL_RETRY_S)
    desk.bell.ring(BATCHES_BELL)
    return JSONResponse(batch_json(batch))


@batches.get("/batches", summary="List your batches")
async def list_batches(
    caller: Asking,
    front: AtFront,
    after: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> JSONResponse:
    """The newest first; `after` is the last id of the page before."""
    page = await front.desk.batches.list(caller.user.id, after=after, limit=limit)
    return list_json([batch_json(batch) for batch in page.items], page)


@batches.get("/batches/{batch_id}", summary="One batch")
async def one_batch(batch_id: str, caller: Asking, front: AtFront) -> JSONResponse:
    """How far it is, and where its results are."""
    return JSONResponse(batch_json(await _found(front, caller.user.id, batch_id)))


@batches.post("/batches/{batch_id}/cancel", summary="Cancel a batch")
async def cancel_batch(batch_id: str, caller: Asking, front: AtFront) -> JSONResponse:
    """Running lines are stopped at once; what was answered before is in the results."""
    batch = await front.desk.batches.cancel(caller.user.id, batch_id)
    if batch is None:
        raise not_found()
    if batch.status not in (BatchStatus.CANCELLING, BatchStatus.CANCELLED):
        sentence = f"A batch that is {batch.status} can't be cancelled any more."
        raise Problem("batch_ended", sentence)
    front.desk.bell.ring(BATCHES_BELL)
    return JSONResponse(batch_json(batch))


def batch_json(batch: Batch) -> dict[str, Any]:
    """A batch in OpenAI's words."""
    is_final = batch.status.is_final
    usage = batch.usage
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": None,
        "errors": _errors(batch),
        "input_file_id": batch.input_file_id,
        "completion_window": WINDOW_NAME,
        "status": batch.status,
        "output_file_id": batch.output_file_id if is_final and batch.output_bytes else None,
        "error_file_id": batch.error_file_id if is_final and batch.error_bytes else None,
        "created_at": int(batch.created_at),
        "expires_at": int(batch.expires_at),
        **_moments(batch.reached),
        "request_counts": {
            "total": batch.total,
            "completed": batch.completed,
            "failed": batch.failed,
        },
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input + usage.output,
        },
        "metadata": batch.metadata,
    }


def _moments(reached: Mapping[str, float]) -> dict[str, int | None]:
    """When each status began; null for those that it did not come to."""
    later = [status.value for status in BatchStatus if status is not BatchStatus.VALIDATING]
    return {f"{status}_at": int(reached[status]) if status in reached else None for status in later}


def _errors(batch: Batch) -> dict[str, Any] | None:
    if not batch.errors:
        return None
    data = [
        {"code": error.code, "message": error.message, "line": error.line, "param": error.param}
        for error in batch.errors
    ]
    return {"object": "list", "data": data}


async def _found(front: Front, owner: str, batch_id: str) -> Batch:
    batch = await front.desk.batches.find(owner, batch_id)
    if batch is None:
        raise not_found()
    return batch
