"""The promises of `Batches` and `BatchWork`, on every back end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tertulia.core.batches import (
    WINDOW_S,
    Batch,
    BatchError,
    BatchLine,
    BatchStatus,
    LineState,
    NewBatch,
    Saved,
    TooManyBatches,
    Work,
    moved,
    turn_key,
)
from tertulia.core.files import FilePart, NewFile, parts_of
from tertulia.core.types import KeyReused, Status, Usage
from tests.conformance.world import (
    START,
    Backend,
    ManualClock,
    admitted,
    claimed,
    completed,
    stateless,
)

pytestmark = pytest.mark.anyio

LEASE = 10.0
LIMIT = 5


def new_batch(n: int, *, owner: str = "ana", **more: object) -> NewBatch:
    new = NewBatch(
        owner=owner,
        id=f"batch_{n}",
        key=f"key-{n}",
        body_sha=f"sha-{n}",
        input_file_id=f"file_{n}",
        output_file_id=f"file_{n}_out",
        error_file_id=f"file_{n}_err",
        endpoint="/v1/chat/completions",
        metadata={"for": "the ñandú"},
        output_kept_s=1_000.0,
    )
    return replace(new, **more)  # type: ignore[arg-type]  # a test's own words


async def created(backend: Backend, n: int, **more: object) -> Batch:
    made = await backend.batches.create(new_batch(n, **more), limit=LIMIT)  # type: ignore[arg-type]  # a test's own words
    assert isinstance(made, Batch)
    return made


async def work(backend: Backend) -> Work:
    found = await backend.batch_work.claim(lease_s=LEASE)
    assert found is not None
    return found


def lines(first: int, last: int, state: LineState = LineState.WAITING) -> tuple[BatchLine, ...]:
    return tuple(
        BatchLine(n, 2 * n, f"id {n}", at=n * 100, size=50 + n, state=state)
        for n in range(first, last + 1)
    )


async def in_progress(
    backend: Backend, n: int, n_lines: int, *, opened: int = 0, owner: str = "ana"
) -> Batch:
    """A batch with lines, the first `opened` of them open."""
    await created(backend, n, owner=owner)
    batch = (await work(backend)).batch
    batch = replace(moved(batch, "accept", START), total=n_lines, begun=opened)
    both = (*lines(1, opened, LineState.OPEN), *lines(opened + 1, n_lines))
    assert await backend.batch_work.save(Saved(batch, both))
    return batch


async def all_lines(backend: Backend, n: int) -> Sequence[BatchLine]:
    return await backend.batch_work.lines("ana", f"batch_{n}", after=0, limit=100)


# As people see them.


async def test_a_batch_is_found_as_it_was_made(backend: Backend) -> None:
    made = await created(backend, 1)
    assert made.status is BatchStatus.VALIDATING
    assert (made.created_at, made.expires_at) == (START, START + WINDOW_S)
    assert made.metadata == {"for": "the ñandú"}
    assert await backend.batches.find("ana", "batch_1") == made
    assert await backend.batches.find("ben", "batch_1") is None
    assert await backend.batches.find("ana", "batch_2") is None


async def test_the_same_key_makes_one_batch(backend: Backend) -> None:
    made = await created(backend, 1)
    again = new_batch(2, key="key-1", body_sha="sha-1")
    assert await backend.batches.create(again, limit=1) == made
    other = replace(again, body_sha="sha-2")
    assert await backend.batches.create(other, limit=LIMIT) == KeyReused()
    assert await backend.batches.find("ana", "batch_2") is None
    assert (await created(backend, 3, owner="ben", key="key-1")).owner == "ben"
    for n in (4, 5):
        assert (await created(backend, n, key=None)).id == f"batch_{n}"


async def test_an_owner_has_so_many_batches_that_have_not_ended(backend: Backend) -> None:
    await created(backend, 1)
    await created(backend, 2)
    assert await backend.batches.create(new_batch(3), limit=2) == TooManyBatches(2)
    assert await backend.batches.create(new_batch(3, owner="ben"), limit=2) != TooManyBatches(2)
    ended = moved((await work(backend)).batch, "refuse", START)
    assert await backend.batch_work.save(Saved(ended))
    assert await backend.batches.create(new_batch(4), limit=2) != TooManyBatches(2)


async def test_batches_made_at_the_same_moment_keep_to_the_limit(backend: Backend) -> None:
    asked = [backend.batches.create(new_batch(n), limit=3) for n in range(8)]
    answers = await asyncio.gather(*asked)
    assert sum(isinstance(answer, Batch) for answer in answers) == 3


async def test_batches_are_listed_newest_first_in_pages(backend: Backend) -> None:
    for n in range(1, 5):
        await created(backend, n)
    await created(backend, 5, owner="ben")
    page = await backend.batches.list("ana", after=None, limit=3)
    assert [batch.id for batch in page.items] == ["batch_4", "batch_3", "batch_2"]
    assert page.next_cursor == "batch_2"
    page = await backend.batches.list("ana", after="batch_2", limit=3)
    assert ([batch.id for batch in page.items], page.next_cursor) == (["batch_1"], None)


async def test_cancelling_takes_the_batch_from_whoever_has_it(
    backend: Backend, clock: ManualClock
) -> None:
    await in_progress(backend, 1, 3)
    held = await work(backend)
    clock.pass_(1)
    cancelled = await backend.batches.cancel("ana", "batch_1")
    assert cancelled is not None
    assert cancelled.status is BatchStatus.CANCELLING
    assert cancelled.reached["cancelling"] == START + 1
    assert cancelled.epoch > held.batch.epoch
    assert not await backend.batch_work.save(Saved(replace(held.batch, completed=1)))
    assert (await work(backend)).batch.status is BatchStatus.CANCELLING


async def test_a_batch_that_ends_already_is_not_cancelled(backend: Backend) -> None:
    await in_progress(backend, 1, 1)
    batch = moved((await work(backend)).batch, "finish", START)
    assert await backend.batch_work.save(Saved(batch))
    assert await backend.batches.cancel("ana", "batch_1") == batch
    assert await backend.batches.cancel("ben", "batch_1") is None
    assert await backend.batches.cancel("ana", "batch_9") is None


async def test_cancelling_twice_changes_nothing_more(backend: Backend) -> None:
    await created(backend, 1)
    once = await backend.batches.cancel("ana", "batch_1")
    assert await backend.batches.cancel("ana", "batch_1") == once


async def test_a_deleted_owners_batches_are_gone_for_everybody(backend: Backend) -> None:
    await in_progress(backend, 1, 2)
    await created(backend, 2, owner="ben")
    held = await work(backend)
    await backend.batches.delete(held.batch.owner)
    assert await backend.batches.find(held.batch.owner, held.batch.id) is None
    assert not await backend.batch_work.save(Saved(held.batch))
    left = {"ana", "ben"} - {held.batch.owner}
    assert (await work(backend)).batch.owner in left
    assert await backend.batch_work.claim(lease_s=LEASE) is None
    assert (await backend.batches.list(held.batch.owner, after=None, limit=9)).items == ()


# As work.


async def test_a_claim_is_one_pumps_until_its_lease_ends(
    backend: Backend, clock: ManualClock
) -> None:
    await created(backend, 1)
    first = await work(backend)
    assert first.now == START
    assert first.batch.epoch == 1
    assert await backend.batch_work.claim(lease_s=LEASE) is None
    clock.pass_(LEASE)
    second = await work(backend)
    assert second.batch.epoch == 2
    assert not await backend.batch_work.save(Saved(first.batch))
    assert await backend.batch_work.save(Saved(second.batch))


async def test_two_pumps_never_claim_the_same(backend: Backend) -> None:
    for n in range(3):
        await created(backend, n)
    found = await asyncio.gather(*(backend.batch_work.claim(lease_s=LEASE) for _ in range(5)))
    ids = sorted(claimed.batch.id for claimed in found if claimed is not None)
    assert ids == ["batch_0", "batch_1", "batch_2"]


async def test_the_batch_that_was_saved_longest_ago_goes_first(
    backend: Backend, clock: ManualClock
) -> None:
    for n in (1, 2, 3):
        await created(backend, n)
    order = []
    for _ in range(6):
        held = await work(backend)
        order.append(held.batch.id)
        clock.pass_(1)
        assert await backend.batch_work.save(Saved(held.batch))
    assert order == ["batch_1", "batch_2", "batch_3"] * 2


async def test_a_batch_is_claimed_when_it_is_due(backend: Backend, clock: ManualClock) -> None:
    await created(backend, 1)
    held = await work(backend)
    assert await backend.batch_work.save(Saved(held.batch, due_at=START + 5))
    clock.pass_(4)
    assert await backend.batch_work.claim(lease_s=LEASE) is None
    clock.pass_(1)
    assert (await work(backend)).batch.id == "batch_1"


async def test_saving_keeps_every_field(backend: Backend) -> None:
    await created(backend, 1)
    batch = replace(
        moved((await work(backend)).batch, "expire", START + 1.5),
        errors=(BatchError("code", "Wörter", 3, "custom_id"), BatchError("code", "words")),
        read_bytes=1,
        read_lines=2,
        total=3,
        begun=4,
        completed=5,
        failed=6,
        written=7,
        output_bytes=8,
        error_bytes=9,
        usage=Usage(10, 11, 12),
        resume_at=13.5,
    )
    assert await backend.batch_work.save(Saved(batch, then="hold"))
    assert await backend.batches.find("ana", "batch_1") == batch
    assert await backend.batch_work.claim(lease_s=LEASE) is None  # it is still held
    assert await backend.batch_work.save(Saved(batch))


async def test_lines_are_kept_in_order_and_changed_in_place(backend: Backend) -> None:
    batch = await in_progress(backend, 1, 5)
    assert await all_lines(backend, 1) == lines(1, 5)
    held = await work(backend)
    third = replace(
        lines(3, 3)[0], state=LineState.FAILED, tries=2, retry_at=7.5, error='{"error": "Ø"}'
    )
    assert await backend.batch_work.save(Saved(held.batch, (third,)))
    found = await all_lines(backend, 1)
    assert found == (*lines(1, 2), third, *lines(4, 5))
    page = await backend.batch_work.lines("ana", batch.id, after=1, limit=2)
    assert [line.n for line in page] == [2, 3]
    assert await backend.batch_work.lines("ben", batch.id, after=0, limit=9) == ()


async def test_a_superseded_save_writes_nothing(backend: Backend) -> None:
    await in_progress(backend, 1, 2)
    held = await work(backend)
    await backend.batches.cancel("ana", "batch_1")
    file = NewFile("ana", "file_1_out", "out", "batch_output", 100.0)
    part = FilePart(0, b"x", is_last=True)
    saved = Saved(held.batch, lines(1, 9, LineState.OPEN), ((file, part),))
    assert not await backend.batch_work.save(saved)
    assert await all_lines(backend, 1) == lines(1, 2)
    assert await backend.files.find("ana", "file_1_out") is None


async def test_custom_ids_that_a_batch_has_are_known(backend: Backend) -> None:
    await in_progress(backend, 1, 3)
    asked = ["id 3", "id 4", "id 1"]
    assert await backend.batch_work.taken("ana", "batch_1", asked) == {"id 1", "id 3"}
    assert await backend.batch_work.taken("ana", "batch_1", []) == frozenset()


async def test_results_are_written_with_the_batch(backend: Backend) -> None:
    await in_progress(backend, 1, 1)
    file = NewFile("ana", "file_1_out", "out.jsonl", "batch_output", 100.0)
    held = await work(backend)
    for at, data, last in ((0, b"one\n", "more"), (4, b"", "last")):
        parts = parts_of(at, data, last="last" if last == "last" else "more")
        saved = Saved(held.batch, parts=tuple((file, part) for part in parts), then="hold")
        assert await backend.batch_work.save(saved)
    found = await backend.files.find("ana", "file_1_out")
    assert found is not None
    assert (found.purpose, found.size, found.expires_at) == ("batch_output", 4, START + 100.0)
    assert await backend.files.read("ana", "file_1_out", at=0, size=9) == b"one\n"


async def test_results_that_nobody_may_keep_stop_no_batch(backend: Backend) -> None:
    await in_progress(backend, 1, 1)
    file = NewFile("ana", "file_1_out", "out.jsonl", "batch_output", 100.0)
    held = await work(backend)
    first = ((file, FilePart(0, b"a", is_last=False)),)
    assert await backend.batch_work.save(Saved(held.batch, parts=first, then="hold"))
    await backend.files.delete("ana", None)
    second = ((file, FilePart(1, b"b", is_last=True)),)
    assert await backend.batch_work.save(Saved(moved(held.batch, "finish", START), parts=second))
    assert await backend.files.find("ana", "file_1_out") is None


async def test_open_lines_come_with_their_turns(backend: Backend) -> None:
    await in_progress(backend, 1, 4, opened=3)
    for n in (1, 2):
        await admitted(backend, stateless(n, key=turn_key("batch_1", n)))
    await admitted(backend, stateless(3, owner="ben", key=turn_key("batch_1", 3)))
    turn = await claimed(backend)
    assert await backend.turns.finish(turn.held, completed())
    held = await work(backend)
    assert [(line.line.n, line.turn and line.turn.status) for line in held.open] == [
        (1, Status.COMPLETED),
        (2, Status.QUEUED),
        (3, None),
    ]
    assert held.open[0].turn is not None
    assert held.open[0].turn.usage == completed().usage


async def test_a_claim_tells_what_goes_on_beside_it(backend: Backend) -> None:
    await in_progress(backend, 1, 3, opened=2)
    await in_progress(backend, 2, 3, opened=1, owner="ben")
    await in_progress(backend, 3, 3, opened=3)
    await created(backend, 4)
    # Lines that have no turn, or whose turn has ended, take nobody's place.
    await admitted(backend, stateless("ended", key=turn_key("batch_3", 1)))
    assert await backend.turns.finish((await claimed(backend)).held, completed())
    for n, name in ((1, "batch_1"), (2, "batch_1"), (2, "batch_3")):
        await admitted(backend, stateless(f"{name} {n}", key=turn_key(name, n)))
    seen = {}
    for _ in range(4):
        held = await work(backend)
        seen[held.batch.id] = (
            len(held.open),
            held.open_elsewhere,
            held.open_of_owner,
            held.batches,
            held.of_owner,
        )
    assert seen == {
        "batch_1": (2, 1, 1, 3, 2),
        "batch_2": (1, 3, 0, 3, 1),
        "batch_3": (3, 2, 2, 3, 2),
        "batch_4": (0, 3, 3, 3, 2),
    }


async def test_sweeping_removes_lines_and_old_batches(backend: Backend, clock: ManualClock) -> None:
    await in_progress(backend, 1, 5)
    await in_progress(backend, 2, 2)
    for _ in range(2):
        held = await work(backend)
        if held.batch.id == "batch_1":
            ended = moved(moved(held.batch, "finish", START), "complete", START)
            assert await backend.batch_work.save(Saved(ended))
    sweep = backend.batch_work.sweep
    assert [await sweep(rows=3, kept_s=100.0) for _ in range(3)] == [3, 2, 0]
    assert await backend.batches.find("ana", "batch_1") is not None
    assert await all_lines(backend, 1) == ()
    assert len(await all_lines(backend, 2)) == 2
    clock.pass_(100.0)
    assert await sweep(rows=3, kept_s=100.0) == 0
    assert await backend.batches.find("ana", "batch_1") is None
    assert await backend.batches.find("ana", "batch_2") is not None  # it has not ended
    await backend.batches.delete("ana")
    assert [await sweep(rows=9, kept_s=1e9) for _ in range(2)] == [2, 0]
