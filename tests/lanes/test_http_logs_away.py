"""The logs of replies can't be reached while the store of record can: people are signed in and read
what is finished; what is running comes later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tertulia.ports import StoreUnavailable
from tests.lanes.gateway_rig import (
    ANSWER,
    Rig,
    ScriptedReplicas,
    ask,
    ask_later,
    events,
    new_conversation,
    rig,
    text_of,
)

pytestmark = pytest.mark.anyio

WHOLE = "".join(ANSWER)


@contextmanager
def logs_away(here: Rig) -> Iterator[None]:
    """Whatever is asked of the logs fails, as while their server is down."""

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the logs are away")

    log = type(here.backend.log)
    with patch.object(log, "read", away), patch.object(log, "wait", away):
        yield


async def test_who_is_signed_in_stays_signed_in() -> None:
    async with rig() as here:
        client = await here.user("ana")
        with logs_away(here):
            me = await client.get("/v1/me")
    assert me.status_code == 200


async def test_a_finished_reply_is_read_and_followed_from_its_row() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        reply = events((await ask(client, conversation)).text)[0][2]["messageId"]
        with logs_away(here):
            page = await client.get(f"/v1/conversations/{conversation}/messages")
            stream = await client.get(f"/v1/messages/{reply}/stream")
    assert page.json()["items"][1]["content"] == WHOLE
    assert [kind for _, kind, _ in events(stream.text)] == ["meta", "delta", "done"]
    assert text_of(stream.text) == WHOLE


async def test_who_had_seen_all_of_a_finished_reply_is_not_given_it_again() -> None:
    async with rig() as here:
        client = await here.user("ana")
        whole = events((await ask(client, await new_conversation(client))).text)
        url = f"/v1/messages/{whole[0][2]['messageId']}/stream"
        with logs_away(here):
            end = await client.get(f"{url}?lastEventId={len(whole)}")
    assert end.status_code == 204


async def test_who_had_seen_some_of_it_is_not_told_to_begin_anew() -> None:
    async with rig() as here:
        client = await here.user("ana")
        whole = events((await ask(client, await new_conversation(client))).text)
        url = f"/v1/messages/{whole[0][2]['messageId']}/stream?lastEventId=1"
        with logs_away(here):
            away = await client.get(url)
        back = await client.get(url)
    assert (away.status_code, events(away.text)) == (200, [])
    assert "retry: " in away.text
    assert events(back.text) == whole[1:]


async def test_a_conversation_with_a_running_reply_is_shown_without_its_words() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=0)) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        await ask_later(client, conversation)
        with logs_away(here):
            page = await client.get(f"/v1/conversations/{conversation}/messages")
        here.replicas.hold.set()
    _, reply = page.json()["items"]
    assert (page.status_code, reply["content"], reply["lastEventId"]) == (200, "", 0)


async def test_a_running_reply_is_told_to_come_back_for() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=0)) as here:
        client = await here.user("ana")
        posted = (await ask_later(client, await new_conversation(client))).json()
        with logs_away(here):
            stream = await client.get(posted["streamUrl"])
        here.replicas.hold.set()
    assert (stream.status_code, events(stream.text)) == (200, [])
    assert "retry: " in stream.text
