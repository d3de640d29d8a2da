"""The worker's own measurements for Prometheus. Labels are codes, never texts, ids or names."""

from __future__ import annotations

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

from tertulia.core.remembering import TaskKind
from tertulia.core.types import Lane, Turn, Usage

# What became of a background task: `late` was no longer wanted, `empty` could not be shown.
TaskEnd = Literal["made", "late", "empty", "put_off", "failed"]


class WorkerFigures:
    """Counters in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.running = Gauge(
            "tertulia_worker_replies_running", "Replies answered now.", registry=self._registry
        )
        self._claims = Counter(
            "tertulia_worker_claims", "Turns claimed, again or anew.", registry=self._registry
        )
        self._waited = Histogram(
            "tertulia_worker_wait_seconds",
            "From the admission of a turn to its first claim, by lane.",
            ["lane"],
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 600, 3600),
            registry=self._registry,
        )
        for lane in Lane:
            self._waited.labels(lane.name.lower())
        self.lost = Counter(
            "tertulia_worker_claims_lost",
            "Claims that were another's when they should have been renewed.",
            registry=self._registry,
        )
        self.returned = Counter(
            "tertulia_worker_claims_returned",
            "Claims given back at the end of the process, for others to go on with.",
            registry=self._registry,
        )
        self.choices = Counter(
            "tertulia_worker_choices",
            "Turns given to a model: what it is picked as, and why it answers.",
            ["model", "reason"],
            registry=self._registry,
        )
        self.continued = Counter(
            "tertulia_worker_continuations",
            "Replies that went on elsewhere, as their replica was lost or drained.",
            registry=self._registry,
        )
        self.clamped = Counter(
            "tertulia_worker_usage_clamped",
            "Replies whose counted tokens were not within what was reserved for them.",
            registry=self._registry,
        )
        self.deletions = Counter(
            "tertulia_worker_deletions",
            "Orders to delete that are over: what was to go, and whether every copy was reached.",
            ["kind", "end"],
            registry=self._registry,
        )
        self.deletion_looks = Counter(
            "tertulia_worker_deletion_looks",
            "Looks at orders to delete.",
            registry=self._registry,
        )
        self.deletions_overdue = Gauge(
            "tertulia_worker_deletions_overdue",
            "Orders to delete that were given an hour ago and are not over.",
            registry=self._registry,
        )
        self.moved = Counter(
            "tertulia_worker_conversations_moved",
            "Conversations that went over to another system prompt, or to newer instructions of"
            " their owner's, when their context was cut; by the prompt's version.",
            ["prompt_version"],
            registry=self._registry,
        )
        self.tasks = Counter(
            "tertulia_worker_tasks",
            "Titles and summaries, by how each try to make one ended.",
            ["kind", "end"],
            registry=self._registry,
        )
        for kind in get_args(TaskKind):
            for end in get_args(TaskEnd):
                self.tasks.labels(kind, end)
        self._task_tokens = Counter(
            "tertulia_worker_task_tokens",
            "Tokens that titles and summaries took, which nobody is charged for.",
            ["kind", "direction"],
            registry=self._registry,
        )
        self.wasted = Counter(
            "tertulia_worker_tokens_wasted",
            "Tokens of attempts that were cut, which came too late or are generated again.",
            registry=self._registry,
        )

    def add(self, more: Collector) -> None:
        """Shows further figures on the same page."""
        self._registry.register(more)

    def claimed(self, turn: Turn, *, lease_s: float) -> None:
        """Counts a claim, and of a first one how long its turn has waited, by the store's clock."""
        self._claims.inc()
        if turn.model is None and turn.lease_until is not None:
            waited_s = turn.lease_until - lease_s - turn.created_at
            self._waited.labels(turn.lane.name.lower()).observe(max(0.0, waited_s))

    def remembered(self, kind: TaskKind, usage: Usage) -> None:
        """Counts what was read (not from a cache) and written for a title or a summary."""
        self._task_tokens.labels(kind, "read").inc(max(0, usage.input - usage.cached))
        self._task_tokens.labels(kind, "written").inc(usage.output)

    def page(self) -> bytes:
        """Everything in Prometheus' text form."""
        return generate_latest(self._registry)
