"""Limits that all gateways share, seen from outside: open streams, sign-ins, registrations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from unittest.mock import patch

import httpx2
import pytest

from tertulia.backends.memory.leases import MemoryLeases
from tertulia.backends.memory.turns import MemoryTurns
from tertulia.core.slices import slice_of
from tertulia.core.types import Admission, Limits, NewTurn
from tertulia.gateway.streams import Seat
from tests.lanes.gateway_rig import (
    PASSWORD,
    PLANS,
    Rig,
    ScriptedReplicas,
    ask,
    ask_later,
    new_conversation,
    rig,
    until,
)

pytestmark = pytest.mark.anyio

LIMIT = PLANS["free"].open_streams
HERE = "127.0.0.1"


async def elsewhere(here: Rig, client: httpx2.AsyncClient, streams: int) -> str:
    """So many streams of the user are open at other gateways; the user's id."""
    owner: str = (await client.get("/v1/me")).json()["id"]
    for n in range(streams):
        assert await here.desk.streams.take(Seat(owner, f"elsewhere-{n}"), limit=LIMIT)
    return owner


async def tried(here: Rig, what: str, times: int) -> None:
    """So many tries from this address were made at other gateways."""
    name = f"{what}:{sha256(HERE.encode()).hexdigest()}"
    for n in range(times):
        taken = await here.desk.counters.take(name, f"try-{n}", limit=10_000, lasts_s=300.0)
        assert taken is None


async def sign_in(here: Rig, password: str) -> int:
    body = {"name": "ana", "password": password}
    return (await here.client().post("/v1/auth/login", json=body)).status_code


async def test_a_refused_turn_gives_its_seat_back() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        await elsewhere(here, ana, LIMIT - 1)
        first = await ask(ana, conversation, key="k")
        reused = [await ask(ana, conversation, "Other", key="k") for _ in range(3)]
        last = await ask(ana, conversation, "Another")
    assert [answer.status_code for answer in (first, *reused, last)] == [200, 422, 422, 422, 200]


async def test_a_seat_is_free_again_when_its_stream_has_ended() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        await elsewhere(here, ana, LIMIT - 1)
        statuses = [(await ask(ana, conversation, f"Ask {n}")).status_code for n in range(4)]
    assert statuses == [200] * 4


async def test_a_call_that_waits_for_a_whole_reply_takes_a_seat_too() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        ana = await here.user("ana")
        await elsewhere(here, ana, LIMIT - 1)
        body = {"model": "auto", "messages": [{"role": "user", "content": "Why?"}]}
        waiting = asyncio.create_task(ana.post("/v1/chat/completions", json=body))
        await until(lambda: len(here.desk.streams))
        refused = await ana.post("/v1/chat/completions", json=body)
        here.replicas.hold.set()
        assert (await waiting).status_code == 200
        assert (await ana.post("/v1/chat/completions", json=body)).status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
    assert refused.headers["retry-after"] == "5"


class Silent:
    """A store of counters that is there and never answers."""

    async def take(
        self, name: str, lease: str, *, limit: int, lasts_s: float, of_process: bool = False
    ) -> float | None:
        await asyncio.Event().wait()
        return None

    async def renew(self, held: Sequence[tuple[str, str]], *, lasts_s: float) -> None:
        await asyncio.Event().wait()

    def free(self, name: str, lease: str) -> None:
        pass

    def forget(self, name: str) -> None:
        pass


async def test_without_the_store_of_counters_streams_open_by_a_slice_and_it_is_shown() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3), leases=Silent()) as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        posted = (await ask_later(ana, conversation)).json()
        following = [
            asyncio.create_task(ana.get(posted["streamUrl"])) for _ in range(slice_of(LIMIT))
        ]
        await until(lambda: len(here.desk.streams) == slice_of(LIMIT))
        refused = await ask(ana, conversation, "Other", parentId=None)
        figures = (await ana.get("/metrics")).text
        here.replicas.hold.set()
        followed = [(await stream).status_code for stream in following]
        after = await ask(ana, conversation, "Another")
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert followed == [200] * slice_of(LIMIT)
    assert after.status_code == 200
    assert "\ntertulia_counter_store_up 0.0\n" in figures
    assert "\ntertulia_limits_sliced_total " in figures
    assert "\ntertulia_limits_sliced_total 0.0\n" not in figures


async def test_with_the_store_of_counters_nothing_is_sliced() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        await ask(ana, await new_conversation(ana))
        figures = (await ana.get("/metrics")).text
    assert "\ntertulia_counter_store_up 1.0\n" in figures
    assert "\ntertulia_limits_sliced_total 0.0\n" in figures


async def test_wrong_sign_ins_of_an_address_are_counted_over_all_gateways() -> None:
    async with rig() as here:
        await here.user("ana")
        await tried(here, "logins-by-address", 299)
        wrong = [await sign_in(here, "the wrong password") for _ in range(2)]
        right = await sign_in(here, PASSWORD)
    assert wrong == [401, 429]
    assert right == 429, "nobody learns by it that the password would have been right"


async def test_right_sign_ins_do_not_count_and_forgive_no_wrong_ones() -> None:
    """An office behind one address signs in as often as it likes; a thief with an account of
    their own gets no more guesses by signing in to it."""
    async with rig() as here:
        await here.user("ana")
        await tried(here, "logins-by-address", 298)
        statuses = [
            await sign_in(here, password)
            for password in (PASSWORD, "wrong", PASSWORD, PASSWORD, "wrong", PASSWORD)
        ]
    assert statuses == [200, 401, 200, 200, 401, 429]


async def test_a_used_link_counts_as_a_wrong_sign_in() -> None:
    async with rig() as here:
        await tried(here, "logins-by-address", 299)
        links = [await here.client().post("/v1/auth/link", json={"token": "x"}) for _ in range(2)]
    assert [link.status_code for link in links] == [401, 429]


async def test_registrations_of_an_address_are_counted_over_all_gateways() -> None:
    async with rig() as here:
        await tried(here, "registrations", 59)
        made = [
            await here.client().post("/v1/auth/register", json={"name": name, "password": PASSWORD})
            for name in ("ana", "ben")
        ]
    assert [answer.status_code for answer in made] == [200, 429]
    assert int(made[1].headers["retry-after"]) > 200


async def test_what_is_counted_names_nobody() -> None:
    async with rig() as here:
        await here.user("ana")
        await sign_in(here, "the wrong password")
        assert isinstance(here.leases, MemoryLeases)
        names = list(here.leases._ends)
    assert [name for name in names if "ana" in name or HERE in name] == []
    assert any(name.startswith("logins-by-name:") for name in names)


async def test_who_is_refused_again_costs_no_write_and_is_let_in_once_there_is_room() -> None:
    replicas = ScriptedReplicas(before_hold=0)
    door = patch.object(MemoryTurns, "admit", autospec=True, side_effect=MemoryTurns.admit)
    with door as asked:
        async with rig(replicas=replicas) as here:
            ana = await here.user("ana")
            rooms = [await new_conversation(ana) for _ in range(4)]
            answers = [await ask_later(ana, room, f"Ask {room}") for room in rooms]
            answers += [await ask_later(ana, rooms[3], "Once more") for _ in range(3)]
            assert [answer.status_code for answer in answers] == [202, 202, *[429] * 5]
            assert {answer.json()["code"] for answer in answers[2:]} == {"too_many_running"}
            assert asked.call_count == 3, "only the first refusal is the store's"
            replicas.hold.set()
            await until(lambda: not here.worker.held)
            assert (await ask_later(ana, rooms[3], "Once more")).status_code == 202


async def test_a_reply_that_ends_on_the_way_to_the_store_is_in_what_its_successor_reserves() -> (
    None
):
    """Its prompt holds it, and is charged for as a whole."""
    replicas = ScriptedReplicas(before_hold=0)
    entered = MemoryTurns.admit

    async def late(turns: MemoryTurns, turn: NewTurn, limits: Limits) -> Admission:
        if turn.content == "Next":
            replicas.hold.set()
            await until(lambda: not here.worker.held)
        return await entered(turns, turn, limits)

    with patch.object(MemoryTurns, "admit", late):
        async with rig(replicas=replicas) as here:
            ana = await here.user("ana")
            room = await new_conversation(ana)
            await ask_later(ana, room, "First")
            await until(lambda: replicas.asked)
            posted = await ask_later(ana, room, "Next")
            assert posted.status_code == 202
            await until(lambda: len(replicas.asked) == 2 and not here.worker.held)
            turn = await here.backend.turns.find(
                (await ana.get("/v1/me")).json()["id"], posted.json()["messageId"]
            )
    assert turn is not None
    assert turn.usage.input == len(replicas.asked[1].prompt)
