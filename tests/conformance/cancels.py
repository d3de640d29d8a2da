"""Cancels calls at random moments, as many as asked, and looks whether the pool is still whole.

`python -m tests.conformance.cancels --calls 10000 --seed 1` starts a Postgres of its own. No answer
may be another owner's, and no connection may be lost; the suite runs a few hundred.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from dataclasses import dataclass

from tertulia.core.types import Admitted, NewTurn, Repeated
from tests.conformance.postgres import PostgresAndMemory, open_empty, running_server
from tests.conformance.world import PLENTY, conversation, message, stateless

OWNERS = 20
AT_ONCE = 40
# The longest that a call is waited for, at first. Each that is cancelled makes it longer and each
# that is answered shorter: about half get an answer, however fast the machine is just then.
FIRST_S = 0.05
LONGER = 1.02
WHOLE_S = 30.0


@dataclass
class Found:
    """How the calls ended."""

    cancelled: int = 0
    answered: int = 0


async def cancel_at_random(store: PostgresAndMemory, *, calls: int, seed: int) -> Found:
    """Asserts that every answer is its asker's, and at the end that nothing is held or lost."""
    found = Found()
    for n in range(OWNERS):
        await conversation(store, f"c_{n}", owner=f"u_{n}")
        await store.turns.admit(_first(n), PLENTY)
    await _demand_whole(store)  # all connections are there: only calls are cancelled
    longest_s = FIRST_S
    todo = iter(range(calls))

    async def caller(dice: random.Random) -> None:
        nonlocal longest_s
        for call in todo:
            task = asyncio.ensure_future(_ask(store, dice.randrange(OWNERS), call, dice))
            await asyncio.wait([task], timeout=dice.uniform(0, longest_s))
            task.cancel()
            try:
                await task
                found.answered += 1
                longest_s /= LONGER
            except asyncio.CancelledError:
                found.cancelled += 1
                longest_s *= LONGER

    await asyncio.gather(*(caller(random.Random(f"{seed}-{n}")) for n in range(AT_ONCE)))
    await _demand_whole(store)
    return found


async def _ask(store: PostgresAndMemory, n: int, call: int, dice: random.Random) -> None:
    owner = f"u_{n}"
    match dice.randrange(5):
        case 0:
            turn = await store.turns.find(owner, f"m_r{n}")
            assert turn is not None
            assert turn.owner == owner
        case 1:
            kept = await store.conversations.get(owner, f"c_{n}")
            assert kept is not None
            assert (kept.owner, kept.id) == (owner, f"c_{n}")
        case 2:
            texts = await store.messages.texts(owner, [f"m_u{n}"])
            assert [text.content for text in texts] == [f"Of {owner}"]
        case 3:
            answer = await store.turns.admit(stateless(f"{n}_{call}", owner=owner), PLENTY)
            assert isinstance(answer, Admitted | Repeated)
            assert answer.turn.owner == owner
        case _:
            held = await store.turns.seize(owner, f"m_r{n}", "stopped")
            assert held is not None
            assert held.owner == owner
            await store.queue.release([held.held])


async def _demand_whole(store: PostgresAndMemory) -> None:
    """All connections work at once, in no transaction, and the pool knows of each."""
    pool = store.database._pool
    for n in range(OWNERS):
        turn = await store.turns.find(f"u_{n}", f"m_r{n}")
        assert turn is not None
        assert turn.owner == f"u_{n}"
    await store.database.give_back_resting()
    async with asyncio.timeout(WHOLE_S):
        held = [await pool.acquire() for _ in range(pool.get_max_size())]
        for n, connection in enumerate(held):
            assert not connection.is_in_transaction()
            assert await connection.fetchval("SELECT $1::bigint", n) == n
            await pool.release(connection)
    assert pool.get_idle_size() == pool.get_size()

    assert store.database._waiting == 0


def _first(n: int) -> NewTurn:
    return message(n, owner=f"u_{n}", conversation=f"c_{n}", content=f"Of u_{n}")


async def _run(calls: int, seed: int, connections: int) -> None:
    with running_server() as server:
        store = await open_empty(server.url, None, connections=connections)
        found = await cancel_at_random(store, calls=calls, seed=seed)
        await store.close()
    print(f"{found.cancelled} calls cancelled, {found.answered} answered, no wrong answer,")
    print(f"all {connections} connections whole")


def main() -> None:
    """The full size by default."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=16)
    given = parser.parse_args()
    asyncio.run(_run(given.calls, given.seed, given.connections))


if __name__ == "__main__":
    main()
