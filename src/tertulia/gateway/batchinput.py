"""Looks through the file of a batch, a step at a time, before any of its lines runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tertulia.core.batches import (
    ERRORS_TOLD,
    Batch,
    BatchError,
    BatchLine,
    Saved,
    Work,
    moved,
    whole_lines,
)
from tertulia.core.files import PART_BYTES
from tertulia.gateway.bodies import parse_json
from tertulia.gateway.desk import Desk
from tertulia.gateway.problems import Problem

# Lines that one step reads: some three milliseconds of CPU, as others wait for their tokens.
_STEP_LINES: Final = 100
# Blank lines are no requests, but each costs a look: so many lines may there be in all for each
# request that there may be.
_LINES_EACH: Final = 2
_ID_CHARS: Final = 256  # enough for any name; each is kept until the batch is swept
_MARK: Final = b"\xef\xbb\xbf"  # what some editors put before UTF-8
_BLANK: Final = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class _Look:
    """What one step found: lines with their ends, and how far it came."""

    lines: tuple[bytes, ...]
    read_bytes: int
    is_end: bool


async def look_through(desk: Desk, work: Work) -> Saved:
    """The next lines of the file, by place and custom id; or what is wrong with it."""
    batch = work.batch
    if work.now >= batch.expires_at:
        return Saved(moved(batch, "expire", work.now))
    look = await _look(desk, batch)
    if isinstance(look, BatchError):
        return _refused(replace(batch, errors=(*batch.errors, look)), work)
    lines, errors = await _requests(desk, batch, look.lines)
    batch = replace(
        batch,
        read_bytes=look.read_bytes,
        read_lines=batch.read_lines + len(look.lines),
        total=batch.total + len(lines),
        errors=(*batch.errors, *errors)[:ERRORS_TOLD],
    )
    most = desk.rules.batches.lines
    if batch.total > most:
        told = BatchError("too_many_tasks", f"A batch may have {most} requests.")
        return _refused(replace(batch, errors=(*batch.errors, told), total=most), work)
    if batch.read_lines > _LINES_EACH * most:
        told = BatchError("too_many_lines", f"A file may have {_LINES_EACH * most} lines.")
        return _refused(replace(batch, errors=(*batch.errors, told)), work)
    if len(batch.errors) >= ERRORS_TOLD or (look.is_end and batch.errors):
        return _refused(batch, work)
    if look.is_end and batch.total == 0:
        told = BatchError("empty_file", "The file holds no request.")
        return _refused(replace(batch, errors=(told,)), work)
    if look.is_end:
        batch = moved(batch, "accept", work.now)
    return Saved(batch, lines=lines)


async def _look(desk: Desk, batch: Batch) -> _Look | BatchError:
    file = await desk.files.find(batch.owner, batch.input_file_id)
    if file is None:
        return BatchError("input_file_missing", "The input file is gone.", param="input_file_id")
    longest = desk.rules.batches.line_bytes
    # A long line is read whole or refused; most are short, and a part holds many.
    for size in (PART_BYTES, longest + 2):
        data = await desk.files.read(
            batch.owner, batch.input_file_id, at=batch.read_bytes, size=size
        )
        if data is None:
            continue
        is_end = batch.read_bytes + len(data) >= file.size
        lines, read = whole_lines(data, is_end=is_end, most=_STEP_LINES)
        if read or is_end:
            here = batch.read_bytes + read
            return _Look(lines, here, is_end=here >= file.size)
    return _too_long(batch.read_lines + 1, longest)


async def _requests(
    desk: Desk, batch: Batch, lines: Sequence[bytes]
) -> tuple[tuple[BatchLine, ...], list[BatchError]]:
    """The requests among these lines, and what is wrong with others."""
    found: list[BatchLine] = []
    errors: list[BatchError] = []
    at = batch.read_bytes
    for number, line in enumerate(lines, batch.read_lines + 1):
        start = line.removeprefix(_MARK) if at == 0 else line
        text = start.lstrip(_BLANK)
        first = at + len(line) - len(text)
        text = text.rstrip(_BLANK)
        at += len(line)
        if not text:
            continue
        if len(text) > desk.rules.batches.line_bytes:
            errors.append(_too_long(number, desk.rules.batches.line_bytes))
            continue
        custom_id = _custom_id(text, number, batch.endpoint)
        if isinstance(custom_id, BatchError):
            errors.append(custom_id)
        else:
            found.append(BatchLine(0, number, custom_id, first, len(text)))
    return await _unique(desk, batch, found, errors)


async def _unique(
    desk: Desk, batch: Batch, found: Sequence[BatchLine], errors: list[BatchError]
) -> tuple[tuple[BatchLine, ...], list[BatchError]]:
    """The lines whose custom id no earlier line of the file has, numbered on."""
    ids = [line.custom_id for line in found]
    seen = set(await desk.batch_work.taken(batch.owner, batch.id, ids)) if ids else set()
    kept: list[BatchLine] = []
    for line in found:
        if line.custom_id in seen:
            sentence = "An earlier line has the same custom_id."
            errors.append(BatchError("duplicate_custom_id", sentence, line.number, "custom_id"))
        else:
            seen.add(line.custom_id)
            kept.append(replace(line, n=batch.total + len(kept) + 1))
    return tuple(kept), sorted(errors, key=lambda error: error.line or 0)


def _custom_id(text: bytes, number: int, endpoint: str) -> str | BatchError:
    """The custom id of a line that is a request to the batch's endpoint; its body is looked at when
    it is its turn."""
    try:
        request: Any = parse_json(text)
    except Problem:
        return BatchError("invalid_json_line", "This line is not valid JSON in UTF-8.", number)
    if not isinstance(request, dict):
        return BatchError("invalid_json_line", "This line is not a JSON object.", number)
    for name in ("custom_id", "method", "url", "body"):
        if request.get(name) is None:
            sentence = f"The field {name} is missing."
            return BatchError("missing_required_parameter", sentence, number, name)
    custom_id = request["custom_id"]
    if not (
        isinstance(custom_id, str) and 0 < len(custom_id) <= _ID_CHARS and custom_id.isprintable()
    ):
        sentence = f"The custom_id must be 1 to {_ID_CHARS} printable characters."
        return BatchError("invalid_request", sentence, number, "custom_id")
    if request["method"] != "POST":
        return BatchError("invalid_request", "The method must be POST.", number, "method")
    if request["url"] != endpoint:
        sentence = "The url is not the endpoint of the batch."
        return BatchError("url_mismatch", sentence, number, "url")
    if not isinstance(request["body"], dict):
        return BatchError("invalid_request", "The body must be an object.", number, "body")
    return custom_id


def _too_long(number: int, longest: int) -> BatchError:
    return BatchError("line_too_long", f"A line may have {longest} bytes.", number)


def _refused(batch: Batch, work: Work) -> Saved:
    return Saved(moved(batch, "refuse", work.now))
