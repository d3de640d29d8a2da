"""One replica, step by step: some streams, and a huge prompt that comes among them.

The engine's own scheduler decides what goes into each step, or one of two simpler ones, kept to be
compared; how long a step takes is a formula of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from tertulia.core.blocks import Owner
from tertulia.core.costs import StepCost
from tertulia.core.prefix import CacheLimits, PrefixCache
from tertulia.core.steps import Sequence, Step, StepBounds, StepScheduler
from tertulia.simulator.outcome import percentile
from tertulia.simulator.steps_table import StepsTable

_BLOCK: Final = 16
# Streams write on for longer than any prompt is read.
_ANSWER: Final = 4_000
# What is looked at: the prompt, and a while of the streams after it.
_AFTER_STEPS: Final = 40
_MOST_STEPS: Final = 20_000
_HUGE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class OneStep:
    """A step that began `at` seconds: how long it took, and how many tokens of prompt it read."""

    at: float
    took_s: float
    n_read: int


@dataclass(slots=True)
class StepsOutcome:
    """How it went. `first_s` is from the prompt's coming to its first token."""

    steps: list[OneStep] = field(default_factory=list)
    first_s: float = 0.0
    n_chunks: int = 0

    @property
    def reading(self) -> list[OneStep]:
        """The steps that read the prompt."""
        return [step for step in self.steps if step.n_read]

    @property
    def tokens_per_s(self) -> float:
        """What each stream gets while the prompt is read."""
        reading = self.reading
        return len(reading) / sum(step.took_s for step in reading) if reading else 0.0

    @property
    def usual_per_s(self) -> float:
        """What each stream gets without it."""
        alone = [step.took_s for step in self.steps if not step.n_read]
        return len(alone) / sum(alone) if alone else 0.0

    @property
    def gap_p95_s(self) -> float:
        """Between two tokens of a stream while the prompt is read."""
        return percentile([step.took_s for step in self.reading], 95)

    @property
    def longest_gap_s(self) -> float:
        """The longest wait of a stream for its next token."""
        return max((step.took_s for step in self.steps), default=0.0)


class _Scheduler(Protocol):
    """Decides how much of the prompt the next step reads."""

    def n_read(self) -> int:
        """Tokens of the prompt in the next step."""

    def computed(self, took_s: float) -> None:
        """It took so long."""

    def ask(self) -> None:
        """The prompt has come."""


def play_steps(table: StepsTable) -> StepsOutcome:
    """How the streams and the prompt get on."""
    scheduler: _Scheduler = _Own(table) if table.scheduler == "own" else _Plain(table)
    outcome = StepsOutcome()
    now, n_done, n_after, context = 0.0, 0, 0, table.streams * table.context_tokens
    is_there = False
    for _ in range(_MOST_STEPS):
        if not is_there and now >= table.at_s:
            is_there = True
            scheduler.ask()
        n_read = scheduler.n_read() if is_there else 0
        took_s = step_s(table, context=context, n_before=n_done, n_read=n_read)
        outcome.steps.append(OneStep(now, took_s, n_read))
        now += took_s
        context += table.streams
        if is_there:
            scheduler.computed(took_s)
        n_done += n_read
        if n_read and n_done >= table.prompt_tokens:
            outcome.first_s = now - table.at_s
        if n_done >= table.prompt_tokens:
            n_after += 1
            if n_after > _AFTER_STEPS:
                break
    outcome.n_chunks = len(outcome.reading)
    return outcome


def step_s(table: StepsTable, *, context: int, n_before: int, n_read: int) -> float:
    """How long the machine takes: the memory that decoding reads, and the arithmetic.

    `context` are the tokens of all streams' caches, `n_before` those of the prompt read so far.
    """
    memory_s = table.fixed_ms / 1e3 + table.scan_ns / 1e9 * (context + n_before)
    token_s = table.token_us / 1e6
    n_pairs = n_read * n_before + n_read * (n_read + 1) // 2
    read_s = token_s * n_read + table.attended_ns / 1e9 * n_pairs
    if table.overlap == "sum":
        return memory_s + read_s
    return max(memory_s, token_s * table.streams + read_s)


class _Plain:
    """So many tokens a step, the decodes among them, or the whole prompt at once."""

    def __init__(self, table: StepsTable) -> None:
        self._left = table.prompt_tokens
        self._most = _HUGE
        if table.scheduler == "budget":
            self._most = max(1, table.budget_tokens - table.streams)
        self._next = 0

    def ask(self) -> None:
        """It reads at once."""

    def n_read(self) -> int:
        """As much as there is room for."""
        self._next = min(self._left, self._most)
        return self._next

    def computed(self, took_s: float) -> None:  # noqa: ARG002  # it does not learn
        """It is read."""
        self._left -= self._next


class _Own:
    """The engine's own scheduler, which learns what steps take and keeps to its target."""

    def __init__(self, table: StepsTable) -> None:
        self._table = table
        n_tokens = table.streams * (table.context_tokens + _ANSWER) + table.prompt_tokens + _ANSWER
        cache = PrefixCache(CacheLimits(n_blocks=n_tokens // _BLOCK + 2 * table.streams + 2))
        context = table.streams * table.context_tokens
        alone_s = step_s(table, context=context, n_before=0, n_read=0)
        token_s = table.token_us / 1e6
        fixed_s = max(1e-4, alone_s - token_s * table.streams)
        self._scheduler = StepScheduler(
            cache,
            StepCost(fixed_s=fixed_s, token_s=token_s),
            StepBounds(
                n_slots=table.streams + 1,
                target_s=table.target_ms / 1e3,
                n_batch=_HUGE,
                n_mixed=_HUGE,
            ),
        )
        self._n_begun = 0
        self._step = self._warmed_up()

    def ask(self) -> None:
        """The prompt joins the streams."""
        self._add(table_tokens=self._table.prompt_tokens, first=_HUGE, salt="prompt")

    def n_read(self) -> int:
        """As its scheduler decides."""
        self._step = self._scheduler.next_step()
        return self._step.prefill.n_tokens

    def computed(self, took_s: float) -> None:
        """The scheduler learns of it, and every stream gets its token."""
        self._scheduler.computed(self._step, took_s)
        for sequence in self._scheduler.running.values():
            if not sequence.n_left:
                sequence.tokens.append(0)

    def _add(self, *, table_tokens: int, first: int, salt: str) -> None:
        tokens = list(range(first, first + table_tokens))
        self._scheduler.add(
            Sequence(
                self._n_begun,
                lane=0,
                tokens=tokens,
                n_limit=table_tokens + _ANSWER,
                owner=Owner(salt=salt),
            )
        )
        self._n_begun += 1

    def _warmed_up(self) -> Step:
        """The streams have been read; all of them are one text, so that it is read once."""
        scheduler = self._scheduler
        for _ in range(self._table.streams):
            self._add(table_tokens=self._table.context_tokens, first=0, salt="streams")
        cost = scheduler.cost
        step = scheduler.next_step()
        for _ in range(_MOST_STEPS):
            scheduler.computed(step, max(1e-3, cost.seconds(step.decodes, step.prefill)))
            for sequence in scheduler.running.values():
                if not sequence.n_left:
                    sequence.tokens.append(0)
            if len(scheduler.running) == self._table.streams and all(
                one.n_left == 1 for one in scheduler.running.values()
            ):
                break
            step = scheduler.next_step()
        scheduler.cost = cost
        return step
