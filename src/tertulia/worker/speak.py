"""Runs one generation on one replica and releases its text sentence by sentence.

No text reaches the log before its sentence passed the check, and nothing follows a flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from tertulia.core.sentences import Piece, SentenceGate
from tertulia.core.types import GenerateRequest, Refusal, Unit, Usage
from tertulia.ports import ReplicaLost
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.pen import Pen

# How much released text a check sees before the new sentence: harm split over two is seen.
_BEFORE_CHARS = 400


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
    usage, left = Usage(), request.max_tokens
    # Stop strings are found here, at a border that can be continued: engines never see them.
    request = replace(request, sampling=replace(request.sampling, stop=()))
    async with aclosing(desk.replicas.generate(replica, request)) as batches:
        async for said in batches:
            usage = said.usage or usage
            units = _without_control(said.units, control)
            asked = _within(units, left)
            left -= sum(len(unit.ids) for unit in asked)
            # A replica that says more than it was asked for has reached the limit all the same.
            finish = said.finish if len(asked) == len(units) else "length"
            refusal = await _release(desk, pen, gate.feed(asked))
            if refusal is None and finish is not None:
                refusal = await _release(desk, pen, gate.close())
            if refusal is not None:
                return Spoken("refused", usage.cached, refusal)
            if gate.stopped:
                return Spoken("stop", usage.cached)
            if finish is not None:
                if finish == "abort":
                    raise ReplicaLost("the replica dropped the sequence")
                return Spoken(finish, usage.cached)
    raise ReplicaLost("the stream ended without a finish")


async def _release(desk: WorkerDesk, pen: Pen, piece: Piece | None) -> Refusal | None:
    if piece is None:
        return None
    verdict = await desk.checks.check_output(pen.text[-_BEFORE_CHARS:], piece.sentence)
    if verdict.flagged:
        return Refusal("output", verdict.category, verdict.text)
    await pen.delta(piece.text, piece.ids)
    return None


def _within(units: Sequence[Unit], left: int) -> Sequence[Unit]:
    """The first units that have no more than `left` tokens."""
    for number, unit in enumerate(units):
        left -= len(unit.ids)
        if left < 0:
            return units[:number]
    return units


def _without_control(units: Sequence[Unit], control: frozenset[int]) -> tuple[Unit, ...]:
    """The units without control tokens, which have no text: only a template may put them into the
    next prompt, not a model that began a turn of its own."""
    if all(control.isdisjoint(unit.ids) for unit in units):
        return tuple(units)
    return tuple(Unit(unit.text, tuple(i for i in unit.ids if i not in control)) for unit in units)
