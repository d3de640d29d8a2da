"""Decides the batch of one step of the embedded engine: who decodes, who is admitted, who prefills.

It must never let a later request pass an earlier one, nor plan more tokens than budget or cache.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Running:
    """A sequence that holds a slot: with one token left it decodes, with more it prefills."""

    key: int
    priority: int  # lower runs first
    arrival: int
    n_left: int  # tokens not yet in the cache, at least 1
    n_held: int  # cache tokens that come free if it is put back


@dataclass(frozen=True)
class Waiting:
    """A sequence without a slot; one that was put back keeps its arrival and so its place."""

    key: int
    priority: int
    arrival: int
    n_tokens: int  # all that must be in the cache before it can go on
    n_growth: int  # room for the tokens it will soon produce


@dataclass(frozen=True)
class Room:
    """What one step may use."""

    n_slots: int  # free ones
    n_cache: int  # tokens that no running sequence holds
    n_step: int  # tokens in one batch, at least the number of running sequences


@dataclass(frozen=True)
class StepPlan:
    """What the engine does next, in this order."""

    put_back: tuple[int, ...]
    admit: tuple[int, ...]
    decode: tuple[int, ...]
    prefill: tuple[tuple[int, int], ...]  # key, tokens


def plan_step(running: tuple[Running, ...], waiting: tuple[Waiting, ...], room: Room) -> StepPlan:
    """The next batch: decodes first, then admissions in order, then prefill of the oldest.

    When the cache cannot hold one more token for every decode, the newest sequences are put back.
    """
    staying = sorted(running, key=_order)
    n_cache = room.n_cache
    put_back: list[int] = []
    while len(staying) > 1 and n_cache < _owed_now(staying):
        newest = staying.pop()
        put_back.append(newest.key)
        n_cache += newest.n_held
    # Owed prefill counts as used: an admission must not take the room of a half-read prompt.
    n_cache -= sum(sequence.n_left for sequence in staying)
    n_slots = room.n_slots + len(put_back)
    admitted: list[Waiting] = []
    # After a put-back nobody is admitted in the same step, or the two would trade places for ever.
    for candidate in sorted(waiting, key=_order) if not put_back else ():
        if n_slots < 1 or candidate.n_tokens + candidate.n_growth > n_cache:
            break  # never past the head of the queue
        n_slots -= 1
        n_cache -= candidate.n_tokens + candidate.n_growth
        admitted.append(candidate)
    decode = tuple(sequence.key for sequence in staying if sequence.n_left == 1)[: room.n_step]
    return StepPlan(
        put_back=tuple(put_back),
        admit=tuple(candidate.key for candidate in admitted),
        decode=decode,
        prefill=_prefill(staying, room.n_step - len(decode)),
    )


def _prefill(staying: list[Running], n_budget: int) -> tuple[tuple[int, int], ...]:
    chunks: list[tuple[int, int]] = []
    for sequence in staying:
        if sequence.n_left > 1 and n_budget > 0:
            n_chunk = min(sequence.n_left, n_budget)
            chunks.append((sequence.key, n_chunk))
            n_budget -= n_chunk
    return tuple(chunks)


def _owed_now(staying: list[Running]) -> int:
    return sum(1 for sequence in staying if sequence.n_left == 1) + sum(
        sequence.n_left for sequence in staying if sequence.n_left > 1
    )


def _order(sequence: Running | Waiting) -> tuple[int, int]:
    return (sequence.priority, sequence.arrival)
