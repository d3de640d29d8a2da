"""An import counts what it did, and moves by its table alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tertulia.core.imports import (
    FRUITLESS_CLAIMS,
    IMPORT_TRANSITIONS,
    Found,
    Import,
    ImportState,
    NewImport,
    Progress,
    Taken,
    begun,
    compared,
    dated,
    failed,
    moved_on,
    tallied,
)
from tertulia.core.transcripts import Arrival, Flaw
from tertulia.core.types import Conversation, Message, Status

JOB = begun(NewImport("ana", "import_1", "file_1", 10), 5.0)
RUNNING = replace(moved_on(JOB, "claim"), epoch=1)


def arrival(n_messages: int) -> Arrival:
    one = Message("ana", "c", "m", None, 1, "user", "x", 0, "", Status.COMPLETED, 1.0)
    return Arrival(Conversation("ana", "c", "", "v1", 1, 1), (one,) * n_messages, "key", repaired=1)


def test_it_moves_by_its_table_alone() -> None:
    for state, steps in IMPORT_TRANSITIONS.items():
        job = replace(JOB, state=state)
        for event in ("claim", "complete", "fail", "cancel"):
            if event in steps:
                moved = moved_on(job, event)
                assert moved.state is steps[event]
                assert dated(moved, 9.0).ended_at == (9.0 if moved.state.is_final else None)
            else:
                with pytest.raises(ValueError, match=f"a {state} import can't {event}"):
                    moved_on(job, event)


def test_one_that_fails_says_why() -> None:
    ended = failed(RUNNING, "not_an_export", "It is none.")
    assert (ended.state, ended.failure) == (ImportState.FAILED, ("not_an_export", "It is none."))


def test_a_step_is_counted_by_what_became_of_its_conversations() -> None:
    whats: tuple[Arrival | Flaw, ...] = (
        arrival(3),
        Flaw("cycle", "A circle."),
        arrival(5),
        arrival(7),
    )
    found = tuple(Found(n, "s" * 500, what) for n, what in enumerate(whats, 1))
    assert Progress(RUNNING, found).arrivals == (whats[0], whats[2], whats[3])
    told = tallied(Progress(RUNNING, found), [Taken.MADE, Taken.KNOWN, Taken.DIFFERING], 9.0)
    assert (told.read, told.made, told.known, told.differing, told.refused) == (4, 1, 1, 1, 1)
    assert (told.messages, told.repaired) == (3, 1)
    assert [(one.n, one.code, len(one.source_id)) for one in told.left] == [
        (2, "cycle", 100),
        (4, "differs", 100),
    ]
    assert told.saved_epoch == 1
    assert tallied(Progress(replace(RUNNING, epoch=7)), [], 9.0).saved_epoch == 0


def test_one_that_gets_no_further_is_given_up() -> None:
    def taken_up(times: int) -> Import:
        return replace(RUNNING, epoch=times, saved_epoch=0)

    assert not taken_up(FRUITLESS_CLAIMS).is_fruitless
    assert taken_up(FRUITLESS_CLAIMS + 1).is_fruitless


def test_what_is_there_is_known_by_the_number_of_its_messages() -> None:
    assert compared(3, arrival(3)) is Taken.KNOWN
    assert compared(4, arrival(3)) is compared(2, arrival(3)) is Taken.DIFFERING
