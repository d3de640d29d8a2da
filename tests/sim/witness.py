"""Watches every effect on the store and the log as it happens, and judges what it can at once.

It never changes anything: it sees what crosses the wires, in the order in which it took effect.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tertulia.backends.memory import MemoryStore
from tertulia.core.quota import taken
from tertulia.core.turn import text_so_far
from tertulia.core.types import Admitted, Append, Held, Outcome, Turn
from tests.sim.fleet import Climate
from tests.sim.process import Report


@dataclass(frozen=True, slots=True)
class Finish:
    """One finish that was accepted."""

    reply_id: str
    epoch: int
    outcome: Outcome


@dataclass(slots=True)
class Witness:
    """What happened to each reply, seen from the store's side."""

    report: Report
    climate: Climate
    store: MemoryStore | None = None
    finishes: list[Finish] = field(default_factory=list)
    admitted: dict[str, list[Turn]] = field(default_factory=lambda: defaultdict(list))
    # How often each rare turn of events came about: a run that reaches none of them proves little.
    reached: Counter[str] = field(default_factory=Counter)
    fences: dict[str, int] = field(default_factory=dict)
    n_appends: int = 0
    n_tokens: int = 0

    def watch(
        self, port: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any
    ) -> None:
        """Called after each effect, with its answer."""
        judge = getattr(self, f"_{port}_{method}", None)
        if judge is not None:
            judge(*args, answer=answer, **kwargs)

    def _turns_admit(self, *_: Any, answer: Any) -> None:
        if not isinstance(answer, Admitted):
            return
        turn = answer.turn
        self.admitted[turn.reply_id].append(turn)
        self.reached["a failed turn begins again"] += len(self.admitted[turn.reply_id]) > 1
        assert self.store is not None
        spent = self.store.spent(turn.owner, self.store.clock.now())
        plan = self.climate.plans[turn.plan]
        for budget in plan.budgets:
            if taken(budget, spent) > budget.limit:
                self.report("C7", f"{turn.owner} was admitted beyond {budget.name}: {spent}")
        if len(spent.running_beside(plan.lane)) > plan.replies_running:
            self.report("C10", f"{turn.owner} runs {len(spent.running)} replies")

    def _turns_finish(self, held: Held, outcome: Outcome, *, answer: bool) -> None:
        if answer:
            self.finishes.append(Finish(held.reply_id, held.epoch, outcome))
            self.reached[f"ended {outcome.status}"] += 1
        else:
            self.reached["a finish comes too late"] += 1

    def _queue_claim(self, *, answer: Turn | None, **_: Any) -> None:
        if answer is not None:
            self.reached["a reply is taken over"] += answer.epoch > 1
            self.reached["a claim ends what was stopped"] += answer.stop_reason is not None

    def _turns_note(self, *_: Any, answer: bool, **__: Any) -> None:
        self.reached["a note comes too late"] += not answer

    def _log_fence(self, reply_id: str, epoch: int, _: int, *, answer: Any) -> None:
        if answer is None:
            self.reached["a fence comes too late"] += 1
            return
        self.fences[reply_id] = epoch
        self.reached["a reply goes on from its log"] += len(answer.entries) > 1

    def _log_lose(self, reply_id: str, *, answer: Any) -> None:
        # A fence is lost with its log; the store's epoch still keeps late writers out.
        self.fences.pop(reply_id, None)

    def _log_fail_over(self, *, answer: Any) -> None:
        self.fences.clear()

    def _log_reseed(self, *_: Any, answer: Append) -> None:
        self.reached[f"a log is written again: {answer}"] += 1

    def _log_append(
        self, reply_id: str, epoch: int, _: int, entries: Any, *, answer: Append
    ) -> None:
        if answer is not Append.DONE:
            self.reached[f"an append is {answer}"] += 1
            return
        self.n_appends += 1
        self.n_tokens += sum(len(entry.ids) // 4 for entry in entries)
        fenced = self.fences.get(reply_id, 0)
        if epoch < fenced:
            self.report("C9", f"{reply_id}: epoch {epoch} appended after {fenced} had fenced")
        text = text_so_far(entries)
        for word in self.climate.flagged:
            if word in text:
                self.report("I10", f"{reply_id}: {word!r} went into the log")
