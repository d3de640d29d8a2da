"""The gateway's own measurements for Prometheus. Labels are codes, never texts, ids or names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tertulia.gateway.admit import Answer


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
        self._refusals = Counter(
            "tertulia_refusals",
            "Requests answered with a problem, by code.",
            ["code"],
            registry=self._registry,
        )
        self.open_streams = Gauge(
            "tertulia_open_streams", "Streams open now.", registry=self._registry
        )

    def admitted(self, answer: Answer) -> None:
        """Counts one answer of the door."""
        self._admissions.labels(type(answer).__name__).inc()

    def refused(self, code: str) -> None:
        """Counts one problem."""
        self._refusals.labels(code).inc()

    def first_text(self, seconds: float) -> None:
        """Notes how long a client waited for the first text."""
        self._first_text.observe(seconds)

    def page(self) -> bytes:
        """Everything in Prometheus' text form."""
        return generate_latest(self._registry)
