"""Promises of the `Turns` port about ready replies: whole at the door, for nothing."""

from __future__ import annotations

import pytest

from tertulia.core.types import Canned, Failure, Finish, Reason, Repeated, Status, Usage
from tests.conformance.world import (
    PLENTY,
    START,
    Backend,
    admitted,
    claimed,
    completed,
    conversation,
    message,
    refused,
    stateless,
    tokens_a_day,
    used_and_held,
)

pytestmark = pytest.mark.anyio

FAILED = completed(
    status=Status.FAILED,
    finish=None,
    usage=Usage(),
    failure=Failure("replica_lost", "It broke.", retryable=True),
)
READY = Canned("Hello to you.", 4)


async def test_a_ready_reply_is_stored_with_its_turn_and_costs_nothing(backend: Backend) -> None:
    await conversation(backend)
    turn = await admitted(backend, message(1, canned=READY), tokens_a_day(0, replies_running=0))
    assert (turn.status, turn.finish, turn.charged) == (Status.COMPLETED, Finish.STOP, 0)
    assert (turn.model, turn.reason, turn.notices) == ("canned", Reason.LADDER, ("canned",))
    assert (turn.text, turn.finished_at, turn.last_event_id) == (READY.text, START, 3)
    assert turn == await backend.turns.find("ana", "m_r1")
    assert await backend.queue.claim(lease_s=2) is None
    reply = await backend.messages.find("ana", "m_r1")
    assert reply is not None
    assert (reply.content, reply.tokens, reply.tokenizer) == (READY.text, READY.tokens, "small")
    assert (reply.status, reply.model, reply.notices) == (Status.COMPLETED, "canned", ("canned",))
    assert reply.last_event_id == 3
    assert await used_and_held(backend, "ana") == (0, 0, ())
    found = await backend.conversations.get("ana", "c_1")
    assert found is not None
    assert (found.head_message_id, found.model) == ("m_r1", None), "it pins no model"
    assert isinstance(await backend.turns.admit(message(1), PLENTY), Repeated)


async def test_a_ready_reply_of_no_conversation_is_kept_with_its_turn(backend: Backend) -> None:
    turn = await admitted(backend, stateless(1, canned=READY))
    assert (turn.status, turn.text) == (Status.COMPLETED, READY.text)
    assert turn == await backend.turns.find("ana", "m_r1")


async def test_a_ready_reply_is_searched_like_any_other(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1, canned=READY))
    found = await backend.conversations.list(
        "ana", cursor=None, limit=5, query="TO YOU", archived=False
    )
    assert [item.id for item in found.items] == ["c_1"]


async def test_what_the_checks_refuse_has_no_ready_reply(backend: Backend) -> None:
    await conversation(backend)
    turn = await admitted(backend, refused(1)._replace(canned=READY))
    assert (turn.status, turn.text) == (Status.REFUSED, "")


async def test_a_failed_turn_that_runs_again_waits_for_its_answer(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    held = await claimed(backend)
    assert await backend.turns.finish(held.held, FAILED)
    again = await admitted(backend, message(1, canned=READY))
    assert (again.status, again.text) == (Status.QUEUED, "")
