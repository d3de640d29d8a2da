"""Runs one generation on one replica and releases its text sentence by sentence.

No text reaches the log before its sentence passed the check, and nothing follows a flag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from tertulia.core.sentences import Piece, SentenceGate
from tertulia.core.types import GenerateRequest, Refusal, Unit, Usage
from tertulia.ports import ReplicaLost
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.pen import Pen, Superseded


@dataclass(frozen=True, slots=True)
class Spoken:
    """How a generation ended: the engine's `finish`, or a `refusal`."""

    finish: str
    cached_tokens: int
    refusal: Refusal | None = None


async def speak(
    desk: WorkerDesk, pen: Pen, replica: str, request: GenerateRequest, control: frozenset[int]
) -> Spoken:
    """Generates until the end, a stop string or a flag.

    Raises ReplicaLost or ReplicaRefused, and Superseded when another claim took the reply; in
    every case the sequence has left the replica, or is leaving it, when this returns.
    """
    gate = SentenceGate(
        desk.split, cap_tokens=desk.rules.sentence_tokens, stop=request.sampling.stop
    )
    usage, n_heard, said_before = Usage(), 0, len(pen.ids)
    # Stop strings are found here, at a border that can be continued: engines never see them.
    request = replace(request, sampling=replace(request.sampling, stop=()))
    try:
        generated = desk.replicas.generate(replica, request, ripens=gate.ripens)
        async with aclosing(generated) as batches:
            async for said in batches:
                usage = said.usage or usage
                units = _without_control(said.units, control)
                asked, n_new = _within(units, request.max_tokens - n_heard)
                n_heard += n_new
                # A replica that says more than it was asked for has reached the limit all the same.
                finish = said.finish if len(asked) == len(units) else "length"
                piece = gate.feed(asked)
                refusal = await _release(desk, pen, piece) if piece is not None else None
                if refusal is None and finish is not None:
                    piece = gate.close()
                    refusal = await _release(desk, pen, piece) if piece is not None else None
                if refusal is not None:
                    return Spoken("refused", usage.cached, refusal)
                if gate.stopped:
                    return Spoken("stop", usage.cached)
                if finish == "abort":
                    raise ReplicaLost("the replica dropped the sequence")
                if finish is not None:
                    return Spoken(finish, usage.cached)
        raise ReplicaLost("the stream ended without a finish")
    except (ReplicaLost, Superseded, asyncio.CancelledError):
        # What was held back, or refused by the log, is generated again by whoever goes on.
        desk.figures.wasted.inc(n_heard - (len(pen.ids) - said_before))
        raise


async def _release(desk: WorkerDesk, pen: Pen, piece: Piece) -> Refusal | None:
    verdict = await desk.checks.check_output(pen.before, piece.sentence)
    if verdict.flagged:
        desk.flags.add("output", verdict.category)
        return Refusal("output", verdict.category, verdict.text)
    await pen.delta(piece.text, piece.ids)
    return None


def _within(units: Sequence[Unit], most: int) -> tuple[Sequence[Unit], int]:
    """The first units that have no more than `most` tokens, and how many they have."""
    n_tokens = 0
    for number, unit in enumerate(units):
        if n_tokens + len(unit.ids) > most:
            return units[:number], n_tokens
        n_tokens += len(unit.ids)
    return units, n_tokens


def _without_control(units: Sequence[Unit], control: frozenset[int]) -> Sequence[Unit]:
    """The units without control tokens, which have no text: only a template may put them into the
    next prompt, not a model that began a turn of its own."""
    for unit in units:
        if not control.isdisjoint(unit.ids):
            break
    else:
        return units
    return tuple(Unit(unit.text, tuple(i for i in unit.ids if i not in control)) for unit in units)
