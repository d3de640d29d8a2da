"""The gateway's own measurements for Prometheus. Labels are codes, never texts, ids or names."""

from __future__ import annotations

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

from tertulia.core.recent import Recent
from tertulia.core.types import Lane
from tertulia.gateway.counters import Counters
from tertulia.gateway.line import LineWatch


class Figures:
    """Counters in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._admissions = Counter(
            "tertulia_admissions",
            "Turns asked for, by the door's answer.",
            ["answer"],
            registry=self._registry,
        )
        self._first_text = Histogram(
            "tertulia_first_text_seconds",
            "From a request for a stream to its first text.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64),
            registry=self._registry,
        )
        self._gap = Histogram(
            "tertulia_between_tokens_seconds",
            "Between two tokens of a reply as its stream gets them, on the average of each batch.",
            buckets=(0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5),
            registry=self._registry,
        )
        # What the histograms have no memory for: how it was of late.
        self.first_texts = Recent()
        self.gaps = Recent()
        self._refusals = Counter(
            "tertulia_refusals",
            "Requests answered with a problem, by code.",
            ["code"],
            registry=self._registry,
        )
        self._grades = Counter(
            "tertulia_grades",
            "Questions graded for `auto`, by what graded them.",
            ["by"],
            registry=self._registry,
        )
        self._begun = Counter(
            "tertulia_conversations_begun",
            "Conversations begun, by the version of the system prompt that they were given.",
            ["prompt_version"],
            registry=self._registry,
        )
        self.open_streams = Gauge(
            "tertulia_open_streams", "Streams open now.", registry=self._registry
        )
        self._queued = Gauge(
            "tertulia_queued_turns",
            "Turns that wait to begin, by lane.",
            ["lane"],
            registry=self._registry,
        )
        self._running = Gauge(
            "tertulia_running_turns",
            "Turns that have begun and not ended, by lane.",
            ["lane"],
            registry=self._registry,
        )
        self._wait = Gauge(
            "tertulia_estimated_wait_seconds",
            "How long a newcomer would wait to begin, by lane.",
            ["lane"],
            registry=self._registry,
        )
        self._counter_store_up = Gauge(
            "tertulia_counter_store_up",
            "Whether the store in which all gateways count answers.",
            registry=self._registry,
        )
        self._counter_store_up.set(1)
        self._sliced = Counter(
            "tertulia_limits_sliced",
            "Decisions about a limit made from this gateway's slice of it.",
            registry=self._registry,
        )
        self._sliced_before = 0

    def line(self, watch: LineWatch) -> None:
        """Notes how the line stands, as this gateway last saw it."""
        for lane in Lane:
            word, state = lane.name.lower(), watch.lane(lane)
            self._queued.labels(word).set(state.queued)
            self._running.labels(word).set(state.running)
            self._wait.labels(word).set(watch.newcomer_wait_s(lane))

    def add(self, more: Collector) -> None:
        """Shows further figures on the same page."""
        self._registry.register(more)

    def counted(self, counters: Counters) -> None:
        """Takes over how the counters are."""
        self._counter_store_up.set(not counters.is_away)
        self._sliced.inc(counters.sliced - self._sliced_before)
        self._sliced_before = counters.sliced

    def admitted(self, answer: object) -> None:
        """Counts one answer of the door (`admit.Answer`), by its type."""
        self._admissions.labels(type(answer).__name__).inc()

    def refused(self, code: str) -> None:
        """Counts one problem."""
        self._refusals.labels(code).inc()

    def begun(self, prompt_version: str) -> None:
        """Counts a new conversation."""
        self._begun.labels(prompt_version).inc()

    def graded(self, by: Literal["score", "rule_slow", "rule_failed"]) -> None:
        """Counts one grade: the grader's own, or the crude rule's and why."""
        self._grades.labels(by).inc()

    def first_text(self, seconds: float, now: float) -> None:
        """Notes how long a client waited for the first text."""
        self._first_text.observe(seconds)
        self.first_texts.add(seconds, now)

    def said(self, seconds: float, n_tokens: int, now: float) -> None:
        """Notes how far the tokens of a batch were apart, as the stream that shows it saw them."""
        gap_s = seconds / max(1, n_tokens)
        self._gap.observe(gap_s)
        self.gaps.add(gap_s, now)

    def page(self) -> bytes:
        """Everything in Prometheus' text form."""
        return generate_latest(self._registry)
