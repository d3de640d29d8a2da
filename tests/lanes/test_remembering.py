"""Titles and summaries are made behind everybody's back, checked, bounded and paid by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tertulia.core.kept_words import with_kept
from tertulia.core.prompt import SUMMARY_OPENING, SUMMARY_TOKENS
from tertulia.core.remembering import RETRY_S, TITLE_TOKENS, Summary, Task, Title, asked_tokens
from tertulia.core.types import Conversation, GenerateRequest, Lane, Said, Status
from tertulia.ports import ReplicaLost, ReplicaRefused
from tertulia.worker.remember import NotYet, make
from tertulia.worker.tasks import do_tasks
from tests.lanes.gateway_rig import (
    FORBIDDEN,
    PLANS,
    ScriptedReplicas,
    ask,
    events,
    new_conversation,
    rig,
    until,
)
from tests.lanes.memory_desk import (
    OWNER,
    PLACE,
    PLAN,
    SERVED,
    WINDOW,
    Scribe,
    ShortLetters,
    Talk,
    words,
)

pytestmark = pytest.mark.anyio

LONG = "It goes on and on. " * 4


async def talk_of(turns: int, replicas: Scribe) -> Talk:
    talk = Talk(replicas)
    await talk.open()
    await talk.turn("My code word is quince.", "I see. ")
    for n in range(turns):
        await talk.turn(f"Question {n}. {LONG}", f"Answer {n}. ")
    return talk


async def claimed(talk: Talk, kind: str) -> Task:
    """The first task of the kind; the others are left for later."""
    while True:
        task = await talk.backend.tasks.claim(lease_s=10)
        assert task is not None
        if task.kind == kind:
            return task


async def conversation(talk: Talk) -> Conversation:
    found = await talk.backend.conversations.get(OWNER, PLACE)
    assert found is not None
    return found


async def test_a_title_is_asked_of_the_conversations_model_behind_everybody_else() -> None:
    replicas = Scribe(lambda _: '"Quinces, mostly."', states=("large", "small"))
    talk = await talk_of(0, replicas)
    assert await make(talk.desk, await claimed(talk, "title")) == Title("Quinces, mostly")
    (request,) = replicas.asked
    assert (request.model, request.priority) == (SERVED, Lane.BATCH)
    assert (request.cache_salt, request.session_id) == (OWNER, PLACE)
    assert request.max_tokens == TITLE_TOKENS
    # The platform's part is shared; what follows is the owner's alone.
    assert words(request.prompt[: request.shared_tokens]) == "Be kind."
    assert "My code word is quince." in words(request.prompt)
    assert "I see. " in words(request.prompt)


async def test_where_there_is_no_small_model_another_one_is_asked() -> None:
    replicas = Scribe(lambda _: "Quinces", states=("large",))
    talk = await talk_of(0, replicas)
    await make(talk.desk, await claimed(talk, "title"))
    assert replicas.asked[0].model == "lab/large-8b"


async def test_a_summary_goes_on_from_the_one_before_and_reads_no_more_than_is_new() -> None:
    replicas = Scribe(lambda request: f"Part of {len(request.prompt)}.")
    talk = await talk_of(12, replicas)
    first = await make(talk.desk, task := await claimed(talk, "summary"))
    assert isinstance(first, Summary)
    assert (first.previous_id, first.model, first.upto) == (None, SERVED, task.upto)
    assert first.tokens == len(first.text)
    await talk.backend.tasks.finish(task, first)
    for n in range(12):
        await talk.turn(f"More {n}. {LONG}", f"Yes {n}. ")
    second = await make(talk.desk, task := await claimed(talk, "summary"))
    assert isinstance(second, Summary)
    assert second.previous_id == first.id
    asked = words(replicas.asked[-1].prompt)
    assert SUMMARY_OPENING + first.text in asked
    assert "Question 0." not in asked
    assert replicas.asked[-1].max_tokens == asked_tokens(task.room_tokens)


async def test_a_long_history_is_read_piece_by_piece_and_fits_each_time() -> None:
    replicas = Scribe(lambda request: f"After {len(request.prompt)}.")
    talk = await talk_of(40, replicas)
    task = await claimed(talk, "summary")  # nobody could make it for long: it covers almost all
    made = await make(talk.desk, task)
    while (later := await talk.backend.tasks.claim(lease_s=10)) is not None:
        task, made = later, await make(talk.desk, later)
    assert isinstance(made, Summary)
    n_last = sum(
        request.request_id.startswith(f"task-{PLACE}-summary-{task.upto}-")
        for request in replicas.asked
    )
    assert n_last > 1
    assert len({request.request_id for request in replicas.asked}) == len(replicas.asked)
    for request in replicas.asked:
        assert len(request.prompt) + request.max_tokens <= WINDOW


async def test_a_message_longer_than_a_model_reads_at_once_is_shortened_in_the_middle() -> None:
    replicas = Scribe()
    talk = Talk(replicas)
    await talk.open()
    await talk.turn("Begin " + "x" * 700 + " end", "y" * 90)
    await talk.turn("a" * 700, "b" * 90)
    await talk.turn("c" * 700, "d" * 90)
    task = await claimed(talk, "summary")
    assert await make(talk.desk, task) is not None
    asked = words(replicas.asked[0].prompt)
    assert "Begin xxx" in asked
    assert "xxx end" in asked
    assert len(replicas.asked[0].prompt) + replicas.asked[0].max_tokens <= WINDOW


@pytest.mark.parametrize("said", [f"They met. {FORBIDDEN}. ", "", "  \n"])
@pytest.mark.parametrize("kind", ["title", "summary"])
async def test_what_the_checks_flag_or_says_nothing_is_never_kept(kind: str, said: str) -> None:
    talk = await talk_of(12, Scribe(lambda _: said))
    assert await make(talk.desk, await claimed(talk, kind)) is None


async def test_a_summary_that_was_cut_off_keeps_its_whole_sentences() -> None:
    talk = await talk_of(12, Scribe(lambda _: "They met. They spo", finish="length"))
    made = await make(talk.desk, await claimed(talk, "summary"))
    assert isinstance(made, Summary)
    assert made.text == "They met."


WORD = "My code word is quince. Remember it."


async def roomy_talk(
    monkeypatch: pytest.MonkeyPatch, first: str, says: Callable[[GenerateRequest], str]
) -> Talk:
    """A talk whose summaries have room for what is kept; it begins so, and is cut later."""
    monkeypatch.setattr(ShortLetters, "window", 8_000)
    talk = Talk(Scribe(says), plan=replace(PLAN, window_tokens=4_000))
    await talk.open()
    await talk.turn(first, "I see. ")
    await goes_on(talk)
    return talk


async def goes_on(talk: Talk) -> None:
    """So far that a summary is due."""
    tasks = talk.backend.store.tasks
    while not any(one.due_at and one.task.kind == "summary" for one in tasks.values()):
        await talk.turn(f"What now? {LONG}", "Well. ")


async def summarised(talk: Talk) -> Summary:
    """The summary that is due."""
    task = await claimed(talk, "summary")
    made = await make(talk.desk, task)
    assert isinstance(made, Summary)
    assert await talk.backend.tasks.finish(task, made)
    return made


async def test_what_was_asked_to_be_remembered_stays_whatever_a_model_makes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = await roomy_talk(monkeypatch, WORD, lambda _: "They met.")
    first = await summarised(talk)
    assert first.text == with_kept([WORD], "They met.")
    await talk.turn("From now on be brief.", "Yes. ")
    await goes_on(talk)
    second = await summarised(talk)
    assert second.previous_id == first.id
    kept = with_kept([WORD, "From now on be brief."], "")
    assert second.text == f"{kept}\n\nThey met."
    assert first.text in words(talk.replicas.asked[-1].prompt)
    # So much less is asked of the model.
    asked = [request.max_tokens for request in talk.replicas.asked]
    assert asked[-1] < asked[0] < asked_tokens(SUMMARY_TOKENS)


async def test_a_model_that_says_again_what_is_kept_anyway_is_not_written_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = await roomy_talk(monkeypatch, WORD, lambda _: with_kept([WORD], "They met."))
    assert (await summarised(talk)).text == with_kept([WORD], "They met.")


async def test_what_no_output_may_say_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = await roomy_talk(monkeypatch, f"Remember {FORBIDDEN}.", lambda _: "They met.")
    assert (await summarised(talk)).text == "They met."


async def test_a_reply_that_is_gone_is_not_summarised() -> None:
    talk = await talk_of(12, Scribe())
    task = await claimed(talk, "summary")
    await talk.backend.conversations.delete(OWNER, PLACE)
    assert await make(talk.desk, task) is None
    await talk.open()
    assert await make(talk.desk, task) is None


async def test_a_conversation_that_is_answered_anew_gets_its_title_later() -> None:
    talk = await talk_of(0, Scribe())
    page = await talk.backend.messages.page(OWNER, PLACE, before=None, limit=10)
    assert page is not None
    await talk.ask("", again=page.items[0].id)
    with pytest.raises(NotYet):
        await make(talk.desk, await claimed(talk, "title"))


class Broken(Scribe):
    """Fails as replicas do."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    async def generate(
        self, replica: str, request: GenerateRequest, **_: object
    ) -> AsyncGenerator[Said, None]:
        if self.how == "lost":
            raise ReplicaLost("gone")
        if self.how == "refused":
            raise ReplicaRefused(503, "busy", "later")
        if self.how == "aborted":
            yield Said((), finish="abort")


@pytest.mark.parametrize("how", ["lost", "refused", "aborted", "silent", "no room", "no model"])
async def test_what_a_replica_does_not_do_comes_again_later(how: str) -> None:
    talk = await talk_of(0, Broken(how))
    if how == "no room":
        talk.replicas.room = 0
    if how == "no model":
        talk.replicas.states = ()
    with pytest.raises(NotYet):
        await make(talk.desk, await claimed(talk, "title"))


# The loop.


async def until_idle(talk: Talk) -> None:
    """Runs the loop until it has nothing to do; the clock stands still meanwhile."""
    idle = asyncio.Event()

    async def wait(topic: str, *, timeout_s: float) -> None:
        assert topic == "tasks"
        idle.set()
        await asyncio.Event().wait()

    talk.desk.bell.wait = wait  # type: ignore[method-assign]  # the loop rests there
    running = asyncio.create_task(do_tasks(talk.desk))
    await asyncio.wait([running, asyncio.create_task(idle.wait())], return_when="FIRST_COMPLETED")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def ends(talk: Talk) -> dict[tuple[str, str], float]:
    """How each try ended, by kind."""
    return {
        (sample.labels["kind"], sample.labels["end"]): sample.value
        for metric in talk.desk.figures.tasks.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.value
    }


async def test_the_loop_makes_what_is_wanted_and_charges_nobody() -> None:
    talk = await talk_of(12, Scribe(lambda request: "Quinces and more."))
    before = await talk.backend.accounts.spent(OWNER)
    await until_idle(talk)
    found = await conversation(talk)
    assert (found.title, found.titled_by) == ("Quinces and more", "model")
    assert len(talk.backend.store.summaries) == ends(talk)["summary", "made"] > 0
    assert ends(talk)["title", "made"] == 1
    after = await talk.backend.accounts.spent(OWNER)
    assert after.balances == before.balances
    assert talk.backend.store.turns.keys() == {f"m_r{n}" for n in range(13)}


async def test_a_title_moves_neither_the_head_nor_the_order_nor_a_message() -> None:
    talk = await talk_of(2, Scribe(lambda _: "Quinces"))
    found, messages = await conversation(talk), dict(talk.backend.store.messages)
    talk.clock.pass_(100)
    await until_idle(talk)
    now = await conversation(talk)
    assert now.title == "Quinces"
    assert (now.head_message_id, now.updated_at) == (found.head_message_id, found.updated_at)
    assert talk.backend.store.messages == messages


async def test_a_task_that_can_never_be_done_is_tried_a_few_times_and_harms_no_other() -> None:
    def says(request: GenerateRequest) -> str:
        if request.max_tokens == TITLE_TOKENS:
            raise RuntimeError("a fault of ours")
        return "They met."

    talk = await talk_of(12, Scribe(says))
    with capture_logs() as logs:
        for _ in range(5):
            await until_idle(talk)
            talk.clock.pass_(RETRY_S * 10)
    assert [entry["event"] for entry in logs] == ["task_failed"] * 3
    assert ends(talk)["title", "failed"] == 3
    assert ends(talk)["summary", "made"] > 0


async def test_a_flagged_title_is_given_up_and_the_first_words_stay() -> None:
    talk = await talk_of(0, Scribe(lambda _: FORBIDDEN))
    await until_idle(talk)
    talk.clock.pass_(100_000)
    await talk.turn("And?", "Yes. ")
    await until_idle(talk)
    assert ends(talk) == {("title", "empty"): 1}
    assert (await conversation(talk)).title == "My code word is quin"


async def test_nothing_is_claimed_while_chat_needs_the_models() -> None:
    replicas = Scribe(room=1)  # of eight: the one that is kept free
    talk = await talk_of(0, replicas)
    slept = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.set()
        await asyncio.Event().wait()

    talk.clock.sleep = sleep  # type: ignore[method-assign]  # the loop rests there
    running = asyncio.create_task(do_tasks(talk.desk))
    await slept.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert replicas.asked == []
    assert await talk.backend.tasks.claim(lease_s=10) is not None


async def test_a_conversation_that_is_deleted_meanwhile_ends_its_task_at_once() -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    class Slow(Scribe):
        async def generate(
            self, replica: str, request: GenerateRequest, **_: object
        ) -> AsyncGenerator[Said, None]:
            begun.set()
            try:
                await never.wait()
                yield Said((), finish="stop")
            finally:
                closed.set()

    closed = asyncio.Event()
    talk = await talk_of(0, Slow())
    running = asyncio.create_task(until_idle(talk))
    await begun.wait()
    await talk.backend.conversations.delete(OWNER, PLACE)
    await closed.wait()
    await running
    assert ends(talk) == {}


async def test_no_tasks_are_wanted_where_none_are_made() -> None:
    talk = Talk()
    talk.desk = talk.new_desk(tasks=0)
    await talk.open()
    for n in range(14):
        await talk.turn(f"Question {n}. {LONG}", "Yes. ")
    assert talk.backend.store.tasks == {}


async def test_a_stopped_or_failed_first_turn_wants_no_title() -> None:
    talk = Talk()
    await talk.open()
    for status in (Status.STOPPED, Status.FAILED):
        turn = await talk.ask("Well?")
        prompt = await talk.prompt(turn)
        await talk.begin(turn, prompt)
        await talk.end(turn, prompt, "We" if status is Status.STOPPED else "", status)
    assert talk.backend.store.tasks == {}


class Titling(ScriptedReplicas):
    """Answers like any, and with a title where a title is asked for."""

    async def generate(
        self, replica: str, request: GenerateRequest, **more: object
    ) -> AsyncGenerator[Said, None]:
        self.script = ("Memory and decode",) if request.max_tokens == TITLE_TOKENS else ("Yes. ",)
        async for said in super().generate(replica, request, **more):
            yield said


async def test_a_person_sees_the_first_words_at_once_and_the_title_later() -> None:
    async with rig(replicas=Titling(), tasks_at_once=1) as here:
        ann = await here.user("ann")
        name = await new_conversation(ann)
        await ask(ann, name, "Why is decode memory-bound?")
        shown = (await ann.get(f"/v1/conversations/{name}")).json()
        assert shown["title"] in ("Why is decode memory-bound?", "Memory and decode")

        async def title() -> bool:
            found = (await ann.get(f"/v1/conversations/{name}")).json()
            return bool(found["title"] == "Memory and decode")

        await until(title)


async def test_a_chat_that_outgrows_its_window_goes_on_within_what_was_reserved_for_it() -> None:
    plans = {**PLANS, "free": replace(PLANS["free"], window_tokens=1_200, answer_tokens=100)}
    async with rig(replicas=Titling(), plans=plans, tasks_at_once=1) as here:
        ann = await here.user("ann")
        name = await new_conversation(ann)
        cut = []
        for n in range(24):
            answer = await ask(ann, name, f"Question {n}. {LONG}")
            ((_, _, meta),) = [one for one in events(answer.text) if one[1] == "meta"]
            cut.append("context_shortened" in meta["notices"])
        assert cut == sorted(cut)  # once it is said, it is said
        assert cut[-1]
        assert here.worker.figures.clamped._value.get() == 0
        (made,) = {one.owner for one in here.backend.store.turns.values()}
        await until(lambda: not [one for one in here.backend.store.tasks.values() if one.due_at])
        assert {owner for owner, _, _ in here.backend.store.summaries} == {made}
