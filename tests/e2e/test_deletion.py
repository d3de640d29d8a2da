"""What was deleted under generation, with kills in the middle, is nowhere any more: not in a file
that the service stored, and not in an engine's cache.

The small real model runs on one thread, as its cache is what is looked at.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tertulia.backends.vocabulary import load_vocabulary
from tertulia.drills.loopback import loopback
from tests.e2e.canary import found_in, ways_to_write
from tests.e2e.late import age_in_sqlite, are_looked_at
from tests.e2e.processes import Service, installed_models
from tests.lanes.gateway_rig import PASSWORD
from tests.lanes.moving_rig import chatgpt

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

# Small memory, so that blocks go to the disk as well.
TOML = """
[models]
large = "off"
threads = 1
slots = 4
cache_memory_mb = 1
cache_disk_mb = 64
[plans.plus]
budgets = []
answer_tokens = 120
"""
# A line of some words that nobody says by chance, long enough to fill several blocks.
CANARIES = tuple(f"Zugunruhe{n}" for n in (7431, 8542, 3297))
PATIENT_S = 120.0  # on two busy cores


def question(canary: str) -> str:
    return f"{canary} is the word. Please say {canary}, and then tell me about it. " * 8


@dataclass
class Asked:
    """A question, and what was seen of its reply."""

    canary: str
    conversation: str = ""
    reply: str = ""
    text: str = ""
    done: dict[str, Any] = field(default_factory=dict)


async def converse(http: httpx2.AsyncClient, asked: Asked, heard: asyncio.Event) -> None:
    """Asks in a new conversation and follows to the end, or to the end of the service."""
    made = await http.post("/v1/conversations", json={})
    asked.conversation = made.raise_for_status().json()["id"]
    url = f"/v1/conversations/{asked.conversation}/messages"
    await follow(http, url, {"content": question(asked.canary)}, asked, heard)


async def chat_for_once(http: httpx2.AsyncClient, canary: str, key: str) -> Asked:
    """Asks in a temporary chat, and follows to the end."""
    asked = Asked(canary, key)
    said = {"messages": [{"role": "user", "content": question(canary)}]}
    await follow(http, "/v1/temporary/messages", said, asked, asyncio.Event())
    assert asked.done, "the reply did not come to its end"
    return asked


async def follow(
    http: httpx2.AsyncClient, url: str, body: dict[str, Any], asked: Asked, heard: asyncio.Event
) -> None:
    """Posts under the conversation's id as its key, and hears what there is to hear."""
    kind = ""
    headers = {"Accept": "text/event-stream", "Idempotency-Key": asked.conversation}
    with suppress(httpx2.HTTPError):
        async with http.stream("POST", url, json=body, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    data = json.loads(line.removeprefix("data: "))
                    if kind == "meta":
                        asked.reply = data["messageId"]
                    elif kind == "delta":
                        asked.text += data["text"]
                        heard.set()
                    elif kind == "done":
                        asked.done = data
    heard.set()


async def asked_to_the_end(http: httpx2.AsyncClient, canary: str) -> Asked:
    asked = Asked(canary)
    await converse(http, asked, asyncio.Event())
    assert asked.done, "the reply did not come to its end"
    return asked


async def told_elsewhere(http: httpx2.AsyncClient, asked: Asked) -> None:
    """Has the word in the conversation's title, and in that of a link to it."""
    place = f"/v1/conversations/{asked.conversation}"
    (await http.patch(place, json={"title": f"About {asked.canary}"})).raise_for_status()
    (await http.post(f"{place}/shares", json={})).raise_for_status()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENT_S):
        while not await condition():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.5)


async def deleted(http: httpx2.AsyncClient, conversation: str) -> None:
    """Insists until it is acknowledged."""

    async def is_gone() -> bool:
        with suppress(httpx2.HTTPError):
            status = (await http.delete(f"/v1/conversations/{conversation}")).status_code
            return status in (204, 404)
        return False

    await until(is_gone)


async def everything_reached(http: httpx2.AsyncClient, database: Path) -> list[dict[str, Any]]:
    """The orders, once all of them are over. Whoever was writing when they came must have ended."""
    orders: list[dict[str, Any]] = []

    async def look() -> None:
        orders[:] = (await http.get("/v1/admin/deletions")).raise_for_status().json()["items"]

    async def were_looked_at() -> bool:
        await look()
        return are_looked_at(orders)

    async def are_over() -> bool:
        await look()
        return all(order["doneAt"] is not None for order in orders)

    try:
        await until(were_looked_at)
        age_in_sqlite(database)
        await until(are_over)
    except TimeoutError:
        raise AssertionError(f"not over: {orders}") from None
    return orders


def said_in_ids(text: str) -> list[tuple[int, ...]]:
    """The tokens of what was said, but for those at its ends, which depend on their neighbours."""
    ids = load_vocabulary(installed_models() / "small").encode(text)
    return [ids[2:-2]] if len(ids) > 8 else []


def cached(asked: Asked) -> int:
    return int(asked.done["usage"]["cached"])


async def test_a_deleted_conversation_is_in_no_byte_and_no_cache_whatever_is_killed(
    tmp_path: Path,
) -> None:
    service = Service(tmp_path / "data", TOML)
    service.start()
    try:
        await service.ready()
        headers = {"Authorization": f"Bearer {service.key}"}
        async with loopback(60, base_url=service.url, headers=headers) as http:
            # What is everybody's, and what a conversation that nobody deletes leaves in the cache.
            await asked_to_the_end(http, "Warm")
            kept = [await asked_to_the_end(http, "Kept") for _ in range(2)]
            shared = cached(kept[0])
            assert cached(kept[1]) > shared + 64

            # The gateway and the worker are killed while the first is being deleted.
            first, heard = Asked(CANARIES[0]), asyncio.Event()
            following = asyncio.create_task(converse(http, first, heard))
            await asyncio.wait_for(heard.wait(), PATIENT_S)
            ways = ways_to_write(first.canary)
            assert found_in(service.folder, ways), "the scan does not see what is there"
            await told_elsewhere(http, first)
            deleting = asyncio.create_task(deleted(http, first.conversation))
            await asyncio.sleep(0.01)
            assert service.kill("lanes")
            await following
            await service.ready()
            await deleting

            # And right after the second was acknowledged.
            second, heard = Asked(CANARIES[1]), asyncio.Event()
            following = asyncio.create_task(converse(http, second, heard))
            await asyncio.wait_for(heard.wait(), PATIENT_S)
            await deleted(http, second.conversation)
            assert service.kill("lanes")
            await following
            await service.ready()

            # And a temporary chat, of which there are two replies: with the last one it goes.
            for_once = [await chat_for_once(http, CANARIES[2], f"k{n}") for n in range(2)]
            for one in for_once:
                forgotten = await http.delete(f"/v1/temporary/messages/{one.reply}")
                assert forgotten.status_code == 204

            orders = await everything_reached(http, service.database)
            said = [
                way
                for asked in (first, second, for_once[1])
                for way in ways_to_write(asked.canary, said_in_ids(asked.text))
            ]
            left = found_in(service.folder, said)
            again = [await asked_to_the_end(http, asked.canary) for asked in (first, second)]
            once_more = await chat_for_once(http, CANARIES[2], "k3")
    finally:
        service.end()
    assert left == {}
    targets = {order["target"]: order["kind"] for order in orders}
    assert targets.pop(first.conversation) == targets.pop(second.conversation) == "conversation"
    assert list(targets.values()) == ["calls"]
    assert cached(for_once[1]) > 64
    assert cached(once_more) == shared
    for order in orders:
        hows = {place: reach["how"] for place, reach in order["reached"].items()}
        assert hows.pop("disk") == "overwritten"
        assert hows.pop("rows") == hows.pop("logs") == "deleted"
        assert set(hows.values()) == {"forgotten"}
    assert [cached(one) for one in again] == [shared, shared]


async def leave_copies(http: httpx2.AsyncClient, word: str) -> None:
    """Instructions, an imported conversation and the file it came in, a link, an export, and a
    temporary chat that is still being answered."""
    told = await http.put("/v1/me/instructions", json={"text": f"Call me {word}."})
    told.raise_for_status()
    file = json.dumps([chatgpt(word)]).encode()
    headers = {"Content-Type": "application/json"}
    job = (await http.post("/v1/imports", content=file, headers=headers)).raise_for_status().json()

    async def has_come_in() -> bool:
        now = (await http.get(f"/v1/imports/{job['id']}")).raise_for_status().json()
        return now["endedAt"] is not None

    await until(has_come_in)
    listed = (await http.get("/v1/conversations", params={"q": word})).raise_for_status().json()
    for item in listed["items"]:
        place = f"/v1/conversations/{item['id']}"
        (await http.patch(place, json={"title": f"About {word}"})).raise_for_status()
        (await http.post(f"{place}/shares", json={})).raise_for_status()
    (await http.post("/v1/me/export", json={"password": PASSWORD})).raise_for_status()
    said = {"messages": [{"role": "user", "content": question(word)}]}
    asked = await http.post("/v1/temporary/messages", json=said, headers={"Idempotency-Key": word})
    asked.raise_for_status()


async def test_an_account_that_ends_leaves_no_byte_of_it(tmp_path: Path) -> None:
    """Its files and their copies as well, and its name; numbers stay."""
    service = Service(tmp_path / "data", TOML)
    service.start()
    name = "Zugunruhe9653"
    try:
        await service.ready()
        async with loopback(60, base_url=service.url) as http:
            http.headers["Origin"] = service.url
            body = {"name": name, "password": PASSWORD}
            (await http.post("/v1/auth/register", json=body)).raise_for_status()
            await asked_to_the_end(http, name)
            request = {
                "custom_id": name,
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {"model": "auto", "messages": [{"role": "user", "content": name}]},
            }
            sent = {"file": (f"{name}.jsonl", json.dumps(request).encode())}
            made = await http.post("/v1/files", data={"purpose": "batch"}, files=sent)
            batch = {
                "input_file_id": made.raise_for_status().json()["id"],
                "endpoint": "/v1/chat/completions",
                "completion_window": "24h",
            }
            (await http.post("/v1/batches", json=batch)).raise_for_status()
            await leave_copies(http, name)
            assert found_in(service.folder, ways_to_write(name))
            assert (await http.request("DELETE", "/v1/me")).status_code == 204
            assert service.kill("lanes")
            await service.ready()
            http.headers["Authorization"] = f"Bearer {service.key}"
            [order] = await everything_reached(http, service.database)
            left = found_in(service.folder, ways_to_write(name))
    finally:
        service.end()
    assert left == {}
    assert order["kind"] == "account"
