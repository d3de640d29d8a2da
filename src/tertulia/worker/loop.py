"""The worker's loop: claims turns while there is room, keeps their leases, does the chores.

It owns every task it starts: a lost lease cancels the task, and a shutdown gives claims back.
"""

from __future__ import annotations

import asyncio

import structlog

from tertulia.core.types import Held, Turn
from tertulia.core.waiting import Claimable, claimable
from tertulia.ending import end_turn
from tertulia.ports import StoreUnavailable
from tertulia.worker.answer import answer_turn
from tertulia.worker.chores import do_chores
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.failures import INTERNAL
from tertulia.worker.forget import forget_deleted
from tertulia.worker.loose import forget_loose_turns
from tertulia.worker.tasks import do_tasks

_log = structlog.get_logger(__name__)

# A full worker hears when a slot comes free; should it miss that, it looks by itself.
_ROOM_S = 0.25
# A store that can't give a turn now is asked again this soon.
_STORE_S = 0.5
# Nobody rings for a turn whose worker died: how often in a lease an idle worker looks for one. A
# reader waits for the rest of the lease, then for this.
_LOOKS = 16


class Worker:
    """Answers turns until cancelled. Invariant: `held` has exactly the running answers."""

    def __init__(self, desk: WorkerDesk):
        self.desk = desk
        self._reaches_store = True  # it was opened a moment ago
        self._renewed_at = desk.clock.now()
        self.held: dict[Held, asyncio.Task[None]] = {}
        self.draining = False
        self.figures = desk.figures

    async def run(self) -> None:
        """Runs until cancelled; then every claim is given back, so that others go on at once.

        After `drain` it returns by itself, once what it holds has ended.
        """
        leaving: list[Held] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                duties = [
                    tasks.create_task(self._keep_leases()),
                    tasks.create_task(do_chores(self.desk)),
                    tasks.create_task(forget_deleted(self.desk)),
                    tasks.create_task(forget_loose_turns(self.desk)),
                    tasks.create_task(do_tasks(self.desk, lambda: self.draining)),
                    tasks.create_task(self.desk.lookout.run(self.desk.replicas, self.desk.line)),
                ]
                try:
                    await self._claim_turns(tasks)
                    while self.held:
                        await asyncio.wait(self.held.values())
                finally:
                    leaving = list(self.held)
                for duty in duties:
                    duty.cancel()
        finally:
            await self._give_back(leaving)

    def drain(self) -> None:
        """Claims nothing more; what runs goes on."""
        self.draining = True

    def missing(self) -> list[str]:
        """What this worker can't answer without, as far as it knows."""
        models = self.desk.replicas.models()
        missing = [] if self._reaches_store else ["store"]
        return missing if any(m.state == "ready" for m in models) else [*missing, "models"]

    async def _claim_turns(self, tasks: asyncio.TaskGroup) -> None:
        desk = self.desk
        while not self.draining:
            may = claimable(
                desk.replicas.models(),
                n_held=len(self.held),
                n_most=desk.rules.replies,
                before=desk.running.before(),
            )
            if may is None:
                await desk.replicas.changed(timeout_s=_ROOM_S)
                continue
            try:
                turn = await desk.queue.claim(
                    lease_s=desk.rules.lease_s, skip=self._unsure(), may=may
                )
            except StoreUnavailable:
                self._reaches_store = False
                await desk.clock.sleep(_STORE_S)
                continue
            self._reaches_store = True
            if turn is None:
                await self._news(may)
                continue
            self.held[turn.held] = tasks.create_task(self._answer(turn))
            self.figures.claimed(turn, lease_s=desk.rules.lease_s)
            self.figures.running.set(len(self.held))

    async def _news(self, may: Claimable) -> None:
        """Returns when there may be something to claim; each wait has its end."""
        desk = self.desk
        if may.lowest is not None and not may.full:
            await desk.bell.wait("turns", timeout_s=desk.rules.lease_s / _LOOKS)
            return
        # Full, but not for everybody: somebody comes for whom it is not, or something ends.
        topic = "paid" if may.lowest is None else "turns"
        async with asyncio.TaskGroup() as tasks:
            news = [
                tasks.create_task(desk.bell.wait(topic, timeout_s=_ROOM_S)),
                tasks.create_task(desk.replicas.changed(timeout_s=_ROOM_S)),
            ]
            await asyncio.wait(news, return_when=asyncio.FIRST_COMPLETED)
            for one in news:
                one.cancel()

    def _unsure(self) -> list[str]:
        """Held replies whose leases may have ended: a claim must not give them once more. While
        leases are renewed in time none has, and no claim is sent a list of a thousand replies."""
        rules = self.desk.rules
        if self.desk.clock.now() - self._renewed_at < rules.lease_s / 2:
            return []
        return [held.reply_id for held in self.held]

    async def _answer(self, turn: Turn) -> None:
        """One turn, whatever happens to it: no fault of one reply may end the worker."""
        try:
            await answer_turn(self.desk, turn)
        except StoreUnavailable:
            _log.warning("answer_interrupted", reply=turn.reply_id, cause="store_unavailable")
        except Exception:  # noqa: BLE001  # the border of one turn; it is logged and ended
            # A fault of ours would meet the same turn at each claim: end it, and say so once.
            _log.exception("answer_failed", reply=turn.reply_id)
            await self._fail(turn)
        finally:
            self.held.pop(turn.held, None)
            self.figures.running.set(len(self.held))

    async def _fail(self, turn: Turn) -> None:
        try:
            await end_turn(self.desk.ending, turn, why="internal", failure=INTERNAL)
        except StoreUnavailable:
            _log.warning("end_interrupted", reply=turn.reply_id)

    async def _keep_leases(self) -> None:
        """Renews every third of the lease; what is no longer ours is cancelled at once."""
        desk, rules = self.desk, self.desk.rules
        while True:
            await desk.clock.sleep(rules.lease_s / 3)
            held, asked_at = list(self.held), desk.clock.now()
            try:
                lost = await desk.queue.renew(held, lease_s=rules.lease_s) if held else frozenset()
                self._renewed_at = asked_at
            except StoreUnavailable:
                if desk.clock.now() - self._renewed_at < rules.lease_s:
                    continue
                lost = frozenset(held)
            for claim in held:  # in the order of the claims: sets have none
                if claim in lost and claim in self.held:
                    self.held[claim].cancel()
                    self.figures.lost.inc()

    async def _give_back(self, held: list[Held]) -> None:
        if not held:
            return
        try:
            await self.desk.queue.release(held)
            self.desk.bell.ring("turns")
            self.figures.returned.inc(len(held))
        except StoreUnavailable:
            _log.warning("release_interrupted", claims=len(held))
