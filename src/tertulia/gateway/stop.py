"""Stops a reply: a state in the store that ends it wherever it runs, or waits."""

from __future__ import annotations

from tertulia.core.types import Turn
from tertulia.ending import Ending, end_turn
from tertulia.gateway.desk import Desk


async def stop_reply(desk: Desk, owner: str, reply_id: str, why: str) -> Turn | None:
    """The turn after the stop, its partial text kept; None if it is not this owner's.

    Returns once the replica has dropped the sequence. Stopping twice, or what has ended, changes
    nothing.
    """
    turn = await desk.turns.find(owner, reply_id)
    if turn is None or turn.status.is_final:
        return turn
    tools = Ending(desk.turns, desk.log, desk.replicas, desk.bell, desk.vocabulary)
    return await end_turn(tools, turn, why=why)
