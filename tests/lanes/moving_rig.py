"""What tests of exports and imports share: a gateway whose porter is quick, and files to bring."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from zipfile import ZIP_DEFLATED, ZipFile

import httpx2

from tertulia.core.imports import ImportRules
from tests.lanes.gateway_rig import PASSWORD, RULES, Rig, rig, until

QUICK: Final = ImportRules(pause_s=0.01)


@asynccontextmanager
async def moving_rig(rules: ImportRules = QUICK, **more: Any) -> AsyncIterator[Rig]:
    """A gateway whose porter does not let tests wait."""
    async with rig(rules=replace(RULES, imports=rules), **more) as here:
        yield here


async def exported(client: httpx2.AsyncClient) -> bytes:
    """The archive of everything in an account."""
    answer = await client.post("/v1/me/export", json={"password": PASSWORD})
    assert answer.status_code == 200, answer.text
    return answer.content


def unpacked(archive: bytes) -> dict[str, bytes]:
    with ZipFile(io.BytesIO(archive)) as found:
        assert found.testzip() is None
        return {entry.filename: found.read(entry) for entry in found.infolist()}


def packed(files: Mapping[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


async def begun(
    client: httpx2.AsyncClient, data: bytes, media_type: str = "application/json"
) -> dict[str, Any]:
    answer = await client.post("/v1/imports", content=data, headers={"Content-Type": media_type})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/imports/{job['id']}"
    return job


async def imported(client: httpx2.AsyncClient, data: bytes | list[Any]) -> dict[str, Any]:
    """The report of an import, once it has ended."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    job = await begun(client, raw)

    async def ended() -> dict[str, Any] | None:
        now: dict[str, Any] = (await client.get(f"/v1/imports/{job['id']}")).json()
        return now if now["endedAt"] is not None else None

    report: dict[str, Any] = await until(ended)
    return report


async def listed(client: httpx2.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await client.get("/v1/conversations", params=query)).json()[
        "items"
    ]
    return items


async def messages(client: httpx2.AsyncClient, conversation_id: str) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/conversations/{conversation_id}/messages?limit=200")
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def chatgpt(name: str = "one", **more: Any) -> dict[str, Any]:
    """A conversation as ChatGPT exports it: a hidden root, a question and two answers."""

    def node(its: str, parent: str | None, role: str | None, text: str = "", **also: Any) -> Any:
        said = role and {
            "id": its,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": 1_700_000_000.5 + len(its),
            "content": {"content_type": "text", "parts": [text]},
            "status": "finished_successfully",
            "metadata": {"model_slug": "gpt-4o"} if role == "assistant" else {},
            "recipient": "all",
            **also,
        }
        return {"id": its, "message": said, "parent": parent, "children": []}

    nodes = [
        node("client-created-root", None, None),
        node("sys", "client-created-root", "system", ""),
        node("q", "sys", "user", f"Why, {name}?"),
        node("a1", "q", "assistant", "First answer"),
        node("a2", "q", "assistant", "Second answer"),
        node("q2", "a1", "user", "And then?"),
    ]
    return {
        "title": f"Title {name}",
        "create_time": 1_700_000_000.0,
        "update_time": 1_700_000_100.25,
        "mapping": {one["id"]: one for one in nodes},
        "current_node": "a2",
        "conversation_id": f"conv-{name}",
        "id": f"conv-{name}",
        **more,
    }


def open_webui(name: str = "one", **more: Any) -> dict[str, Any]:
    """A chat as Open WebUI exports it."""
    found = {
        "u1": {
            "id": "u1",
            "parentId": None,
            "childrenIds": ["r1", "r2"],
            "role": "user",
            "content": f"Why, {name}?",
            "timestamp": 1_700_000_001,
            "models": ["llama3"],
        },
        "r1": {
            "id": "r1",
            "parentId": "u1",
            "childrenIds": ["u2"],
            "role": "assistant",
            "content": "First answer",
            "model": "llama3",
            "timestamp": 1_700_000_002,
            "done": True,
            "annotation": {"rating": 1, "comment": "Clear"},
        },
        "r2": {
            "id": "r2",
            "parentId": "u1",
            "childrenIds": [],
            "role": "assistant",
            "content": "",
            "error": {"content": "out of memory"},
            "timestamp": 1_700_000_003,
        },
        "u2": {
            "id": "u2",
            "parentId": "r1",
            "childrenIds": [],
            "role": "user",
            "content": "And then?",
            "timestamp": 1_700_000_004,
        },
    }
    return {
        "id": f"chat-{name}",
        "user_id": "somebody",
        "title": f"Title {name}",
        "chat": {
            "title": f"Title {name}",
            "models": ["llama3"],
            "history": {"messages": found, "currentId": "u2"},
            "messages": [],
            "timestamp": 1_700_000_000_123,
        },
        "created_at": 1_700_000_000,
        "updated_at": 1_700_000_100,
        "share_id": None,
        "archived": False,
        "pinned": True,
        "meta": {"tags": []},
        "folder_id": None,
        **more,
    }
