"""Promises of the `Queue` and `Presence` ports: claims, leases, and turns that nobody follows."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tertulia.core.types import Held, Lane, Status
from tests.conformance.world import (
    LEASE_S,
    PLENTY,
    START,
    Backend,
    ManualClock,
    admitted,
    claimed,
    completed,
    conversation,
    message,
    stateless,
)

pytestmark = pytest.mark.anyio


async def test_plus_goes_before_free_and_then_the_oldest(
    backend: Backend, clock: ManualClock
) -> None:
    lanes = (Lane.BATCH, Lane.FREE, Lane.PLUS, Lane.FREE, Lane.PLUS)
    for n, lane in enumerate(lanes, 1):
        await admitted(backend, stateless(n), replace(PLENTY, lane=lane))
        clock.pass_(0.25)
    order = [(await claimed(backend)).reply_id for _ in range(5)]
    assert order == ["m_r3", "m_r5", "m_r2", "m_r4", "m_r1"]
    assert await backend.queue.claim(lease_s=LEASE_S) is None


async def test_turns_of_one_rank_and_one_moment_are_claimed_by_id(backend: Backend) -> None:
    for n, owner in ((3, "ana"), (1, "ben"), (2, "eva")):
        await admitted(backend, stateless(n, owner=owner))
    order = [(await claimed(backend)).reply_id for _ in range(3)]
    assert order == ["m_r1", "m_r2", "m_r3"]


async def test_a_claim_gives_the_next_epoch_a_lease_and_running(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    turn = await claimed(backend)
    assert (turn.epoch, turn.status, turn.lease_until) == (1, Status.RUNNING, START + LEASE_S)
    assert turn == await backend.turns.find("ana", "m_r1")
    reply = await backend.messages.find("ana", "m_r1")
    assert reply is not None
    assert reply.status is Status.RUNNING


async def test_racing_claimers_never_get_the_same_turn(backend: Backend) -> None:
    for n in range(10):
        await admitted(backend, stateless(n))
    turns = await asyncio.gather(*(backend.queue.claim(lease_s=LEASE_S) for _ in range(30)))
    given = [turn.reply_id for turn in turns if turn is not None]
    assert sorted(given) == [f"m_r{n}" for n in range(10)]


async def test_skipped_turns_are_left(backend: Backend) -> None:
    await admitted(backend, stateless(1))
    await admitted(backend, stateless(2))
    assert (await claimed(backend, skip=("m_r1", "m_unknown"))).reply_id == "m_r2"
    assert await backend.queue.claim(lease_s=LEASE_S, skip=("m_r1",)) is None


async def test_an_expired_lease_can_be_claimed_at_that_moment_and_not_before(
    backend: Backend, clock: ManualClock
) -> None:
    await admitted(backend, stateless(1))
    await claimed(backend)
    clock.pass_(LEASE_S - 0.001)
    assert await backend.queue.claim(lease_s=LEASE_S) is None
    clock.pass_(0.001)
    assert (await claimed(backend)).epoch == 2


async def test_a_renewed_lease_runs_from_now(backend: Backend, clock: ManualClock) -> None:
    await admitted(backend, stateless(1))
    turn = await claimed(backend)
    clock.pass_(1.5)
    assert await backend.queue.renew([turn.held], lease_s=LEASE_S) == frozenset()
    clock.pass_(1.5)
    assert await backend.queue.claim(lease_s=LEASE_S) is None
    clock.pass_(0.5)
    assert (await claimed(backend)).epoch == 2


async def test_an_expired_lease_that_nobody_took_can_be_renewed(
    backend: Backend, clock: ManualClock
) -> None:
    await admitted(backend, stateless(1))
    await claimed(backend)
    clock.pass_(5)
    assert await backend.queue.renew([Held("ana", "m_r1", 1)], lease_s=LEASE_S) == frozenset()
    assert await backend.queue.claim(lease_s=LEASE_S) is None


async def test_renewing_says_which_are_lost(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend)
    for n in (1, 2, 3, 4):
        await admitted(backend, stateless(n))
    await admitted(backend, message(5))
    held = [(await claimed(backend)).held for _ in range(5)]
    assert await backend.turns.finish(Held("ana", "m_r1", 1), completed())
    assert await backend.turns.seize("ana", "m_r2", "stopped") is not None
    assert await backend.conversations.delete("ana", "c_1") == ("m_r5",)
    clock.pass_(3)
    assert (await claimed(backend, skip=("m_r2", "m_r4"))).reply_id == "m_r3"
    lost = await backend.queue.renew([*held, Held("ana", "m_unknown", 1)], lease_s=LEASE_S)
    assert lost == {
        Held("ana", "m_r1", 1),
        Held("ana", "m_r2", 1),
        Held("ana", "m_r3", 1),
        Held("ana", "m_r5", 1),
        Held("ana", "m_unknown", 1),
    }
    assert await backend.queue.renew([], lease_s=LEASE_S) == frozenset()


async def test_a_released_turn_can_be_claimed_at_once(backend: Backend) -> None:
    await admitted(backend, stateless(1))
    turn = await claimed(backend)
    await backend.queue.release([turn.held])
    again = await claimed(backend)
    assert (again.epoch, again.status) == (2, Status.RUNNING)


async def test_only_the_holder_can_release(backend: Backend, clock: ManualClock) -> None:
    await admitted(backend, stateless(1))
    await claimed(backend)
    clock.pass_(3)
    await claimed(backend)
    await backend.queue.release([Held("ana", "m_r1", 1), Held("ana", "m_unknown", 1)])
    assert await backend.queue.claim(lease_s=LEASE_S) is None


async def test_a_turn_is_abandoned_after_its_plans_grace_without_a_follower(
    backend: Backend, clock: ManualClock
) -> None:
    for n, abandon_s in ((1, 30.0), (2, 60.0), (3, None)):
        await admitted(backend, stateless(n), replace(PLENTY, abandon_s=abandon_s))
    clock.pass_(29)
    assert await backend.queue.abandoned() == ()
    clock.pass_(1)
    assert [turn.reply_id for turn in await backend.queue.abandoned()] == ["m_r1"]
    clock.pass_(1000)
    found = [turn.reply_id for turn in await backend.queue.abandoned()]
    assert found == ["m_r1", "m_r2"]


async def test_a_followed_turn_is_not_abandoned(backend: Backend, clock: ManualClock) -> None:
    await admitted(backend, stateless(1))
    await admitted(backend, stateless(2))
    clock.pass_(20)
    await backend.presence.seen([("ana", "m_r1"), ("ana", "m_unknown")])
    await backend.presence.seen([])
    clock.pass_(20)
    found = [turn.reply_id for turn in await backend.queue.abandoned()]
    assert found == ["m_r2"]


async def test_a_finished_turn_is_neither_followed_nor_abandoned(
    backend: Backend, clock: ManualClock
) -> None:
    await admitted(backend, stateless(1))
    held = await claimed(backend)
    assert await backend.turns.finish(held.held, completed())
    ended = await backend.turns.find("ana", "m_r1")
    clock.pass_(100)
    await backend.presence.seen([("ana", "m_r1")])
    assert await backend.turns.find("ana", "m_r1") == ended
    assert await backend.queue.abandoned() == ()


async def test_a_turn_is_stale_once_nobody_has_held_it_for_long(
    backend: Backend, clock: ManualClock
) -> None:
    await admitted(backend, stateless(1))
    await admitted(backend, stateless(2))
    assert (await claimed(backend)).reply_id == "m_r1"
    clock.pass_(LEASE_S + 59)
    assert await backend.queue.stale(held_age_s=60, queued_age_s=1000) == ()
    clock.pass_(1)
    found = await backend.queue.stale(held_age_s=60, queued_age_s=1000)
    assert [turn.reply_id for turn in found] == ["m_r1"]
    clock.pass_(1000)
    found = await backend.queue.stale(held_age_s=60, queued_age_s=1000)
    assert [turn.reply_id for turn in found] == ["m_r1", "m_r2"]


async def test_after_a_restart_leases_are_over_and_everyone_counts_as_following(
    backend: Backend, clock: ManualClock
) -> None:
    await admitted(backend, stateless(1))
    await admitted(backend, stateless(2))
    await claimed(backend)
    clock.pass_(1)
    await backend.queue.restarted()
    assert [(await claimed(backend)).epoch for _ in range(2)] == [2, 1]
    clock.pass_(29)
    assert await backend.queue.abandoned() == ()
    clock.pass_(1)
    assert len(await backend.queue.abandoned()) == 2


async def test_after_a_long_outage_a_held_turn_is_not_stale_at_once(
    backend: Backend, clock: ManualClock
) -> None:
    await admitted(backend, stateless(1))
    await claimed(backend)
    clock.pass_(3600)
    await backend.queue.restarted()
    assert await backend.queue.stale(held_age_s=60, queued_age_s=60) == ()
