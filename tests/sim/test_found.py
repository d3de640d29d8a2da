"""What the simulation once found, each as a short script of its own: it must not come back."""

import random
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from tertulia.core.turn import (
    delta_entry,
    meta_entry,
    pack_ids,
    refusal_entry,
    terminal_entry,
    text_so_far,
)
from tertulia.core.types import (
    Admitted,
    Append,
    Branch,
    Entry,
    Finish,
    Head,
    LogView,
    Note,
    Outcome,
    Reason,
    Refusal,
    Sampling,
    Status,
    Turn,
    Usage,
    User,
)
from tertulia.ending import take_log
from tertulia.gateway.admit import UNSET, MessageAsk
from tertulia.gateway.follow import (
    Finished,
    Gone,
    News,
    Reset,
    Resume,
    follow_answer,
    resume_point,
)
from tertulia.gateway.line import Place
from tertulia.worker.chores import sweep_turns
from tests.sim.fleet import Climate, Fleet, climate, plans_of
from tests.sim.language import FakeVocabulary
from tests.sim.virtual import VirtualLoop

T = TypeVar("T")
ANN = User("free-0", "ann", "user", "free", None, 0.0)


class Stage:
    """A fleet with one gateway and nothing wrong; workers start when a script says so."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(max_steps=200_000, max_time_s=2_000)
        calm = Climate(frozenset(), plans_of(30_000), climate(random.Random(1)).rules)
        self.reports: list[str] = []
        self.fleet = Fleet(
            self.loop,
            random.Random(1),
            lambda check, text: self.reports.append(f"{check}: {text}"),
            lambda *_: None,
            calm,
        )
        for weather in self.fleet.weather.values():
            weather.slow_share = weather.stuck_share = weather.repeat_share = 0.0
        self.fleet.engines.troubled = False
        self.shared = self.fleet.shared
        self.gateway = self.fleet.gateways[0]
        self.gateway.start()

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coro)

    def end(self) -> None:
        for place in (*self.fleet.gateways, *self.fleet.workers):
            if place.process is not None:
                place.process.kill()
        self.pass_time(10)
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()
        assert self.reports == []

    def pass_time(self, seconds: float) -> None:
        self.run(self.fleet.clock.sleep(seconds))

    def admitted(self) -> Turn:
        self.run(self.gateway.create(ANN.id, "c_1"))
        ask = MessageAsk("c_1", "oak?", UNSET, "auto", "k1", "sha")
        answer = self.run(self.gateway.post(ANN, ask))
        assert isinstance(answer, Admitted)
        return answer.turn

    def claimed(self) -> Turn:
        """A turn that a claim has begun to answer: two events are in its log."""
        self.admitted()
        turn = self.run(self.shared.queue.claim(lease_s=2))
        assert turn is not None
        self.run(self.shared.log.fence(turn.reply_id, turn.epoch, turn.attempt))
        self.run(
            self.shared.turns.note(
                turn.held,
                Note(1, "fake-1", Reason.AUTO, None, None, prompt_tokens=9, pin="keep"),
            )
        )
        self.append(turn, said(self.stored(turn), " oak elm."))
        return self.stored(turn)

    def finished(self) -> Turn:
        turn = self.claimed()
        outcome = Outcome(
            Status.COMPLETED, 1, Finish.STOP, " oak elm.", Usage(9, 0, 0), last_event_id=3
        )
        assert self.run(self.shared.turns.finish(turn.held, outcome))
        return self.stored(turn)

    def append(self, turn: Turn, entries: Sequence[Entry]) -> None:
        answer = self.run(self.shared.log.append(turn.reply_id, turn.epoch, turn.attempt, entries))
        assert answer is Append.DONE

    def stored(self, turn: Turn) -> Turn:
        return self.shared.store.turns[turn.reply_id]

    def follow(self, turn: Turn, *, after: int, attempt: int | None) -> list[News]:
        """What a follower gets until the end; it must come."""

        async def listen() -> list[News]:
            batches = follow_answer(self.gateway.desk, turn, after=after, attempt=attempt)
            return [batch async for batch in batches if batch]

        return self.run(listen())


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.end()


def said(turn: Turn, text: str) -> tuple[Entry, ...]:
    return (meta_entry(1, turn), delta_entry(2, text, b""))


def told(batches: Sequence[News]) -> tuple[int, str]:
    """How often it was reset, and the text since."""
    resets, entries = 0, list[Entry]()
    for batch in batches:
        if isinstance(batch, Reset):
            resets, entries = resets + 1, []
        elif not isinstance(batch, Gone | Place):
            assert [entry.seq for entry in batch] == [
                len(entries) + 1 + n for n in range(len(batch))
            ]
            entries.extend(batch)
    assert entries[-1].kind == "done"
    return resets, text_so_far(entries)


def test_a_stop_that_died_before_its_finish_is_ended_by_the_next_claim(stage: Stage) -> None:
    turn = stage.claimed()
    stage.run(stage.shared.turns.seize(ANN.id, turn.reply_id, "stopped"))
    stage.fleet.workers[0].start()
    stage.pass_time(5)
    ended = stage.stored(turn)
    assert (ended.status, ended.finish, ended.text) == (
        Status.STOPPED,
        Finish.STOPPED,
        " oak elm.",
    )
    assert stage.fleet.engines.generations == []


def test_an_interrupted_end_of_a_stale_turn_fails_it(stage: Stage) -> None:
    turn = stage.claimed()
    stage.run(stage.shared.turns.seize(ANN.id, turn.reply_id, "stale"))
    stage.fleet.workers[0].start()
    stage.pass_time(5)
    ended = stage.stored(turn)
    assert (ended.status, ended.finish) == (Status.FAILED, None)
    assert ended.failure is not None
    assert ended.failure.code == "interrupted"


def test_a_follower_whose_log_is_lost_waits_for_another_and_does_not_spin(stage: Stage) -> None:
    turn = stage.claimed()
    stage.fleet.lose_log(turn.reply_id)
    steps = stage.loop.steps

    async def listen() -> None:
        batches = follow_answer(stage.gateway.desk, turn, after=2, attempt=1)
        async with aclosing(batches):
            async for _ in batches:
                if stage.loop.time() > 60:
                    return

    stage.run(listen())
    assert stage.loop.steps - steps < 60 * 20


def test_a_row_that_is_here_before_the_news_of_its_log_resets_nobody(stage: Stage) -> None:
    """Real processes: a busy gateway knew the finish before it had heard of the last events."""
    turn = stage.claimed()
    stage.append(turn, [delta_entry(3, " ash.", b""), delta_entry(4, " fir.", b"")])
    text = " oak elm. ash. fir."
    outcome = Outcome(Status.COMPLETED, 1, Finish.STOP, text, Usage(9, 0, 0), last_event_id=5)
    assert stage.run(stage.shared.turns.finish(turn.held, outcome))
    turn = stage.stored(turn)
    read, n_reads = stage.shared.log.read, 0

    async def behind_at_first(reply_id: str, after: int) -> LogView | None:
        nonlocal n_reads
        n_reads += 1
        view = await read(reply_id, after)
        assert view is not None
        return LogView(1, 2, view.entries[: max(0, 2 - after)]) if n_reads == 1 else view

    stage.shared.log.read = behind_at_first  # type: ignore[method-assign]  # a log that is away, for one call
    assert stage.run(resume_point(stage.gateway.desk, turn, 2, 1)) == Resume(2, 1)
    n_reads = 0
    batches = stage.follow(turn, after=2, attempt=1)
    assert not any(isinstance(batch, Reset) for batch in batches)


def test_who_was_told_by_the_row_is_not_sent_back_to_the_log(stage: Stage) -> None:
    """Real processes: one gateway could not reach the log, the next one could."""
    turn = stage.finished()
    stage.append(turn, [terminal_entry(3, turn)])
    assert stage.run(resume_point(stage.gateway.desk, turn, 2, 2)) == Resume(2, 2)
    assert told(stage.follow(turn, after=0, attempt=2)) == (0, " oak elm.")
    (rest,) = stage.follow(turn, after=2, attempt=2)
    assert not isinstance(rest, Reset | Gone | Place)
    assert [entry.kind for entry in rest] == ["done"]


def test_a_late_claims_empty_log_is_not_taken_for_the_finished_turns(stage: Stage) -> None:
    """The claimer slept before its first fence; the turn was finished, its log lost."""
    turn = stage.finished()
    stage.fleet.lose_log(turn.reply_id)
    stage.run(stage.shared.log.fence(turn.reply_id, 1, 1))
    assert told(stage.follow(turn, after=0, attempt=None)) == (0, " oak elm.")
    assert told(stage.follow(turn, after=2, attempt=1)) == (1, " oak elm.")
    point = stage.run(resume_point(stage.gateway.desk, turn, 2, 2))
    assert point == Resume(2, 2)
    assert isinstance(stage.run(resume_point(stage.gateway.desk, turn, 3, 1)), Finished)


def test_the_end_of_one_attempt_never_follows_the_events_of_another(stage: Stage) -> None:
    """The log is lost, and a stop begins the next one between a follower's two reads."""
    turn = stage.claimed()
    stage.fleet.lose_log(turn.reply_id)
    read = stage.shared.log.read
    first = True

    async def stopped_after_the_read(reply_id: str, after: int) -> LogView | None:
        nonlocal first
        view = await read(reply_id, after)
        if first:
            first = False
            seized = await stage.shared.turns.seize(ANN.id, reply_id, "stopped")
            assert seized is not None
            fenced = await stage.shared.log.fence(reply_id, seized.epoch, seized.attempt)
            assert fenced is not None
            outcome = Outcome(Status.STOPPED, 2, Finish.STOPPED, "", Usage(), last_event_id=2)
            assert await stage.shared.turns.finish(seized.held, outcome)
            ended = stage.stored(turn)
            entries = (meta_entry(1, ended), terminal_entry(2, ended))
            await stage.shared.log.append(reply_id, seized.epoch, 2, entries)
        return view

    stage.shared.log.read = stopped_after_the_read  # type: ignore[method-assign]  # plays the race
    resets, text = told(stage.follow(turn, after=2, attempt=1))
    assert (resets, text) == (1, "")


def test_an_end_that_was_never_logged_reaches_the_followers_of_a_lost_attempt(
    stage: Stage,
) -> None:
    """A stop met a lost log, began the next attempt and died before it could log the end."""
    turn = stage.claimed()
    stage.fleet.lose_log(turn.reply_id)
    seized = stage.run(stage.shared.turns.seize(ANN.id, turn.reply_id, "stopped"))
    assert seized is not None
    stage.run(stage.shared.log.fence(turn.reply_id, seized.epoch, seized.attempt))
    outcome = Outcome(Status.STOPPED, 2, Finish.STOPPED, "", Usage(), last_event_id=2)
    assert stage.run(stage.shared.turns.finish(seized.held, outcome))
    assert told(stage.follow(turn, after=2, attempt=1)) == (1, "")
    assert told(stage.follow(turn, after=0, attempt=None)) == (0, "")
    (rest,) = stage.follow(turn, after=1, attempt=2)
    assert isinstance(rest, tuple)
    assert [entry.seq for entry in rest] == [2]


def test_a_reply_that_met_its_stop_string_is_not_continued(stage: Stage) -> None:
    """Its writer died between the last text and the finish; the stop began within a token."""
    turn = stage.admitted()
    stage.shared.store.put_turn(stage.stored(turn)._replace(sampling=Sampling(stop=("ak",))))
    claimed = stage.run(stage.shared.queue.claim(lease_s=2))
    assert claimed is not None
    stage.run(stage.shared.log.fence(turn.reply_id, 1, 1))
    ids = pack_ids(FakeVocabulary().encode(" the oak"))
    stage.append(claimed, (meta_entry(1, claimed), delta_entry(2, " the o", ids)))
    stage.fleet.workers[0].start()
    stage.pass_time(10)
    ended = stage.stored(turn)
    assert (ended.status, ended.finish, ended.text) == (Status.COMPLETED, Finish.STOP, " the o")
    assert stage.fleet.engines.generations == []


def test_a_turn_that_every_replica_refused_costs_nothing(stage: Stage) -> None:
    turn = stage.admitted()
    for replica in stage.fleet.engines.replicas.values():
        replica.refusing_until = 1e9
    stage.fleet.workers[0].start()
    stage.pass_time(60)
    ended = stage.stored(turn)
    assert ended.failure is not None
    assert (ended.failure.code, ended.charged, ended.usage) == ("replica_unavailable", 0, Usage())


def test_a_conversation_deleted_while_its_prompt_is_built_is_no_fault(stage: Stage) -> None:
    turn = stage.admitted()
    branch = stage.shared.messages.branch

    async def deleted_before(
        owner: str, conversation_id: str, leaf: str | Head | None
    ) -> Branch | None:
        await stage.shared.conversations.delete(owner, conversation_id)
        return await branch(owner, conversation_id, leaf)

    stage.shared.messages.branch = deleted_before  # type: ignore[method-assign]  # plays the race
    with capture_logs() as logs:
        stage.fleet.workers[0].start()
        stage.pass_time(5)
    assert turn.reply_id not in stage.shared.store.turns
    assert logs == []


def test_a_stop_of_a_refused_reply_leaves_it_refused(stage: Stage) -> None:
    """Its writer logged the refusal and died before the finish: readers have seen it."""
    turn = stage.claimed()
    refusal = Refusal("output", "harm", "Not that.")
    stage.append(turn, (refusal_entry(3, turn._replace(refusal=refusal)),))
    ended = stage.run(stage.gateway.stop(ANN.id, turn.reply_id))
    assert ended is not None
    assert (ended.status, ended.finish, ended.refusal) == (
        Status.REFUSED,
        Finish.REFUSED,
        refusal,
    )


def test_nobody_is_abandoned_who_came_back_while_others_were_ended(stage: Stage) -> None:
    turn = stage.claimed()
    stage.fleet.workers[0].start()
    desk = stage.fleet.workers[0].worker.desk

    class Slow:
        async def abandoned(self) -> Sequence[Turn]:
            listed = stage.stored(turn)
            stage.shared.store.put_turn(listed._replace(followed_at=listed.followed_at + 20))
            return (listed,)

        async def stale(self, **_: Any) -> Sequence[Turn]:
            return ()

    stage.run(sweep_turns(replace(desk, queue=Slow())))  # type: ignore[arg-type]  # two calls of it
    assert not stage.stored(turn).status.is_final


def test_a_turn_is_never_charged_more_than_was_reserved(stage: Stage) -> None:
    turn = stage.admitted()
    stage.shared.store.put_turn(stage.stored(turn)._replace(reserved=5, answer_tokens=3))
    stage.fleet.workers[0].start()
    stage.pass_time(10)
    ended = stage.stored(turn)
    assert ended.status is Status.COMPLETED
    assert (ended.usage.input, ended.usage.output) == (2, 3)


def test_a_claimer_that_slept_makes_no_log_for_an_attempt_that_was_lost(stage: Stage) -> None:
    """Its late fence numbers the new log as the lost one, which readers may have seen."""
    stage.run(stage.shared.queue.release([stage.claimed().held]))
    sleeper, second = (stage.run(stage.shared.queue.claim(lease_s=0)) for _ in range(2))
    assert sleeper is not None
    assert second is not None
    stage.shared.log.lose(second.reply_id)
    fenced = stage.run(take_log(stage.shared.log, second))
    assert fenced is not None
    note = Note(fenced.attempt, "fake-1", Reason.AUTO, None, None, prompt_tokens=9, pin="keep")
    assert stage.run(stage.shared.turns.note(second.held, note))
    stage.append(second._replace(attempt=fenced.attempt), said(stage.stored(second), " elm oak."))
    stage.shared.log.lose(second.reply_id)
    late = stage.run(take_log(stage.shared.log, sleeper))
    assert late is not None
    third = stage.run(stage.shared.queue.claim(lease_s=2))
    assert third is not None
    again = stage.run(take_log(stage.shared.log, third))
    assert again is not None
    assert again.attempt > fenced.attempt
