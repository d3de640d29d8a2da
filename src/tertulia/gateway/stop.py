"""Stops a reply: a state in the store that ends it wherever it runs, or waits."""

from __future__ import annotations

from tertulia.core.types import Turn
from tertulia.ending import Ending, end_turn
from tertulia.gateway.desk import Desk


async def reply_named(desk: Desk, owner: str, name: str) -> str | None:
    """The id of a reply by that id, or by the key of its turn: a client that stops its message
    before it has heard of it knows no other name. None if this owner has no such turn."""
    turn = await desk.turns.find(owner, name) or await desk.turns.find_by_key(owner, name)
    return turn.reply_id if turn is not None else None


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
