"""Who answers: by how hard the question looks and by what the plan may pick; and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, PermissionDeniedError

from tertulia.config import ConfigError, load_settings
from tertulia.core.difficulty import HARDEST, SMALL_BELOW, Question
from tertulia.core.ladder import Foothold
from tertulia.core.types import ModelState
from tertulia.gateway.desk import Desk
from tertulia.ports import Grader
from tests.lanes.gateway_rig import (
    PLANS,
    Rig,
    ScriptedReplicas,
    ask,
    events,
    new_conversation,
    rig,
)

pytestmark = pytest.mark.anyio

EASY = "Hello there!"
HARD = "Prove the theorem step by step and explain why the algorithm is optimal."
BOTH = (
    ModelState("large", "lab/large-8b", "ready", room=8, window=8_000),
    ModelState("small", "lab/small-1b", "ready", room=8, window=8_000),
)


def both(*, large: int = 8, small: int = 8) -> ScriptedReplicas:
    """Replicas of two models that are ready, with this much room."""
    rooms = {"large": large, "small": small}
    return ScriptedReplicas(states=[replace(one, room=rooms[one.name]) for one in BOTH])


async def meta(client: httpx2.AsyncClient, conversation: str, text: str, **more: Any) -> Any:
    """The `meta` of the reply."""
    answer = await ask(client, conversation, text, **more)
    assert answer.status_code == 200, answer.text
    kind, data = events(answer.text)[0][1:]
    assert kind == "meta"
    return data


async def who_answers(client: httpx2.AsyncClient, *texts: str) -> list[tuple[str, str]]:
    """Model and reason of each reply of one conversation."""
    conversation = await new_conversation(client)
    told = [
        await meta(client, conversation, text, key=f"{conversation}-{number}")
        for number, text in enumerate(texts)
    ]
    return [(data["model"], data["reason"]) for data in told]


async def test_an_easy_question_goes_to_the_small_model_and_a_hard_one_to_the_large() -> None:
    async with rig(replicas=both()) as here:
        client = await here.user("ana")
        assert await who_answers(client, EASY) == [("lab/small-1b", "auto")]
        assert await who_answers(client, HARD) == [("lab/large-8b", "auto")]


async def test_a_conversation_goes_up_with_its_first_hard_question_and_stays_there() -> None:
    async with rig(replicas=both()) as here:
        client = await here.user("ana")
        told = await who_answers(client, EASY, "Thanks!", HARD, "Thank you!")
    small, large = ("lab/small-1b", "auto"), ("lab/large-8b", "auto")
    assert told == [small, small, large, large]


async def test_a_full_large_model_overflows_and_takes_the_next_hard_question() -> None:
    replicas = both(large=0)
    async with rig(replicas=replicas) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        first = await meta(client, conversation, HARD)
        replicas.states = list(BOTH)
        second = await meta(client, conversation, HARD, key="again")
    assert (first["model"], first["reason"]) == ("lab/small-1b", "overflow")
    assert (second["model"], second["reason"]) == ("lab/large-8b", "auto")


async def test_on_the_ladder_a_conversation_goes_down_and_comes_back_afterwards() -> None:
    plans = {**PLANS, "free": replace(PLANS["free"], ladder=True)}
    async with rig(replicas=both(), plans=plans) as here:
        free, plus = await here.user("ana"), await here.user("ben", plan="plus")
        conversation = await new_conversation(free)
        told = [await meta(free, conversation, HARD)]
        here.desk.lookout.foothold = Foothold(rung=1)
        told.append(await meta(free, conversation, HARD, key="meanwhile"))
        paid = await meta(plus, await new_conversation(plus), HARD)
        here.desk.lookout.foothold = Foothold(rung=0)
        told.append(await meta(free, conversation, EASY))
    assert [(data["model"], data["reason"]) for data in (*told, paid)] == [
        ("lab/large-8b", "auto"),
        ("lab/small-1b", "ladder"),
        ("lab/large-8b", "auto"),
        ("lab/large-8b", "auto"),
    ]
    assert told[1]["notices"] == ["ladder_small"]


async def test_an_answer_that_is_asked_for_again_comes_from_the_large_model() -> None:
    async with rig(replicas=both()) as here:
        client = await here.user("ana")
        first = await meta(client, await new_conversation(client), EASY)
        answer = await client.post(
            f"/v1/messages/{first['messageId']}/regenerate",
            headers={"Accept": "text/event-stream", "Idempotency-Key": "again"},
        )
        again = events(answer.text)[0][2]
    assert (first["model"], again["model"]) == ("lab/small-1b", "lab/large-8b")
    assert again["reason"] == "auto"


async def test_a_program_is_told_who_answered_and_why() -> None:
    async with rig(replicas=both()) as here:
        client = await here.user("ana")
        talk = [
            {"role": "user", "content": HARD},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": EASY},
        ]
        for messages, model in ((talk[:1], "lab/large-8b"), (talk, "lab/small-1b")):
            body = {"model": "auto", "messages": messages}
            whole = (await client.post("/v1/chat/completions", json=body)).json()
            streamed = await client.post("/v1/chat/completions", json={**body, "stream": True})
            assert whole["model"] == model
            why = {"requested": "auto", "reason": "auto", "notices": []}
            assert whole["tertulia"] == why
            assert streamed.text.count('"tertulia":') == 1
            assert f'"model":"{model}"' in streamed.text


async def test_a_plan_that_may_not_pick_is_told_what_it_may_ask_for() -> None:
    plans = {**PLANS, "free": replace(PLANS["free"], models=("small",))}
    async with rig(replicas=both(), plans=plans) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        for name in ("large", "lab/large-8b"):
            refused = await ask(client, conversation, "Hi", model=name)
            assert refused.status_code == 403
            told = refused.json()
            assert (told["code"], told["field"]) == ("forbidden", "model")
            assert told["models"] == ["auto", "small", "lab/small-1b"]
            assert name not in told["detail"]
        unknown = await ask(client, conversation, "Hi", model="gpt-9")
        picked = await meta(client, conversation, HARD, model="small")
        assert (unknown.status_code, unknown.json()["code"]) == (400, "invalid_request")
        assert (picked["model"], picked["reason"]) == ("lab/small-1b", "picked")
        assert len(here.replicas.asked) == 1
        assert len(here.backend.store.turns) == 1


async def test_openais_client_is_refused_in_its_own_words() -> None:
    plans = {**PLANS, "free": replace(PLANS["free"], models=())}
    async with rig(replicas=both(), plans=plans) as here:
        secret = (await here.user("ana")).headers["Authorization"].removeprefix("Bearer ")
        async with AsyncOpenAI(
            base_url=f"{here.url}/v1", api_key=secret, _strict_response_validation=True
        ) as client:
            with pytest.raises(PermissionDeniedError) as refused:
                await client.chat.completions.create(
                    model="large", messages=[{"role": "user", "content": "Hi"}]
                )
            listed = [model.id async for model in client.models.list()]
    body = refused.value.body
    assert isinstance(body, dict)
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert (refused.value.type, body["models"]) == ("permission_error", ["auto"])
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert listed == ["auto"]


async def test_models_are_listed_as_far_as_the_plan_may_pick_them() -> None:
    plans = {
        "free": replace(PLANS["free"], models=("small",)),
        "plus": replace(PLANS["plus"], models=("small", "large")),
    }
    async with rig(replicas=both(), plans=plans) as here:
        free, plus = await here.user("ana"), await here.user("ben", plan="plus")
        listed = {
            name: [one["id"] for one in (await client.get("/v1/models")).json()["data"]]
            for name, client in (("free", free), ("plus", plus))
        }
        hidden, shown = await free.get("/v1/models/large"), await plus.get("/v1/models/large")
    assert listed["free"] == ["auto", "small", "lab/small-1b"]
    assert listed["plus"] == ["auto", "large", "small", "lab/large-8b", "lab/small-1b"]
    assert (hidden.status_code, hidden.json()["error"]["code"]) == (404, "model_not_found")
    assert shown.json()["id"] == "large"


class Broken:
    """A grader that is down, or answers what is no grade."""

    def __init__(self, answer: Any = None):
        self.answer = answer

    async def difficulty(self, question: Question) -> int:
        if self.answer is None:
            raise ConnectionError("the classifier is away")
        answer: int = self.answer
        return answer


class Slow:
    """A grader that never answers; it counts those who gave up waiting."""

    def __init__(self) -> None:
        self.given_up = 0

    async def difficulty(self, question: Question) -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return 0


def graded_by(grader: Grader) -> Callable[[Desk], Desk]:
    return lambda desk: replace(desk, grader=grader)


async def figures(here: Rig) -> str:
    return (await here.client().get("/metrics")).text


@pytest.mark.parametrize(
    ("grader", "by"),
    [
        (Broken(), "rule_failed"),
        (Broken(-1), "rule_failed"),
        (Broken(HARDEST + 1), "rule_failed"),
        (Broken("hard"), "rule_failed"),
        (Broken(0.5), "rule_failed"),
        (Slow(), "rule_slow"),
    ],
    ids=["down", "below", "above", "a word", "a part", "slow"],
)
async def test_without_a_grade_short_texts_without_code_are_easy(grader: Grader, by: str) -> None:
    async with rig(replicas=both(), change_desk=graded_by(grader)) as here:
        client = await here.user("ana")
        # One letter is one token here.
        assert await who_answers(client, HARD) == [("lab/small-1b", "auto")]
        assert await who_answers(client, "a" * 200) == [("lab/large-8b", "auto")]
        assert await who_answers(client, "```\nx\n```") == [("lab/large-8b", "auto")]
        assert f'tertulia_grades_total{{by="{by}"}} 3.0' in await figures(here)
    if isinstance(grader, Slow):
        assert grader.given_up == 3


async def test_choices_and_grades_are_counted_and_only_where_there_is_one_to_make() -> None:
    async with rig(replicas=both()) as here:
        client = await here.user("ana", plan="plus")
        conversation = await new_conversation(client)
        await meta(client, conversation, EASY)
        await meta(client, conversation, HARD)
        await meta(client, conversation, HARD, model="large", key="picked")
        assert 'tertulia_grades_total{by="score"} 2.0' in await figures(here)
        choices = here.worker.figures.page().decode()
    for model, reason in (("small", "auto"), ("large", "auto"), ("large", "picked")):
        labels = f'{{model="{model}",reason="{reason}"}}'
        assert f"tertulia_worker_choices_total{labels} 1.0" in choices


async def test_the_grade_is_stored_with_the_turn() -> None:
    """So that whoever claims it next decides the same."""
    async with rig(replicas=both()) as here:
        client = await here.user("ana")
        await who_answers(client, EASY)
        await who_answers(client, HARD)
        grades = [turn.difficulty for turn in here.backend.store.turns.values()]
    easy, hard = sorted(grades)
    assert 0 < easy < 400 <= hard <= HARDEST


def test_the_embedded_small_model_stands_back_for_the_large_one(tmp_path: Path) -> None:
    replica = {"name": "a", "model": "m", "url": "http://127.0.0.1:1", "vocabulary": tmp_path}
    assert load_settings(None).small_below == 0
    assert load_settings(None, choice={"small_below": 300}).small_below == 300
    assert load_settings(None, replicas=(replica,)).small_below == SMALL_BELOW


@pytest.mark.parametrize(
    ("setting", "value"), [("small_below", -1), ("small_below", 1_001), ("easy_tokens", -1)]
)
def test_a_line_that_divides_nothing_is_refused_by_its_name(setting: str, value: int) -> None:
    with pytest.raises(ConfigError, match=rf"choice\.{setting}"):
        load_settings(None, choice={setting: value})
