"""The worker's loop: claims turns while there is room, keeps their leases, does the chores.

It owns every task it starts: a lost lease cancels the task, and a shutdown gives claims back.
"""

from __future__ import annotations

import asyncio

import structlog

from tertulia.core.types import Turn
from tertulia.ending import end_turn
from tertulia.ports import StoreUnavailable
from tertulia.worker.answer import answer_turn
from tertulia.worker.chores import do_chores
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.failures import INTERNAL

_log = structlog.get_logger(__name__)

# A full worker hears when a slot comes free; should it miss that, it looks by itself.
_ROOM_S = 0.25
# A store that can't give a turn now is asked again this soon.
_STORE_S = 0.5

Held = tuple[str, int]


class Worker:
    """Answers turns until cancelled. Invariant: `held` has exactly the running answers."""

    def __init__(self, desk: WorkerDesk):
        self._desk = desk
        self.held: dict[Held, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Runs until cancelled; then every claim is given back, so that others go on at once."""
        leaving: list[Held] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_leases())
                tasks.create_task(do_chores(self._desk))
                try:
                    await self._claim_turns(tasks)
                finally:
                    leaving = list(self.held)
        finally:
            await self._give_back(leaving)

    async def _claim_turns(self, tasks: asyncio.TaskGroup) -> None:
        desk = self._desk
        while True:
            if not self._has_room():
                await desk.replicas.changed(timeout_s=_ROOM_S)
                continue
            try:
                turn = await desk.queue.claim(
                    lease_s=desk.rules.lease_s, skip=[reply_id for reply_id, _ in self.held]
                )
            except StoreUnavailable:
                await desk.clock.sleep(_STORE_S)
                continue
            if turn is None:
                await desk.bell.wait("turns", timeout_s=desk.rules.lease_s / 4)
                continue
            held = (turn.reply_id, turn.epoch)
            self.held[held] = tasks.create_task(self._answer(turn))

    def _has_room(self) -> bool:
        if len(self.held) >= self._desk.rules.replies:
            return False
        return any(m.state == "ready" and m.room > 0 for m in self._desk.replicas.models())

    async def _answer(self, turn: Turn) -> None:
        """One turn, whatever happens to it: no fault of one reply may end the worker."""
        try:
            await answer_turn(self._desk, turn)
        except StoreUnavailable:
            _log.warning("answer_interrupted", reply=turn.reply_id, cause="store_unavailable")
        except Exception:  # noqa: BLE001  # the border of one turn; it is logged and ended
            # A fault of ours would meet the same turn at each claim: end it, and say so once.
            _log.exception("answer_failed", reply=turn.reply_id)
            await self._fail(turn)
        finally:
            self.held.pop((turn.reply_id, turn.epoch), None)

    async def _fail(self, turn: Turn) -> None:
        try:
            await end_turn(self._desk.ending, turn, why="internal", failure=INTERNAL)
        except StoreUnavailable:
            _log.warning("end_interrupted", reply=turn.reply_id)

    async def _keep_leases(self) -> None:
        """Renews every third of the lease; what is no longer ours is cancelled at once."""
        desk, rules = self._desk, self._desk.rules
        renewed_at = desk.clock.now()
        while True:
            await desk.clock.sleep(rules.lease_s / 3)
            held = list(self.held)
            try:
                lost = await desk.queue.renew(held, lease_s=rules.lease_s) if held else frozenset()
                renewed_at = desk.clock.now()
            except StoreUnavailable:
                if desk.clock.now() - renewed_at < rules.lease_s:
                    continue
                lost = frozenset(held)
            for claim in held:  # in the order of the claims: sets have none
                if claim in lost and claim in self.held:
                    self.held[claim].cancel()

    async def _give_back(self, held: list[Held]) -> None:
        if not held:
            return
        try:
            await self._desk.queue.release(held)
        except StoreUnavailable:
            _log.warning("release_interrupted", claims=len(held))
