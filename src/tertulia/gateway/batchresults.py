"""Writes the results of a batch that is ending, a step at a time, from its finished turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from tertulia.core.batches import (
    Batch,
    BatchLine,
    BatchStatus,
    LineState,
    OpenLine,
    Saved,
    Work,
    added,
    moved,
    turn_key,
)
from tertulia.core.choice import AUTO
from tertulia.core.files import PART_BYTES, FilePart, NewFile, parts_of
from tertulia.core.plans import BATCH
from tertulia.core.turn import stored_entries, to_json
from tertulia.core.types import NewTurn, Refusal, Sampling, Status, Turn, Usage
from tertulia.gateway.desk import Desk
from tertulia.gateway.openai import completion
from tertulia.gateway.problems import Problem, openai_error
from tertulia.gateway.stop import stop_reply

# Results that one step writes: each is a turn to be read.
_STEP_LINES: Final = 50

# Why a line that will not run any more is refused at the door.
_NEVER: Final = "batch_ended"
_CANCELLED: Final = ("batch_cancelled", "This line did not run before the batch was cancelled.")
_EXPIRED: Final = ("batch_expired", "This line did not run before the batch expired.")


class _Result(NamedTuple):
    """One line of a result file."""

    record: Mapping[str, Any]
    is_error: bool


async def end_batch(desk: Desk, work: Work) -> Saved:
    """Stops what still runs; after that, writes the next results."""
    return await _stop_lines(desk, work) if work.open else await _write(desk, work)


def refused_line(problem: Problem) -> str:
    """What the error file says of a line that the door refused."""
    body = {"error": openai_error(problem)}
    response = {"status_code": problem.status, "request_id": None, "body": body}
    return json.dumps({"response": response, "error": None})


async def _stop_lines(desk: Desk, work: Work) -> Saved:
    batch = work.batch
    ended = await asyncio.gather(*(_stopped(desk, batch, line) for line in work.open))
    for line, usage in ended:
        is_done = line.state is LineState.COMPLETED
        batch = replace(
            batch,
            completed=batch.completed + is_done,
            failed=batch.failed + (not is_done),
            usage=added(batch.usage, usage),
        )
    return Saved(batch, lines=tuple(line for line, _ in ended))


async def _stopped(desk: Desk, batch: Batch, open_line: OpenLine) -> tuple[BatchLine, Usage]:
    """The line once nothing of it runs or ever will, completed if its answer was there already; and
    the tokens that were not counted yet."""
    line = open_line.line
    turn = await _turn_of(desk, batch, line)
    usage = Usage()
    if turn is None or turn.status is Status.FAILED:
        if turn is not None and line.retry_at == 0:
            usage = turn.usage
        # A pump that slept may still come to the door with it.
        await desk.turns.admit(_never(desk, batch, line, turn), desk.plans[BATCH].limits)
        turn = await _turn_of(desk, batch, line)
    if turn is not None and not turn.status.is_final:
        turn = await stop_reply(desk, batch.owner, turn.reply_id, "stopped")
    if turn is not None:
        usage = added(usage, turn.usage)
    if turn is not None and _is_answered(turn):
        return replace(line, state=LineState.COMPLETED), usage
    return replace(line, state=LineState.FAILED, error=json.dumps(_not_run(batch))), usage


async def _turn_of(desk: Desk, batch: Batch, line: BatchLine) -> Turn | None:
    return await desk.turns.find_by_key(batch.owner, turn_key(batch.id, line.n))


def _never(desk: Desk, batch: Batch, line: BatchLine, failed: Turn | None) -> NewTurn:
    """A turn that ends at the door and holds its line's key, so that no other begins under it."""
    return NewTurn(
        owner=batch.owner,
        key=turn_key(batch.id, line.n),
        body_sha=failed.body_sha if failed is not None else _NEVER,
        kind="line",
        reply_id=desk.new_id("m"),
        plan=BATCH,
        requested=AUTO,
        answer_tokens=1,
        prompt_tokens=0,
        sampling=Sampling(),
        refusal=Refusal("input", _NEVER, ""),
    )


def _is_answered(turn: Turn) -> bool:
    if turn.status is Status.REFUSED:
        return turn.refusal is None or turn.refusal.category != _NEVER
    return turn.status is Status.COMPLETED


async def _write(desk: Desk, work: Work) -> Saved:
    batch = work.batch
    lines = await desk.batch_work.lines(
        batch.owner, batch.id, after=batch.written, limit=_STEP_LINES
    )
    output, errors = bytearray(), bytearray()
    n_written = n_failed = 0
    for line in lines:
        result = await _result(desk, batch, line)
        (errors if result.is_error else output).extend(to_json(result.record) + b"\n")
        n_written += 1
        # Those that never began are counted now.
        n_failed += line.state in (LineState.WAITING, LineState.OPEN)
        if len(output) + len(errors) > PART_BYTES:
            break
    is_last = batch.written + n_written >= batch.total or not lines
    parts = _parts(batch, bytes(output), bytes(errors), is_last=is_last)
    batch = replace(
        batch,
        written=batch.written + n_written,
        failed=batch.failed + n_failed,
        output_bytes=batch.output_bytes + len(output),
        error_bytes=batch.error_bytes + len(errors),
    )
    if is_last:
        is_lapsed = batch.status is BatchStatus.FINALIZING and batch.is_expired
        batch = moved(batch, "lapse" if is_lapsed else "complete", work.now)
    return Saved(batch, parts=parts)


async def _result(desk: Desk, batch: Batch, line: BatchLine) -> _Result:
    """What a line came to: the answer's own bytes, or why there is none."""
    head = {"id": f"batch_req_{batch.id}_{line.n}", "custom_id": line.custom_id}
    if line.error is not None:
        return _Result({**head, **json.loads(line.error)}, is_error=True)
    if line.state in (LineState.WAITING, LineState.OPEN):
        return _Result({**head, **_not_run(batch)}, is_error=True)
    turn = await _turn_of(desk, batch, line)
    if turn is None:
        gone = {"code": "deleted", "message": "The answer to this line was deleted."}
        return _Result({**head, "response": None, "error": gone}, is_error=True)
    try:
        status, body = 200, completion(turn, stored_entries(turn))
    except Problem as problem:
        status, body = problem.status, {"error": openai_error(problem)}
    response = {"status_code": status, "request_id": turn.reply_id, "body": body}
    return _Result({**head, "response": response, "error": None}, is_error=status != 200)


def _parts(
    batch: Batch, output: bytes, errors: bytes, *, is_last: bool
) -> tuple[tuple[NewFile, FilePart], ...]:
    """Both files' next bytes. A file that never gets one is not made."""
    found: list[tuple[NewFile, FilePart]] = []
    for file_id, name, at, data in (
        (batch.output_file_id, "output", batch.output_bytes, output),
        (batch.error_file_id, "error", batch.error_bytes, errors),
    ):
        if data or (is_last and at):
            file = NewFile(
                batch.owner,
                file_id,
                f"{batch.id}_{name}.jsonl",
                "batch_output",
                batch.output_kept_s,
            )
            which: Literal["last", "more"] = "last" if is_last else "more"
            found += [(file, part) for part in parts_of(at, data, last=which)]
    return tuple(found)


def _not_run(batch: Batch) -> dict[str, Any]:
    code, message = _EXPIRED if batch.is_expired else _CANCELLED
    return {"response": None, "error": {"code": code, "message": message}}
