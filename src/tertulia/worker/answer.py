"""Answers one claimed turn, from wherever its log ends: steps 3 to 6 of the turn protocol.

A reply that was begun elsewhere goes on from the tokens in its log; nothing is ever said twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import structlog

from tertulia.core.choice import SMALL, Choice, Wish, choose_model
from tertulia.core.fleet import Wanted
from tertulia.core.ladder import SHORT_NOTICE, SMALL_NOTICE
from tertulia.core.load import Slot
from tertulia.core.pools import room_for
from tertulia.core.quota import cost
from tertulia.core.turn import meta_entry, pause_entry, refusal_entry, thread_of
from tertulia.core.types import (
    Branch,
    Failure,
    Finish,
    GenerateRequest,
    ModelState,
    Note,
    Reason,
    Refusal,
    Status,
    Turn,
)
from tertulia.core.waiting import is_dead
from tertulia.ending import closing_entries, outcome_of, refusal_of, take_log
from tertulia.ports import ReplicaLost, ReplicaRefused, Vocabulary
from tertulia.worker.context import Prompt, build_prompt, read_branch
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.failures import INTERRUPTED, NO_REPLICA, REPLICA_LOST, REPLICA_REFUSED
from tertulia.worker.pen import Pen, Superseded
from tertulia.worker.remember import want_after
from tertulia.worker.speak import Spoken, speak

_log = structlog.get_logger(__name__)

# What a replica answers to a request that no replica would take; any other error is its own.
_REFUSED_FOR_GOOD = frozenset((400, 413, 422))
_BUSY = frozenset((429, 503))

# A waiting turn hears of replicas that come or go; should it miss one, it looks by itself.
_LOOK_AGAIN_S = 0.5
# A full replica frees a slot within seconds. Whatever it asks for, the turn must not sleep past
# a better one.
_RETRY_S = 0.2
_LONGEST_RETRY_S = 2.0

# A replica that lives drops a sequence within a step. Readers must not wait for one that does not.
_ABORT_WAIT_S = 0.5

# Ends from outside that are nobody's wish: such a turn may be run again under its key.
_FAILS = frozenset(("stale", "internal"))


async def answer_turn(desk: WorkerDesk, turn: Turn) -> None:
    """Brings a claimed turn to its end, or returns when another claim took it.

    StoreUnavailable goes to the caller: the lease then runs out and another claim goes on.
    """
    fenced = await take_log(desk.log, turn)
    if fenced is None:
        return
    pen = Pen(desk.log, desk.queue, desk.clock, turn, fenced, lease_s=desk.rules.lease_s)
    try:
        await _answer(desk, pen)
    except Superseded:
        return


async def _answer(desk: WorkerDesk, pen: Pen) -> None:
    begun = pen.turn
    if begun.replica is not None and begun.request_id is not None:
        # The last holder's sequence may still run: end it before its successor begins (F-22).
        await _abort(desk, begun.replica, begun.request_id)
    if refusal_of(pen.entries) is not None:
        await _finish(desk, pen, Status.REFUSED, finish=Finish.REFUSED)
        return
    why = begun.stop_reason or ("abandoned" if _is_dead(desk, begun) else None)
    if why is not None:
        await _end_what_was_stopped(desk, pen, why)
        return
    branch = await read_branch(desk, pen.turn)
    choice = await _choose(desk, pen.turn, branch)
    if choice is None:
        await _finish(desk, pen, Status.FAILED, failure=NO_REPLICA)
        return
    with desk.running.counted(begun.lane, choice.model.served):
        await _answer_with(desk, pen, choice, branch)


async def _answer_with(desk: WorkerDesk, pen: Pen, choice: Choice, branch: Branch | None) -> None:
    begun = pen.turn
    vocabulary = desk.vocabulary(choice.model.served)
    prompt = await build_prompt(desk, pen.turn, branch, vocabulary)
    moved = (SMALL_NOTICE,) if choice.reason is Reason.LADDER else ()
    pen.turn = pen.turn._replace(
        model=choice.model.served,
        reason=choice.reason,
        prompt_tokens=len(prompt.ids),
        summary_id=prompt.summary.id if prompt.summary is not None else None,
        notices=tuple(dict.fromkeys((*pen.turn.notices, *moved, *prompt.notices))),
    )
    if begun.model is None:
        desk.figures.choices.labels(choice.model.name, choice.reason).inc()
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
        _, per_message = vocabulary.cost
        if pen.ids:
            await want_after(desk, pen.turn, prompt, reply_tokens=len(pen.ids) + per_message)


def _is_dead(desk: WorkerDesk, turn: Turn) -> bool:
    """Whether nobody is there any more to hear the reply of a turn claimed just now: answering
    those makes everybody behind them late."""
    assert turn.lease_until is not None
    claimed_at = turn.lease_until - desk.rules.lease_s  # by the store's clock, as `followed_at` is
    return is_dead(followed_at=turn.followed_at, now=claimed_at, grace_s=turn.abandon_s)


async def _end_what_was_stopped(desk: WorkerDesk, pen: Pen, why: str) -> None:
    """The stopper died before its finish, or all have gone: the turn ends as that, and says nothing
    more."""
    if why in _FAILS:
        await _finish(desk, pen, Status.FAILED, failure=INTERRUPTED)
    else:
        finish = Finish.ABANDONED if why == "abandoned" else Finish.STOPPED
        await _finish(desk, pen, Status.STOPPED, finish=finish)


async def _choose(desk: WorkerDesk, turn: Turn, branch: Branch | None) -> Choice | None:
    """The model that answers; a begun reply stays with the model that began it."""
    pinned = branch.model if branch is not None else None
    until = desk.clock.now() + desk.rules.replica_wait_s
    easy = turn.difficulty < desk.rules.small_below
    while True:
        models = desk.replicas.models()
        if turn.model is not None:
            begun = _ready(models, turn.model)
            if begun is not None:
                return Choice(begun, turn.reason or Reason.AUTO, "keep")
        else:
            terms = desk.lookout.terms(desk.plans[turn.plan])
            # What the door decided holds: it let the turn in for the small model's sake.
            lowered = Reason.LADDER if terms.goes_to_small else turn.reason
            wish = Wish(turn.requested, pinned, easy=easy, lowered=lowered)
            before = desk.running.before()[turn.lane]
            choice = choose_model(wish, room_for(turn.lane, models, before))
            if choice is not None:
                return choice
        if desk.clock.now() >= until:
            return None
        await desk.replicas.changed(timeout_s=_LOOK_AGAIN_S)
        # Meanwhile another branch of the conversation may have been answered.
        pinned = await _pinned(desk, turn)


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
    losses, tries = 0, 1
    lost_on: set[str] = set()
    until = desk.clock.now() + desk.rules.replica_wait_s
    while True:
        left = prompt.answer_tokens - len(pen.ids)
        if left <= 0:
            await _say_who_answers(desk, pen, choice)
            return Spoken("length", cached_tokens=0)
        request = _request(pen, served, prompt, left, tries)
        replica = await desk.replicas.place(_wanted(request, frozenset(lost_on)))
        if replica is None:
            await _say_who_answers(desk, pen, choice)
            if desk.clock.now() >= until:
                return NO_REPLICA if not pen.ids else REPLICA_LOST
            await desk.replicas.changed(timeout_s=_LOOK_AGAIN_S)
            continue
        tries += 1
        before = pen.turn
        await _note(desk, pen, choice, replica=replica, request_id=request.request_id)
        if not pen.entries:
            await pen.write(meta_entry(1, pen.turn))
        said_before = len(pen.ids)
        try:
            with _counted(desk, pen.turn):
                return await speak(desk, pen, replica, request, vocabulary.control_ids)
        except ReplicaRefused as refused:
            # What was refused was never read: a turn that nobody took costs nothing.
            pen.turn = before
            lost_on.add(replica)
            losses += refused.status not in _BUSY
            over = losses > desk.rules.continuations or desk.clock.now() >= until
            if over or refused.status in _REFUSED_FOR_GOOD:
                return _what_refused(refused.status, begun=bool(pen.ids))
            # Stored as well: whoever ends the turn meanwhile, or after a crash, must not charge it.
            await _note(desk, pen, choice, replica=before.replica, request_id=before.request_id)
            await desk.clock.sleep(min(refused.retry_after_s or _RETRY_S, _LONGEST_RETRY_S))
        except ReplicaLost:
            lost_on.add(replica)
            losses = 1 if len(pen.ids) > said_before else losses + 1
            if losses > desk.rules.continuations:
                return REPLICA_LOST
            until = desk.clock.now() + desk.rules.replica_wait_s
            if pen.entries[-1].kind == "delta":
                await pen.write(pause_entry(pen.next_seq))
            desk.figures.continued.inc()
            await _abort(desk, replica, request.request_id)


async def _abort(desk: WorkerDesk, replica: str, request_id: str) -> None:
    """Ends an old attempt, without waiting for one that is dead: its tokens would be refused."""
    try:
        async with asyncio.timeout(_ABORT_WAIT_S):
            await desk.replicas.abort(replica, request_id)
    except TimeoutError:
        return


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
        priority=turn.lane.value,
        cache_salt=turn.owner,
        shared_tokens=prompt.shared_tokens,
        session_id=thread_of(turn),
        said_tokens=len(pen.ids),
        thread=thread_of(turn),
    )


def _wanted(request: GenerateRequest, avoid: frozenset[str]) -> Wanted:
    return Wanted(
        request_id=request.request_id,
        model=request.model,
        conversation=request.thread,
        prompt_tokens=len(request.prompt),
        answer_tokens=request.max_tokens,
        avoid=avoid,
    )


def _counted(desk: WorkerDesk, turn: Turn) -> AbstractContextManager[None]:
    """Counts what the reply holds while it is generated, and would hold without the ladder.

    Batches take what nobody else wants: they are no load.
    """
    if not turn.lane.is_chat:
        return nullcontext()
    assert turn.model is not None
    home = turn.model
    if turn.reason is Reason.LADDER:
        home = next((m.served for m in desk.replicas.models() if m.name != SMALL), home)
    slot = Slot(
        model=turn.model,
        home=home,
        is_eased=desk.plans[turn.plan].ladder,
        is_short=SHORT_NOTICE in turn.notices,
    )
    return desk.lookout.holding(slot)


async def _say_who_answers(desk: WorkerDesk, pen: Pen, choice: Choice) -> None:
    """For a reply that no replica begins at once: its readers are told all the same."""
    if not pen.entries:
        await _note(desk, pen, choice, replica=None, request_id=pen.turn.request_id)
        await pen.write(meta_entry(1, pen.turn))


async def _note(
    desk: WorkerDesk, pen: Pen, choice: Choice, *, replica: str | None, request_id: str | None
) -> None:
    """Stores who answers, before anybody is asked or told; Superseded if the claim is lost."""
    turn = pen.turn
    assert turn.reason is not None
    pen.turn = turn._replace(replica=replica, request_id=request_id)
    note = Note(
        attempt=turn.attempt,
        model=choice.model.served,
        reason=turn.reason,
        replica=replica,
        request_id=request_id,
        prompt_tokens=turn.prompt_tokens,
        pin=choice.pin,
        notices=turn.notices,
        summary_id=turn.summary_id,
    )
    if not await desk.turns.note(turn.held, note):
        raise Superseded


async def _refuse(desk: WorkerDesk, pen: Pen, refusal: Refusal, cached_tokens: int) -> None:
    await pen.write(refusal_entry(pen.next_seq, pen.turn._replace(refusal=refusal)))
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
    if not await desk.turns.finish(turn.held, outcome):
        raise Superseded
    if outcome.clamped:
        desk.figures.clamped.inc()
        _log.warning("usage_clamped", replica=turn.replica, model=turn.model)
    ended = turn._replace(
        status=outcome.status,
        finish=outcome.finish,
        failure=outcome.failure,
        usage=outcome.usage,
        charged=cost("units", outcome.usage),
    )
    await pen.write(*closing_entries(ended, entries))
