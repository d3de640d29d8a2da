"""A person's own instructions: what they change of prompts, for whom, and from when on."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import pytest

from tertulia.core.opening import asked
from tertulia.core.types import Admitted, GenerateRequest
from tests.lanes.gateway_rig import (
    FORBIDDEN,
    PASSWORD,
    PLANS,
    SYSTEM_PROMPT,
    Letters,
    Rig,
    ask,
    new_conversation,
    rig,
)

pytestmark = pytest.mark.anyio

MINE = "/v1/me/instructions"


async def write(client: httpx2.AsyncClient, text: str) -> None:
    answer = await client.put(MINE, json={"text": text})
    assert answer.status_code == 200, answer.text


def system_of(request: GenerateRequest) -> str:
    """What the system message of this prompt says; a `>` ends each message."""
    vocabulary = Letters()
    end = request.prompt.index(vocabulary.encode_control(">")[0])
    return vocabulary.decode(request.prompt[:end])


async def begun(here: Rig, client: httpx2.AsyncClient, *, in_: str | None = None) -> str:
    """What the prompt of a message now begins with."""
    conversation = in_ or await new_conversation(client)
    key = f"key-{len(here.replicas.asked)}"
    assert (await ask(client, conversation, key=key)).status_code == 200
    return system_of(here.replicas.asked[-1])


async def test_there_are_none_until_they_are_written() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        assert (await ana.get(MINE)).json() == {
            "text": "",
            "version": None,
            "tokens": 0,
            "limit": 1_000,
            "writtenAt": None,
        }
        put = await ana.put(MINE, json={"text": "  Be brief.\n"})
        assert put.status_code == 200
        assert put.json() == (await ana.get(MINE)).json()
    assert (put.json()["text"], put.json()["version"]) == ("Be brief.", 1)
    assert put.json()["tokens"] == len(asked("Be brief."))


async def test_they_follow_the_platforms_words_and_only_those_are_shared() -> None:
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        await write(ana, "Be brief. <>")
        assert await begun(here, ana) == SYSTEM_PROMPT + asked("Be brief. <>")
        assert await begun(here, ben) == SYSTEM_PROMPT
        of_ana, of_ben = here.replicas.asked
    shared = 1 + len(SYSTEM_PROMPT)  # and what the template says before
    assert of_ana.shared_tokens == of_ben.shared_tokens == shared
    assert of_ana.prompt[:shared] == of_ben.prompt[:shared]
    assert of_ana.cache_salt != of_ben.cache_salt


async def test_what_looks_like_a_control_token_is_text() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        await write(ana, "<<>>")
        await begun(here, ana)
        (request,) = here.replicas.asked
    n_messages = 2
    assert sum(token in Letters.control_ids for token in request.prompt) == 1 + n_messages


async def test_a_change_reaches_new_conversations_and_leaves_old_ones_alone() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        without = await new_conversation(ana)
        assert await begun(here, ana, in_=without) == SYSTEM_PROMPT
        await write(ana, "One")
        first = await new_conversation(ana)
        assert await begun(here, ana, in_=first) == SYSTEM_PROMPT + asked("One")
        await write(ana, "Two")
        assert await begun(here, ana) == SYSTEM_PROMPT + asked("Two")
        assert await begun(here, ana, in_=first) == SYSTEM_PROMPT + asked("One")
        assert await begun(here, ana, in_=without) == SYSTEM_PROMPT


async def test_deleted_ones_are_said_nowhere_any_more() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        await write(ana, "One")
        kept = await new_conversation(ana)
        await begun(here, ana, in_=kept)
        assert (await ana.delete(MINE)).status_code == 204
        assert (await ana.delete(MINE)).status_code == 204
        assert (await ana.get(MINE)).json()["version"] is None
        assert await begun(here, ana, in_=kept) == SYSTEM_PROMPT
        assert await begun(here, ana) == SYSTEM_PROMPT
        await write(ana, "Two")
        assert await begun(here, ana, in_=kept) == SYSTEM_PROMPT


async def test_they_end_with_the_account() -> None:
    async with rig() as here:
        ana = await here.browser("ana")
        await write(ana, "A secret wish")
        gone = await ana.request("DELETE", "/v1/me", json={"password": PASSWORD})
        told = here.backend.store.told
    assert gone.status_code == 204
    assert "A secret wish" not in repr(told)


async def test_an_old_conversation_takes_them_over_when_its_context_is_cut() -> None:
    """One changed word at the head empties the cache: it may change where it is empty anyway."""
    plans = {"free": replace(PLANS["free"], window_tokens=1_500, answer_tokens=100)}
    async with rig(plans=plans) as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        await ask(ana, conversation, "a" * 300, key="k0")
        await write(ana, "Be brief.")
        cut = None
        for n in range(1, 12):
            streamed = await ask(ana, conversation, chr(ord("a") + n) * 300, key=f"k{n}")
            request = here.replicas.asked[-1]
            was_cut = "context_shortened" in streamed.text
            expected = SYSTEM_PROMPT + (asked("Be brief.") if was_cut else "")
            assert system_of(request) == expected
            cut = n if was_cut and cut is None else cut
        assert cut is not None
        # From there on it stays: between two cuts each prompt begins with the one before.
        again = here.replicas.asked[cut : cut + 2]
        assert again[1].prompt[: len(again[0].prompt)] == again[0].prompt
        moved = here.worker.desk.figures.page().decode()
    assert 'tertulia_worker_conversations_moved_total{prompt_version="v1"} 1.0' in moved


async def test_they_are_counted_before_a_turn_is_let_in() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        admitted = []
        real = here.backend.turns.admit

        async def noted(turn: object, limits: object) -> object:
            answer = await real(turn, limits)  # type: ignore[arg-type]  # as it was called
            admitted.append(answer)
            return answer

        here.backend.turns.admit = noted  # type: ignore[method-assign, assignment]  # to look on
        before = (await ana.get("/v1/me")).json()["limits"]["messageTokens"]
        await begun(here, ana)
        await write(ana, "Be brief.")
        await begun(here, ana)
        after = (await ana.get("/v1/me")).json()["limits"]["messageTokens"]
        turns = [answer.turn for answer in admitted if isinstance(answer, Admitted)]
        prompts = [len(request.prompt) for request in here.replicas.asked]
    own = len(asked("Be brief."))
    assert turns[1].reserved - turns[0].reserved == own
    counted = [turn.reserved - turn.answer_tokens for turn in turns]
    assert all(held >= n for held, n in zip(counted, prompts, strict=True))
    assert prompts[1] - prompts[0] == own
    assert before - after == own


async def test_a_message_that_fits_only_without_them_is_refused_with_the_limit() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        await write(ana, "x" * 500)
        limit = (await ana.get("/v1/me")).json()["limits"]["messageTokens"]
        conversation = await new_conversation(ana)
        over = await ask(ana, conversation, "y" * (limit + 1), key="over")
        fits = await ask(ana, conversation, "y" * limit, key="fits")
    assert (over.status_code, over.json()["limit"]) == (413, limit)
    assert fits.status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"text": ""}, 400, "invalid_request"),
        ({"text": " \n\t"}, 400, "invalid_request"),
        ({"text": None}, 400, "invalid_request"),
        ({"text": 7}, 400, "invalid_request"),
        ({"text": "nul \x00"}, 400, "invalid_request"),
        ({"text": f"a {FORBIDDEN}"}, 400, "invalid_request"),
        ({"text": "x" * 1_001}, 413, "text_too_long"),
        ({"text": "é" * 10_001}, 413, "text_too_long"),
    ],
    ids=str,
)
async def test_what_can_not_be_kept_is_refused_and_changes_nothing(
    body: dict[str, object], status: int, code: str
) -> None:
    async with rig() as here:
        ana = await here.user("ana")
        await write(ana, "Be brief.")
        refused = await ana.put(MINE, json=body)
        kept = (await ana.get(MINE)).json()
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert refused.json()["field"] == "text"
    assert kept["text"] == "Be brief."


async def test_a_text_that_is_too_long_says_the_limit_and_the_count() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        own = len(asked(""))
        fits = await ana.put(MINE, json={"text": "x" * (1_000 - own)})
        over = (await ana.put(MINE, json={"text": "x" * (1_001 - own)})).json()
        huge = (await ana.put(MINE, json={"text": "x" * 30_000})).json()
    assert fits.status_code == 200
    assert (over["limit"], over["count"], over["unit"]) == (1_000, 1_001, "tokens")
    assert (huge["limit"], huge["count"], huge["unit"]) == (20_000, 30_000 + own, "bytes")


async def test_without_a_credential_there_is_nothing_to_see_or_write() -> None:
    async with rig() as here:
        nobody = here.client()
        answers = [
            await nobody.get(MINE),
            await nobody.put(MINE, json={"text": "Be brief."}),
            await nobody.delete(MINE),
        ]
    assert [answer.status_code for answer in answers] == [401] * 3


async def test_programs_that_bring_their_own_messages_are_told_nothing_else() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        await write(ana, "Be brief.")
        body = {"model": "auto", "messages": [{"role": "user", "content": "Why?"}]}
        assert (await ana.post("/v1/chat/completions", json=body)).status_code == 200
        (request,) = here.replicas.asked
    assert system_of(request) == SYSTEM_PROMPT


# Evaluation


async def test_use_in_evaluation_is_off_until_it_is_turned_on() -> None:
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        await new_conversation(ben)
        conversation = await new_conversation(ana)
        assert (await ana.get("/v1/me")).json()["evaluation"] is False
        on = await ana.patch("/v1/me", json={"evaluation": True})
        assert (on.status_code, on.json()) == (200, {"evaluation": True})
        assert (await ana.get("/v1/me")).json()["evaluation"] is True
        usable = await here.backend.evaluation.usable(limit=10)
        assert [one.id for one in usable] == [conversation]
        assert (await ana.patch("/v1/me", json={})).json() == {"evaluation": True}
        await ana.patch("/v1/me", json={"evaluation": False})
        assert await here.backend.evaluation.usable(limit=10) == []
        assert (await ana.patch("/v1/me", json={})).json() == {"evaluation": False}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"evaluation": 1}, "evaluation"),
        ({"evaluation": None}, "evaluation"),
        ({"plan": "plus"}, "plan"),
        ({"role": "admin"}, "role"),
    ],
    ids=str,
)
async def test_nothing_else_of_an_account_is_its_owners_to_change(
    body: dict[str, object], field: str
) -> None:
    async with rig() as here:
        ana = await here.user("ana")
        refused = await ana.patch("/v1/me", json=body)
        me = (await ana.get("/v1/me")).json()
    assert (refused.status_code, refused.json()["field"]) == (400, field)
    assert (me["plan"], me["role"], me["evaluation"]) == ("free", "user", False)


async def test_administrators_can_not_agree_for_others() -> None:
    async with rig() as here:
        admin, ana = await here.user("root", role="admin"), await here.user("ana")
        user_id = (await ana.get("/v1/me")).json()["id"]
        refused = await admin.patch(f"/v1/admin/users/{user_id}", json={"evaluation": True})
        assert (await ana.get("/v1/me")).json()["evaluation"] is False
    assert (refused.status_code, refused.json()["field"]) == (400, "evaluation")
