"""System prompts for administrators: added, listed, rolled out slowly, and seen by nobody else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from tertulia.config import PromptTable, Settings
from tertulia.core.rollout import ALL, Rollout, version_for, version_of
from tertulia.wiring.gateway import keep_prompt
from tests.lanes.gateway_rig import (
    PLANS,
    SYSTEM_PROMPT,
    Letters,
    Rig,
    ask,
    new_conversation,
    rig,
)

pytestmark = pytest.mark.anyio

PROMPTS = "/v1/admin/prompts"
ROLLOUT = "/v1/admin/prompts/rollout"


async def added(admin: httpx2.AsyncClient, text: str) -> str:
    answer = await admin.post(PROMPTS, json={"text": text})
    assert answer.status_code == 201, answer.text
    version: str = answer.json()["version"]
    return version


async def roll_out(admin: httpx2.AsyncClient, version: str, share: int) -> Any:
    answer = await admin.put(ROLLOUT, json={"version": version, "share": share})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def system_of(here: Rig, client: httpx2.AsyncClient, conversation: str, key: str) -> str:
    assert (await ask(client, conversation, key=key)).status_code == 200
    prompt, vocabulary = here.replicas.asked[-1].prompt, Letters()
    return vocabulary.decode(prompt[: prompt.index(2)])


async def test_the_configured_prompt_is_the_first_and_everybodys() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        await new_conversation(admin)
        listed = (await admin.get(PROMPTS)).json()
    (item,) = listed["items"]
    assert (item["version"], item["text"], item["conversations"]) == ("v1", SYSTEM_PROMPT, 1)
    assert item["isWhole"] is True
    assert listed["rollout"] == {"version": "v1", "share": 100, "base": "v1"}


async def test_an_added_version_is_nobodys_until_it_is_rolled_out() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        version = await added(admin, "  Be terse.  ")
        assert version == version_of("Be terse.")
        assert await added(admin, "Be terse.") == version
        assert await system_of(here, admin, await new_conversation(admin), "k1") == SYSTEM_PROMPT
        assert await roll_out(admin, version, 100) == {
            "version": version,
            "share": 100,
            "base": "v1",
        }
        assert await system_of(here, admin, await new_conversation(admin), "k2") == "Be terse."
        listed = (await admin.get(PROMPTS)).json()["items"]
        figures = (await here.client().get("/metrics")).text
    assert [(item["version"], item["conversations"]) for item in listed] == [
        (version, 1),
        ("v1", 1),
    ]
    assert f'tertulia_conversations_begun_total{{prompt_version="{version}"}} 1.0' in figures


async def test_a_share_of_new_conversations_gets_it_and_all_of_them_keep_what_they_got() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        version = await added(admin, "Be terse.")
        await roll_out(admin, version, 40)
        names = [await new_conversation(admin) for _ in range(20)]
        rollout = Rollout("v1", version, 40, "v1")
        expected = [version_for(name, rollout) for name in names]
        got = [here.backend.store.conversations[_owner(here), name] for name in names]
        assert [one.prompt_version for one in got] == expected
        assert set(expected) == {"v1", version}
        await roll_out(admin, version, 100)
        old = next(name for name, on in zip(names, expected, strict=True) if on == "v1")
        assert await system_of(here, admin, old, "k1") == SYSTEM_PROMPT


def _owner(here: Rig) -> str:
    (owner,) = {owner for owner, _ in here.backend.store.conversations}
    return owner


async def test_an_old_conversation_moves_when_its_context_is_cut_and_not_before() -> None:
    plans = {"free": replace(PLANS["free"], window_tokens=1_500, answer_tokens=100)}
    async with rig(plans=plans) as here:
        admin = await here.user("root", role="admin")
        conversation = await new_conversation(admin)
        assert await system_of(here, admin, conversation, "k") == SYSTEM_PROMPT
        version = await added(admin, "Be terse, and then some more.")
        await roll_out(admin, version, 100)
        begun = []
        for n in range(12):
            answer = await ask(admin, conversation, chr(ord("a") + n) * 300, key=f"k{n}")
            prompt = here.replicas.asked[-1].prompt
            begun.append(
                (
                    "context_shortened" in answer.text,
                    Letters().decode(prompt[: prompt.index(2)]) != SYSTEM_PROMPT,
                )
            )
            # What was reserved is what was used, also where the new prompt is longer.
            assert len(prompt) <= 1_500 - 64
    assert {shortened for shortened, _ in begun} == {True, False}
    assert all(shortened == moved for shortened, moved in begun)


async def test_what_was_reserved_covers_a_prompt_that_moved() -> None:
    plans = {"free": replace(PLANS["free"], window_tokens=1_500, answer_tokens=100)}
    async with rig(plans=plans) as here:
        admin = await here.user("root", role="admin")
        conversation = await new_conversation(admin)
        await ask(admin, conversation, "a" * 300, key="k")
        version = await added(admin, "Be terse, and do it in very many words. " * 5)
        await roll_out(admin, version, 100)
        for n in range(8):
            await ask(admin, conversation, "b" * 300, key=f"k{n}")
        figures = here.worker.desk.figures.page().decode()
        moved = here.backend.store.conversations[_owner(here), conversation]
    assert moved.prompt_version == version
    assert "tertulia_worker_usage_clamped_total 0.0" in figures


async def test_rolling_back_is_a_share_of_nothing() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        version = await added(admin, "Be terse.")
        await roll_out(admin, version, 100)
        assert await roll_out(admin, version, 0) == {"version": version, "share": 0, "base": "v1"}
        assert await system_of(here, admin, await new_conversation(admin), "k1") == SYSTEM_PROMPT


async def test_no_third_version_breaks_into_a_rollout() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        one, two = [await added(admin, text) for text in ("Be terse.", "Be long.")]
        await roll_out(admin, one, 10)
        refused = await admin.put(ROLLOUT, json={"version": two, "share": 10})
        assert (await admin.get(PROMPTS)).json()["rollout"]["version"] == one
        await roll_out(admin, one, 100)
        assert await roll_out(admin, two, 10) == {"version": two, "share": 10, "base": one}
    assert (refused.status_code, refused.json()["code"]) == (409, "rollout_under_way")
    assert refused.json()["rollout"] == {"version": one, "share": 10, "base": "v1"}


async def test_administrators_at_the_same_moment_take_turns() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        version = await added(admin, "Be terse.")
        shares = await asyncio.gather(*(roll_out(admin, version, share) for share in (10, 20, 30)))
        holds = (await admin.get(PROMPTS)).json()["rollout"]
    assert sorted(answer["share"] for answer in shares) == [10, 20, 30]
    assert holds in shares


async def test_whoever_never_gets_his_turn_is_told_so() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        version = await added(admin, "Be terse.")

        async def too_late(seen: Rollout | None, to: Rollout) -> bool:
            return False

        here.backend.prompts.roll_out = too_late  # type: ignore[method-assign]  # as if others won
        refused = await admin.put(ROLLOUT, json={"version": version, "share": 10})
    assert (refused.status_code, refused.json()["code"]) == (409, "rollout_under_way")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"version": "v1", "share": -1}, "share"),
        ({"version": "v1", "share": 101}, "share"),
        ({"version": "v1", "share": 1.5}, "share"),
        ({"version": "v1", "share": "10"}, "share"),
        ({"version": "v1"}, "share"),
        ({"share": 10}, "version"),
        ({"version": "unknown", "share": 10}, "version"),
        ({"version": "", "share": 10}, "version"),
        ({"version": "v" * 41, "share": 10}, "version"),
        ({"version": "v1", "share": 10, "base": "v1"}, "base"),
    ],
    ids=str,
)
async def test_a_rollout_that_can_not_be_is_refused_by_its_field(
    body: dict[str, object], field: str
) -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        refused = await admin.put(ROLLOUT, json=body)
        holds = here.backend.store.rollout
    assert (refused.status_code, refused.json()["field"]) == (400, field)
    assert holds == Rollout("v1", "v1", ALL, "v1")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": ""}, 400),
        ({"text": " \n "}, 400),
        ({"text": 3}, 400),
        ({}, 400),
        ({"text": "x" * 2_001}, 413),  # a quarter of the smallest window
        ({"text": "x" * 50_000}, 413),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_a_prompt_that_can_not_be_is_refused(body: dict[str, object], status: int) -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        refused = await admin.post(PROMPTS, json=body)
        kept = here.backend.store.prompts
    assert (refused.status_code, refused.json()["field"]) == (status, "text")
    assert list(kept) == ["v1"]


async def test_nobody_but_administrators_sees_or_changes_any_of_it() -> None:
    """T45."""
    async with rig() as here:
        ana = await here.user("ana")
        for method, path, body in (
            ("GET", PROMPTS, None),
            ("POST", PROMPTS, {"text": "Obey me."}),
            ("PUT", ROLLOUT, {"version": "v1", "share": 0}),
        ):
            by_user = await ana.request(method, path, json=body)
            by_nobody = await here.client().request(method, path, json=body)
            assert (by_user.status_code, by_nobody.status_code) == (403, 401)
        assert list(here.backend.store.prompts) == ["v1"]


async def test_programs_get_the_version_that_is_rolled_out_too() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        await roll_out(admin, await added(admin, "Be terse."), 100)
        body = {"model": "auto", "messages": [{"role": "user", "content": "Why?"}]}
        assert (await admin.post("/v1/chat/completions", json=body)).status_code == 200
        prompt = here.replicas.asked[-1].prompt
    assert Letters().decode(prompt[: prompt.index(2)]) == "Be terse."


def configured(text: str) -> Settings:
    return Settings(prompt=PromptTable(system=text))


async def test_an_edited_configuration_is_for_who_begins_after_the_restart() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        old = await new_conversation(admin)
        await keep_prompt(configured("Be terse."), here.desk)
        assert await system_of(here, admin, await new_conversation(admin), "k1") == "Be terse."
        assert await system_of(here, admin, old, "k2") == SYSTEM_PROMPT
        # Restarts change nothing, neither of this nor of what administrators roll out.
        await roll_out(admin, "v1", 100)
        await keep_prompt(configured("Be terse."), here.desk)
        assert await system_of(here, admin, await new_conversation(admin), "k3") == SYSTEM_PROMPT


async def test_an_edited_configuration_breaks_into_no_rollout_and_says_so() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        version = await added(admin, "Be long.")
        await roll_out(admin, version, 10)
        with capture_logs() as logs:
            await keep_prompt(configured("Be terse."), here.desk)
        listed = (await admin.get(PROMPTS)).json()
    assert [(entry["event"], entry["version"]) for entry in logs] == [
        ("prompt_not_followed", version_of("Be terse."))
    ]
    assert listed["rollout"] == {"version": version, "share": 10, "base": "v1"}
    assert version_of("Be terse.") in {item["version"] for item in listed["items"]}


async def test_a_first_start_gives_the_configured_prompt_to_all() -> None:
    async with rig() as here:
        here.backend.store.rollout = None
        await keep_prompt(configured("Be terse."), here.desk)
        version = version_of("Be terse.")
        assert here.backend.store.rollout == Rollout(version, version, ALL, version)
