"""Stops a reply: a state in the store that ends it wherever it runs, or waits."""

from __future__ import annotations

from tertulia.core.types import Turn
from tertulia.ending import Ending, end_turn
from tertulia.gateway.desk import Desk


async def turn_named(desk: Desk, owner: str, name: str) -> Turn | None:
    """A turn by its reply's id, or by its key: a client that stops its message before it has heard
    of it knows no other name. None if this owner has no such turn."""
    return await desk.turns.find(owner, name) or await desk.turns.find_by_key(owner, name)


async def stop_turn(desk: Desk, turn: Turn, why: str) -> Turn | None:
    """The turn after the stop, its partial text kept; None if it was deleted meanwhile.

    Returns once the replica has dropped the sequence. Stopping twice, or what has ended, changes
    nothing.
    """
    if turn.status.is_final:
        return turn
    tools = Ending(desk.turns, desk.log, desk.replicas, desk.bell, desk.vocabulary)
    return await end_turn(tools, turn, why=why)


async def stop_reply(desk: Desk, owner: str, reply_id: str, why: str) -> Turn | None:
    """The same for a reply's id; None if it is not this owner's."""
    turn = await desk.turns.find(owner, reply_id)
    return await stop_turn(desk, turn, why) if turn is not None else None
