"""A batch of requests: its states, its lines, and what each round of its pump may do.

Pure decisions; stores keep the values, `gateway/pump.py` acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal

from tertulia.core.files import FilePart, NewFile
from tertulia.core.types import Failure, Finish, Status, Usage

# All that OpenAI offers, and so what programs ask for.
WINDOW_S: Final = 86_400.0
WINDOW_NAME: Final = "24h"
# A line whose answer broke off this often is given up: what it cost each time was charged.
TRIES: Final = 3
# These failures cost nothing: nobody was asked. Such a line is tried until the batch expires.
FREE_FAILURES: Final = frozenset(("busy", "replica_unavailable"))
# A line that failed is asked again after this, and after twice as long each time.
FIRST_PAUSE_S: Final = 2.0
LONGEST_PAUSE_S: Final = 60.0
# Errors that one look through a file tells: enough to see what is wrong with it.
ERRORS_TOLD: Final = 50


class BatchStatus(StrEnum):
    """Where a batch stands, in OpenAI's words."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return not BATCH_TRANSITIONS[self]


# status -> event -> next status. `docs/howto/batches.md` tells it.
BATCH_TRANSITIONS: Final[Mapping[BatchStatus, Mapping[str, BatchStatus]]] = {
    BatchStatus.VALIDATING: {
        "accept": BatchStatus.IN_PROGRESS,
        "refuse": BatchStatus.FAILED,
        "cancel": BatchStatus.CANCELLING,
        "expire": BatchStatus.FINALIZING,
    },
    BatchStatus.IN_PROGRESS: {
        "finish": BatchStatus.FINALIZING,
        "cancel": BatchStatus.CANCELLING,
        "expire": BatchStatus.FINALIZING,
    },
    BatchStatus.FINALIZING: {
        "complete": BatchStatus.COMPLETED,
        "lapse": BatchStatus.EXPIRED,
    },
    BatchStatus.CANCELLING: {"complete": BatchStatus.CANCELLED},
    BatchStatus.FAILED: {},
    BatchStatus.COMPLETED: {},
    BatchStatus.EXPIRED: {},
    BatchStatus.CANCELLED: {},
}


class LineState(StrEnum):
    """Where one line stands. An open one has a turn, or will be given one."""

    WAITING = "waiting"
    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BatchError:
    """Why a file was refused as a whole, in OpenAI's words. `line` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch at the door. Its results are kept for `output_kept_s` after they were written."""

    owner: str
    id: str
    key: str | None
    body_sha: str
    input_file_id: str
    output_file_id: str
    error_file_id: str
    endpoint: str
    metadata: Mapping[str, str] | None
    output_kept_s: float


@dataclass(frozen=True, slots=True)
class Batch:
    """A stored batch. `reached` says when each status began; times are the store's.

    Lines are numbered from 1 without the blank ones; `begun` and `written` are the last that was
    begun and the last whose result is in a file. `epoch` counts claims and cancels: only the
    holder of the last claim may save.
    """

    owner: str
    id: str
    input_file_id: str
    output_file_id: str
    error_file_id: str
    endpoint: str
    metadata: Mapping[str, str] | None
    output_kept_s: float
    status: BatchStatus
    created_at: float
    expires_at: float
    epoch: int = 0
    reached: Mapping[str, float] = field(default_factory=dict)
    errors: tuple[BatchError, ...] = ()
    read_bytes: int = 0
    read_lines: int = 0
    total: int = 0
    begun: int = 0
    completed: int = 0
    failed: int = 0
    written: int = 0
    output_bytes: int = 0
    error_bytes: int = 0
    usage: Usage = field(default_factory=Usage)
    is_expired: bool = False
    # No line is asked before: its owner has no budget, or there is no room.
    resume_at: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One request: where it is in the file, and how far it has come.

    `error` is what its line of the error file says (JSON), where no turn tells it. `retry_at` is
    0 unless its turn failed and was counted in `tries`.
    """

    n: int
    number: int
    custom_id: str
    at: int
    size: int
    state: LineState = LineState.WAITING
    tries: int = 0
    retry_at: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LineTurn:
    """What a line's turn has come to."""

    status: Status
    finish: Finish | None
    failure: Failure | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class OpenLine:
    """An open line and its turn, if there is one."""

    line: BatchLine
    turn: LineTurn | None


@dataclass(frozen=True, slots=True)
class Work:
    """A claimed batch at `now`, store's clock, and what else is going on.

    `open_elsewhere` are the lines of all other batches that wait or run as turns, `open_of_owner`
    those of its owner's: an open line that its owner has no budget for takes nobody's place.
    `batches` are those in progress, with this one, `of_owner` its owner's among them.
    """

    batch: Batch
    now: float
    open: tuple[OpenLine, ...]
    open_elsewhere: int
    open_of_owner: int
    batches: int
    of_owner: int


@dataclass(frozen=True, slots=True)
class Saved:
    """What one step changed, written together or not at all.

    `parts` are results, each with the file that it belongs to. Released, the batch may be claimed
    again from `due_at` on; else its claim goes on.
    """

    batch: Batch
    lines: tuple[BatchLine, ...] = ()
    parts: tuple[tuple[NewFile, FilePart], ...] = ()
    then: Literal["release", "hold"] = "release"
    due_at: float = 0.0


@dataclass(frozen=True, slots=True)
class TooManyBatches:
    """The owner has `limit` batches that have not ended."""

    limit: int


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The numbers of files and batches, fixed at start."""

    file_bytes: int = 50_000_000
    line_bytes: int = 1_000_000
    lines: int = 50_000
    user_bytes: int = 500_000_000
    # Files of a user: a list that grows without end is a mistake or worse.
    user_files: int = 1_000
    # Batches of a user that have not ended.
    user_batches: int = 20
    # Lines of everybody that wait or run as turns at once.
    open_lines: int = 32
    kept_s: float = 30 * 86_400.0
    # How often running lines are looked at.
    pause_s: float = 0.5
    # A step takes far less; a gateway that dies in one is replaced after this.
    lease_s: float = 10.0


class Step(StrEnum):
    """What to do about an open line."""

    KEEP = "keep"
    ASK = "ask"
    PAUSE = "pause"
    COMPLETE = "complete"
    FAIL = "fail"


def moved(batch: Batch, event: str, now: float) -> Batch:
    """The batch after `event`; ValueError when the table has no such step."""
    try:
        status = BATCH_TRANSITIONS[batch.status][event]
    except KeyError:
        raise ValueError(f"a {batch.status} batch can't {event}") from None
    return replace(
        batch,
        status=status,
        reached={**batch.reached, status.value: now},
        is_expired=batch.is_expired or event == "expire",
    )


def started(new: NewBatch, now: float) -> Batch:
    """The batch as its store keeps it first."""
    return Batch(
        owner=new.owner,
        id=new.id,
        input_file_id=new.input_file_id,
        output_file_id=new.output_file_id,
        error_file_id=new.error_file_id,
        endpoint=new.endpoint,
        metadata=new.metadata,
        output_kept_s=new.output_kept_s,
        status=BatchStatus.VALIDATING,
        created_at=now,
        expires_at=now + WINDOW_S,
    )


def turn_key(batch_id: str, n: int) -> str:
    """The key of a line's turn: the same at each try, so that no crash runs a line twice. Nobody
    else can send it, for keys of requests hold no space."""
    return f"batch {batch_id} {n}"


def next_step(open_line: OpenLine, now: float) -> Step:
    """What an open line needs, by its turn."""
    line, turn = open_line.line, open_line.turn
    if turn is None:
        return Step.ASK
    if not turn.status.is_final:
        return Step.KEEP
    if turn.status is not Status.FAILED:
        return Step.FAIL if turn.finish is Finish.ABANDONED else Step.COMPLETE
    if line.retry_at > 0:
        return Step.ASK if line.retry_at <= now else Step.KEEP
    failure = turn.failure
    if failure is None or not failure.retryable:
        return Step.FAIL
    is_free = failure.code in FREE_FAILURES
    return Step.PAUSE if is_free or line.tries + 1 < TRIES else Step.FAIL


def paused(open_line: OpenLine, now: float) -> BatchLine:
    """The line of a turn that failed and will be asked for again."""
    line, turn = open_line.line, open_line.turn
    assert turn is not None
    assert turn.failure is not None
    is_free = turn.failure.code in FREE_FAILURES
    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**line.tries)
    return replace(line, tries=line.tries + (not is_free), retry_at=now + pause_s)


def lines_to_begin(work: Work, *, own: int, open_lines: int, replies_running: int) -> int:
    """How many further lines this batch, which has `own` open ones now, may open.

    Batches share what may be open in all, and those of one owner share what he may have running.
    Where there are more batches than places, one whose line has ended leaves the place to another.
    """
    batches, of_owner = max(1, work.batches), max(1, work.of_owner)
    is_crowded = batches > open_lines or of_owner > replies_running
    if is_crowded and own < len(work.open):
        return 0
    share = max(1, min(open_lines // batches, replies_running // of_owner))
    room = min(open_lines - work.open_elsewhere, replies_running - work.open_of_owner) - own
    return max(0, min(share - own, room, work.batch.total - work.batch.begun))


def lines_to_ask(work: Work, *, open_lines: int) -> int:
    """How many lines of this batch may be brought to the door now, of those that have no turn."""
    turns = [open_line.turn for open_line in work.open]
    running = sum(turn is not None and not turn.status.is_final for turn in turns)
    return max(0, open_lines - work.open_elsewhere - running)


def whole_lines(data: bytes, *, is_end: bool, most: int) -> tuple[tuple[bytes, ...], int]:
    """The whole lines at the beginning of `data`, `most` at most, with their ends, and how many
    bytes they take. At the end of a file the last line needs no end of its own."""
    lines: list[bytes] = []
    at = 0
    while len(lines) < most and at < len(data):
        end = data.find(b"\n", at) + 1
        if end == 0:
            if not is_end:
                break
            end = len(data)
        lines.append(data[at:end])
        at = end
    return tuple(lines), at


def added(first: Usage, second: Usage) -> Usage:
    """The tokens of both."""
    return Usage(
        first.input + second.input,
        first.cached + second.cached,
        first.output + second.output,
    )
