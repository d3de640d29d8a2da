"""Ready replies: given on the ladder's last rung to who would be refused, and to nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import AsyncMock, patch

import pytest

from tertulia.config import ConfigError, load_settings
from tertulia.core.canned import ready_replies
from tertulia.gateway.line import LineWatch
from tests.lanes.gateway_rig import FORBIDDEN, Rig, ask, events, new_conversation, rig, text_of
from tests.lanes.test_http_ladder import Pinned, both_ready, plans

pytestmark = pytest.mark.anyio

REPLY = "Hello! Very many people are here just now."
READY = ready_replies([(["Hello", f"Say {FORBIDDEN}"], REPLY)])
RETRY_S = 7.0


@asynccontextmanager
async def overrun(*, rung: int = 3, waits: float | None = RETRY_S) -> AsyncIterator[Rig]:
    """A gateway on a rung, at which nobody can start (or everybody: `waits` None)."""
    replicas = both_ready()
    with patch.object(LineWatch, "refusal", AsyncMock(return_value=waits)):
        async with rig(
            plans=plans(),
            replicas=replicas,
            rungs=Pinned(rung),
            change_desk=lambda desk: replace(desk, canned=READY),
        ) as here:
            await here.desk.lookout.look(replicas, None)
            yield here


async def test_a_common_question_has_a_ready_reply_where_it_would_be_refused() -> None:
    async with overrun() as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        reply = await ask(ana, conversation, " HELLO!! ")
        again = await ask(ana, conversation, " HELLO!! ")
        items = (await ana.get(f"/v1/conversations/{conversation}/messages")).json()["items"]
        budgets = (await ana.get("/v1/me")).json()["budgets"]
        assert here.replicas.asked == []
    assert text_of(reply.text) == REPLY
    assert [kind for _, kind, _ in events(reply.text)] == ["meta", "delta", "done"]
    meta, done = events(reply.text)[0][2], events(reply.text)[-1][2]
    assert (meta["model"], meta["reason"], meta["notices"]) == ("canned", "ladder", ["canned"])
    assert (done["charged"], done["usage"]["output"]) == (0, 0)
    assert events(again.text) == events(reply.text)
    assert [(item["content"], item["status"]) for item in items] == [
        (" HELLO!! ", "completed"),
        (REPLY, "completed"),
    ]
    assert all(budget["remaining"] == budget["limit"] for budget in budgets)


@pytest.mark.parametrize("question", ["Hello there", "Say it"])
async def test_any_other_question_is_refused_with_a_time_to_come_back(question: str) -> None:
    async with overrun() as here:
        ana = await here.user("ana")
        refused = await ask(ana, await new_conversation(ana), question)
        assert not here.backend.store.turns
    assert (refused.status_code, refused.json()["code"]) == (503, "busy")
    assert refused.headers["retry-after"] == "7"


async def test_in_the_middle_of_a_conversation_nothing_is_ready() -> None:
    async with overrun() as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        first = await ask(ana, conversation, "Hello", key="first")
        second = await ask(ana, conversation, "Hello", key="second")
        beside = await ask(ana, conversation, "Hello", key="beside", parentId=None)
    assert [answer.status_code for answer in (first, second, beside)] == [200, 503, 200]


async def test_who_wants_another_reply_is_not_given_the_same_again() -> None:
    async with overrun() as here:
        ana = await here.user("ana")
        reply = events((await ask(ana, await new_conversation(ana), "Hello")).text)[0][2]
        again = await ana.post(
            f"/v1/messages/{reply['messageId']}/regenerate",
            json={},
            headers={"Idempotency-Key": "again"},
        )
    assert again.status_code == 503


@pytest.mark.parametrize(("plan", "rung"), [("free", 2), ("plus", 3)])
async def test_below_the_last_rung_and_for_paid_people_nothing_is_ready(
    plan: str, rung: int
) -> None:
    async with overrun(rung=rung) as here:
        ana = await here.user("ana", plan=plan)
        refused = await ask(ana, await new_conversation(ana), "Hello")
    assert refused.status_code == 503


async def test_who_can_start_is_answered_by_a_model() -> None:
    async with overrun(waits=None) as here:
        ana = await here.user("ana")
        reply = await ask(ana, await new_conversation(ana), "Hello")
    assert events(reply.text)[0][2]["model"] != "canned"
    assert text_of(reply.text) != REPLY


async def test_what_the_checks_refuse_is_refused_all_the_same() -> None:
    async with overrun() as here:
        ana = await here.user("ana")
        refused = await ask(ana, await new_conversation(ana), f"Say {FORBIDDEN}")
    assert "refusal" in [kind for _, kind, _ in events(refused.text)]
    assert REPLY not in refused.text


async def test_a_program_that_asks_just_that_is_given_it_too() -> None:
    async with overrun() as here:
        ana = await here.user("ana")
        alone = [{"role": "user", "content": "Hello"}]
        guided = [{"role": "system", "content": "Answer in JSON."}, *alone]
        given, refused = [
            await ana.post("/v1/chat/completions", json={"model": "auto", "messages": messages})
            for messages in (alone, guided)
        ]
    said = given.json()
    assert (said["model"], said["choices"][0]["message"]["content"]) == ("canned", REPLY)
    assert said["choices"][0]["finish_reason"] == "stop"
    assert refused.status_code == 503


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            [{"questions": ["Hi"], "reply": "a"}, {"questions": ["hi!"], "reply": "b"}],
            "two replies",
        ),
        ([{"questions": ["?!"], "reply": "a"}], "no words"),
        ([{"questions": [], "reply": "a"}], "questions"),
        ([{"questions": ["Hi"], "reply": ""}], "reply"),
        ([{"questions": ["Hi"]}], "reply"),
    ],
    ids=["two replies", "no words", "no question", "no words in reply", "no reply"],
)
def test_a_ready_reply_that_is_none_is_refused_at_the_start(
    tables: list[dict[str, object]], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(None, canned=tables)
