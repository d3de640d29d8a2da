"""Answers one claimed turn, from wherever its log ends: steps 3 to 6 of the turn protocol.

A reply that was begun elsewhere goes on from the tokens in its log; nothing is ever said twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tertulia.core.placement import Choice, choose_model
from tertulia.core.quota import lane_of
from tertulia.core.turn import meta_entry, pause_entry, refusal_entry
from tertulia.core.types import (
    Failure,
    Finish,
    GenerateRequest,
    ModelState,
    Note,
    Reason,
    Refusal,
    Status,
    TokenIds,
    Turn,
)
from tertulia.ending import closing_entries, outcome_of, refusal_of
from tertulia.ports import ReplicaLost, ReplicaRefused, Vocabulary
from tertulia.worker.context import Prompt, build_prompt
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.failures import INTERRUPTED, NO_REPLICA, REPLICA_LOST, REPLICA_REFUSED
from tertulia.worker.pen import Pen, Superseded
from tertulia.worker.speak import Spoken, speak

# What a replica answers to a request that no replica would take; any other error is its own.
_REFUSED_FOR_GOOD = frozenset((400, 413, 422))
_BUSY = frozenset((429, 503))

# A waiting turn hears of replicas that come or go; should it miss one, it looks by itself.
_LOOK_AGAIN_S = 0.5
# A full replica frees a slot within seconds. Whatever it asks for, the turn must not sleep past
# a better one.
_RETRY_S = 0.2
_LONGEST_RETRY_S = 2.0

# Ends from outside that are nobody's wish: such a turn may be run again under its key.
_FAILS = frozenset(("stale", "internal"))


async def answer_turn(desk: WorkerDesk, turn: Turn) -> None:
    """Brings a claimed turn to its end, or returns when another claim took it.

    StoreUnavailable goes to the caller: the lease then runs out and another claim goes on.
    """
    fenced = await desk.log.fence(turn.reply_id, turn.epoch, turn.attempt)
    if fenced is None:
        return
    pen = Pen(desk.log, desk.queue, turn, fenced, lease_s=desk.rules.lease_s)
    try:
        await _answer(desk, pen)
    except Superseded:
        return


async def _answer(desk: WorkerDesk, pen: Pen) -> None:
    begun = pen.turn
    if begun.replica is not None and begun.request_id is not None:
        # The last holder's sequence may still run: end it before its successor begins (F-22).
        await desk.replicas.abort(begun.replica, begun.request_id)
    if refusal_of(pen.entries) is not None:
        await _finish(desk, pen, Status.REFUSED, finish=Finish.REFUSED)
        return
    if begun.stop_reason is not None:
        await _end_what_was_stopped(desk, pen, begun.stop_reason)
        return
    choice = await _choose(desk, pen.turn)
    if choice is None:
        await _finish(desk, pen, Status.FAILED, failure=NO_REPLICA)
        return
    vocabulary = desk.vocabulary(choice.model.served)
    prompt = await build_prompt(desk, pen.turn, vocabulary)
    pen.turn = replace(
        pen.turn,
        model=choice.model.served,
        reason=choice.reason,
        prompt_tokens=len(prompt.ids),
        notices=tuple(dict.fromkeys((*pen.turn.notices, *prompt.notices))),
    )
    if not await _note(desk, pen, choice, replica=None, request_id=pen.turn.request_id):
        raise Superseded
    if not pen.entries:
        await pen.write(meta_entry(1, pen.turn))
    if _met_its_stop(pen, vocabulary):
        await _finish(desk, pen, Status.COMPLETED, finish=Finish.STOP)
        return
    spoken = await _speak_to_the_end(desk, pen, choice, vocabulary, prompt)
    if isinstance(spoken, Failure):
        await _finish(desk, pen, Status.FAILED, failure=spoken)
    elif spoken.refusal is not None:
        await _refuse(desk, pen, spoken.refusal, spoken.cached_tokens)
    else:
        finish = Finish.LENGTH if spoken.finish == "length" else Finish.STOP
        await _finish(
            desk, pen, Status.COMPLETED, finish=finish, cached_tokens=spoken.cached_tokens
        )


async def _end_what_was_stopped(desk: WorkerDesk, pen: Pen, why: str) -> None:
    """The stopper died before its finish: the turn ends as it meant, and says nothing more."""
    if why in _FAILS:
        await _finish(desk, pen, Status.FAILED, failure=INTERRUPTED)
    else:
        finish = Finish.ABANDONED if why == "abandoned" else Finish.STOPPED
        await _finish(desk, pen, Status.STOPPED, finish=finish)


async def _choose(desk: WorkerDesk, turn: Turn) -> Choice | None:
    """The model that answers; a begun reply stays with the model that began it."""
    until = desk.clock.now() + desk.rules.replica_wait_s
    while True:
        models = desk.replicas.models()
        if turn.model is not None:
            begun = _ready(models, turn.model)
            if begun is not None:
                return Choice(begun, turn.reason or Reason.AUTO, "keep")
        else:
            choice = choose_model(turn.requested, pinned=await _pinned(desk, turn), models=models)
            if choice is not None:
                return choice
        if desk.clock.now() >= until:
            return None
        await desk.replicas.changed(timeout_s=_LOOK_AGAIN_S)


def _ready(models: Sequence[ModelState], served: str) -> ModelState | None:
    found = [m for m in models if m.served == served and m.state == "ready"]
    return found[0] if found else None


async def _pinned(desk: WorkerDesk, turn: Turn) -> str | None:
    if turn.conversation_id is None:
        return None
    conversation = await desk.conversations.get(turn.owner, turn.conversation_id)
    return conversation.model if conversation is not None else None


async def _speak_to_the_end(
    desk: WorkerDesk, pen: Pen, choice: Choice, vocabulary: Vocabulary, prompt: Prompt
) -> Spoken | Failure:
    """Generates, and goes on elsewhere with the sent tokens when a replica is lost.

    A continuation that brought text does not count against the limit: only losses without
    progress can repeat for ever.
    """
    served = choice.model.served
    losses, tries = 0, 0
    until = desk.clock.now() + desk.rules.replica_wait_s
    while True:
        left = prompt.answer_tokens - len(pen.ids)
        if left <= 0:
            return Spoken("length", cached_tokens=0)
        replica = desk.replicas.pick(served)
        if replica is None:
            if desk.clock.now() >= until:
                return NO_REPLICA if not pen.ids else REPLICA_LOST
            await desk.replicas.changed(timeout_s=_LOOK_AGAIN_S)
            continue
        tries += 1
        before = pen.turn
        request = _request(pen, served, prompt, left, tries)
        if not await _note(desk, pen, choice, replica=replica, request_id=request.request_id):
            raise Superseded
        said_before = len(pen.ids)
        try:
            return await speak(desk, pen, replica, request, vocabulary.control_ids)
        except ReplicaRefused as refused:
            # What was refused was never read: a turn that nobody took costs nothing.
            pen.turn = before
            losses += refused.status not in _BUSY
            over = losses > desk.rules.continuations or desk.clock.now() >= until
            if over or refused.status in _REFUSED_FOR_GOOD:
                return _what_refused(refused.status, begun=bool(pen.ids))
            await desk.clock.sleep(min(refused.retry_after_s or _RETRY_S, _LONGEST_RETRY_S))
        except ReplicaLost:
            losses = 1 if len(pen.ids) > said_before else losses + 1
            if losses > desk.rules.continuations:
                return REPLICA_LOST
            until = desk.clock.now() + desk.rules.replica_wait_s
            if pen.entries[-1].kind == "delta":
                await pen.write(pause_entry(pen.next_seq))


def _what_refused(status: int, *, begun: bool) -> Failure:
    if status in _REFUSED_FOR_GOOD:
        return REPLICA_REFUSED
    return REPLICA_LOST if begun else NO_REPLICA


def _met_its_stop(pen: Pen, vocabulary: Vocabulary) -> bool:
    """Whether the last holder said all up to a stop string and died before the finish.

    A stop that begins within a token leaves that token said in part: going on after it would say
    what the stop had cut off. One that begins with a token is simply met again.
    """
    if not pen.turn.sampling.stop or not pen.ids:
        return False
    return vocabulary.decode(pen.ids) != pen.text


def _request(pen: Pen, served: str, prompt: Prompt, left: int, tries: int) -> GenerateRequest:
    turn = pen.turn
    return GenerateRequest(
        # Known before it is sent, and never used twice: epoch and try make it unique.
        request_id=f"{turn.reply_id}-{turn.epoch}-{tries}",
        model=served,
        prompt=prompt.ids + tuple(pen.ids),
        max_tokens=left,
        sampling=turn.sampling,
        priority=lane_of(turn.plan),
        cache_salt=turn.owner,
        shared_tokens=prompt.shared_tokens,
        session_id=turn.conversation_id,
    )


async def _note(
    desk: WorkerDesk, pen: Pen, choice: Choice, *, replica: str | None, request_id: str | None
) -> bool:
    turn = pen.turn
    assert turn.reason is not None
    pen.turn = replace(turn, replica=replica, request_id=request_id)
    note = Note(
        attempt=turn.attempt,
        model=choice.model.served,
        reason=turn.reason,
        replica=replica,
        request_id=request_id,
        prompt_tokens=turn.prompt_tokens,
        pin=choice.pin,
        notices=turn.notices,
    )
    return await desk.turns.note(turn.reply_id, turn.epoch, note)


async def _refuse(desk: WorkerDesk, pen: Pen, refusal: Refusal, cached_tokens: int) -> None:
    await pen.write(refusal_entry(pen.next_seq, replace(pen.turn, refusal=refusal)))
    await _finish(desk, pen, Status.REFUSED, finish=Finish.REFUSED, cached_tokens=cached_tokens)


async def _finish(
    desk: WorkerDesk,
    pen: Pen,
    status: Status,
    *,
    finish: Finish | None = None,
    failure: Failure | None = None,
    cached_tokens: int = 0,
) -> None:
    """One transaction ends and settles the turn; only then the log says so."""
    turn, entries = pen.turn, tuple(pen.entries)
    outcome = outcome_of(
        turn,
        entries,
        attempt=turn.attempt,
        status=status,
        finish=finish,
        failure=failure,
        cached_tokens=cached_tokens,
        tokenizer=desk.vocabulary(turn.model).name if turn.model else "",
    )
    if not await desk.turns.finish(turn.reply_id, turn.epoch, outcome):
        raise Superseded
    ended = replace(
        turn,
        status=outcome.status,
        finish=outcome.finish,
        failure=outcome.failure,
        usage=outcome.usage,
        charged=outcome.charged,
    )
    await pen.write(*closing_entries(ended, entries))
