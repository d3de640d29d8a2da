"""`tertulia export` and `tertulia import` against a real gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest

from tertulia.gateway import exports
from tertulia.terminal.client import NobodyThere, Refused, Server
from tertulia.terminal.moving import bring_in, copy_out, told
from tests.lanes.gateway_rig import PASSWORD, Rig
from tests.lanes.moving_rig import chatgpt, imported, listed, moving_rig

pytestmark = pytest.mark.anyio


def server_of(here: Rig, client: httpx2.AsyncClient) -> Server:
    return Server(here.url, client.headers["Authorization"].removeprefix("Bearer "))


async def test_what_is_copied_out_is_brought_in_again(tmp_path: Path) -> None:
    file, lines = tmp_path / "all.zip", list[str]()
    async with moving_rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        await imported(ana, [chatgpt("one"), chatgpt("two")])
        with server_of(here, ana) as server:
            n_copied = await asyncio.to_thread(copy_out, server, file, lambda: PASSWORD)
        with server_of(here, ben) as server:
            report = await asyncio.to_thread(bring_in, server, file, lambda _: None, lines.append)
        found = await listed(ben)
    assert n_copied == len(found) == 2
    assert file.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [file]
    assert "completed: 2 conversations with 8 messages came in" in told(report)[0]
    assert lines


async def test_an_administrators_key_needs_no_password(tmp_path: Path) -> None:
    file = tmp_path / "all.zip"
    async with moving_rig() as here:
        root = await here.user("root", role="admin")
        await here.backend.accounts.change(
            (await root.get("/v1/me")).json()["id"], {"password_hash": None}
        )
        with server_of(here, root) as server:
            assert await asyncio.to_thread(copy_out, server, file, lambda: "") == 0
    with ZipFile(file) as archive:
        assert json.loads(archive.read("profile.json"))["name"] == "root"


async def test_a_wrong_password_leaves_no_file(tmp_path: Path) -> None:
    async with moving_rig() as here:
        ana = await here.user("ana")
        with server_of(here, ana) as server, pytest.raises(Refused, match="password"):
            await asyncio.to_thread(copy_out, server, tmp_path / "all.zip", lambda: "wrong")
    assert not list(tmp_path.iterdir())


async def test_an_export_that_breaks_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_CHUNK_BYTES", 1)
    async with moving_rig() as here:
        ana = await here.user("ana")
        here.desk.streams.draining = True
        with server_of(here, ana) as server, pytest.raises(NobodyThere, match="whole"):
            await asyncio.to_thread(copy_out, server, tmp_path / "all.zip", lambda: PASSWORD)
    assert not list(tmp_path.iterdir())


async def test_what_stayed_out_is_told(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps([chatgpt("one"), *[{"a": n} for n in range(30)]]))
    empty = tmp_path / "empty.json"
    empty.write_text("[]")
    async with moving_rig() as here:
        ana = await here.user("ana")
        with server_of(here, ana) as server:
            report = await asyncio.to_thread(bring_in, server, file, lambda _: None, print)
            failed = await asyncio.to_thread(bring_in, server, empty, lambda _: None, print)
    lines = told(report)
    assert "30 could not be read" in lines[0]
    assert len(lines) == 22
    assert lines[1].startswith("  2 : It is no conversation")
    assert "/v1/imports/" in lines[-1]
    assert told(failed)[1] == "There are no conversations in it."
