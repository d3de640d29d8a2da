"""Makes deletion reach every copy, and deletes what is older than its plan keeps it.

An order is stored with the deletion of its rows, so that no crash loses it. It is looked at until
every place that could hold a copy has said that it holds none, or for a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from tertulia.core.deletions import (
    DELETIONS_BELL,
    OVERDUE_S,
    CacheAnswer,
    Deletion,
    DeletionKind,
    Look,
    is_second,
    looked,
    pause_s,
    retention_s,
)
from tertulia.core.plans import Plan
from tertulia.core.types import User
from tertulia.erasing import erase_all
from tertulia.ports import StoreUnavailable
from tertulia.ports_of_deletions import Claimed
from tertulia.worker.desk import WorkerDesk

_log = structlog.get_logger(__name__)

# A worker that began just now does not know every replica yet: a look without one would find that
# nothing is cached anywhere.
_SETTLE_S: Final = 5.0
# Orders come with a ring of the bell. Those that are due again are found by looking.
_LOOK_EVERY_S: Final = 2.0
# Orders that are looked at at once.
_ORDERS: Final = 16
# A look asks each replica once, for 10 s at most: then another worker goes on where one died. A
# vacuum may take longer; whoever looks meanwhile waits for it, and only one of them is believed.
_LEASE_S: Final = 20.0
# What is old, how many orders are late, and which are no longer kept: days and hours, so a minute
# is soon.
_AGE_EVERY_S: Final = 60.0
# Users whose words are looked at in one go, and what is deleted in it at most. A million users are
# looked at within nine hours.
_USERS: Final = 2_000
_USERS_PAGE: Final = 200
_AGED: Final = 200
_SWEPT: Final = 500


async def forget_deleted(desk: WorkerDesk) -> None:
    """Runs until cancelled."""
    await desk.clock.sleep(_SETTLE_S)
    ageing = Ageing(desk)
    aged_at = desk.clock.now() - _AGE_EVERY_S
    while True:
        try:
            is_busy = await forget_round(desk) == _ORDERS
            if desk.clock.now() - aged_at >= _AGE_EVERY_S:
                aged_at = desk.clock.now()
                await ageing.round()
        except StoreUnavailable:
            is_busy = False
            _log.warning("forgetting_interrupted", cause="store_unavailable")
        if not is_busy:
            await desk.bell.wait(DELETIONS_BELL, timeout_s=_LOOK_EVERY_S)


async def forget_round(desk: WorkerDesk) -> int:
    """Looks at orders that are due, at all of them at once: one replica that does not answer must
    not keep the others waiting. How many there were."""
    claims: list[Claimed] = []
    while len(claims) < _ORDERS:
        claimed = await desk.deletions.claim(lease_s=_LEASE_S)
        if claimed is None:
            break
        claims.append(claimed)
    async with asyncio.TaskGroup() as looks:
        for claimed in claims:
            looks.create_task(_look_safely(desk, claimed))
    return len(claims)


async def _look_safely(desk: WorkerDesk, claimed: Claimed) -> None:
    """A look that fails is made again when its claim ends."""
    try:
        await _look(desk, claimed)
    except StoreUnavailable:
        _log.warning("forgetting_interrupted", cause="store_unavailable")
    except Exception:  # noqa: BLE001  # the border of one order
        _log.exception("forgetting_failed", kind=claimed.deletion.kind)


async def _look(desk: WorkerDesk, claimed: Claimed) -> None:
    deletion, now = claimed
    if deletion.kind is DeletionKind.ACCOUNT:
        await desk.erasure.close(deletion.owner)
        await erase_all(desk, deletion.owner)
    caches = await _forgotten(desk, deletion)
    # Dead rows are cleared away once, when nobody can leave any more of them.
    disk = await desk.erasure.scrub(deletion.owner, now) if is_second(deletion, now) else None
    left = await desk.erasure.left(deletion)
    after = looked(deletion, Look(left, disk, caches), now)
    if not await desk.deletions.save(after, pause_s=pause_s(after, now)):
        return
    desk.figures.deletion_looks.inc()
    if after.done_at is not None:
        desk.figures.deletions.labels(after.kind, "late" if after.is_late else "whole").inc()


async def _forgotten(desk: WorkerDesk, deletion: Deletion) -> Mapping[str, CacheAnswer]:
    """What replicas answer: of one conversation, or of all of the owner's where it has no name."""
    is_account = deletion.kind is DeletionKind.ACCOUNT
    conversation_id = None if is_account else deletion.target or None
    return await desk.replicas.forget(deletion.owner, conversation_id)


class Ageing:
    """Goes through all users again and again. `_after` is the last one that was looked at."""

    def __init__(self, desk: WorkerDesk) -> None:
        self._desk = desk
        self._after: str | None = None

    async def round(self) -> int:
        """Deletes what is too old of the next users, and old orders; how much that was."""
        desk = self._desk
        n_aged = 0
        for _ in range(_USERS // _USERS_PAGE):
            page = await desk.accounts.page(plan=None, after=self._after, limit=_USERS_PAGE)
            n_page = await self._delete_aged(page.items)
            n_aged += n_page
            if n_page < _AGED:  # else there may be more of the same users
                self._after = page.next_cursor
            if self._after is None or n_aged >= _AGED:
                break
        desk.figures.deletions_overdue.set(await desk.deletions.overdue(age_s=OVERDUE_S))
        await desk.deletions.sweep(rows=_SWEPT, kept_s=desk.rules.deletions_kept_s)
        return n_aged

    async def _delete_aged(self, users: tuple[User, ...]) -> int:
        desk = self._desk
        kept_s = {user.id: retention_s(self._plan(user).retention_days) for user in users}
        found = await desk.erasure.aged(kept_s, limit=_AGED) if kept_s else ()
        for one in found:
            # By the store's clock once more: somebody may have gone on with it just now.
            idle_s = kept_s[one.owner]
            await desk.conversations.delete(one.owner, one.conversation_id, idle_s=idle_s)
        return len(found)

    def _plan(self, user: User) -> Plan:
        return self._desk.plans[user.plan]
