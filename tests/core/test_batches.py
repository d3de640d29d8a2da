"""What a batch may do next: its states, its lines and its share of the room."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tertulia.core.batches import (
    BATCH_TRANSITIONS,
    FIRST_PAUSE_S,
    FREE_FAILURES,
    LONGEST_PAUSE_S,
    TRIES,
    WINDOW_S,
    BatchLine,
    BatchStatus,
    LineState,
    LineTurn,
    NewBatch,
    OpenLine,
    Step,
    Work,
    added,
    lines_to_ask,
    lines_to_begin,
    moved,
    next_step,
    paused,
    started,
    turn_key,
    whole_lines,
)
from tertulia.core.files import PART_BYTES, parts_of
from tertulia.core.types import Failure, Finish, Status, Usage

NEW = NewBatch(
    owner="ana",
    id="batch_1",
    key=None,
    body_sha="sha",
    input_file_id="file_1",
    output_file_id="file_2",
    error_file_id="file_3",
    endpoint="/v1/chat/completions",
    metadata=None,
    output_kept_s=60.0,
)
BATCH = started(NEW, 1_000.0)
LINE = BatchLine(n=1, number=1, custom_id="a", at=0, size=10, state=LineState.OPEN)
OPEN = [status for status in BatchStatus if not status.is_final]


def of_turn(
    status: Status, code: str | None = None, *, retryable: bool = True, **more: object
) -> OpenLine:
    failure = None if code is None else Failure(code, "words", retryable)
    turn = LineTurn(status, Finish.STOP, failure, Usage(10, 2, 3))
    return OpenLine(replace(LINE, **more), turn)  # type: ignore[arg-type]  # a test's own words


def test_a_new_batch_is_looked_through_and_has_a_day() -> None:
    assert BATCH.status is BatchStatus.VALIDATING
    assert BATCH.expires_at == BATCH.created_at + WINDOW_S


@pytest.mark.parametrize("status", BatchStatus)
@pytest.mark.parametrize(
    "event", ["accept", "refuse", "cancel", "expire", "finish", "complete", "lapse"]
)
def test_a_batch_moves_by_the_table_and_notes_when(status: BatchStatus, event: str) -> None:
    batch = replace(BATCH, status=status)
    after = BATCH_TRANSITIONS[status].get(event)
    if after is None:
        with pytest.raises(ValueError, match=f"a {status} batch can't {event}"):
            moved(batch, event, 5.0)
        return
    there = moved(batch, event, 5.0)
    assert there.status is after
    assert there.reached[after] == 5.0
    assert there.is_expired is (event == "expire")


def test_every_batch_can_come_to_an_end() -> None:
    ends = {status for status in BatchStatus if status.is_final}
    while more := {s for s in OPEN if s not in ends and ends & {*BATCH_TRANSITIONS[s].values()}}:
        ends |= more
    assert ends == {*BatchStatus}


def test_a_cancelled_batch_is_cancelled_in_the_end_and_an_expired_one_expired() -> None:
    expired = moved(moved(BATCH, "accept", 1.0), "expire", 2.0)
    assert moved(expired, "lapse", 3.0).status is BatchStatus.EXPIRED
    assert moved(moved(BATCH, "cancel", 1.0), "complete", 2.0).status is BatchStatus.CANCELLED


def test_a_lines_turn_has_one_key_that_no_caller_can_send() -> None:
    keys = {turn_key(name, n) for name in ("batch_1", "batch_11") for n in range(1, 12)}
    assert len(keys) == 22
    assert all(" " in key for key in keys)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (OpenLine(LINE, None), Step.ASK),
        (of_turn(Status.QUEUED), Step.KEEP),
        (of_turn(Status.RUNNING), Step.KEEP),
        (of_turn(Status.COMPLETED), Step.COMPLETE),
        (of_turn(Status.STOPPED), Step.COMPLETE),
        (of_turn(Status.REFUSED), Step.COMPLETE),
        (of_turn(Status.FAILED), Step.FAIL),
        (of_turn(Status.FAILED, "replica_refused", retryable=False), Step.FAIL),
        (of_turn(Status.FAILED, "replica_lost"), Step.PAUSE),
        (of_turn(Status.FAILED, "replica_lost", tries=TRIES - 1), Step.FAIL),
        (of_turn(Status.FAILED, "busy", tries=TRIES - 1), Step.PAUSE),
        (of_turn(Status.FAILED, "replica_lost", retry_at=2_000.1, tries=1), Step.KEEP),
        (of_turn(Status.FAILED, "replica_lost", retry_at=2_000.0, tries=1), Step.ASK),
    ],
)
def test_what_an_open_line_needs(line: OpenLine, step: Step) -> None:
    assert next_step(line, 2_000.0) is step


def test_a_line_that_nobody_followed_failed() -> None:
    given_up = of_turn(Status.STOPPED)
    assert given_up.turn is not None
    turn = replace(given_up.turn, finish=Finish.ABANDONED)
    assert next_step(replace(given_up, turn=turn), 2_000.0) is Step.FAIL


@given(code=st.sampled_from([*FREE_FAILURES, "replica_lost", "internal"]), data=st.data())
def test_a_line_that_costs_something_each_time_is_not_tried_for_ever(
    code: str, data: st.DataObject
) -> None:
    line, now, n_paid = LINE, 0.0, 0
    for _ in range(40):
        failed = of_turn(Status.FAILED, code, tries=line.tries, retry_at=line.retry_at)
        step = next_step(failed, now)
        if step is Step.FAIL:
            break
        if step is Step.PAUSE:
            n_paid += code not in FREE_FAILURES
            line = paused(failed, now)
            assert now + FIRST_PAUSE_S <= line.retry_at <= now + LONGEST_PAUSE_S
        elif step is Step.ASK:
            line = replace(line, retry_at=0.0)
        now += data.draw(st.integers(0, 100))
    assert n_paid < TRIES
    if code in FREE_FAILURES:
        assert line.tries == 0


@given(
    were_open=st.integers(0, 50),
    ended=st.integers(0, 50),
    others=st.integers(0, 50),
    strangers=st.integers(0, 50),
    batches=st.integers(0, 50),
    of_owner=st.integers(0, 50),
    open_lines=st.integers(1, 64),
    replies=st.integers(1, 64),
    left=st.integers(0, 100),
)
def test_no_batch_takes_more_than_its_share(
    were_open: int,
    ended: int,
    others: int,
    strangers: int,
    batches: int,
    of_owner: int,
    open_lines: int,
    replies: int,
    left: int,
) -> None:
    own = max(0, were_open - ended)
    n = lines_to_begin(
        Work(
            batch=replace(BATCH, total=100, begun=100 - left),
            now=2_000.0,
            open=(OpenLine(LINE, None),) * were_open,
            open_elsewhere=others + strangers,
            open_of_owner=others,
            batches=batches,
            of_owner=of_owner,
        ),
        own=own,
        open_lines=open_lines,
        replies_running=replies,
    )
    assert 0 <= n <= left
    if n:
        assert own + others + strangers + n <= open_lines
        assert own + others + n <= replies
        assert own + n <= max(1, open_lines // max(1, batches))
        assert own + n <= max(1, replies // max(1, of_owner))
    has_room = others + strangers < open_lines and others < replies
    if left and not were_open and has_room:
        assert n, "whoever has none gets one while there is room for it"
    if were_open > own and (batches > open_lines or of_owner > replies):
        assert n == 0, "it leaves its place to another"


@given(
    running=st.integers(0, 20),
    waiting=st.integers(0, 20),
    elsewhere=st.integers(0, 20),
    open_lines=st.integers(1, 30),
)
def test_what_waited_is_asked_for_within_the_room_of_all(
    running: int, waiting: int, elsewhere: int, open_lines: int
) -> None:
    lines = (
        *(of_turn(Status.RUNNING),) * running,
        *(OpenLine(LINE, None),) * waiting,
        of_turn(Status.COMPLETED),
    )
    n = lines_to_ask(
        Work(BATCH, 2_000.0, lines, elsewhere, 0, batches=1, of_owner=1), open_lines=open_lines
    )
    taken = running + elsewhere
    assert n == 0 if taken >= open_lines else taken + n == open_lines


@given(
    data=st.lists(st.sampled_from([b"", b"a", b"\r", b"long" * 5]), max_size=8).map(b"\n".join),
    size=st.integers(1, 12),
    most=st.integers(1, 3),
)
def test_a_file_read_in_steps_gives_each_line_once(data: bytes, size: int, most: int) -> None:
    found: list[bytes] = []
    at = 0
    while at < len(data):
        window = size
        while True:
            piece = data[at : at + window]
            is_end = at + len(piece) == len(data)
            lines, read = whole_lines(piece, is_end=is_end, most=most)
            assert len(lines) <= most
            if read:
                break
            window *= 2
        assert b"".join(lines) == piece[:read]
        found += lines
        at += read
    assert found == data.splitlines(keepends=True) or b"\r" in data
    assert b"".join(found) == data
    assert all(line.endswith(b"\n") for line in found[:-1])
    assert all(line.count(b"\n") <= 1 for line in found)


@given(at=st.integers(0, 5), size=st.sampled_from([0, 1, PART_BYTES, PART_BYTES + 1]))
@pytest.mark.parametrize("last", ["last", "more"])
def test_bytes_are_cut_into_parts(at: int, size: int, last: str) -> None:
    data = bytes(size)
    parts = parts_of(at, data, last="last" if last == "last" else "more")
    assert b"".join(part.data for part in parts) == data
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [last == "last"]
    assert all(len(part.data) <= PART_BYTES for part in parts)
    assert [part.at for part in parts] == [
        at + sum(len(part.data) for part in parts[:n]) for n in range(len(parts))
    ]


def test_tokens_are_added_part_by_part() -> None:
    assert added(Usage(1, 2, 3), Usage(10, 20, 30)) == Usage(11, 22, 33)
