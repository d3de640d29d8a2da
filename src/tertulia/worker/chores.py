"""The chores: ends turns that nobody follows or nobody can continue, and drops logs that are old or
of deleted turns."""

from __future__ import annotations

import structlog

from tertulia.core.types import Finish
from tertulia.ending import end_turn
from tertulia.ports import StoreUnavailable
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.failures import INTERRUPTED, WAITED_TOO_LONG

_log = structlog.get_logger(__name__)

# Old logs are dropped this often: their life is minutes, and the scan touches an index.
_DROP_EVERY_S = 30.0


async def do_chores(desk: WorkerDesk) -> None:
    """Runs until cancelled, once every `rules.chores_s`."""
    dropped_at = desk.clock.now()
    while True:
        await desk.clock.sleep(desk.rules.chores_s)
        try:
            await sweep_turns(desk)
            if desk.clock.now() - dropped_at >= _DROP_EVERY_S:
                dropped_at = desk.clock.now()
                await desk.log.drop(older_than_s=desk.rules.log_kept_s)
                await desk.conversations.bury_deleted()
        except StoreUnavailable:
            _log.warning("chores_interrupted", cause="store_unavailable")


async def sweep_turns(desk: WorkerDesk) -> None:
    """Ends abandoned turns as stopped and stale ones as failed, their text kept."""
    for turn in await desk.queue.abandoned():
        # Ending those before it took its time: whoever came back meanwhile is not cut off.
        now = await desk.turns.find(turn.owner, turn.reply_id)
        if now is None or now.followed_at != turn.followed_at:
            continue
        await end_turn(desk.ending, turn, why="abandoned", finish=Finish.ABANDONED)
    rules = desk.rules
    for turn in await desk.queue.stale(held_age_s=rules.stale_s, queued_age_s=rules.queued_s):
        failure = INTERRUPTED if turn.model is not None else WAITED_TOO_LONG
        await end_turn(desk.ending, turn, why="stale", failure=failure)
