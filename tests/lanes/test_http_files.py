"""Files as OpenAI's own client uses them, strictly validating, and their refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from openai import APIError, NotFoundError

from tertulia.core.files import PART_BYTES, StoredFile
from tertulia.gateway import files
from tertulia.gateway.desk import Desk
from tertulia.gateway.uploads import take_upload
from tests.lanes.batch_rig import (
    FILE,
    PURPOSE,
    QUICK,
    batch_rig,
    form,
    jsonl,
    line,
    sdk,
)
from tests.lanes.gateway_rig import (
    PLANS,
    Rig,
    until,
)

pytestmark = pytest.mark.anyio


async def test_a_file_comes_back_as_it_was_sent() -> None:
    data = jsonl(*(line(f"r{n}", "x" * 1_000) for n in range(400)))
    assert len(data) > PART_BYTES
    async with batch_rig() as here, sdk(here) as client:
        file = await client.files.create(file=("my file.jsonl", data), purpose="batch")
        found = await client.files.retrieve(file.id)
        content = await client.files.content(file.id)
    assert found == file
    assert (file.filename, file.bytes, file.purpose) == ("my file.jsonl", len(data), "batch")
    assert file.expires_at is not None
    assert abs(file.expires_at - file.created_at - 30 * 86_400) <= 1
    assert content.content == data
    assert "attachment" in content.response.headers["content-disposition"]


async def test_a_file_may_come_with_its_own_end() -> None:
    async with batch_rig() as here, sdk(here) as client:
        file = await client.files.create(
            file=("f", b"x"),
            purpose="batch",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
    assert file.expires_at is not None
    assert abs(file.expires_at - file.created_at - 3600) <= 1


async def test_files_are_listed_in_pages_and_deleted() -> None:
    async with batch_rig() as here, sdk(here) as client:
        made = [await client.files.create(file=(f"{n}", b"x"), purpose="batch") for n in range(3)]
        ids = [file.id for file in made]
        listed = [file.id async for file in client.files.list(limit=2)]
        oldest = await client.files.list(limit=2, order="asc")
        outputs = await client.files.list(purpose="batch_output")
        gone = await client.files.delete(ids[1])
        left = [file.id async for file in client.files.list(order="asc")]
        with pytest.raises(NotFoundError):
            await client.files.content(ids[1])
        with pytest.raises(NotFoundError):
            await client.files.delete(ids[1])
    assert listed == ids[::-1]
    assert ([file.id for file in oldest.data], oldest.has_more) == (ids[:2], True)
    assert outputs.data == []
    assert (gone.id, gone.deleted) == (ids[1], True)
    assert left == [ids[0], ids[2]]


BAD_FORMS: list[tuple[bytes, str]] = [
    (form("b", FILE), "purpose"),
    (form("b", FILE, ("purpose", None, b"fine-tune")), "purpose"),
    (form("b", PURPOSE), "file"),
    (form("b", PURPOSE, ("file", None, b"x")), "file"),
    (form("b", PURPOSE, FILE, FILE), "file"),
    (form("b", PURPOSE, PURPOSE, FILE), "body"),
    (form("b", ("purpose", None, b"b" * 2_000), FILE), "purpose"),
    (form("b", PURPOSE, FILE, ("expires_after[seconds]", None, b"60")), "expires_after"),
    (form("b", PURPOSE, FILE, ("expires_after[seconds]", None, b"soon")), "expires_after"),
    (form("b", PURPOSE, FILE, ("expires_after[anchor]", None, b"never")), "expires_after"),
    # The first twelve digits are an hour; all of them are no number that a clock has.
    (
        form("b", PURPOSE, FILE, ("expires_after[seconds]", None, b"000000003600" + b"9" * 400)),
        "expires_after",
    ),
    (
        form("b", PURPOSE, FILE, ("expires_after[seconds]", None, "٣٦٠٠".encode())),
        "expires_after",
    ),
    (form("b", PURPOSE, FILE)[:-6], "body"),
    (b"no form", "body"),
    (b"", "body"),
]


@pytest.mark.parametrize(("body", "field"), BAD_FORMS, ids=range(len(BAD_FORMS)))
async def test_a_form_that_is_not_right_is_refused_and_nothing_is_kept(
    body: bytes, field: str
) -> None:
    async with batch_rig() as here:
        program = await here.user("ana")
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = await program.post("/v1/files", content=body, headers=headers)
        listed = await program.get("/v1/files")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert listed.json()["data"] == []


async def test_a_body_that_is_no_form_is_refused() -> None:
    async with batch_rig() as here:
        program = await here.user("ana")
        answer = await program.post("/v1/files", json={"purpose": "batch"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_the_order_of_a_forms_fields_does_not_matter() -> None:
    async with batch_rig() as here:
        program = await here.user("ana")
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        seconds = ("expires_after[seconds]", None, b"7200")
        for fields in ((FILE, seconds, PURPOSE), (PURPOSE, seconds, FILE)):
            made = await program.post("/v1/files", content=form("b", *fields), headers=headers)
            assert made.status_code == 200
            assert abs(made.json()["expires_at"] - made.json()["created_at"] - 7200) <= 1


@pytest.mark.parametrize("announced", [True, False])
async def test_a_file_that_is_too_long_is_refused(announced: bool) -> None:  # a test's parameter
    rules = replace(QUICK, file_bytes=300_000)
    body = form("b", PURPOSE, ("file", "f", b"x" * 400_000))

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 50_000):
            yield body[at : at + 50_000]

    async with batch_rig(rules) as here:
        program = await here.user("ana")
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        content: Any = body if announced else pieces()
        answer = await program.post("/v1/files", content=content, headers=headers)
        listed = await program.get("/v1/files")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (413, "body_too_large")
    assert error["limit"] >= 300_000
    assert listed.json()["data"] == []


async def test_the_files_of_a_user_have_so_much_room_together() -> None:
    rules = replace(QUICK, file_bytes=300_000, user_bytes=500_000)
    async with batch_rig(rules) as here, sdk(here) as client:
        first = await client.files.create(file=("a", b"x" * 300_000), purpose="batch")
        with pytest.raises(APIError) as full:
            await client.files.create(file=("b", b"x" * 300_000), purpose="batch")
        await client.files.delete(first.id)
        await client.files.create(file=("b", b"x" * 300_000), purpose="batch")
    assert full.value.code == "body_too_large"
    assert "together" in full.value.message


async def test_the_form_of_an_account_that_has_ended_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, leave = asyncio.Event(), asyncio.Event()
    body = form("b", PURPOSE, FILE)

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:20]
        await leave.wait()
        yield body[20:]

    async def take(*given: Any) -> StoredFile | None:
        begun.set()
        return await take_upload(*given)

    monkeypatch.setattr(files, "take_upload", take)
    async with batch_rig() as here:
        browser = await here.browser("ana")
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        sending = asyncio.create_task(browser.post("/v1/files", content=slowly(), headers=headers))
        await begun.wait()
        left = await browser.request("DELETE", "/v1/me")
        leave.set()
        answer = await sending
        assert all(file.is_deleted for file in here.backend.files._files.values())
    assert (left.status_code, answer.status_code) == (204, 404)


async def test_who_leaves_in_the_middle_leaves_nothing_behind() -> None:
    async def half() -> AsyncIterator[bytes]:
        yield form("b", PURPOSE, ("file", "f", b"x" * 600_000))[:500_000]
        raise ConnectionError

    async with batch_rig() as here:
        program = await here.user("ana")
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        with pytest.raises((ConnectionError, httpx2.HTTPError)):
            await program.post("/v1/files", content=half(), headers=headers)
        kept = here.backend.files._files
        await until(lambda: kept and all(file.is_deleted for file in kept.values()))


class Halting:
    """Files whose second part is read only once it may be."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self.may_go_on = asyncio.Event()
        self.waits = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def read(self, owner: str, file_id: str, *, at: int, size: int) -> bytes:
        if at:
            self.waits.set()
            await self.may_go_on.wait()
        data: bytes = await self._files.read(owner, file_id, at=at, size=size)
        return data


LONG = b"x" * (PART_BYTES + 1)


@asynccontextmanager
async def halting() -> AsyncIterator[tuple[Rig, Halting, httpx2.AsyncClient, str]]:
    """A gateway, its halting files, a user who may have one stream, and where her file is."""
    halts: list[Halting] = []

    def change(desk: Desk) -> Desk:
        halts.append(Halting(desk.files))
        return replace(desk, files=halts[0])

    plans = {**PLANS, "free": replace(PLANS["free"], open_streams=1)}
    async with batch_rig(plans=plans, change_desk=change) as here:
        program = await here.user("ana")
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        body = form("b", PURPOSE, ("file", "f", LONG))
        made = await program.post("/v1/files", content=body, headers=headers)
        assert made.status_code == 200, made.text
        try:
            yield here, halts[0], program, f"/v1/files/{made.json()['id']}/content"
        finally:
            halts[0].may_go_on.set()


async def test_a_download_takes_one_of_its_users_streams_and_gives_it_back() -> None:
    async with halting() as (here, files_here, program, path):
        reading = asyncio.create_task(program.get(path))
        await files_here.waits.wait()
        second = await program.get(path)
        files_here.may_go_on.set()
        first = await reading
        await until(lambda: not len(here.desk.streams))
        third = await program.get(path)
    assert (first.status_code, first.content) == (200, LONG)
    assert (second.status_code, second.json()["error"]["code"]) == (429, "too_many_requests")
    assert third.content == LONG


async def test_a_download_ends_with_the_credential_that_it_began_with() -> None:
    async with halting() as (here, files_here, program, path):
        reading = asyncio.create_task(program.get(path))
        await files_here.waits.wait()
        [key] = (await program.get("/v1/api-keys")).json()["items"]
        assert (await program.delete(f"/v1/api-keys/{key['id']}")).status_code == 204
        await until(lambda: here.desk.streams._refused)
        files_here.may_go_on.set()
        with pytest.raises(httpx2.RemoteProtocolError):
            await reading
        await until(lambda: not len(here.desk.streams))


async def test_a_file_that_is_not_there_takes_no_stream() -> None:
    async with halting() as (here, _, program, _path):
        assert (await program.get("/v1/files/file-none/content")).status_code == 404
        assert not len(here.desk.streams)
