"""The pump of the batches: brings their lines to the door, a few at a time, and takes results away.

It stands at the door, so that a line is checked, counted and admitted by the same code as any other
turn. What it keeps is in the store: any gateway goes on where another ended, and a line's turn has
the same key at each try, so that no crash runs it twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from pydantic import ValidationError

from tertulia.core.batches import (
    Batch,
    BatchLine,
    BatchStatus,
    LineState,
    OpenLine,
    Saved,
    Step,
    Work,
    added,
    lines_to_ask,
    lines_to_begin,
    moved,
    next_step,
    paused,
    turn_key,
)
from tertulia.core.files import PART_BYTES, SWEPT_PARTS
from tertulia.core.plans import BATCH
from tertulia.core.types import Admitted, BudgetExhausted, Repeated, Turn, User
from tertulia.gateway.admit import StatelessAsk, admit_turn
from tertulia.gateway.batches import BATCHES_BELL
from tertulia.gateway.batchinput import look_through
from tertulia.gateway.batchresults import end_batch, refused_line
from tertulia.gateway.bodies import field_problem, parse_json
from tertulia.gateway.chatbody import ChatBody, demand_served
from tertulia.gateway.desk import Desk
from tertulia.gateway.openai import chat_ask
from tertulia.gateway.problems import Problem, invalid
from tertulia.gateway.stop import stop_reply
from tertulia.gateway.turnposts import refuse
from tertulia.ports import StoreUnavailable

_log = structlog.get_logger(__name__)

# Steps between two pauses, whatever there is to do: each is some milliseconds.
_ROUND_STEPS: Final = 16
# Lines that one step brings to the door. Each is counted and checked, as any message is.
_STEP_ASKS: Final = 8
# Where the door says no for now, it is asked again after this at the soonest and the latest.
_SHORTEST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 300.0
# The lines of somebody who was disabled wait: he may be enabled again.
_DISABLED_WAIT_S: Final = 60.0
# What was deleted is out of sight at once; that it still takes room for minutes harms nobody.
_SWEEP_EVERY_S: Final = 10.0
_SWEPT_LINES: Final = 500  # some milliseconds of the store


async def pump_batches(desk: Desk) -> None:
    """Runs until cancelled."""
    rules, swept_at = desk.rules.batches, desk.clock.now()
    while True:
        await desk.bell.wait(BATCHES_BELL, timeout_s=rules.pause_s)
        try:
            await pump_round(desk)
            if desk.clock.now() - swept_at >= _SWEEP_EVERY_S:
                swept_at = desk.clock.now()
                await desk.files.sweep(parts=SWEPT_PARTS)
                await desk.batch_work.sweep(rows=_SWEPT_LINES, kept_s=rules.kept_s)
        except StoreUnavailable:
            _log.warning("batches_interrupted", cause="store_unavailable")
        except Exception:  # noqa: BLE001  # no fault of a batch may end the gateway
            _log.exception("batches_interrupted")


async def pump_round(desk: Desk) -> int:
    """Takes the next step of each batch that is due, and some more of those that have much to do;
    how many steps that were."""
    for n_steps in range(_ROUND_STEPS):
        work = await desk.batch_work.claim(lease_s=desk.rules.batches.lease_s)
        if work is None:
            return n_steps
        try:
            await _STEPS[work.batch.status](desk, work)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001  # the border of one batch: its claim ends by itself
            _log.exception("batch_step_failed", batch=work.batch.id)
        await desk.clock.sleep(0)
    return _ROUND_STEPS


async def _look_through(desk: Desk, work: Work) -> None:
    await desk.batch_work.save(await look_through(desk, work))


async def _end(desk: Desk, work: Work) -> None:
    saved = await end_batch(desk, work)
    if await desk.batch_work.save(saved) and saved.batch.status.is_final:
        batch = saved.batch
        _log.info("batch_ended", status=batch.status, total=batch.total, failed=batch.failed)


@dataclass(slots=True)
class _Turnover:
    """What one step changes of a batch in progress.

    Invariant: `open` are its open lines by number, each as it will be saved; `changed` those that
    are not saved yet. `asked` are the turns that the step began.
    """

    batch: Batch
    open: dict[int, BatchLine]
    changed: dict[int, BatchLine] = field(default_factory=dict)
    asked: list[Turn] = field(default_factory=list)

    def put(self, line: BatchLine) -> None:
        """Keeps a line as it is now."""
        self.changed[line.n] = line
        if line.state is LineState.OPEN:
            self.open[line.n] = line
        else:
            self.open.pop(line.n, None)
            self._count(line.state)

    def _count(self, state: LineState) -> None:
        is_done = state is LineState.COMPLETED
        self.batch = replace(
            self.batch,
            completed=self.batch.completed + is_done,
            failed=self.batch.failed + (not is_done),
        )


async def _go_on(desk: Desk, work: Work) -> None:
    """Takes away what has ended, opens further lines, and brings them to the door."""
    if work.now >= work.batch.expires_at:
        await desk.batch_work.save(Saved(moved(work.batch, "expire", work.now)))
        return
    until = desk.clock.now() + desk.rules.batches.lease_s / 2
    step = _Turnover(work.batch, {open_line.line.n: open_line.line for open_line in work.open})
    to_ask = _take_away(work, step)
    if work.now < step.batch.resume_at:
        to_ask = []
    else:
        n_asks = min(_STEP_ASKS, lines_to_ask(work, open_lines=desk.rules.batches.open_lines))
        to_ask = [*to_ask, *await _open_lines(desk, work, step)][:n_asks]
    if step.changed and to_ask:
        # First it is written that they are open: whoever goes on after a crash asks for them.
        opened = Saved(step.batch, tuple(step.changed.values()), then="hold")
        if not await desk.batch_work.save(opened):
            return
        step.changed.clear()
    await _ask_all(desk, work, step, to_ask, until)
    if step.batch.begun == step.batch.total and not step.open:
        step.batch = moved(step.batch, "finish", work.now)
    lines = tuple(step.changed.values())
    if not await desk.batch_work.save(Saved(step.batch, lines, due_at=_due_at(desk, work, step))):
        await _take_back(desk, step)


def _take_away(work: Work, step: _Turnover) -> list[BatchLine]:
    """Counts what has ended; the lines that are to be asked for, anew or again."""
    to_ask = []
    for open_line in work.open:
        line = open_line.line
        what = next_step(open_line, work.now)
        if what is Step.ASK:
            to_ask.append(line)
        elif what is not Step.KEEP:
            assert open_line.turn is not None
            usage = added(step.batch.usage, open_line.turn.usage)
            step.batch = replace(step.batch, usage=usage)
            step.put(_AFTER[what](open_line, work.now))
    return to_ask


async def _open_lines(desk: Desk, work: Work, step: _Turnover) -> Sequence[BatchLine]:
    """The next lines of the file, open now, as many as there is room for."""
    batch, plan = step.batch, desk.plans[BATCH]
    n_lines = lines_to_begin(
        work,
        own=len(step.open),
        open_lines=desk.rules.batches.open_lines,
        replies_running=plan.replies_running,
    )
    if n_lines == 0:
        return ()
    lines = await desk.batch_work.lines(
        batch.owner, batch.id, after=batch.begun, limit=min(n_lines, _STEP_ASKS)
    )
    opened = [replace(line, state=LineState.OPEN) for line in lines]
    for line in opened:
        step.put(line)
    step.batch = replace(step.batch, begun=batch.begun + len(opened))
    return opened


async def _ask_all(
    desk: Desk, work: Work, step: _Turnover, to_ask: Sequence[BatchLine], until: float
) -> None:
    """Brings lines to the door until it says no, or time or bytes run out; the rest stay open."""
    if not to_ask:
        return
    user = await desk.accounts.find(step.batch.owner)
    if user is None or user.disabled:
        step.batch = replace(step.batch, resume_at=work.now + _DISABLED_WAIT_S)
        return
    size = 0
    for line in to_ask:
        size += line.size
        if desk.clock.now() >= until or (size > PART_BYTES and step.asked):
            return
        answer = await _ask(desk, user, step.batch, line)
        if isinstance(answer, Turn):
            step.asked.append(answer)
            if line.retry_at > 0:
                step.put(replace(line, retry_at=0.0))
        elif isinstance(answer, Problem):
            step.put(replace(line, state=LineState.FAILED, error=refused_line(answer)))
        else:
            step.batch = replace(step.batch, resume_at=work.now + answer)
            return


async def _ask(desk: Desk, user: User, batch: Batch, line: BatchLine) -> Turn | Problem | float:
    """The line's turn; why there will never be one; or the seconds after which to ask again."""
    try:
        ask = await _request(desk, batch, line)
        answer = await admit_turn(desk, replace(user, plan=BATCH), ask)
        if isinstance(answer, Admitted | Repeated):
            return answer.turn
        if isinstance(answer, BudgetExhausted) and answer.resets_at is not None:
            return _wait_s(answer.resets_at - desk.clock.now())
        refuse(desk, answer)
    except Problem as problem:
        return _wait_s(problem.retry_after or 0.0) if problem.is_passing else problem


async def _request(desk: Desk, batch: Batch, line: BatchLine) -> StatelessAsk:
    """What the line asks for, read from the file as a call of its own would be."""
    raw = await desk.files.read(batch.owner, batch.input_file_id, at=line.at, size=line.size)
    if raw is None:
        raise Problem("not_found", "The input file was deleted before this line ran.")
    try:
        body = ChatBody.model_validate(parse_json(raw)["body"])
    except ValidationError as error:
        raise field_problem(error.errors(include_url=False, include_input=False)) from None
    if body.stream:
        raise invalid("stream", "A line of a batch can't be streamed.")
    demand_served(body)
    ask = chat_ask(desk, desk.plans[BATCH], body, lambda _: turn_key(batch.id, line.n))
    return replace(ask, kind="line")


async def _take_back(desk: Desk, step: _Turnover) -> None:
    """Whoever has the batch now finds the turns that were begun meanwhile under their keys. Only
    where all of its owner's is being deleted would nobody look for them."""
    owner = step.batch.owner
    if await desk.batches.find(owner, step.batch.id) is None:
        for turn in step.asked:
            await stop_reply(desk, owner, turn.reply_id, "stopped")
        await desk.conversations.delete(owner, None)


def _due_at(desk: Desk, work: Work, step: _Turnover) -> float:
    """When the batch is to be looked at again: soon while something of it runs, else when there may
    be room for it."""
    soon = work.now + desk.rules.batches.pause_s
    if step.batch.status is not BatchStatus.IN_PROGRESS or len(step.asked) == _STEP_ASKS:
        return work.now
    is_waiting = step.batch.resume_at > soon and not step.asked
    runs = any(open_line.turn is not None for open_line in work.open)
    return min(step.batch.resume_at, step.batch.expires_at) if is_waiting and not runs else soon


def _wait_s(seconds: float) -> float:
    return min(_LONGEST_WAIT_S, max(_SHORTEST_WAIT_S, seconds))


_AFTER: Final[Mapping[Step, Callable[[OpenLine, float], BatchLine]]] = {
    Step.PAUSE: paused,
    Step.COMPLETE: lambda open_line, _: replace(open_line.line, state=LineState.COMPLETED),
    Step.FAIL: lambda open_line, _: replace(open_line.line, state=LineState.FAILED),
}

# What a step does, by where its batch stands.
_STEPS: Final[Mapping[BatchStatus, Callable[[Desk, Work], Awaitable[None]]]] = {
    BatchStatus.VALIDATING: _look_through,
    BatchStatus.IN_PROGRESS: _go_on,
    BatchStatus.FINALIZING: _end,
    BatchStatus.CANCELLING: _end,
}
