"""Promises of the `Turns` port: admission, and what is written under an epoch."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.core.types import (
    Admitted,
    BudgetExhausted,
    Busy,
    Finish,
    Held,
    KeyReused,
    Missing,
    NewTurn,
    Reason,
    Repeated,
    Status,
    TooManyRunning,
    Usage,
)
from tests.conformance.world import (
    PLENTY,
    START,
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    everything,
    failed_turn,
    message,
    note,
    refused,
    regenerate,
    stateless,
    tokens_a_day,
    used_and_held,
)

pytestmark = pytest.mark.anyio


async def test_admitting_stores_message_reply_and_turn_and_moves_the_head(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    clock.pass_(5)
    turn = await admitted(backend, message(1))
    assert (turn.status, turn.epoch, turn.attempt) == (Status.QUEUED, 0, 1)
    assert (turn.reserved, turn.answer_tokens, turn.notices) == (300, 200, ())
    assert turn == await backend.turns.find("ana", "m_r1")
    assert turn == await backend.turns.find_by_key("ana", "key-1")
    page = await backend.messages.page("ana", "c_1", before=None, limit=10)
    assert page is not None
    question, reply = page.items
    assert (question.role, question.content, question.tokens) == ("user", "Question 1", 3)
    assert (question.status, question.seq, question.parent_id) == (Status.COMPLETED, 1, None)
    assert (reply.role, reply.content, reply.status) == ("assistant", "", Status.QUEUED)
    assert (reply.seq, reply.parent_id, reply.requested) == (2, "m_u1", "auto")
    kept = await backend.conversations.get("ana", "c_1")
    assert kept is not None
    assert (kept.head_message_id, kept.active_message_id) == ("m_r1", "m_r1")
    assert (kept.title, kept.updated_at, kept.created_at) == ("Title 1", START + 5, START)


async def test_a_title_is_set_only_while_it_is_empty(backend: Backend) -> None:
    await conversation(backend)
    await backend.conversations.change("ana", "c_1", {"title": "Mine"})
    await admitted(backend, message(1))
    kept = await backend.conversations.get("ana", "c_1")
    assert kept is not None
    assert kept.title == "Mine"


async def test_the_same_key_and_body_gives_the_stored_turn_whatever_its_status(
    backend: Backend,
) -> None:
    await conversation(backend)
    turn = await admitted(backend, message(1))
    again = message(1)._replace(reply_id="m_other", user_message_id="m_other_u")
    assert await backend.turns.admit(again, PLENTY) == Repeated(turn)
    held = await claimed(backend)
    assert await backend.turns.admit(again, PLENTY) == Repeated(held)
    assert await backend.turns.finish(held.held, completed())
    repeated = await backend.turns.admit(again, PLENTY)
    assert isinstance(repeated, Repeated)
    assert (repeated.turn.status, repeated.turn.text) == (Status.COMPLETED, "Answer")


async def test_the_same_key_with_another_body_is_refused(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    other = message(1, body_sha="another")
    assert await backend.turns.admit(other, PLENTY) == KeyReused()


async def test_a_known_key_comes_before_every_other_answer(backend: Backend) -> None:
    await conversation(backend)
    turn = await admitted(backend, message(1))
    nothing_left = tokens_a_day(0, replies_running=0)
    elsewhere = message(1, conversation="c_unknown")
    assert await backend.turns.admit(elsewhere, nothing_left) == Repeated(turn)


async def test_keys_belong_to_their_owner(backend: Backend) -> None:
    await conversation(backend)
    await conversation(backend, owner="ben")
    await admitted(backend, message(1))
    other = message(1, owner="ben", reply_id="m_rb", body_sha="another")
    assert (await admitted(backend, other)).owner == "ben"
    assert await backend.turns.find("ben", "m_r1") is None
    assert await backend.turns.find_by_key("cleo", "key-1") is None


async def test_a_hundred_racing_duplicates_begin_one_turn(backend: Backend) -> None:
    await conversation(backend)
    answers = await asyncio.gather(
        *(backend.turns.admit(message(1, reply_id=f"m_{n}"), PLENTY) for n in range(100))
    )
    kinds = [type(answer) for answer in answers]
    assert (kinds.count(Admitted), kinds.count(Repeated)) == (1, 99)
    ids = {answer.turn.reply_id for answer in answers if isinstance(answer, Admitted | Repeated)}
    assert len(ids) == 1
    page = await backend.messages.page("ana", "c_1", before=None, limit=10)
    assert page is not None
    assert len(page.items) == 2
    assert (await used_and_held(backend, "ana"))[:2] == (0, 300)


@pytest.mark.parametrize(
    "new",
    [
        message(1, conversation="c_unknown"),
        message(1, owner="ben"),
        message(1, parent_id="m_unknown"),
        message(1, parent_id="m_u9"),
        regenerate(1, "m_unknown"),
        regenerate(1, "m_u9"),
        regenerate(1, "m_r0"),
    ],
    ids=[
        "no such conversation",
        "another owner's conversation",
        "no such parent",
        "a parent in another conversation",
        "no such message",
        "a message in another conversation",
        "a reply is no question",
    ],
)
async def test_what_is_not_there_is_missing_and_changes_nothing(
    backend: Backend, new: NewTurn
) -> None:
    await conversation(backend, "c_1", "c_2")
    await answered(backend, message(0))
    await answered(backend, message(9, conversation="c_2"))
    before = await everything(backend)
    assert await backend.turns.admit(new, PLENTY) == Missing()
    assert await everything(backend) == before


@pytest.mark.parametrize(
    "second",
    [
        message(2, parent_id="m_r1"),
        message(2, parent_id=None),
        regenerate(2, "m_u1"),
    ],
    ids=["under the running reply", "beside it, under the same parent", "to the same message"],
)
async def test_a_second_turn_on_a_running_branch_is_busy(backend: Backend, second: NewTurn) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    before = await everything(backend)
    assert await backend.turns.admit(second, PLENTY) == Busy("m_r1")
    assert await everything(backend) == before


async def test_another_branch_and_another_conversation_are_not_busy(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    await answered(backend, message(0))
    await answered(backend, message(1, parent_id="m_r0"))
    await admitted(backend, message(2, parent_id="m_r1"))
    await admitted(backend, message(3, parent_id="m_r0"))
    await admitted(backend, message(4, conversation="c_2"))


async def test_a_finished_branch_is_free_again(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await admitted(backend, message(2, parent_id="m_r1"))


async def test_regenerating_makes_a_sibling_reply(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    turn = await admitted(backend, regenerate(2, "m_u1", title=""))
    reply = await backend.messages.find("ana", "m_r2")
    assert reply is not None
    assert (turn.user_message_id, reply.parent_id, reply.seq) == ("m_u1", "m_u1", 3)


async def test_replies_running_are_counted_over_all_conversations(backend: Backend) -> None:
    limits = tokens_a_day(1_000_000, replies_running=2)
    await conversation(backend, "c_1", "c_2", "c_3")
    await admitted(backend, message(1), limits)
    await admitted(backend, stateless(2), limits)
    third = message(3, conversation="c_3")
    before = await everything(backend)
    assert await backend.turns.admit(third, limits) == TooManyRunning(2)
    assert await everything(backend) == before
    held = await claimed(backend)
    assert await backend.turns.finish(held.held, completed())
    await admitted(backend, third, limits)


async def test_racing_posts_never_pass_the_limit_of_replies(backend: Backend) -> None:
    limits = tokens_a_day(1_000_000, replies_running=2)
    answers = await asyncio.gather(*(backend.turns.admit(stateless(n), limits) for n in range(50)))
    kinds = [type(answer) for answer in answers]
    assert (kinds.count(Admitted), kinds.count(TooManyRunning)) == (2, 48)


async def test_busy_comes_before_too_many_and_too_many_before_the_budget(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    await admitted(backend, message(1))
    nothing = tokens_a_day(0, replies_running=1)
    assert await backend.turns.admit(message(2), nothing) == Busy("m_r1")
    elsewhere = message(2, conversation="c_2")
    assert await backend.turns.admit(elsewhere, nothing) == TooManyRunning(1)


async def test_a_budget_that_is_used_up_refuses_and_says_when_it_resets(
    backend: Backend, clock: ManualClock
) -> None:
    limits = tokens_a_day(300, replies_running=10)
    await answered(backend, stateless(1), limits)
    before = await everything(backend)
    answer = await backend.turns.admit(stateless(2), limits)
    # 14 of 300 tokens come back in 14 of 300 parts of a day.
    resets_at = START + 0.001 + 14 * 86_400 / 300
    assert answer == BudgetExhausted("tokens_day", "tokens", 300_000, 150_000, 164_000, resets_at)
    assert await everything(backend) == before
    clock.seconds = resets_at - 0.002
    assert isinstance(await backend.turns.admit(stateless(2), limits), BudgetExhausted)
    clock.seconds = resets_at
    assert (await admitted(backend, stateless(2), limits)).answer_tokens == 64


async def test_reservations_of_open_turns_count_against_the_budget(backend: Backend) -> None:
    limits = tokens_a_day(600, replies_running=10)
    await admitted(backend, stateless(1), limits)
    await admitted(backend, stateless(2), limits)
    assert isinstance(await backend.turns.admit(stateless(3), limits), BudgetExhausted)
    assert await used_and_held(backend, "ana") == (0, 600, ("m_r1", "m_r2"))


async def test_an_answer_is_capped_by_what_is_left_and_says_so(backend: Backend) -> None:
    limits = tokens_a_day(250, replies_running=10)
    turn = await admitted(backend, stateless(1, notices=("context_shortened",)), limits)
    assert (turn.reserved, turn.answer_tokens) == (250, 150)
    assert turn.notices == ("context_shortened", "answer_capped")


async def test_an_answer_is_never_capped_below_what_is_worth_a_turn(backend: Backend) -> None:
    limits = tokens_a_day(163, replies_running=10, min_answer_tokens=64)
    assert isinstance(await backend.turns.admit(stateless(1), limits), BudgetExhausted)
    limits = tokens_a_day(164, replies_running=10)
    assert (await admitted(backend, stateless(1), limits)).answer_tokens == 64


async def test_budgets_of_two_owners_are_apart(backend: Backend) -> None:
    limits = tokens_a_day(300, replies_running=1)
    await admitted(backend, stateless(1), limits)
    await admitted(backend, stateless(2, owner="ben"), limits)


async def test_a_refused_message_is_stored_final_and_costs_nothing(backend: Backend) -> None:
    await conversation(backend)
    turn = await admitted(backend, refused(1), tokens_a_day(0, replies_running=0))
    assert (turn.status, turn.finish, turn.charged) == (Status.REFUSED, Finish.REFUSED, 0)
    assert turn.refusal is not None
    assert (turn.finished_at, turn.last_event_id, turn.reserved) == (START, 3, 0)
    assert await backend.queue.claim(lease_s=2) is None
    reply = await backend.messages.find("ana", "m_r1")
    question = await backend.messages.find("ana", "m_u1")
    assert reply is not None
    assert question is not None
    assert (reply.status, reply.finish, question.content) == (
        Status.REFUSED,
        Finish.REFUSED,
        "Question 1",
    )
    assert await used_and_held(backend, "ana") == (0, 0, ())
    assert turn == await backend.turns.find("ana", "m_r1")


async def test_a_stateless_turn_touches_no_conversation(backend: Backend) -> None:
    await conversation(backend)
    before = await backend.conversations.get("ana", "c_1")
    turn = await admitted(backend, stateless(1))
    assert turn.conversation_id is None
    assert await backend.conversations.get("ana", "c_1") == before
    assert await backend.messages.find("ana", "m_r1") is None
    held = await claimed(backend)
    assert await backend.turns.finish(held.held, completed(text="Grüße 🙂"))
    ended = await backend.turns.find("ana", "m_r1")
    assert ended is not None
    assert (ended.text, ended.usage) == ("Grüße 🙂", Usage(100, 20, 50))


async def test_finishing_writes_turn_reply_and_settlement_together(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    held = await claimed(backend)
    assert await note(backend, held)
    clock.pass_(1)
    outcome = completed(attempt=2, notices=("checked",))
    assert await backend.turns.finish(held.held, outcome)
    turn = await backend.turns.find("ana", "m_r1")
    reply = await backend.messages.find("ana", "m_r1")
    assert turn is not None
    assert reply is not None
    assert (turn.status, turn.text, turn.charged) == (Status.COMPLETED, "Answer", 282_000)
    assert (turn.attempt, turn.finished_at, turn.last_event_id) == (2, START + 1, 4)
    assert turn.notices == ("context_shortened", "checked")
    assert (reply.content, reply.ids, reply.tokens) == ("Answer", (1, 70_000, 3), 3)
    assert (reply.tokenizer, reply.status, reply.model) == ("small", Status.COMPLETED, "small-1")
    assert (reply.reason, reply.finish) == (Reason.AUTO, Finish.STOP)
    assert (reply.notices, reply.last_event_id) == (turn.notices, 4)
    assert await used_and_held(backend, "ana") == (150, 0, ())
    kept = await backend.conversations.get("ana", "c_1")
    assert kept is not None
    assert (kept.active_message_id, kept.head_message_id) == (None, "m_r1")


async def test_a_turn_finishes_once(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    held = await claimed(backend)
    results = await asyncio.gather(
        *(
            backend.turns.finish(held.held, completed(text=f"{n}", usage=Usage(output=n)))
            for n in range(1, 20)
        )
    )
    assert results.count(True) == 1
    won = results.index(True) + 1
    turn = await backend.turns.find("ana", "m_r1")
    assert turn is not None
    assert (turn.text, turn.charged) == (f"{won}", 4000 * won)
    assert await used_and_held(backend, "ana") == (won, 0, ())


async def test_an_older_epoch_can_neither_note_nor_finish(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    first = await claimed(backend)
    clock.pass_(3)
    second = await claimed(backend)
    before = await everything(backend)
    assert second.epoch == first.epoch + 1
    assert not await note(backend, first)
    assert not await backend.turns.finish(first.held, completed())
    assert await everything(backend) == before
    assert await backend.turns.finish(second.held, completed())


async def test_a_noted_model_shows_on_the_reply_and_pins_the_conversation(
    backend: Backend,
) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    held = await claimed(backend)
    assert await note(backend, held, pin="keep")
    kept = await backend.conversations.get("ana", "c_1")
    assert kept is not None
    assert kept.model is None
    assert await note(backend, held, pin="pin")
    kept = await backend.conversations.get("ana", "c_1")
    reply = await backend.messages.find("ana", "m_r1")
    turn = await backend.turns.find("ana", "m_r1")
    assert kept is not None
    assert reply is not None
    assert turn is not None
    assert (kept.model, reply.model, reply.reason) == ("small-1", "small-1", Reason.AUTO)
    assert (turn.replica, turn.request_id, turn.prompt_tokens) == ("replica-a", "m_r1-1", 100)
    assert turn.notices == reply.notices == ("context_shortened",)


async def test_the_grade_of_a_question_is_kept_and_made_anew_when_its_turn_runs_again(
    backend: Backend,
) -> None:
    await conversation(backend)
    failed = await failed_turn(backend, 1)
    assert failed.difficulty == message(1).difficulty != 0
    again = await admitted(backend, message(1, difficulty=7))
    assert again.difficulty == (await claimed(backend)).difficulty == 7


async def test_notices_are_added_in_order_and_each_once(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1, notices=("first", "second")))
    held = await claimed(backend)
    assert await note(backend, held)  # adds `context_shortened`
    assert await note(backend, held)
    outcome = completed(notices=("third", "second", "third"))
    assert await backend.turns.finish(held.held, outcome)
    turn = await backend.turns.find("ana", "m_r1")
    reply = await backend.messages.find("ana", "m_r1")
    assert turn is not None
    assert reply is not None
    assert turn.notices == reply.notices == ("first", "second", "context_shortened", "third")


async def test_a_stop_seizes_whatever_the_lease(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    held = await claimed(backend)
    seized = await backend.turns.seize("ana", "m_r1", "stopped")
    assert seized is not None
    assert (seized.epoch, seized.stop_reason) == (held.epoch + 1, "stopped")
    assert seized.status is Status.RUNNING
    assert not await backend.turns.finish(held.held, completed())
    assert await backend.queue.claim(lease_s=2) is None
    clock.pass_(3)  # the stopper died: a worker takes over and sees why
    assert (await claimed(backend)).stop_reason == "stopped"


async def test_a_stop_reaches_a_waiting_turn(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    seized = await backend.turns.seize("ana", "m_r1", "stopped")
    assert seized is not None
    assert seized.status is Status.QUEUED
    outcome = completed(
        status=Status.STOPPED, finish=Finish.STOPPED, text="", usage=Usage(), ids=()
    )
    assert await backend.turns.finish(seized.held, outcome)
    assert await backend.queue.claim(lease_s=2) is None


async def test_only_an_open_turn_of_the_owner_can_be_seized(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    assert await backend.turns.seize("ben", "m_r1", "stopped") is None
    assert await backend.turns.seize("ana", "m_unknown", "stopped") is None
    held = await claimed(backend)
    assert await backend.turns.finish(held.held, completed())
    assert await backend.turns.seize("ana", "m_r1", "stopped") is None


async def test_an_id_that_is_taken_is_an_error_and_changes_nothing(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    before = await everything(backend)
    with pytest.raises(ValueError, match="m_r1"):
        await backend.turns.admit(message(2, parent_id="m_r1", reply_id="m_r1"), PLENTY)
    with pytest.raises(ValueError, match="m_u1"):
        await backend.turns.admit(message(2, parent_id="m_r1", user_message_id="m_u1"), PLENTY)
    assert await everything(backend) == before


async def test_a_waiting_turn_can_not_complete(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    before = await everything(backend)
    with pytest.raises(ValueError, match="complete"):
        await backend.turns.finish(Held("ana", "m_r1", 0), completed())
    assert await everything(backend) == before
