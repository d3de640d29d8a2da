"""What is exported comes back as it was, twice is once, and no file brings a reader down."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tertulia.backends.memory import MemoryBackend
from tertulia.core.imports import Found, Import, NewImport, Progress
from tertulia.core.transcripts import Arrival, Flaw, Node, Transcript, arranged
from tertulia.core.types import Failure, Finish, Reason, Status
from tertulia.gateway.desk import Desk
from tertulia.gateway.exportfiles import JSON_END, json_head, json_messages
from tertulia.gateway.formats import read_conversation
from tertulia.gateway.messages import message_json
from tests.conformance.world import START, ManualClock
from tests.lanes.moving_rig import chatgpt, open_webui

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
# Whole milliseconds: that is what times in an export have.
TIMES = st.integers(1, int(START) * 1000).map(lambda ms: ms / 1000)
WORDS = st.none() | st.text("abcdefg-ñ", min_size=1, max_size=9)


@st.composite
def transcripts(draw: st.DrawFn) -> Transcript:
    """Any tree of messages, with everything that they may have."""
    nodes: list[Node] = []
    for n in range(draw(st.integers(0, 8))):
        parent = draw(st.none() | st.sampled_from([node.id for node in nodes])) if nodes else None
        is_reply = draw(st.booleans())
        nodes.append(
            Node(
                f"m{n}",
                parent,
                "assistant" if is_reply else "user",
                draw(TEXT),
                draw(TIMES),
                model=draw(WORDS),
                requested=draw(WORDS),
                reason=draw(st.none() | st.sampled_from(Reason)),
                status=draw(st.sampled_from([one for one in Status if one.is_final])),
                finish=draw(st.none() | st.sampled_from(Finish)),
                notices=tuple(draw(st.lists(st.text("abc_", min_size=1), max_size=2))),
                failure=draw(st.none() | st.just(Failure("busy", "Too much", retryable=True))),
                feedback=draw(st.sampled_from([None, "up", "down"])),
                why=draw(TEXT),
            )
        )
    return Transcript(
        "tertulia",
        "c_source",
        draw(TEXT),
        tuple(nodes),
        draw(TIMES),
        draw(TIMES),
        pinned=draw(st.booleans()),
        archived=draw(st.booleans()),
        head=draw(st.sampled_from([node.id for node in nodes])) if nodes else None,
    )


def arrive(transcript: Transcript, owner: str) -> Arrival:
    found = arranged(transcript, owner=owner, import_id="i", prompt_version="v1", now=START)
    assert isinstance(found, Arrival), found
    return found


async def file_of(backend: MemoryBackend, owner: str) -> bytes:
    """The only conversation of an owner as an export writes it."""
    (conversation,) = await backend.transcripts.conversations(owner, after="", limit=9)
    rows = await backend.transcripts.messages(owner, conversation.id, after=0, limit=999)
    nobody = cast("Desk", None)  # no reply runs: the log need not be asked
    shown = [{**await message_json(nobody, one), "feedbackReason": why} for one, why in rows]
    return json_head(conversation) + json_messages(shown) + JSON_END


async def bring(backend: MemoryBackend, owner: str, *arrivals: Arrival) -> Import:
    name = f"import_{owner}_{len(arrivals)}_{await backend.transcripts.count(owner)}"
    await backend.imports.create(NewImport(owner, name, "file", 1), limit=99)
    job = await backend.import_work.claim(lease_s=1e6)
    assert job is not None
    found = tuple(Found(n, "", one) for n, one in enumerate(arrivals, 1))
    told = await backend.import_work.save(Progress(job, found, then="release"))
    assert told is not None
    await backend.imports.cancel(owner, name)
    return told


def without_ids(file: bytes) -> Any:
    """What a file says, with every id replaced by its place."""
    value = json.loads(file)
    places = {one["id"]: n for n, one in enumerate(value["messages"])}
    its = value["conversation"]
    its["id"], its["headMessageId"] = "", places.get(its["headMessageId"])
    for one in value["messages"]:
        one["id"], one["parentId"] = places[one["id"]], places.get(one["parentId"])
    return value


@given(transcripts())
def test_what_is_exported_comes_in_elsewhere_as_it_was(transcript: Transcript) -> None:
    async def round_trip() -> None:
        backend = MemoryBackend(ManualClock())
        assert (await bring(backend, "ana", arrive(transcript, "ana"))).made == 1
        file = await file_of(backend, "ana")
        its_id, back = read_conversation(file)
        assert isinstance(back, Transcript), back
        arrival = arrive(back, "ben")
        assert arrival.same_as == its_id
        assert arrival.repaired == 0
        assert (await bring(backend, "ben", arrival)).made == 1
        assert without_ids(await file_of(backend, "ben")) == without_ids(file)

    asyncio.run(round_trip())


@given(transcripts())
def test_twice_is_once(transcript: Transcript) -> None:
    async def twice() -> None:
        backend = MemoryBackend(ManualClock())
        arrival = arrive(transcript, "ana")
        assert (await bring(backend, "ana", arrival, arrival)).known == 1
        file = await file_of(backend, "ana")
        back = read_conversation(file)[1]
        assert isinstance(back, Transcript)
        told = await bring(backend, "ana", arrive(back, "ana"), arrive(transcript, "ana"))
        assert (told.made, told.known) == (0, 2)
        assert await file_of(backend, "ana") == file

    asyncio.run(twice())


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "parts", "role", "text"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in items:
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += paths_of(inner, (*path, key))
    return found


OWN = {
    "format": "tertulia-export",
    "version": 1,
    "conversation": {
        "id": "c_1",
        "title": "Title",
        "createdAt": "2026-11-30T10:00:00.000Z",
        "updatedAt": "2026-11-30T10:00:00.000Z",
        "pinned": False,
        "archived": False,
        "model": None,
        "headMessageId": "m_2",
    },
    "messages": [
        {
            "id": name,
            "parentId": parent,
            "role": role,
            "content": "text",
            "createdAt": "2026-11-30T10:00:00.000Z",
            "status": "completed",
            "notices": [],
            "error": None,
        }
        for name, parent, role in (("m_1", None, "user"), ("m_2", "m_1", "assistant"))
    ],
}


@given(st.sampled_from([OWN, chatgpt(), open_webui()]), st.data())
def test_a_file_with_anything_anywhere_is_read_or_told(sound: Any, data: st.DataObject) -> None:
    broken = json.loads(json.dumps(sound))
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(paths_of(broken)))
        place = broken
        for key in way:
            place = place[key]
        if data.draw(st.booleans()) and isinstance(place, dict):
            del place[last]
            if not paths_of(broken):
                break
        else:
            place[last] = data.draw(JSON_VALUES)
    _, found = read_conversation(json.dumps(broken).encode())
    if isinstance(found, Transcript):
        arranged(found, owner="ana", import_id="i", prompt_version="v1", now=START)
    else:
        assert found.code
        assert found.message


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_told(raw: bytes) -> None:
    assert isinstance(read_conversation(raw)[1], Flaw | Transcript)


@given(st.integers(2, 200), st.integers(0, 10_000))
def test_a_long_circle_is_told(size: int, seed: int) -> None:
    """S-30."""
    nodes = tuple(Node(f"n{n}", f"n{(n + 1) % size}", "user", "x") for n in range(size))
    cut = nodes[seed % size :] + nodes[: seed % size]
    circle = Transcript("chatgpt", "c", "", cut)
    found = arranged(circle, owner="ana", import_id="i", prompt_version="v1", now=START)
    assert isinstance(found, Flaw)
    assert found.code == "cycle"
