"""Between rows and values of files and batches, for every database.

What a batch is looked up and claimed by has columns; all the rest is one JSON text, `details`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from tertulia.backends.sql.rows import Row, failure_of
from tertulia.core.batches import (
    Batch,
    BatchError,
    BatchLine,
    BatchStatus,
    LineState,
    LineTurn,
    OpenLine,
    turn_key,
)
from tertulia.core.files import PART_BYTES, FilePart, NewFile, StoredFile
from tertulia.core.types import Finish, Status, Usage

# Fields that are numbers and words as they are.
_PLAIN: Final = (
    "input_file_id",
    "output_file_id",
    "error_file_id",
    "endpoint",
    "metadata",
    "output_kept_s",
    "expires_at",
    "reached",
    "read_bytes",
    "read_lines",
    "total",
    "begun",
    "completed",
    "failed",
    "written",
    "output_bytes",
    "error_bytes",
    "is_expired",
    "resume_at",
)


def file_of(row: Row) -> StoredFile:
    """A row of `files`."""
    return StoredFile(
        owner=row["owner"],
        id=row["id"],
        name=row["name"],
        purpose=row["purpose"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        size=row["size"],
    )


def part_values(file: NewFile, part: FilePart) -> dict[str, Any]:
    """The columns of a part of a file, and of the file if it is the first."""
    assert len(part.data) <= PART_BYTES, len(part.data)
    return {
        "owner": file.owner,
        "id": file.id,
        "name": file.name,
        "purpose": file.purpose,
        "kept_s": file.kept_s,
        "first_byte": part.at,
        "length": len(part.data),
        "is_last": part.is_last,
        "data": part.data,
    }


def cut_out(rows: Sequence[Row], at: int, size: int) -> bytes:
    """The bytes between two places of the parts that hold them."""
    if not rows:
        return b""
    first: int = rows[0]["first_byte"]
    return b"".join(row["data"] for row in rows)[max(0, at - first) : at - first + size]


def batch_of(row: Row) -> Batch:
    """A row of `batches`."""
    details = json.loads(row["details"])
    return Batch(
        owner=row["owner"],
        id=row["id"],
        status=BatchStatus(row["status"]),
        created_at=row["created_at"],
        epoch=row["epoch"],
        errors=tuple(BatchError(*error) for error in details["errors"]),
        usage=Usage(*details["usage"]),
        **{name: details[name] for name in _PLAIN},
    )


def batch_values(batch: Batch) -> dict[str, Any]:
    """The columns of `batches` that follow from the batch alone."""
    details: dict[str, Any] = {name: getattr(batch, name) for name in _PLAIN}
    details["errors"] = [[e.code, e.message, e.line, e.param] for e in batch.errors]
    details["usage"] = [batch.usage.input, batch.usage.cached, batch.usage.output]
    return {
        "owner": batch.owner,
        "id": batch.id,
        "status": batch.status.value,
        "is_over": batch.status.is_final,
        "created_at": batch.created_at,
        "epoch": batch.epoch,
        "has_lines": batch.total > 0,
        "details": json.dumps(details, ensure_ascii=False),
    }


def line_of(row: Row) -> BatchLine:
    """A row of `batch_lines`."""
    return BatchLine(
        n=row["n"],
        number=row["number"],
        custom_id=row["custom_id"],
        at=row["first_byte"],
        size=row["size"],
        state=LineState(row["state"]),
        tries=row["tries"],
        retry_at=row["retry_at"],
        error=row["error"],
    )


def open_line_of(row: Row) -> OpenLine:
    """A line beside what its turn has come to."""
    if row["turn_status"] is None:
        return OpenLine(line_of(row), None)
    turn = LineTurn(
        status=Status(row["turn_status"]),
        finish=Finish(row["finish"]) if row["finish"] is not None else None,
        failure=failure_of(row["failure"]),
        usage=Usage(row["input_tokens"], row["cached_tokens"], row["output_tokens"]),
    )
    return OpenLine(line_of(row), turn)


def line_values(batch: Batch, line: BatchLine) -> dict[str, Any]:
    """The columns of `batch_lines`."""
    return {
        "owner": batch.owner,
        "batch_id": batch.id,
        "n": line.n,
        "number": line.number,
        "custom_id": line.custom_id,
        "first_byte": line.at,
        "size": line.size,
        "state": line.state.value,
        "tries": line.tries,
        "retry_at": line.retry_at,
        "error": line.error,
        "turn_key": turn_key(batch.id, line.n),
    }
