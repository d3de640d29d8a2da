"""Exports over HTTP: what is in the archive, who may ask for it, and when it ends too early."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from typing import Any
from zipfile import ZipFile

import httpx2
import pytest

from tertulia.core.plans import Plan
from tertulia.gateway import exports
from tests.lanes.gateway_rig import (
    PASSWORD,
    PLANS,
    ScriptedReplicas,
    ask,
    ask_later,
    events,
    new_conversation,
    until,
)
from tests.lanes.moving_rig import chatgpt, exported, imported, listed, moving_rig, unpacked

pytestmark = pytest.mark.anyio


def conversations_of(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [json.loads(data) for name, data in files.items() if name.startswith("conversations/")
            and name.endswith(".json")]  # fmt: skip


async def test_everything_is_in_the_archive() -> None:
    async with moving_rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        first, second = await new_conversation(ana), await new_conversation(ana)
        await new_conversation(ben)
        await ana.put("/v1/me/instructions", json={"text": "Be brief."})
        await ask(ana, first, "Why is it so?")
        await ana.patch(f"/v1/conversations/{second}", json={"archived": True, "pinned": True})
        answer = await ana.post("/v1/me/export", json={"password": PASSWORD})
        shown = (await ana.get(f"/v1/conversations/{first}/messages")).json()["items"]
        one = (await ana.get(f"/v1/conversations/{first}")).json()
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-total-conversations"] == "2"
    assert answer.headers["content-disposition"].startswith('attachment; filename="tertulia-export')
    files = unpacked(answer.content)
    about = json.loads(files["export.json"])
    assert (about["format"], about["version"], about["conversations"]) == ("tertulia-export", 1, 2)
    profile = json.loads(files["profile.json"])
    assert (profile["name"], profile["apiKeys"][0]["name"]) == ("ana", "tests")
    assert (profile["instructions"], profile["evaluation"]) == ("Be brief.", False)
    usage = json.loads(files["usage.json"])
    assert usage["budgets"]
    (used,) = usage["used"]
    assert (used["model"], used["replies"]) == ("lab/small-1b", 1)
    assert used["day"] >= one["updatedAt"][:10]
    assert used["charged"] > 0
    assert used["input"] >= used["cached"]
    found = {one["conversation"]["id"]: one for one in conversations_of(files)}
    assert set(found) == {first, second}
    for message in shown:
        del message["version"]  # how many there are beside it is in the whole tree
    assert found[first]["messages"] == shown
    its = found[first]["conversation"]
    assert its["headMessageId"] == shown[-1]["id"]
    assert {key: its[key] for key in ("title", "createdAt", "updatedAt", "pinned", "archived")} == {
        key: one[key] for key in ("title", "createdAt", "updatedAt", "pinned", "archived")
    }
    assert found[second]["messages"] == []
    assert found[second]["conversation"]["archived"]
    (markdown,) = [data.decode() for name, data in files.items() if name.endswith(f"{first}.md")]
    assert "# Why is it so?" in markdown
    assert "## Assistant (lab/small-1b)" in markdown
    assert shown[1]["content"] in markdown


async def test_markdown_shows_the_branch_that_was_shown_and_json_all() -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        await imported(ana, [chatgpt()])
        files = unpacked(await exported(ana))
    (markdown,) = [data.decode() for name, data in files.items() if name.endswith(".md")]
    assert "Second answer" in markdown
    assert "First answer" not in markdown
    assert "other branches" in markdown
    (whole,) = conversations_of(files)
    assert len(whole["messages"]) == 4


@pytest.mark.parametrize("n_messages", [0, 1, 4, 5, 8, 9])
async def test_a_long_conversation_is_copied_page_by_page(
    n_messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_PAGE_MESSAGES", 4)
    monkeypatch.setattr(exports, "_PAGE_CONVERSATIONS", 1)
    mapping: dict[str, Any] = {}
    for n in range(n_messages):
        said = {
            "author": {"role": "assistant" if n % 2 else "user"},
            "content": {"content_type": "text", "parts": [f"text {n}"]},
        }
        mapping[f"n{n}"] = {"message": said, "parent": f"n{n - 1}" if n else None}
    async with moving_rig() as here:
        ana = await here.user("ana")
        await new_conversation(ana)
        if n_messages:
            await imported(ana, [chatgpt(mapping=mapping, current_node=None)])
        files = unpacked(await exported(ana))
    whole = max(conversations_of(files), key=lambda one: len(one["messages"]))
    assert [one["content"] for one in whole["messages"]] == [f"text {n}" for n in range(n_messages)]
    texts = [data.decode() for name, data in files.items() if name.endswith(".md")]
    assert max(text.count("text ") for text in texts) == n_messages


async def test_file_names_are_safe_and_only_once() -> None:
    titles = [
        "../../etc/passwd",
        'C:\\con "x"\r\n',
        "same",
        "same",
        "नमस्ते ñandú 👩‍👩‍👧",
        "",
        "." * 90,
        "a" * 300,
    ]
    async with moving_rig() as here:
        ana = await here.user("ana")
        for title in titles:
            made = await ana.post("/v1/conversations", json={"title": title[:200]})
            assert made.status_code == 201
        with ZipFile(io.BytesIO(await exported(ana))) as archive:
            names = archive.namelist()
    assert len(names) == len({name.casefold() for name in names}) == 3 + 2 * len(titles)
    for name in names[3:]:
        folder, slash, file = name.partition("/")
        assert (folder, slash) == ("conversations", "/")
        stem, _, ending = file.rpartition(".")
        assert ending in ("json", "md")
        assert stem.replace("-", "").replace("_", "").isalnum()
        assert len(name.encode()) < 255


async def test_a_reply_in_progress_is_exported_as_far_as_it_was_shown() -> None:
    async with moving_rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        posted = (await ask_later(ana, conversation)).json()

        async def shown() -> str:
            page = (await ana.get(f"/v1/conversations/{conversation}/messages")).json()
            return str(page["items"][-1]["content"])

        await until(shown)
        archive = await exported(ana)
        ben = await here.user("ben")
        await imported(ben, archive)
        (theirs,) = await listed(ben)
        its = (await ben.get(f"/v1/conversations/{theirs['id']}/messages")).json()["items"]
    (whole,) = conversations_of(unpacked(archive))
    assert whole["messages"][-1]["id"] == posted["messageId"]
    assert whole["messages"][-1]["status"] == "running"
    assert whole["messages"][-1]["content"]
    assert (its[-1]["status"], its[-1]["finish"]) == ("stopped", "stopped")
    assert its[-1]["content"] == whole["messages"][-1]["content"]


async def test_the_password_is_asked_for_again() -> None:
    """T46."""
    async with moving_rig() as here:
        program = await here.user("ana")
        without = await program.post("/v1/me/export")
        wrong = await program.post("/v1/me/export", json={"password": "not the right one"})
        right = await program.post("/v1/me/export", json={"password": PASSWORD})
        browser = await here.browser("ben")
        fresh = await browser.post("/v1/me/export")
        for token, session in here.backend.store.sessions.items():
            here.backend.store.sessions[token] = type(session)(
                session.user_id, session.token_hash, session.created_at - 301, session.expires_at
            )
        old = await browser.post("/v1/me/export")
        again = await browser.post("/v1/me/export", json={"password": PASSWORD})
        nobody = await here.client().post("/v1/me/export", json={"password": PASSWORD})
        csrf = await here.client(Origin="http://elsewhere.test", Cookie=_cookie(browser)).post(
            "/v1/me/export"
        )
    assert [one.status_code for one in (without, wrong, right)] == [403, 403, 200]
    assert without.json()["field"] == "password"
    assert [one.status_code for one in (fresh, old, again)] == [200, 403, 200]
    assert (nobody.status_code, csrf.status_code) == (401, 403)


def _cookie(browser: httpx2.AsyncClient) -> str:
    return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


async def test_so_many_exports_an_hour() -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        codes = [
            (await ana.post("/v1/me/export", json={"password": PASSWORD})).status_code
            for _ in range(11)
        ]
    assert codes == [200] * 10 + [429]


async def test_an_export_holds_a_seat_and_ends_with_its_credential(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exports, "_CHUNK_BYTES", 1)
    gate, first = asyncio.Event(), asyncio.Event()
    async with moving_rig(plans={**PLANS, "free": _with_streams(1)}) as here:
        ana = await here.user("ana")
        await new_conversation(ana)
        transcripts = here.backend.transcripts
        conversations = transcripts.conversations

        async def slow(owner: str, **more: Any) -> Any:
            first.set()
            await gate.wait()
            return await conversations(owner, **more)

        monkeypatch.setattr(transcripts, "conversations", slow)
        copying = asyncio.create_task(ana.post("/v1/me/export", json={"password": PASSWORD}))
        await first.wait()
        conversation = await new_conversation(ana)
        full = await ask(ana, conversation)
        second = await ana.post("/v1/me/export", json={"password": PASSWORD})
        await here.backend.api_keys.revoke(
            (await ana.get("/v1/me")).json()["id"],
            (await ana.get("/v1/api-keys")).json()["items"][0]["id"],
        )
        await until(lambda: here.desk.streams._refused)
        gate.set()
        with pytest.raises(httpx2.TransportError):
            await copying
        await until(lambda: not len(here.desk.streams))
    assert (full.status_code, second.status_code) == (429, 429)


async def test_a_client_that_leaves_gives_its_seat_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_CHUNK_BYTES", 1)
    gate = asyncio.Event()
    async with moving_rig() as here:
        ana = await here.user("ana")
        await new_conversation(ana)
        transcripts = here.backend.transcripts

        async def never(owner: str, **more: Any) -> Any:
            await gate.wait()

        monkeypatch.setattr(transcripts, "conversations", never)
        async with ana.stream("POST", "/v1/me/export", json={"password": PASSWORD}) as answer:
            assert answer.status_code == 200
            assert len(here.desk.streams) == 1
        await until(lambda: not len(here.desk.streams))


async def test_an_export_does_not_look_whole_where_the_gateway_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        here.desk.streams.draining = True
        with pytest.raises(httpx2.TransportError):
            await ana.post("/v1/me/export", json={"password": PASSWORD})
        here.desk.streams.leaving = True
        refused = await ana.post("/v1/me/export", json={"password": PASSWORD})
        taken = await ana.post("/v1/imports", json=[])
    assert (refused.status_code, refused.json()["code"]) == (503, "draining")
    assert (taken.status_code, taken.json()["code"]) == (503, "draining")


async def test_a_chat_goes_on_beside_an_export() -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        await imported(ana, [chatgpt(str(n)) for n in range(60)])
        conversation = await new_conversation(ana)
        copying, answer = await asyncio.gather(exported(ana), ask(ana, conversation))
    assert [kind for _, kind, _ in events(answer.text)][-1] == "done"
    assert len(conversations_of(unpacked(copying))) in (60, 61)


def _with_streams(n: int) -> Plan:
    return replace(PLANS["free"], open_streams=n)
