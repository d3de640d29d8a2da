"""A reply's pen while its log's store is away, slow to answer, or back without the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tertulia.backends.memory import MemoryBackend
from tertulia.core.types import Append, Entry, Turn
from tertulia.ports import StoreUnavailable
from tertulia.worker.pen import Pen, Superseded
from tests.conformance.world import ManualClock, admitted, claimed, stateless

pytestmark = pytest.mark.anyio


@dataclass
class Away:
    """A log whose next calls fail: before they were carried out, or after ("unheard")."""

    store: MemoryBackend
    failures: list[str] = field(default_factory=list)
    asked: int = 0

    async def append(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append:
        self.asked += 1
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "away":
            raise StoreUnavailable
        answer = await self.store.log.append(reply_id, epoch, attempt, entries)
        if failure == "unheard":
            raise StoreUnavailable
        return answer

    async def reseed(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append:
        return await self.store.log.reseed(reply_id, epoch, attempt, entries)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def begun(clock: ManualClock) -> tuple[Pen, Away, Turn]:
    store = MemoryBackend(clock)
    await admitted(store, stateless(1))
    turn = await claimed(store)
    fenced = await store.log.fence(turn.reply_id, turn.epoch, turn.attempt)
    assert fenced is not None
    log = Away(store)
    pen = Pen(log, store.queue, clock, turn, fenced, lease_s=2.0)  # type: ignore[arg-type]  # what a pen asks of a log
    await pen.delta("one ", (1,))
    return pen, log, turn


async def said(log: Away, turn: Turn) -> list[Entry]:
    view = await log.store.log.read(turn.reply_id, 0)
    assert view is not None
    return list(view.entries)


@pytest.mark.parametrize("failures", [["away"] * 5, ["unheard"], ["unheard", "away", "unheard"]])
async def test_a_store_that_comes_back_takes_each_entry_once(
    clock: ManualClock, failures: list[str]
) -> None:
    pen, log, turn = await begun(clock)
    log.failures = failures
    await pen.delta("two ", (2,))
    await pen.delta("three ", (3,))
    assert await said(log, turn) == pen.entries
    assert len(pen.entries) == 3


async def test_a_store_that_comes_back_empty_gets_everything_again(clock: ManualClock) -> None:
    pen, log, turn = await begun(clock)
    log.failures = ["away"] * 3
    log.store.log.lose(turn.reply_id)
    await pen.delta("two ", (2,))
    assert await said(log, turn) == pen.entries


async def test_a_store_that_stays_away_is_given_up_after_ten_seconds(clock: ManualClock) -> None:
    pen, log, _ = await begun(clock)
    begun_at = clock.now()
    log.failures = ["away"] * 1000
    with pytest.raises(StoreUnavailable):
        await pen.delta("two ", (2,))
    assert 10 <= clock.now() - begun_at < 11


async def test_whoever_lost_the_claim_meanwhile_writes_nothing(clock: ManualClock) -> None:
    pen, log, turn = await begun(clock)
    log.failures = ["away"]
    await log.store.turns.seize(turn.owner, turn.reply_id, "stopped")
    log.store.log.lose(turn.reply_id)
    with pytest.raises(Superseded):
        await pen.delta("two ", (2,))
    assert await log.store.log.read(turn.reply_id, 0) is None
