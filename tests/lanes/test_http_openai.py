"""OpenAI's own client against the gateway, strictly validating, and the rules it relies on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import APIError, AsyncOpenAI, BadRequestError, NotFoundError, RateLimitError
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam
from pydantic import ValidationError
from structlog.testing import capture_logs

from tertulia.core.fleet import Wanted
from tertulia.core.turn import delta_entry, meta_entry, terminal_entry
from tertulia.core.types import Finish, Lane, Sampling, Status, Turn
from tertulia.gateway.chatbody import ChatBody
from tertulia.gateway.chunks import ChunkRender
from tests.lanes.gateway_rig import (
    ANSWER,
    FORBIDDEN,
    Rig,
    ScriptedReplicas,
    rig,
    until,
    with_budget,
)

pytestmark = pytest.mark.anyio

WHOLE = "".join(ANSWER)
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]


@asynccontextmanager
async def sdk(here: Rig, **options: Any) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client of a fresh user; it raises on any answer that is not of the right shape."""
    program = await here.user("ana")
    secret = program.headers["Authorization"].removeprefix("Bearer ")
    async with AsyncOpenAI(
        base_url=f"{here.url}/v1",
        api_key=secret,
        _strict_response_validation=True,
        **{"max_retries": 0, **options},
    ) as client:
        yield client


async def chunks_of(client: AsyncOpenAI, **more: Any) -> list[ChatCompletionChunk]:
    stream = await client.chat.completions.create(
        **{"model": "auto", "messages": HI, "stream": True, **more}
    )
    return [chunk async for chunk in stream]


async def test_a_whole_completion() -> None:
    async with rig() as here, sdk(here) as client:
        done = await client.chat.completions.create(model="auto", messages=HI)
    assert done.choices[0].message.content == WHOLE
    assert done.choices[0].finish_reason == "stop"
    assert done.id.startswith("chatcmpl-m_")
    assert done.model == "lab/small-1b"
    assert done.usage is not None
    assert done.usage.completion_tokens == len(WHOLE)
    assert done.usage.total_tokens == done.usage.prompt_tokens + len(WHOLE)
    assert done.usage.prompt_tokens_details is not None
    assert done.usage.prompt_tokens_details.cached_tokens == 3


async def test_a_stream_has_one_role_one_finish_and_one_usage() -> None:
    async with rig() as here, sdk(here) as client:
        chunks = await chunks_of(client, stream_options={"include_usage": True})
    with_choice = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert with_choice[0].delta.role == "assistant"
    assert not any(choice.delta.role for choice in with_choice[1:])
    assert "".join(choice.delta.content or "" for choice in with_choice) == WHOLE
    assert [c.finish_reason for c in with_choice if c.finish_reason] == ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert len({chunk.id for chunk in chunks}) == 1


async def test_without_include_usage_there_is_none() -> None:
    async with rig() as here, sdk(here) as client:
        chunks = await chunks_of(client)
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert not any(chunk.usage for chunk in chunks)


async def test_the_stream_ends_with_done() -> None:
    async with rig() as here:
        client = await here.user("ana")
        body = {"model": "auto", "messages": HI, "stream": True}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.text.endswith("data: [DONE]\n\n")
    assert "event:" not in answer.text
    assert "\nid:" not in answer.text


async def test_a_reply_that_ran_in_a_loop_is_complete_and_ends_with_a_stop() -> None:
    async with rig(replicas=ScriptedReplicas(finish="repetition")) as here, sdk(here) as client:
        done = await client.chat.completions.create(model="auto", messages=HI)
    assert done.choices[0].finish_reason == "stop"
    assert done.choices[0].message.content


async def test_a_length_finish_is_told() -> None:
    async with rig(replicas=ScriptedReplicas(finish="length")) as here, sdk(here) as client:
        chunks = await chunks_of(client, max_tokens=300)
        assert here.replicas.asked[0].max_tokens == 300
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_a_refusal_is_a_content_filter_finish() -> None:
    said = ("Fine. ", f"Now {FORBIDDEN}. ", "More.")
    async with rig(replicas=ScriptedReplicas(said)) as here, sdk(here) as client:
        chunks = await chunks_of(client)
        done = await client.chat.completions.create(model="auto", messages=HI)
    choices = [chunk.choices[0] for chunk in chunks]
    assert choices[-1].finish_reason == done.choices[0].finish_reason == "content_filter"
    assert "".join(choice.delta.content or "" for choice in choices) == "Fine. "
    assert done.choices[0].message.content == "Fine. "
    assert done.choices[0].message.refusal == "I can't help with that."


async def test_what_is_asked_for_reaches_the_replica() -> None:
    async with rig() as here, sdk(here) as client:
        await client.chat.completions.create(
            model="lab/small-1b",
            messages=[
                {"role": "system", "content": "One."},
                {"role": "developer", "content": "Two."},
                {"role": "user", "content": [{"type": "text", "text": "Three."}]},
                {"role": "assistant", "content": "Four."},
                {"role": "user", "content": "Five."},
            ],
            temperature=0,
            top_p=0.5,
            seed=7,
            max_completion_tokens=50,
            stop=["memory"],
            user="somebody",
            metadata={"any": "thing"},
            n=1,
        )
        asked = here.replicas.asked[0]
    said = "".join(chr(number - 10) for number in asked.prompt if number > 10)
    assert said == "One.\n\nTwo.Three.Four.Five."
    assert (asked.sampling.temperature, asked.sampling.top_p, asked.sampling.seed) == (0, 0.5, 7)
    assert asked.max_tokens == 50


async def test_a_completion_can_be_stopped_like_any_reply() -> None:
    """Its id is in `x-request-id` and among the running ones; it once stopped with a 404."""
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        client = await here.user("ana")
        body = {"model": "auto", "messages": HI}
        asked = asyncio.create_task(client.post("/v1/chat/completions", json=body))
        await until(lambda: here.replicas.asked)
        (reply_id,) = here.backend.store.turns
        stopped = await client.post(f"/v1/messages/{reply_id}/stop")
        again = await client.post(f"/v1/messages/{reply_id}/stop")
        said = (await asked).json()["choices"][0]
    assert (stopped.status_code, stopped.json()["status"]) == (200, "stopped")
    assert again.json() == stopped.json()
    assert said["message"]["content"] == stopped.json()["content"]


async def test_a_top_p_of_0_is_the_likeliest_token_and_not_an_error() -> None:
    """OpenAI takes 0 to 1; engines take only what is above 0."""
    async with rig() as here, sdk(here) as client:
        await client.chat.completions.create(model="auto", messages=HI, top_p=0)
        asked = here.replicas.asked[0]
    assert 0 < asked.sampling.top_p < 1e-3


async def test_a_stop_text_ends_the_answer_before_it() -> None:
    async with rig() as here, sdk(here) as client:
        done = await client.chat.completions.create(
            model="auto",
            messages=HI,
            stop="So memory",
        )
    assert done.choices[0].finish_reason == "stop"
    assert "So memory" not in (done.choices[0].message.content or "")


NOT_SERVED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"n": 2}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"logit_bias": {"1": 5}}, "logit_bias"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"audio": {"voice": "x", "format": "wav"}}, "audio"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "warm"}, "temperature"),
    ({"top_p": -1}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": ""}, "stop"),
    ({"seed": 2**63}, "seed"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "user", "content": "a\ud800"}]}, "content"),
    ({"model": ""}, "model"),
]


@pytest.mark.parametrize(("more", "field"), NOT_SERVED, ids=[str(m)[:50] for m, _ in NOT_SERVED])
async def test_what_is_not_served_is_a_400_that_names_the_field(
    more: dict[str, Any], field: str
) -> None:
    """T17."""
    async with rig() as here:
        program = await here.user("ana")
        body = json.dumps({"model": "auto", "messages": HI, **more})
        answer = await program.post(
            "/v1/chat/completions", content=body, headers={"Content-Type": "application/json"}
        )
        assert not here.replicas.asked
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field)
    assert error["type"] == "invalid_request_error"
    assert answer.headers["x-should-retry"] == "false"


def test_of_a_list_of_wrong_stops_only_the_first_is_looked_at() -> None:
    """T10: a million of them took seconds, in which nobody else was answered."""
    with pytest.raises(ValidationError) as refused:
        ChatBody.model_validate({"model": "auto", "messages": HI, "stop": [None] * 1_000})
    assert refused.value.error_count() == 2  # neither a text nor a list of texts


async def test_harmless_unknown_fields_are_ignored() -> None:
    async with rig() as here:
        program = await here.user("ana")
        body = {
            "model": "auto",
            "messages": HI,
            "plan": "plus",
            "user_id": "u_1",
            "tools": [],
            "logprobs": False,
            "n": 1,
            "presence_penalty": 0,
            "store": False,
            "stream_options": None,
            "stop": None,
        }
        answer = await program.post("/v1/chat/completions", json=body)
        turn = next(iter(here.backend.store.turns.values()))
    assert answer.status_code == 200
    assert turn.plan == "free"


async def test_the_sdk_sees_its_own_kinds_of_error() -> None:
    async with rig(plans=with_budget(70)) as here, sdk(here) as client:
        with pytest.raises(BadRequestError) as refused:
            await client.chat.completions.create(
                model="auto",
                messages=HI,
                n=3,
            )
        with pytest.raises(NotFoundError) as missing:
            await client.models.retrieve("gpt-9")
        with pytest.raises(NotFoundError) as unknown:
            await client.chat.completions.create(model="gpt-9", messages=HI)
        with pytest.raises(RateLimitError) as spent:
            await client.chat.completions.create(model="auto", messages=HI)
    assert (refused.value.code, refused.value.param) == ("invalid_request", "n")
    assert missing.value.code == unknown.value.code == "model_not_found"
    assert (spent.value.code, spent.value.type) == ("budget_exhausted", "insufficient_quota")
    assert spent.value.response.headers["x-should-retry"] == "false"


async def test_the_models_and_their_state() -> None:
    async with rig() as here, sdk(here) as client:
        listed = [model.id async for model in client.models.list()]
        one = await client.models.retrieve("lab/small-1b")
        large = await client.models.retrieve("large")
    assert listed == ["auto", "large", "small", "lab/large-8b", "lab/small-1b"]
    assert one.id == "lab/small-1b"
    assert large.model_extra == {
        "status": {"state": "fetching", "done_bytes": 5, "total_bytes": 10, "message": ""}
    }


async def test_the_sdks_retry_attaches_to_the_same_turn() -> None:
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        body = {"model": "auto", "messages": HI}
        retry = {"x-stainless-retry-count": "1"}
        first = await ana.post(
            "/v1/chat/completions", json=body, headers={"x-stainless-retry-count": "0"}
        )
        again = await ana.post("/v1/chat/completions", json=body, headers=retry)
        streamed = await ana.post(
            "/v1/chat/completions", json={**body, "stream": True}, headers=retry
        )
        other = await ana.post("/v1/chat/completions", json={**body, "seed": 1}, headers=retry)
        foreign = await ben.post("/v1/chat/completions", json=body, headers=retry)
        fresh = await ana.post("/v1/chat/completions", json=body)
        assert len(here.replicas.asked) == 4
    assert again.content == first.content
    assert first.json()["id"] in streamed.text
    assert len({answer.json()["id"] for answer in (first, other, foreign, fresh)}) == 4


async def test_a_key_makes_a_repeat_the_same_turn() -> None:
    async with rig() as here:
        program = await here.user("ana")
        body = {"model": "auto", "messages": HI}
        key = {"Idempotency-Key": "k1"}
        first = await program.post("/v1/chat/completions", json=body, headers=key)
        again = await program.post("/v1/chat/completions", json=body, headers=key)
        other = await program.post("/v1/chat/completions", json={**body, "top_p": 0.1}, headers=key)
        assert len(here.replicas.asked) == 1
    assert again.content == first.content
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reuse")


async def test_a_failed_stream_sends_the_error_object() -> None:
    """S-05: a client takes a bare end for success."""

    class Broken(ScriptedReplicas):
        async def place(self, wanted: Wanted) -> str | None:
            self.states = []
            raise ValueError("a fault of ours")

    with capture_logs():  # printing the fault's traceback takes seconds
        await _fail_twice(Broken())


async def _fail_twice(replicas: ScriptedReplicas) -> None:
    async with rig(replicas=replicas) as here, sdk(here) as client:
        with pytest.raises(APIError) as failed:
            await chunks_of(client)
        program = await here.user("ben")
        here.replicas.states = ScriptedReplicas().states
        whole = await program.post("/v1/chat/completions", json={"model": "auto", "messages": HI})
    assert failed.value.code == "internal"
    assert (whole.status_code, whole.json()["error"]["code"]) == (500, "internal")


def test_a_reset_after_text_ends_the_stream_with_an_error(a_turn: Turn) -> None:
    """What was sent can't be taken back, and nothing may follow the error."""
    render = ChunkRender(a_turn, with_usage=False)
    assert render.reset("buffer_lost").startswith(b": ")
    render.entries([meta_entry(1, a_turn), delta_entry(2, "One", b"")])
    assert b'data: {"error":' in render.reset("buffer_lost")
    assert render.entries([meta_entry(1, a_turn), terminal_entry(2, a_turn)]) == b""
    assert render.broken() == b""


def test_an_abandoned_reply_does_not_look_like_a_whole_one(a_turn: Turn) -> None:
    """Somebody who listens after all must not take the half for the whole."""
    render = ChunkRender(a_turn, with_usage=True)
    end = terminal_entry(2, a_turn._replace(status=Status.STOPPED, finish=Finish.ABANDONED))
    said = render.entries([meta_entry(1, a_turn), end])
    assert b'"code":"abandoned"' in said
    assert b"[DONE]" not in said
    assert b'"finish_reason":"stop"' not in said


def test_a_chunk_holds_any_text_exactly(a_turn: Turn) -> None:
    render = ChunkRender(a_turn, with_usage=True)
    text = '"}\n\ndata: [DONE]\n\n\u2028\x1a\\u001a'
    frame = render.entries([delta_entry(2, text, b"")])
    assert frame.count(b"\n\n") == 1
    chunk = json.loads(frame.removeprefix(b"data: "))
    assert chunk["choices"][0]["delta"] == {"content": text}


@pytest.fixture
def a_turn() -> Turn:
    return Turn(
        owner="u_1",
        key="k",
        body_sha="",
        kind="stateless",
        reply_id="m_1",
        plan="free",
        lane=Lane.FREE,
        requested="auto",
        answer_tokens=10,
        reserved=10,
        sampling=Sampling(),
        status=Status.COMPLETED,
        epoch=1,
        attempt=1,
        created_at=0.0,
        model="small",
        finish=Finish.STOP,
    )
