"""The promises of `Tasks` and `Summaries`, on every back end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tertulia.core.remembering import TRIES, Summary, Task, Title, summary_id
from tertulia.core.types import Failure, Status, Turn, Usage
from tests.conformance.world import (
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    message,
    note,
)

pytestmark = pytest.mark.anyio

LEASE = 10.0


async def want(
    backend: Backend,
    kind: str = "summary",
    upto: str = "m_r1",
    *,
    owner: str = "ana",
    place: str = "c_1",
    room: int = 200,
) -> bool:
    return await backend.tasks.want(owner, place, kind, upto, room_tokens=room)  # type: ignore[arg-type]  # a test's own words


async def taken(backend: Backend) -> Task:
    task = await backend.tasks.claim(lease_s=LEASE)
    assert task is not None
    return task


def summary(upto: str, text: str = "Ana likes ñandúes.\x00", **more: object) -> Summary:
    made = Summary(summary_id(upto, text), upto, None, text, 7, "small", "small-1", "1")
    return replace(made, **more)  # type: ignore[arg-type]  # a test's own words


async def summarised(backend: Backend, made: Summary, *, place: str = "c_1") -> None:
    assert await want(backend, upto=made.upto, place=place)
    assert await backend.tasks.finish(await taken(backend), made)


async def test_a_task_is_wanted_once_and_claimed_with_all_that_it_needs(backend: Backend) -> None:
    await conversation(backend)
    assert await want(backend)
    assert not await want(backend, room=900)
    assert await taken(backend) == Task("ana", "c_1", "summary", "m_r1", 200, tries=1, epoch=1)
    assert await backend.tasks.claim(lease_s=LEASE) is None
    assert not await want(backend)


async def test_one_of_each_kind_and_each_end_is_wanted_oldest_first(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend, "c_1", "c_2")
    found = []
    for kind, upto, place in (
        ("summary", "m_r2", "c_1"),
        ("title", "", "c_2"),
        ("summary", "m_r1", "c_1"),
        ("title", "", "c_1"),
    ):
        assert await want(backend, kind, upto, place=place)
        found.append((kind, upto, place))
        clock.pass_(1)
    tasks = [await taken(backend) for _ in found]
    assert [(task.kind, task.upto, task.conversation_id) for task in tasks] == found


async def test_nothing_is_wanted_of_what_is_not_there_or_another_owners(backend: Backend) -> None:
    await conversation(backend)
    assert not await want(backend, place="c_9")
    assert not await want(backend, owner="ben")
    assert await backend.tasks.claim(lease_s=LEASE) is None


async def test_two_claimers_never_get_the_same_task(backend: Backend) -> None:
    await conversation(backend)
    for n in range(6):
        assert await want(backend, upto=f"m_{n}")
    claims = [backend.tasks.claim(lease_s=LEASE) for _ in range(12)]
    tasks = [task for task in await asyncio.gather(*claims) if task is not None]
    # In a hurry one may be passed over, but it is there for the next.
    while (task := await backend.tasks.claim(lease_s=LEASE)) is not None:
        tasks.append(task)
    assert sorted(task.upto for task in tasks) == [f"m_{n}" for n in range(6)]


async def test_an_unrenewed_claim_passes_to_the_next_epoch(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    await want(backend)
    lost = await taken(backend)
    clock.pass_(LEASE - 1)
    assert await backend.tasks.renew(lost, lease_s=LEASE)
    clock.pass_(LEASE - 1)
    assert await backend.tasks.claim(lease_s=LEASE) is None
    clock.pass_(1)
    held = await taken(backend)
    assert (held.epoch, held.tries) == (2, 2)
    assert not await backend.tasks.renew(lost, lease_s=LEASE)
    assert not await backend.tasks.fail(lost, due_in_s=0.0)
    assert not await backend.tasks.finish(lost, summary("m_r1"))
    assert await backend.summaries.latest("ana", "c_1", ["m_r1"]) is None
    assert await backend.tasks.finish(held, summary("m_r1"))
    assert await backend.summaries.latest("ana", "c_1", ["m_r1"]) == summary("m_r1")
    assert not await backend.tasks.finish(held, summary("m_r1", "again"))


async def test_what_failed_comes_again_when_it_is_due(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend)
    await want(backend)
    assert await backend.tasks.fail(await taken(backend), due_in_s=20.0)
    clock.pass_(19)
    assert await backend.tasks.claim(lease_s=LEASE) is None
    clock.pass_(1)
    assert (await taken(backend)).tries == 2


async def test_what_was_given_up_is_not_wanted_again(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend)
    await want(backend)
    assert await backend.tasks.fail(await taken(backend), due_in_s=None)
    clock.pass_(1_000_000)
    assert await backend.tasks.claim(lease_s=LEASE) is None
    assert not await want(backend)


async def test_a_task_that_ends_its_workers_is_not_claimed_for_ever(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    await want(backend)
    for _ in range(TRIES):
        await taken(backend)
        clock.pass_(LEASE)
    assert await backend.tasks.claim(lease_s=LEASE) is None


async def test_a_models_title_takes_the_place_of_the_first_words_and_moves_nothing(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend, "c_1", "c_2")
    await answered(backend, message(1))
    clock.pass_(1)
    await answered(backend, message(2, conversation="c_2"))
    before = await backend.conversations.get("ana", "c_1")
    messages = await backend.messages.page("ana", "c_1", before=None, limit=10)
    assert before is not None
    assert (before.title, before.titled_by) == ("Title 1", "words")
    clock.pass_(1)
    await want(backend, "title", "")
    assert await backend.tasks.finish(await taken(backend), Title("Ñandúes and figs"))
    after = await backend.conversations.get("ana", "c_1")
    assert after == replace(before, title="Ñandúes and figs", titled_by="model")
    assert await backend.messages.page("ana", "c_1", before=None, limit=10) == messages
    for query, found in (("", ["c_2", "c_1"]), ("ÑANDÚES", ["c_1"]), ("Title 1", [])):
        page = await backend.conversations.list(
            "ana", cursor=None, limit=10, query=query, archived=False
        )
        assert [one.id for one in page.items] == found
    # The next message does not bring the first words back, and no other title is wanted.
    await answered(backend, message(3, parent_id="m_r1"))
    found_again = await backend.conversations.get("ana", "c_1")
    assert found_again is not None
    assert found_again.title == "Ñandúes and figs"
    branch = await backend.messages.branch("ana", "c_1", "m_u3")
    assert branch is not None
    assert branch.titled_by == "model"
    assert not await want(backend, "title", "")


async def test_a_title_that_a_person_gave_stays(backend: Backend) -> None:
    await conversation(backend)
    await want(backend, "title", "")
    held = await taken(backend)
    renamed = await backend.conversations.change("ana", "c_1", {"title": "Mine"})
    assert renamed is not None
    assert renamed.titled_by == "person"
    assert await backend.tasks.finish(held, Title("Theirs"))
    found = await backend.conversations.get("ana", "c_1")
    assert found == renamed
    assert not await want(backend, "title", "")
    assert await backend.tasks.claim(lease_s=LEASE) is None


async def test_a_title_that_a_person_took_away_may_come_from_a_model_again(
    backend: Backend,
) -> None:
    await conversation(backend)
    await backend.conversations.change("ana", "c_1", {"title": "Mine"})
    await backend.conversations.change("ana", "c_1", {"pinned": True})
    assert not await want(backend, "title", "")
    await backend.conversations.change("ana", "c_1", {"title": ""})
    assert await want(backend, "title", "")


async def test_a_branch_sees_the_newest_summary_of_its_own_messages(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    await summarised(backend, summary("m_r1"))
    await summarised(backend, summary("m_r2", "Ana likes figs.", previous_id="s_1"))
    await summarised(backend, summary("m_x2", "Ana likes peas."))
    summaries = backend.summaries
    for upto, text in (
        (["m_r1", "m_r2", "m_r3"], "Ana likes figs."),
        (["m_r1", "m_x2"], "Ana likes peas."),
        (["m_r1"], "Ana likes ñandúes.\x00"),
        (["m_r2", "m_r1"], "Ana likes ñandúes.\x00"),
    ):
        found = await summaries.latest("ana", "c_1", upto)
        assert found is not None
        assert found.text == text
    assert await summaries.latest("ana", "c_1", ["m_r3"]) is None
    assert await summaries.latest("ana", "c_1", []) is None
    assert await summaries.latest("ana", "c_2", ["m_r1"]) is None
    assert await summaries.latest("ben", "c_1", ["m_r1"]) is None


async def test_a_summary_is_found_by_its_id(backend: Backend) -> None:
    await conversation(backend)
    made = summary("m_r1", previous_id="s_0")
    await summarised(backend, made)
    assert await backend.summaries.find("ana", "c_1", made.id) == made
    assert await backend.summaries.find("ana", "c_2", made.id) is None
    assert await backend.summaries.find("ben", "c_1", made.id) is None
    assert await backend.summaries.find("ana", "c_1", "s_other") is None


async def test_a_second_summary_of_one_end_replaces_the_first(backend: Backend) -> None:
    await conversation(backend)
    await summarised(backend, summary("m_r1"))
    await summarised(backend, summary("m_r1", "Ana likes figs."))
    found = await backend.summaries.latest("ana", "c_1", ["m_r1"])
    assert found == summary("m_r1", "Ana likes figs.")


async def test_deleting_a_message_takes_every_summary_that_covers_it(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await answered(backend, message(2, parent_id="m_r1"))
    await answered(backend, message(3, parent_id="m_r1"))  # a branch beside it
    for end in ("m_r1", "m_r2", "m_r3"):
        await summarised(backend, summary(end))
    await want(backend, upto="m_u2")
    await want(backend, upto="m_u3")
    await want(backend, "title", "")
    assert await backend.branches.delete("ben", "m_u2") is None
    assert await backend.branches.delete("ana", "m_u2") == ()
    assert await backend.summaries.latest("ana", "c_1", ["m_r2"]) is None
    for kept in ("m_r1", "m_r3"):
        assert await backend.summaries.latest("ana", "c_1", [kept]) is not None
    left = {(await taken(backend)).upto for _ in range(2)}
    assert left == {"m_u3", ""}
    assert await backend.branches.delete("ana", "m_u1") == ()
    for gone in ("m_r1", "m_r3"):
        assert await backend.summaries.latest("ana", "c_1", [gone]) is None


async def test_deleting_a_conversation_takes_its_tasks_and_summaries_and_no_late_writer_brings_one(
    backend: Backend,
) -> None:
    await conversation(backend, "c_1", "c_2")
    await summarised(backend, summary("m_r1"))
    await want(backend, upto="m_r2")
    held = await taken(backend)
    await want(backend, upto="m_r3")
    await want(backend, upto="m_r1", place="c_2")
    await backend.conversations.delete("ana", "c_1")
    assert not await backend.tasks.renew(held, lease_s=LEASE)
    assert not await backend.tasks.finish(held, summary("m_r2"))
    assert not await backend.tasks.fail(held, due_in_s=0.0)
    assert not await want(backend)
    assert (await taken(backend)).conversation_id == "c_2"
    assert await backend.tasks.claim(lease_s=LEASE) is None
    await conversation(backend)  # should its id ever come back, nothing of it does
    assert await backend.summaries.latest("ana", "c_1", ["m_r1", "m_r2"]) is None


async def test_a_summary_that_is_stored_while_its_conversation_is_deleted_is_gone(
    backend: Backend,
) -> None:
    for n in range(12):
        place, end = f"c_{n}", f"m_{n}"
        await conversation(backend, place)
        await want(backend, upto=end, place=place)
        held = await taken(backend)
        await asyncio.gather(
            backend.tasks.finish(held, summary(end)),
            want(backend, upto="m_next", place=place),
            backend.conversations.delete("ana", place),
        )
        assert await backend.summaries.latest("ana", place, [end]) is None
        assert await backend.tasks.claim(lease_s=LEASE) is None


async def test_a_turn_keeps_the_summary_that_it_was_begun_with(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    turn = await admitted(backend, message(1))
    assert turn.summary_id is None
    held = await claimed(backend)
    assert await note(backend, held, summary_id="s_1")
    clock.pass_(60)
    again = await claimed(backend)
    assert again.summary_id == "s_1"


async def failed_with_summary(backend: Backend) -> Turn:
    await admitted(backend, message(1))
    held = await claimed(backend)
    assert await note(backend, held, summary_id="s_1")
    failure = Failure("replica_lost", "It broke off.", retryable=True)
    outcome = completed(
        status=Status.FAILED, finish=None, text="", usage=Usage(), ids=(), failure=failure
    )
    assert await backend.turns.finish(held.held, outcome)
    turn = await backend.turns.find("ana", "m_r1")
    assert turn is not None
    return turn


async def test_a_turn_that_is_run_again_may_have_a_newer_summary(backend: Backend) -> None:
    await conversation(backend)
    failed = await failed_with_summary(backend)
    assert failed.summary_id == "s_1"
    again = await admitted(backend, message(1))
    assert again.summary_id is None
    found = await backend.turns.find("ana", "m_r1")
    assert found is not None
    assert found.summary_id is None
