"""Another user's anything answers like nothing at all: the same bytes, on every route there is.

The routes come from the OpenAPI document, so that a new one without an entry here fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tertulia.core.types import User
from tests.lanes.gateway_rig import (
    Rig,
    ScriptedReplicas,
    ask_later,
    new_conversation,
    rig,
)

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Call:
    """How to call a route whose path names something of somebody's."""

    body: dict[str, Any] | None = None
    query: str = ""
    accept: str = "application/json"


# (method, path) -> calls to try. Every route with an owner's id in its path has an entry.
OWNED: dict[tuple[str, str], list[Call]] = {
    ("get", "/v1/conversations/{conversation_id}"): [Call()],
    ("patch", "/v1/conversations/{conversation_id}"): [Call({"title": "Mine"}), Call({})],
    ("delete", "/v1/conversations/{conversation_id}"): [Call()],
    ("get", "/v1/conversations/{conversation_id}/messages"): [
        Call(),
        Call(query="?limit=1"),
        Call(query="?branch=head"),
    ],
    ("put", "/v1/conversations/{conversation_id}/head"): [Call({"messageId": "m_1"})],
    ("post", "/v1/conversations/{conversation_id}/messages"): [
        Call({"content": "Hi"}),
        Call({"content": "Hi", "parentId": None}, accept="text/event-stream"),
    ],
    ("post", "/v1/messages/{message_id}/regenerate"): [
        Call({"model": "auto"}),
        Call({}, accept="text/event-stream"),
    ],
    ("post", "/v1/messages/{message_id}/stop"): [Call()],
    ("delete", "/v1/messages/{message_id}"): [Call()],
    ("post", "/v1/messages/{message_id}/feedback"): [Call({"rating": "up"})],
    ("get", "/v1/messages/{message_id}/stream"): [
        Call(),
        Call(query="?lastEventId=0"),
        Call(query="?lastEventId=1&attempt=1", accept="text/event-stream"),
    ],
    ("post", "/v1/conversations/{conversation_id}/shares"): [Call(), Call({"leafId": "m_x"})],
    ("get", "/v1/conversations/{conversation_id}/shares"): [Call()],
    ("delete", "/v1/shares/{share_id}"): [Call()],
    ("delete", "/v1/temporary/messages/{temporary_id}"): [Call()],
    ("delete", "/v1/api-keys/{key_id}"): [Call()],
    ("delete", "/v1/sessions/{session_id}"): [Call()],
    ("get", "/v1/files/{file_id}"): [Call()],
    ("get", "/v1/files/{file_id}/content"): [Call()],
    ("delete", "/v1/files/{file_id}"): [Call()],
    ("get", "/v1/batches/{batch_id}"): [Call()],
    ("post", "/v1/batches/{batch_id}/cancel"): [Call()],
    ("get", "/v1/imports/{import_id}"): [Call()],
    ("delete", "/v1/imports/{import_id}"): [Call()],
}
# Paths whose parameter names nobody's possession, or which only administrators may call.
NOBODYS = {
    ("get", "/v1/auth/oidc/{provider}/start"),
    ("get", "/v1/auth/oidc/{provider}/callback"),
    ("get", "/v1/models/{model_id}"),
    ("get", "/v1/shares/{token}"),
    ("patch", "/v1/admin/users/{user_id}"),
}


async def owned_things(here: Rig, ana: httpx2.AsyncClient) -> dict[str, str]:
    """One of everything that Ana can own, with a reply still running."""
    conversation = await new_conversation(ana)
    posted = (await ask_later(ana, conversation)).json()
    keys = (await ana.get("/v1/api-keys")).json()["items"]
    sessions = (await ana.get("/v1/sessions")).json()["items"]
    sent = {"file": ("in.jsonl", b"no request")}
    file = (await ana.post("/v1/files", data={"purpose": "batch"}, files=sent)).json()
    asked = {
        "input_file_id": file["id"],
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    batch = (await ana.post("/v1/batches", json=asked)).json()
    brought = (await ana.post("/v1/imports", json=[])).json()
    share = (await ana.post(f"/v1/conversations/{conversation}/shares")).json()
    said = {"messages": [{"role": "user", "content": "Hi"}]}
    temporary = await ana.post(
        "/v1/temporary/messages", json=said, headers={"Idempotency-Key": "temporary"}
    )
    return {
        "share_id": share["id"],
        "temporary_id": temporary.json()["messageId"],
        "file_id": file["id"],
        "batch_id": batch["id"],
        "import_id": brought["id"],
        "conversation_id": conversation,
        "message_id": posted["messageId"],
        "key_id": keys[0]["id"],
        "session_id": sessions[0]["id"],
    }


def routes_of(document: dict[str, Any]) -> set[tuple[str, str]]:
    """The (method, path) of every route with something in its path."""
    return {
        (method, path)
        for path, methods in document["paths"].items()
        for method in methods
        if "{" in path
    }


async def test_every_route_with_an_id_is_known_here() -> None:
    async with rig() as here:
        document = (await here.client().get("/openapi.json")).json()
    assert routes_of(document) == set(OWNED) | NOBODYS


@pytest.mark.parametrize("route", OWNED, ids=lambda route: f"{route[0]} {route[1]}")
async def test_another_users_thing_is_the_same_404_as_an_unknown_one(
    route: tuple[str, str],
) -> None:
    """T1, T2, T3."""
    method, path = route
    name = path.split("{")[1].split("}")[0]
    async with rig(replicas=ScriptedReplicas(before_hold=0)) as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        owned = (await owned_things(here, ana))[name]
        unknown = owned[:-6] + "ZZZZZZ"
        before = _state(here)
        for number, call in enumerate(OWNED[route]):
            answers = [
                await _send(ben, method, path, name, thing, call, f"k{number}{thing[-3:]}")
                for thing in (owned, unknown)
            ]
            assert [answer.status_code for answer in answers] == [404, 404]
            assert answers[0].content == answers[1].content
            assert _headers(answers[0]) == _headers(answers[1])
        assert _state(here) == before


async def test_another_users_message_is_no_parent() -> None:
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        theirs = await owned_things(here, ana)
        own = await new_conversation(ben)
        answers = [
            await ask_later(ben, own, "Hi", parentId=parent, key=f"k{number}")
            for number, parent in enumerate((theirs["message_id"], "m_unknown"))
        ]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].content == answers[1].content


async def test_lists_and_searches_hold_only_ones_own() -> None:
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        await ask_later(ana, await new_conversation(ana), "A secret plan", key="k")
        listed = await ben.get("/v1/conversations")
        searched = await ben.get("/v1/conversations?q=secret")
        me = await ben.get("/v1/me")
    assert listed.json()["items"] == searched.json()["items"] == []
    assert me.json()["running"] == []


async def test_an_id_may_be_anything_and_is_still_just_unknown() -> None:
    async with rig() as here:
        client = await here.user("ana")
        for odd in ("%00", "..%2f..%2fetc", "a" * 3_000, "%F0%9F%92%A9", "'; DROP TABLE turns"):
            answer = await client.get(f"/v1/conversations/{odd}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def _send(
    client: httpx2.AsyncClient,
    method: str,
    path: str,
    name: str,
    thing: str,
    call: Call,
    key: str,
) -> httpx2.Response:
    return await client.request(
        method.upper(),
        path.replace("{" + name + "}", thing) + call.query,
        json=call.body,
        headers={"Accept": call.accept, "Idempotency-Key": key},
    )


def _headers(answer: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


def _state(here: Rig) -> tuple[int, int, int, int, int, list[User]]:
    store = here.backend.store
    return (
        len(store.conversations),
        len(store.messages),
        len(store.turns),
        len(store.shares),
        len(store.open),
        sorted(store.users.values(), key=lambda user: user.id),
    )
