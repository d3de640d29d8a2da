"""Promises of the `LooseTurns` port: of a turn without a conversation only its numbers stay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tertulia.core.deletions import DeletionKind
from tertulia.core.turn import thread_of
from tertulia.core.types import (
    Admitted,
    Append,
    Gone,
    NewTurn,
    PromptMessage,
    Repeated,
    Status,
)
from tests.conformance.world import (
    PLENTY,
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    entries,
    message,
    note,
    stateless,
    used_and_held,
)

pytestmark = pytest.mark.anyio

KEPT_S = 600.0


async def forgotten(backend: Backend, *, limit: int = 50) -> list[str]:
    gone = await backend.loose.forget(ended_s=KEPT_S, limit=limit)
    return [turn.reply_id for turn in gone]


async def failed(backend: Backend, n: int) -> None:
    await admitted(backend, stateless(n))
    held = await claimed(backend)
    await note(backend, held)
    end = completed(status=Status.FAILED, finish=None, text="Half", ids=())
    assert await backend.turns.finish(held.held, end)


async def test_what_ended_long_ago_is_gone_but_for_its_numbers(
    backend: Backend, clock: ManualClock
) -> None:
    turn = await answered(backend, stateless(1))
    spent = await used_and_held(backend, "ana")
    clock.pass_(KEPT_S - 1)
    assert await forgotten(backend) == []
    assert await backend.turns.find("ana", "m_r1") == turn
    clock.pass_(1)
    gone = Gone("ana", "m_r1", thread_of(turn), is_last=True)
    assert await backend.loose.forget(ended_s=KEPT_S, limit=50) == (gone,)
    assert await backend.turns.find("ana", "m_r1") is None
    assert await backend.turns.find_by_key("ana", turn.key) is None
    assert await backend.log.read("m_r1", 0) is None
    used, held, running = await used_and_held(backend, "ana")
    assert (held, running) == (0, ())
    assert 0 < used <= spent[0]
    assert await backend.ledger.check("ana") == {}
    assert await forgotten(backend) == []


async def test_nothing_else_is_forgotten(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await answered(backend, stateless(2, kind="line"))
    await admitted(backend, stateless(3))
    await claimed(backend)
    await admitted(backend, stateless(4))
    clock.pass_(10 * KEPT_S)
    assert await forgotten(backend) == []
    for n in (1, 2, 3, 4):
        assert await backend.turns.find("ana", f"m_r{n}") is not None


async def test_the_oldest_go_first_and_no_more_than_asked(
    backend: Backend, clock: ManualClock
) -> None:
    for n in (3, 1, 2):
        await answered(backend, stateless(n, owner="ana" if n != 1 else "ben"))
        clock.pass_(1)
    clock.pass_(KEPT_S)
    assert await forgotten(backend, limit=2) == ["m_r3", "m_r1"]
    assert await forgotten(backend, limit=2) == ["m_r2"]


async def test_the_key_is_free_again_and_pays_again(backend: Backend, clock: ManualClock) -> None:
    await answered(backend, stateless(1))
    assert isinstance(await backend.turns.admit(stateless(1), PLENTY), Repeated)
    clock.pass_(KEPT_S)
    await forgotten(backend)
    anew = stateless(1, reply_id="m_r9")
    assert isinstance(await backend.turns.admit(anew, PLENTY), Admitted)


async def test_a_late_writer_brings_nothing_back(backend: Backend, clock: ManualClock) -> None:
    await admitted(backend, stateless(1))
    held = await claimed(backend)
    await note(backend, held)
    await backend.log.fence("m_r1", held.epoch, 1)
    await backend.log.append("m_r1", held.epoch, 1, entries(1, 2))
    assert await backend.turns.finish(held.held, completed())
    assert await backend.loose.delete("ana", "m_r1") is not None
    assert await backend.log.append("m_r1", held.epoch, 1, entries(3, 3)) is Append.STALE
    assert await backend.log.reseed("m_r1", held.epoch, 1, entries(1, 3)) is Append.STALE
    assert await backend.log.read("m_r1", 0) is None
    assert not await note(backend, held)
    assert not await backend.turns.finish(held.held, completed())
    assert await backend.turns.find("ana", "m_r1") is None


async def test_one_is_deleted_at_once_by_its_owner_when_it_has_ended(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await answered(backend, stateless(2))
    await admitted(backend, stateless(3))
    assert await backend.loose.delete("ben", "m_r2") is None
    assert await backend.loose.delete("ana", "m_r1") is None
    assert await backend.loose.delete("ana", "m_r3") is None
    assert await backend.loose.delete("ana", "m_r9") is None
    gone = await backend.loose.delete("ana", "m_r2")
    assert gone is not None
    assert (gone.owner, gone.reply_id) == ("ana", "m_r2")
    assert await backend.loose.delete("ana", "m_r2") is None
    assert await backend.turns.find("ana", "m_r1") is not None
    assert await backend.turns.find("ana", "m_r3") is not None


def of_thread(n: int, opening: str, **more: Any) -> NewTurn:
    system, asked = PromptMessage("system", "Be kind."), PromptMessage("user", opening)
    return stateless(n, prompt=(system, asked), **more)


async def test_the_last_of_a_thread_is_named_and_no_other(
    backend: Backend, clock: ManualClock
) -> None:
    for n, opening, kind in (
        (1, "Why?", "stateless"),
        (2, "How?", "stateless"),
        (3, "Why?", "stateless"),
        (4, "When?", "stateless"),
        (5, "When?", "line"),
    ):
        await answered(backend, of_thread(n, opening, kind=kind))
        clock.pass_(1)
    await answered(backend, of_thread(6, "Why?", owner="ben"))
    clock.pass_(KEPT_S)
    await admitted(backend, of_thread(7, "How?"))
    gone = await backend.loose.forget(ended_s=KEPT_S, limit=50)
    assert {one.reply_id: one.is_last for one in gone} == {
        "m_r1": False,
        "m_r2": False,
        "m_r3": True,
        "m_r4": False,
        "m_r6": True,
    }
    threads = {one.reply_id: one.thread for one in gone}
    assert threads["m_r1"] == threads["m_r3"] != threads["m_r6"]


async def test_who_deletes_the_last_of_a_thread_leaves_an_order_to_forget_it(
    backend: Backend,
) -> None:
    first = await answered(backend, of_thread(1, "Why?"))
    await answered(backend, of_thread(2, "Why?"))
    assert await backend.loose.delete("ana", "m_r1") is not None
    assert (await backend.deletions.page(cursor=None, limit=9)).items == ()
    assert await backend.loose.delete("ana", "m_r2") is not None
    [order] = (await backend.deletions.page(cursor=None, limit=9)).items
    assert (order.owner, order.target) == ("ana", thread_of(first))
    assert order.kind is DeletionKind.CALLS
    assert await backend.erasure.left(order) == frozenset()


async def test_a_failed_one_is_forgotten_or_run_again_and_never_both(
    backend: Backend, clock: ManualClock
) -> None:
    await failed(backend, 1)
    clock.pass_(KEPT_S)
    again = stateless(1, reply_id="m_r9")
    answer, gone = await asyncio.gather(backend.turns.admit(again, PLENTY), forgotten(backend))
    assert isinstance(answer, Admitted)
    turn = await backend.turns.find_by_key("ana", "key-1")
    assert turn is not None
    assert turn.reply_id == ("m_r9" if gone else "m_r1")
    held = await claimed(backend)
    assert held.reply_id == turn.reply_id
    assert await backend.turns.finish(held.held, completed())


async def test_an_account_that_ends_takes_them_along(backend: Backend, clock: ManualClock) -> None:
    await answered(backend, stateless(1))
    await backend.conversations.delete("ana", None)
    clock.pass_(KEPT_S)
    assert await forgotten(backend) == []
