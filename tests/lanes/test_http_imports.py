"""Imports over HTTP: what comes in, twice is once, what is refused, and what a bad file does."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from dataclasses import replace
from typing import Any

import pytest

from tertulia.core.files import PART_BYTES
from tertulia.core.imports import FRUITLESS_CLAIMS, Import, ImportState, NewImport
from tertulia.gateway import porter
from tertulia.gateway.archive import DIRECTORY_BYTES
from tests.lanes.batch_rig import form
from tests.lanes.gateway_rig import PASSWORD, Rig, ask, new_conversation, text_of, until
from tests.lanes.moving_rig import (
    QUICK,
    begun,
    chatgpt,
    exported,
    imported,
    listed,
    messages,
    moving_rig,
    open_webui,
    packed,
)

pytestmark = pytest.mark.anyio


async def no_files_left(here: Rig) -> bool:
    await here.backend.files.sweep(parts=1_000)
    return not here.backend.files._files


async def test_chatgpts_conversations_come_in_with_dates_and_branches() -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        report = await imported(ana, [chatgpt("one"), chatgpt("two", is_archived=True)])
        found = await listed(ana)
        archived = await listed(ana, archived=True)
        its = await messages(ana, found[0]["id"])
        whole = (await ana.get(f"/v1/conversations/{found[0]['id']}")).json()
        await until(lambda: no_files_left(here))
    assert report["state"] == "completed"
    assert report["conversations"] == {
        "total": 2,
        "read": 2,
        "imported": 2,
        "alreadyHere": 0,
        "changedSince": 0,
        "refused": 0,
    }
    assert (report["messages"], report["left"], report["error"]) == (8, [], None)
    assert report["readBytes"] == report["totalBytes"] == report["fileBytes"]
    assert [one["title"] for one in (*found, *archived)] == ["Title one", "Title two"]
    assert found[0]["createdAt"] == "2023-11-14T22:13:20.000Z"
    assert found[0]["updatedAt"] == "2023-11-14T22:15:00.250Z"
    text = {one["id"]: one["content"] for one in its}
    assert [(one["content"], text.get(one["parentId"])) for one in its] == [
        ("Why, one?", None),
        ("First answer", "Why, one?"),
        ("Second answer", "Why, one?"),
        ("And then?", "First answer"),
    ]
    assert [one["model"] for one in its] == [None, "gpt-4o", "gpt-4o", None]
    assert [one["tokens"] for one in its] == [len(one["content"]) for one in its]
    assert whole["headMessageId"] == its[2]["id"]


async def test_open_webuis_chats_come_in() -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        report = await imported(ana, [open_webui()])
        found = await listed(ana)
        its = await messages(ana, found[0]["id"])
    assert report["conversations"]["imported"] == 1
    assert found[0]["pinned"]
    assert [one["status"] for one in its] == ["completed", "completed", "failed", "completed"]
    assert its[1]["feedback"] == "up"
    assert its[2]["error"]["code"] == "imported"


async def test_an_imported_conversation_goes_on() -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        await imported(ana, [chatgpt()])
        (one,) = await listed(ana)
        answer = await ask(ana, one["id"], "Say more")
        again = await ana.post(
            f"/v1/messages/{(await messages(ana, one['id']))[1]['id']}/regenerate",
            json={},
            headers={"Idempotency-Key": "again", "Accept": "text/event-stream"},
        )
        prompt = here.replicas.asked[0].prompt
    assert text_of(answer.text)
    assert text_of(again.text)
    said = "".join(chr(number - 10) for number in prompt if number >= 10)
    assert said == "Be kind.Why, one?Second answerSay more"


async def test_the_same_file_again_makes_nothing_twice() -> None:
    async with moving_rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        file = [chatgpt("one"), open_webui("one"), chatgpt("one")]
        first = await imported(ana, file)
        before = await listed(ana)
        second = await imported(ana, file)
        others = await imported(ben, file)
        after = await listed(ana)
    assert [first["conversations"][key] for key in ("imported", "alreadyHere")] == [2, 1]
    assert [second["conversations"][key] for key in ("imported", "alreadyHere")] == [0, 3]
    assert others["conversations"]["imported"] == 2
    assert before == after
    assert len(before) == 2


async def test_a_conversation_that_went_on_since_is_left_alone() -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        await imported(ana, [chatgpt()])
        (one,) = await listed(ana)
        await ask(ana, one["id"], "Say more")
        before = await messages(ana, one["id"])
        report = await imported(ana, [chatgpt()])
        after = await messages(ana, one["id"])
    assert report["conversations"]["changedSince"] == 1
    assert [(one["sourceId"], one["code"]) for one in report["left"]] == [("conv-one", "differs")]
    assert before == after


async def test_what_is_refused_is_told_and_the_others_go_in() -> None:
    """S-30."""
    circle = chatgpt("circle")
    circle["mapping"]["q"]["parent"] = "a1"
    dangling = chatgpt("dangling")
    dangling["mapping"]["a1"]["parent"] = "gone"
    twice = json.dumps(chatgpt("twice")).replace('"a2": {', '"a1": {', 1)
    long = open_webui("long")
    long["chat"]["history"]["messages"]["u1"]["content"] = "x" * 400_001
    others = [chatgpt("one"), circle, dangling, {"a": 1}, ["x"], long, open_webui("two")]
    file = json.dumps(others)[:-1] + f", {twice}]"
    async with moving_rig() as here:
        ana = await here.user("ana")
        report = await imported(ana, file.encode())
        found = await listed(ana)
    assert {one["title"] for one in found} == {"Title one", "Title two"}
    assert report["conversations"]["refused"] == 6
    assert [(one["n"], one["sourceId"], one["code"]) for one in report["left"]] == [
        (2, "conv-circle", "cycle"),
        (3, "conv-dangling", "dangling_parent"),
        (4, "", "unknown_format"),
        (5, "", "unknown_format"),
        (6, "chat-long", "message_too_long"),
        (8, "", "not_readable"),
    ]
    assert all(one["message"] for one in report["left"])


async def test_an_archive_is_unpacked_wherever_its_conversations_are() -> None:
    archives: list[dict[str, bytes | str]] = [
        {"conversations.json": json.dumps([chatgpt("a")]), "chat.html": "<p>", "user.json": "{}"},
        {"export/conversations-000.json": json.dumps([chatgpt("b")]), "a.png": b"\x89PNG",
         "export/conversations-001.json": json.dumps([chatgpt("c")])},
        {"chat-export-17.json": json.dumps([open_webui("d")]), "__MACOSX/chat.json": "\x00"},
    ]  # fmt: skip
    async with moving_rig() as here:
        ana = await here.user("ana")
        reports = [await imported(ana, packed(files)) for files in archives]
        found = await listed(ana)
    assert [one["conversations"]["imported"] for one in reports] == [1, 2, 1]
    assert sorted(one["title"] for one in found) == [f"Title {one}" for one in "abcd"]
    assert all(one["readBytes"] == one["totalBytes"] for one in reports)


async def test_a_file_may_come_as_a_form() -> None:
    data = json.dumps([chatgpt()]).encode()
    async with moving_rig() as here:
        ana = await here.user("ana")
        sent = await ana.post("/v1/imports", files={"file": ("conversations.json", data)})
        report = sent.json()
        job = await until(lambda: _ended(here, report["id"]))
    assert sent.status_code == 202
    assert job.made == 1


async def _ended(here: Rig, import_id: str) -> Import | None:
    for (_, its_id), kept in here.backend.imports._all.kept.items():
        if its_id == import_id and kept.job.state.is_final:
            return kept.job
    return None


BORDER = "multipart/form-data; boundary=b"


@pytest.mark.parametrize(
    ("data", "media_type", "status", "field"),
    [
        (b"", "application/json", 400, "file"),
        (b"   \n", "application/json", 400, "file"),
        (b"hello there", "application/json", 400, "file"),
        (b"\x1f\x8b\x08\x00gzip", "application/zip", 400, "file"),
        (b"[]", "text/plain", 415, "Content-Type"),
        (form("b", ("other", None, b"[]")), BORDER, 400, "file"),
        (form("b", ("file", "a", b"[]"), ("file", "b", b"[]")), BORDER, 400, "file"),
        (form("b", ("file", "a", b"[]"))[:-8], BORDER, 400, "body"),
    ],
)
async def test_what_is_no_file_is_told_at_once(
    data: bytes, media_type: str, status: int, field: str
) -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        answer = await ana.post("/v1/imports", content=data, headers={"Content-Type": media_type})
        none = (await ana.get("/v1/imports")).json()["items"]
        assert await no_files_left(here)
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert none == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"[]", "not_an_export"),
        (b"[1, 2]", "not_an_export"),
        (b'[{"a": 1}', "not_readable"),
        (b"[{}] more", "not_readable"),
        (b"PK\x03\x04 but no archive", "not_readable"),
        (packed({"a.txt": "nothing"}), "not_an_export"),
        (packed({"export.json": "{}", "profile.json": "{}"}), "not_an_export"),
        (packed({"conversations.json": "[]"}), "not_an_export"),
        (packed({"conversations.json": "nothing"}), "not_readable"),
        (packed({"conversations.json": json.dumps([chatgpt()])})[:-40], "not_readable"),
        (packed({"conversations.json": b"[" + b" " * 50_000_000 + b"]"}), "too_large"),
    ],
)
async def test_a_file_that_is_no_export_fails_with_its_reason(data: bytes, code: str) -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        report = await imported(ana, data)
        await until(lambda: no_files_left(here))
    assert report["state"] == "failed"
    assert report["error"]["code"] == code
    assert report["error"]["message"]


async def test_what_came_before_a_break_in_the_file_is_kept() -> None:
    raw = json.dumps([chatgpt("one"), chatgpt("two")]).encode()
    async with moving_rig() as here:
        ana = await here.user("ana")
        report = await imported(ana, raw[:-30])
        found = await listed(ana)
    assert (report["state"], report["error"]["code"]) == ("failed", "not_readable")
    assert report["conversations"]["imported"] == len(found) == 1


async def test_a_directory_that_is_too_large_is_not_read() -> None:
    """What an archive says of itself is not believed: it would be held in memory."""
    name = b"x" * 60_000
    entry = struct.pack(
        "<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0
    )
    n = DIRECTORY_BYTES // len(name) + 1
    directory = (entry + name) * n
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, n, n, len(directory), 4, 0)
    async with moving_rig() as here:
        ana = await here.user("ana")
        report = await imported(ana, b"PK\x03\x04" + directory + end)
    assert report["error"]["code"] == "too_large"


async def test_a_conversation_that_is_too_long_is_passed_over() -> None:
    long = chatgpt("long", title="x" * 5_000)
    rules = replace(QUICK, conversation_bytes=4_000)
    async with moving_rig(rules) as here:
        ana = await here.user("ana")
        report = await imported(ana, [chatgpt("one"), long, chatgpt("two")])
    assert report["conversations"]["imported"] == 2
    assert [(one["n"], one["code"]) for one in report["left"]] == [(2, "too_long")]


async def test_a_file_of_too_many_conversations_ends_there() -> None:
    async with moving_rig(replace(QUICK, conversations=2)) as here:
        ana = await here.user("ana")
        report = await imported(ana, [chatgpt("one"), chatgpt("two"), chatgpt("three")])
    assert (report["state"], report["error"]["code"]) == ("failed", "too_large")
    assert report["conversations"]["imported"] == 2


async def test_a_file_that_is_too_large_is_refused_and_not_kept() -> None:
    limit = 2 * PART_BYTES
    async with moving_rig(replace(QUICK, file_bytes=limit)) as here:
        ana = await here.user("ana")
        # A little more than may be, as a form might need it; and so much that it is not read.
        answers = [
            await ana.post(
                "/v1/imports",
                content=b"[" + b" " * size + b"]",
                headers={"Content-Type": "application/json"},
            )
            for size in (limit + 30_000, 2 * limit)
        ]
        assert await no_files_left(here)
    assert [one.status_code for one in answers] == [413, 413]
    assert answers[0].json()["limit"] == limit


async def test_one_import_at_a_time_and_so_many_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    async def held(_desk: object) -> bool:
        await gate.wait()
        return False

    monkeypatch.setattr(porter, "carry_one", held)
    async with moving_rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        job = await begun(ana, b"[]")
        second = await ana.post("/v1/imports", json=[])
        await begun(ben, b"[]")
        cancelled = await ana.delete(f"/v1/imports/{job['id']}")
        codes = [
            (await ana.post("/v1/imports", content=b"x", headers={})).status_code for _ in range(20)
        ]
        gate.set()
    assert second.status_code == 429
    assert second.json()["code"] == "too_many_requests"
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert codes[:18] == [400] * 18
    assert codes[18:] == [429] * 2


async def test_a_cancelled_import_keeps_what_came_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(porter, "_STEP_CONVERSATIONS", 1)
    arrived, gate = asyncio.Event(), asyncio.Event()
    async with moving_rig() as here:
        ana = await here.user("ana")
        work = here.backend.import_work
        save = work.save

        async def slow(progress: Any) -> Any:
            if progress.job.made == 2:
                arrived.set()
                await gate.wait()
            return await save(progress)

        monkeypatch.setattr(work, "save", slow)
        job = await begun(ana, json.dumps([chatgpt(str(n)) for n in range(9)]).encode())
        await arrived.wait()
        running = (await ana.get(f"/v1/imports/{job['id']}")).json()
        cancelled = (await ana.delete(f"/v1/imports/{job['id']}")).json()
        gate.set()
        assert await until(lambda: no_files_left(here))
        found = await listed(ana)
        report = (await ana.get(f"/v1/imports/{job['id']}")).json()
        forgotten = await ana.delete(f"/v1/imports/{job['id']}")
        gone = await ana.get(f"/v1/imports/{job['id']}")
        again = await ana.delete(f"/v1/imports/{job['id']}")
    assert (running["state"], running["conversations"]["read"]) == ("running", 2)
    assert 0 < running["readBytes"] <= running["totalBytes"]
    assert cancelled == report
    assert (report["state"], report["conversations"]["imported"], len(found)) == ("cancelled", 2, 2)
    assert [one.status_code for one in (forgotten, gone, again)] == [204, 404, 404]


async def test_an_import_goes_on_where_a_crash_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(porter, "_STEP_CONVERSATIONS", 2)
    async with moving_rig(replace(QUICK, lease_s=0.05)) as here:
        ana = await here.user("ana")
        work = here.backend.import_work
        save, n_saved = work.save, 0

        async def crashing(progress: Any) -> Any:
            nonlocal n_saved
            n_saved += 1
            told = await save(progress)
            if n_saved in (2, 4):
                raise ZeroDivisionError  # it was written, and nobody heard of it
            return told

        monkeypatch.setattr(work, "save", crashing)
        report = await imported(ana, [chatgpt(str(n)) for n in range(11)])
        found = await listed(ana)
    assert report["state"] == "completed"
    assert report["conversations"]["imported"] == report["conversations"]["read"] == 11
    assert len(found) == 11


async def test_a_gateway_that_ends_gives_its_import_back(monkeypatch: pytest.MonkeyPatch) -> None:
    began, gate = asyncio.Event(), threading.Event()
    async with moving_rig(replace(QUICK, pause_s=1_000.0, lease_s=1_000.0)) as here:
        loop = asyncio.get_running_loop()

        def slow(_reading: object) -> None:
            loop.call_soon_threadsafe(began.set)
            gate.wait(20)

        monkeypatch.setattr(porter._Reading, "begin", slow)
        await here.desk.imports.create(NewImport("u_ana", "import_x", "file_x", 10), limit=1)
        carrying = asyncio.create_task(porter.carry_one(here.desk))
        await began.wait()
        assert await here.desk.import_work.claim(lease_s=1.0) is None
        carrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await carrying
        gate.set()
        job = await here.desk.import_work.claim(lease_s=1.0)
    assert job is not None
    assert job.epoch == 2


async def test_an_import_that_gets_no_further_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_raw: bytes) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(porter, "read_conversation", broken)
    async with moving_rig(replace(QUICK, lease_s=0.02)) as here:
        ana = await here.user("ana")
        report = await imported(ana, [chatgpt()])
        job = await here.backend.imports.find((await ana.get("/v1/me")).json()["id"], report["id"])
    assert (report["state"], report["error"]["code"]) == ("failed", "interrupted")
    assert job is not None
    assert job.epoch == FRUITLESS_CLAIMS + 1


async def test_an_import_whose_file_has_gone_says_so() -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        owner = (await ana.get("/v1/me")).json()["id"]
        await here.desk.imports.create(NewImport(owner, "import_x", "file_x", 10), limit=1)
        job = await until(lambda: _ended(here, "import_x"))
    assert (job.state, job.failure[0]) == (ImportState.FAILED, "file_gone")


async def test_deleting_the_account_ends_its_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, arrived = asyncio.Event(), asyncio.Event()
    async with moving_rig() as here:
        ana = await here.user("ana")
        work = here.backend.import_work
        save = work.save

        async def slow(progress: Any) -> Any:
            arrived.set()
            await gate.wait()
            return await save(progress)

        monkeypatch.setattr(work, "save", slow)
        await begun(ana, json.dumps([chatgpt()]).encode())
        await arrived.wait()
        left = await ana.request("DELETE", "/v1/me", json={"password": PASSWORD})
        gate.set()
        await until(lambda: no_files_left(here))
        assert not here.backend.store.conversations
        assert not here.backend.imports._all.kept
    assert left.status_code == 204


async def test_texts_that_no_store_takes_are_repaired_and_told() -> None:
    raw = json.dumps([chatgpt("nul\x00 \ud800 end")]).encode()
    async with moving_rig() as here:
        ana = await here.user("ana")
        report = await imported(ana, raw)
        (one,) = await listed(ana)
        its = await messages(ana, one["id"])
    assert one["title"] == "Title nul\ufffd \ufffd end"
    assert its[0]["content"] == "Why, nul\ufffd \ufffd end?"
    assert report["repairedTexts"] == 2


async def test_ones_own_export_is_known_at_home_and_comes_in_elsewhere() -> None:
    async with moving_rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        conversation = await new_conversation(ana)
        await ask(ana, conversation, "Why is it so?")
        reply = (await messages(ana, conversation))[1]
        await ana.post(f"/v1/messages/{reply['id']}/feedback", json={"rating": "up", "reason": "!"})
        archive = await exported(ana)
        at_home = await imported(ana, archive)
        elsewhere = await imported(ben, archive)
        (theirs,) = await listed(ben)
        its = await messages(ben, theirs["id"])
        mine = await messages(ana, conversation)
    assert at_home["conversations"]["alreadyHere"] == 1
    assert elsewhere["conversations"]["imported"] == elsewhere["conversations"]["total"] == 1
    assert theirs["id"] != conversation
    for one, other in zip(mine, its, strict=True):
        assert one["id"] != other["id"]
        for key in ("content", "role", "status", "finish", "createdAt", "model", "feedback",
                    "notices", "reason", "requested", "seq", "tokens"):  # fmt: skip
            assert one[key] == other[key], key
