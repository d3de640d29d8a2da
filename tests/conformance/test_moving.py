"""The promises of `Transcripts`, `Imports` and `ImportWork`, on every back end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tertulia.core.deletions import DAY_S
from tertulia.core.imports import (
    FLAWS_TOLD,
    Found,
    Import,
    ImportState,
    Left,
    NewImport,
    Progress,
    TooManyImports,
    failed,
    moved_on,
)
from tertulia.core.transcripts import Arrival, Flaw, Node, Transcript, arranged
from tertulia.core.types import DayUse, Failure, Finish, Reason, Status, Usage
from tests.conformance.world import (
    START,
    Backend,
    ManualClock,
    admitted,
    answered,
    completed,
    conversation,
    message,
    stateless,
)

pytestmark = pytest.mark.anyio

LEASE = 30.0


async def test_what_was_used_is_summed_up_by_day_and_model(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    assert await backend.transcripts.used("ana", limit=9) == ()
    await answered(backend, message(1))
    await answered(backend, stateless(2))
    turn = await admitted(backend, message(3, parent_id="m_r1"))
    stopped = await backend.turns.seize("ana", turn.reply_id, "stopped")
    assert stopped is not None
    end = completed(status=Status.STOPPED, finish=Finish.STOPPED, usage=Usage())
    assert await backend.turns.finish(stopped.held, end)
    await answered(backend, stateless(4, owner="ben"))
    clock.pass_(DAY_S)
    await answered(backend, message(5, parent_id="m_r1"))
    await backend.conversations.delete("ana", "c_1")
    day = int(START // DAY_S)
    charged = (await backend.transcripts.used("ben", limit=9))[0].charged
    twice = Usage(200, 40, 100)
    first, second, third = await backend.transcripts.used("ana", limit=9)
    assert first == DayUse(day, None, 1, Usage(), 0)
    assert second == DayUse(day, "small-1", 2, twice, 2 * charged)
    assert third == DayUse(day + 1, "small-1", 1, Usage(100, 20, 50), charged)
    assert await backend.transcripts.used("ana", limit=1) == (third,)


async def created(backend: Backend, n: int = 1, *, owner: str = "ana", limit: int = 9) -> Import:
    made = await backend.imports.create(
        NewImport(owner, f"import_{n}", f"file_{n}", 1_000), limit=limit
    )
    assert isinstance(made, Import)
    return made


async def claimed_import(backend: Backend) -> Import:
    job = await backend.import_work.claim(lease_s=LEASE)
    assert job is not None
    return job


def nodes(n_exchanges: int) -> tuple[Node, ...]:
    found: list[Node] = []
    for n in range(n_exchanges):
        above = found[-1].id if found else None
        found.append(Node(f"q{n}", above, "user", f"Question {n} ñ", START - 100 + n))
        found.append(Node(f"a{n}", f"q{n}", "assistant", f"Answer {n}", START - 99 + n))
    return tuple(found)


def arrival(
    name: str, n_exchanges: int = 2, *, owner: str = "ana", import_id: str = "one", **more: object
) -> Arrival:
    transcript = Transcript("chatgpt", name, f"Title {name}", nodes(n_exchanges), START - 200)
    transcript = replace(transcript, **more)  # type: ignore[arg-type]  # a test's own words
    found = arranged(transcript, owner=owner, import_id=import_id, prompt_version="v1", now=START)
    assert isinstance(found, Arrival), found
    return found


def found(*whats: Arrival | Flaw) -> tuple[Found, ...]:
    return tuple(Found(n, f"source-{n}", what) for n, what in enumerate(whats, 1))


async def taken_in(backend: Backend, *whats: Arrival | Flaw) -> Import:
    await created(backend)
    job = await claimed_import(backend)
    told = await backend.import_work.save(Progress(job, found(*whats), lease_s=LEASE))
    assert told is not None
    return told


# What comes in.


async def test_a_conversation_comes_in_as_it_was_elsewhere(backend: Backend) -> None:
    tree = (
        Node("q", None, "user", "Why? ñandú", START - 50),
        Node(
            "a",
            "q",
            "assistant",
            "Because.",
            START - 49,
            model="lab-1",
            requested="auto",
            reason=Reason.AUTO,
            status=Status.STOPPED,
            finish=Finish.STOPPED,
            notices=("context_shortened", "a ñ"),
            feedback="up",
            why="It helped",
        ),
        Node("b", "q", "assistant", "", START - 48, status=Status.FAILED,
             failure=Failure("busy", "Too much", retryable=True)),
        Node("q2", "a", "user", "And?", START - 47),
    )  # fmt: skip
    new = arrival(
        "one", nodes=tree, updated_at=START - 5, pinned=True, archived=True, model="lab-1",
        head="b",
    )  # fmt: skip
    told = await taken_in(backend, new)
    assert (told.read, told.made, told.messages) == (1, 1, 4)
    its = new.conversation
    assert await backend.conversations.get("ana", its.id) == its
    listed = await backend.conversations.list("ana", cursor=None, limit=9, query="", archived=True)
    assert listed.items == (its,)
    page = await backend.messages.page("ana", its.id, before=None, limit=9)
    assert page is not None
    assert [one._replace(version=None) for one in page.items] == list(new.messages)
    assert [one.version.number for one in page.items if one.version] == [1, 1, 2, 1]
    copied = await backend.transcripts.messages("ana", its.id, after=0, limit=9)
    assert [one for one, _ in copied] == list(new.messages)
    assert [why for _, why in copied] == ["", "It helped", "", ""]
    branch = await backend.messages.branch("ana", its.id, new.messages[3].id)
    assert branch is not None
    assert [one.id for one in branch.messages] == [new.messages[n].id for n in (0, 1, 3)]


async def test_what_came_in_is_found_by_its_words_and_goes_on_as_any_other(
    backend: Backend,
) -> None:
    new = arrival("one")
    await taken_in(backend, new)
    page = await backend.conversations.list(
        "ana", cursor=None, limit=9, query="QUESTION 1 Ñ", archived=False
    )
    assert [one.id for one in page.items] == [new.conversation.id]
    last = new.messages[-1].id
    turn = await admitted(backend, message(1, conversation=new.conversation.id, parent_id=last))
    found_now = await backend.conversations.get("ana", new.conversation.id)
    assert found_now is not None
    assert found_now.head_message_id == turn.reply_id
    again = await backend.messages.page("ana", new.conversation.id, before=None, limit=9)
    assert again is not None
    assert [one.seq for one in again.items] == [1, 2, 3, 4, 5, 6]


async def test_the_same_again_makes_nothing_and_moves_nothing(backend: Backend) -> None:
    new = arrival("one")
    job = await taken_in(backend, new)
    await backend.conversations.change("ana", new.conversation.id, {"title": "Mine"})
    before = await backend.conversations.get("ana", new.conversation.id)
    again = arrival("one", import_id="two")
    told = await backend.import_work.save(Progress(job, found(new, again), lease_s=LEASE))
    assert told is not None
    assert (told.made, told.known, told.differing, told.messages) == (1, 2, 0, 4)
    assert await backend.conversations.get("ana", new.conversation.id) == before
    assert await backend.transcripts.count("ana") == 1


async def test_what_has_gone_on_since_is_left_alone_and_told(backend: Backend) -> None:
    new = arrival("one")
    job = await taken_in(backend, new)
    await answered(
        backend,
        message(1, conversation=new.conversation.id, parent_id=new.messages[-1].id),
    )
    before = await backend.messages.page("ana", new.conversation.id, before=None, limit=99)
    told = await backend.import_work.save(
        Progress(job, found(new, arrival("one", 9)), lease_s=LEASE)
    )
    assert told is not None
    assert (told.made, told.known, told.differing) == (1, 0, 2)
    assert [(one.n, one.source_id, one.code) for one in told.left] == [
        (1, "source-1", "differs"),
        (2, "source-2", "differs"),
    ]
    after = await backend.messages.page("ana", new.conversation.id, before=None, limit=99)
    assert after == before


async def test_ones_own_conversation_is_known_under_the_id_it_has_here(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    same = replace(arrival("c_1", 1), same_as="c_1")
    told = await taken_in(backend, same)
    assert (told.made, told.known) == (0, 1)
    assert await backend.transcripts.count("ana") == 1
    others = replace(arrival("c_1", 1, owner="ben"), same_as="c_1")
    told_others = await backend.import_work.save(Progress(told, found(others), lease_s=LEASE))
    assert told_others is not None
    assert told_others.made == 1


async def test_others_go_in_beside_what_is_refused(backend: Backend) -> None:
    flaw = Flaw("cycle", "In a circle.")
    told = await taken_in(backend, arrival("one"), flaw, arrival("two", 1), flaw)
    assert (told.read, told.made, told.refused, told.messages) == (4, 2, 2, 6)
    assert told.left == (
        Left(2, "source-2", "cycle", "In a circle."),
        Left(4, "source-4", "cycle", "In a circle."),
    )
    assert told.saved_epoch == told.epoch
    assert await backend.imports.find("ana", "import_1") == told
    more = await backend.import_work.save(
        Progress(told, found(*[flaw] * (FLAWS_TOLD + 5)), lease_s=LEASE)
    )
    assert more is not None
    assert (more.refused, len(more.left)) == (FLAWS_TOLD + 7, FLAWS_TOLD)


async def test_a_deleted_conversation_may_come_in_again(backend: Backend) -> None:
    new = arrival("one")
    job = await taken_in(backend, new)
    await backend.conversations.delete("ana", new.conversation.id)
    later = arrival("one", import_id="two")
    told = await backend.import_work.save(Progress(job, found(later), lease_s=LEASE))
    assert told is not None
    assert told.made == 2
    assert await backend.conversations.get("ana", new.conversation.id) is None
    assert await backend.conversations.get("ana", later.conversation.id) == later.conversation


# Imports as people see them.


async def test_an_import_is_found_by_its_owner_alone(backend: Backend) -> None:
    made = await created(backend)
    assert (made.state, made.created_at) == (ImportState.WAITING, START)
    assert await backend.imports.find("ana", "import_1") == made
    assert await backend.imports.find("ben", "import_1") is None
    assert await backend.imports.cancel("ben", "import_1") is None
    assert not await backend.imports.delete("ben", "import_1")
    assert not await backend.imports.delete("ben", None)
    assert await backend.imports.find("ana", "import_1") == made


async def test_an_owner_has_so_many_that_have_not_ended(backend: Backend) -> None:
    await created(backend, 1)
    new = NewImport("ana", "import_2", "file_2", 5)
    assert await backend.imports.create(new, limit=1) == TooManyImports(1)
    both = [backend.imports.create(replace(new, id=f"import_{n}"), limit=2) for n in range(2, 7)]
    answers = await asyncio.gather(*both)
    assert sum(isinstance(one, Import) for one in answers) == 1
    await backend.imports.create(replace(new, owner="ben", id="import_9"), limit=1)
    await backend.imports.cancel("ana", "import_1")
    assert isinstance(await backend.imports.create(replace(new, id="import_8"), limit=2), Import)


async def test_imports_are_listed_newest_first(backend: Backend) -> None:
    for n in range(1, 5):
        await created(backend, n)
    await created(backend, 5, owner="ben")
    first = await backend.imports.list("ana", after=None, limit=2)
    rest = await backend.imports.list("ana", after=first.next_cursor, limit=2)
    assert [one.id for one in first.items] == ["import_4", "import_3"]
    assert [one.id for one in rest.items] == ["import_2", "import_1"]
    assert rest.next_cursor is None


async def test_nothing_comes_in_after_a_cancel(backend: Backend, clock: ManualClock) -> None:
    await created(backend)
    job = await claimed_import(backend)
    clock.pass_(3)
    cancelled = await backend.imports.cancel("ana", "import_1")
    assert cancelled is not None
    assert (cancelled.state, cancelled.ended_at) == (ImportState.CANCELLED, START + 3)
    assert await backend.import_work.save(Progress(job, found(arrival("one")))) is None
    assert await backend.transcripts.count("ana") == 0
    assert await backend.imports.cancel("ana", "import_1") == cancelled
    clock.pass_(1_000)
    assert await backend.import_work.claim(lease_s=LEASE) is None


async def test_nothing_comes_in_after_a_deletion(backend: Backend) -> None:
    await created(backend, 1)
    await created(backend, 2)
    job = await claimed_import(backend)
    assert await backend.imports.delete("ana", "import_1")
    assert await backend.import_work.save(Progress(job, found(arrival("one")))) is None
    job = await claimed_import(backend)
    assert await backend.imports.delete("ana", None)
    assert await backend.import_work.save(Progress(job, found(arrival("one")))) is None
    assert await backend.transcripts.count("ana") == 0
    assert await backend.import_work.claim(lease_s=LEASE) is None


# Imports as work.


async def test_the_oldest_is_taken_up_first_and_by_one(
    backend: Backend, clock: ManualClock
) -> None:
    await created(backend, 2)
    clock.pass_(1)
    await created(backend, 1, owner="ben")
    taken = [job for job in await asyncio.gather(
        *[backend.import_work.claim(lease_s=LEASE) for _ in range(3)]
    ) if job is not None]  # fmt: skip
    assert sorted(job.id for job in taken) == ["import_1", "import_2"]
    assert {(job.state, job.epoch) for job in taken} == {(ImportState.RUNNING, 1)}


async def test_a_lease_that_ends_lets_another_go_on(backend: Backend, clock: ManualClock) -> None:
    await created(backend)
    old = await claimed_import(backend)
    clock.pass_(LEASE - 1)
    held = await backend.import_work.save(Progress(old, found(arrival("one")), lease_s=LEASE))
    assert held is not None
    clock.pass_(LEASE - 1)
    assert await backend.import_work.claim(lease_s=LEASE) is None
    clock.pass_(2)
    job = await claimed_import(backend)
    assert (job.epoch, job.read, job.made) == (2, 1, 1)
    assert await backend.import_work.save(Progress(held, found(arrival("two")))) is None
    assert await backend.transcripts.count("ana") == 1


async def test_a_released_import_is_due_at_once(backend: Backend) -> None:
    await created(backend)
    job = await claimed_import(backend)
    assert await backend.import_work.save(Progress(job, then="release")) == job
    assert (await claimed_import(backend)).epoch == 2


async def test_an_import_that_ended_is_taken_up_no_more(
    backend: Backend, clock: ManualClock
) -> None:
    await created(backend, 1)
    await created(backend, 2)
    done = moved_on(await claimed_import(backend), "complete")
    broken = failed(await claimed_import(backend), "not_an_export", "It is none.")
    for job in (done, broken):
        ended = replace(job, ended_at=START)
        assert await backend.import_work.save(Progress(job, then="release")) == ended
        assert await backend.imports.find("ana", job.id) == ended
    assert await backend.import_work.claim(lease_s=LEASE) is None
    clock.pass_(100)
    await created(backend, 3)
    assert await backend.import_work.sweep(kept_s=101) == 0
    assert await backend.import_work.sweep(kept_s=100) == 2
    assert [one.id for one in (await backend.imports.list("ana", after=None, limit=9)).items] == [
        "import_3"
    ]


# Everything of one owner.


async def test_an_owners_conversations_are_copied_out_in_pages(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2", "c_3")
    await conversation(backend, "c_0", owner="ben")
    await backend.conversations.change("ana", "c_2", {"archived": True})
    assert await backend.transcripts.count("ana") == 3
    first = await backend.transcripts.conversations("ana", after="", limit=2)
    rest = await backend.transcripts.conversations("ana", after="c_2", limit=2)
    assert [one.id for one in (*first, *rest)] == ["c_1", "c_2", "c_3"]
    assert [one.archived for one in (*first, *rest)] == [False, True, False]
    assert await backend.transcripts.count("nobody") == 0
    assert not await backend.transcripts.conversations("nobody", after="", limit=2)


async def test_messages_are_copied_out_oldest_first(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await backend.messages.rate("ana", "m_r1", "down", "Too short")
    first = await backend.transcripts.messages("ana", "c_1", after=0, limit=1)
    rest = await backend.transcripts.messages("ana", "c_1", after=1, limit=5)
    assert [(one.id, why) for one, why in (*first, *rest)] == [
        ("m_u1", ""),
        ("m_r1", "Too short"),
    ]
    assert rest[0][0].ids is None
    assert rest[0][0].feedback == "down"
    assert not await backend.transcripts.messages("ben", "c_1", after=0, limit=5)
