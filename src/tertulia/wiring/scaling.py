"""What an autoscaler should know, on the metrics page of a gateway or a worker.

Which replicas are wanted is decided in `core.sizing`; here its samples are taken, one each time
that somebody reads the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tertulia.core.sizing import Pressure, Pressures, ScaleRules, Supply, shared_out
from tertulia.ports import Clock

# More models than users pick from are a mistake, and no reason to keep samples of each.
_MOST_MODELS: Final = 16
_MEANINGS: Final = {
    "tertulia_replicas_ready": "Replicas that answer, by model.",
    "tertulia_decode_slots": "Replies that they generate at once at most.",
    "tertulia_decode_slots_taken": "Replies that they generate, or that were sent to them.",
    "tertulia_turns_waiting": "Chat turns that wait for a slot: the model's part of them.",
    "tertulia_owed_prompt_tokens": "Prompt tokens sent, not cached and not read yet.",
    "tertulia_prefill_tokens_per_second": "What they read in a second, as measured.",
    "tertulia_owed_prefill_seconds": "How long they would read what they owe.",
    "tertulia_replicas_wanted": "Replicas that there should be in ten minutes.",
}


class ScaleFigures(Collector):
    """The autoscaler's signal, by model. What is not known is left out: it is not 0."""

    def __init__(
        self,
        supplies: Callable[[], Sequence[Supply]],
        waiting: Callable[[], float],
        clock: Clock,
        rules: ScaleRules | None = None,
    ) -> None:
        self._supplies = supplies
        self._waiting = waiting
        self._clock = clock
        self._rules = rules or ScaleRules()
        self._history: dict[str, Pressures] = {}

    def collect(self) -> Iterator[Metric]:
        """Takes a sample, and shows it with what follows from it and those before."""
        gauges = {
            name: GaugeMetricFamily(name, meaning, labels=["model"])
            for name, meaning in _MEANINGS.items()
        }
        supplies, now = list(self._supplies())[:_MOST_MODELS], self._clock.now()
        for supply, waiting in zip(supplies, shared_out(supplies, self._waiting()), strict=True):
            history = self._history.setdefault(supply.model, Pressures(self._rules))
            history.add(Pressure(now, supply, waiting))
            values = {
                "tertulia_replicas_ready": supply.replicas,
                "tertulia_decode_slots": supply.slots,
                "tertulia_decode_slots_taken": supply.running,
                "tertulia_turns_waiting": waiting,
                "tertulia_owed_prompt_tokens": supply.owed_tokens,
                "tertulia_prefill_tokens_per_second": supply.prefill_per_s,
                "tertulia_owed_prefill_seconds": supply.owed_s,
                "tertulia_replicas_wanted": history.wanted().replicas,
            }
            for name, value in values.items():
                if value is not None:
                    gauges[name].add_metric([supply.model], value)
        yield from gauges.values()
