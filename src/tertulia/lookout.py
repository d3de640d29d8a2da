"""What one process knows of the ladder, and what it tells the others: gateways and workers both.

Which rung is wanted is decided in `core.ladder`, and which holds is kept behind the port `Rungs`.
While that can't be reached a process keeps to the rung it last heard of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import structlog
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tertulia.core.choice import SMALL
from tertulia.core.ladder import RUNGS, STEP_S, Calm, Foothold, Terms, wanted_rung
from tertulia.core.load import AVERAGED_S, Load, Slot, Tally, load_of
from tertulia.core.plans import Plan
from tertulia.core.types import ModelState
from tertulia.ports import Clock, Line, Replicas, Rungs, StoreUnavailable

_log = structlog.get_logger(__name__)

# A rung is noticed within two seconds everywhere, and fifty processes tell 25 times a second.
_TELL_S: Final = 2.0


class Lookout:
    """One process's view. `foothold` and `load` are as they were last heard and reckoned, and
    `waiting` are the chat turns in the line; None is unknown.

    Use `run` for it to hear anything. A worker's looks at the line and takes steps; a gateway's,
    without a line, only tells of its refusals.
    """

    def __init__(self, rungs: Rungs, clock: Clock, *, name: str) -> None:
        self.foothold = Foothold()
        self.load: Load | None = None
        self.waiting: int | None = None
        self._rungs = rungs
        self._clock = clock
        self._name = name
        self._tally = Tally(clock.now())
        self._refused = set[str]()
        self._heard_at: float | None = None
        self._calm = Calm()
        self._looked_at = clock.now()

    def terms(self, plan: Plan) -> Terms:
        """What a turn of this plan gets now."""
        return Terms(self.foothold.rung, plan)

    @property
    def heard_s(self) -> float | None:
        """How long ago the rung was heard of; None: never."""
        return None if self._heard_at is None else self._clock.now() - self._heard_at

    @contextmanager
    def holding(self, slot: Slot) -> Iterator[None]:
        """Counts a reply as running in that slot while the block runs."""
        began_at = self._clock.now()
        self._tally.began(slot, began_at)
        try:
            yield
        finally:
            now = self._clock.now()
            self._tally.ended(slot, now, seconds=now - began_at)

    def refused(self, owner: str) -> None:
        """Counts somebody whose turn was sent away because it could not start soon enough: once
        between two looks, or one program with a loop would look like a crowd."""
        if owner not in self._refused:
            self._refused.add(owner)
            self._tally.refused()

    async def run(self, replicas: Replicas, line: Line | None) -> None:
        """Looks every two seconds until cancelled."""
        while True:
            await self._clock.sleep(_TELL_S)
            await self.look(replicas, line)

    async def look(self, replicas: Replicas, line: Line | None) -> None:
        """Tells what was seen, hears what holds, and takes a step if one is due."""
        models = replicas.models()
        self.waiting = waiting = None if line is None else await _waiting(line)
        sight = self._tally.told(
            self._clock.now(),
            small=_small(models),
            waiting=waiting,
            over_s=AVERAGED_S if self.load is None else self.load.averaged_s,
        )
        self._refused.clear()
        try:
            foothold, sights = await self._rungs.tell(self._name, sight)
            self._reckon(load_of(sights, _slots(models)))
            to = wanted_rung(foothold.rung, self.load, self._calm)
            is_due = to != foothold.rung and foothold.held_s >= STEP_S
            if is_due and line is not None:
                foothold = await self._rungs.step(foothold, to)
        except StoreUnavailable:
            self._calm = Calm()  # what nobody saw was no calm
            return
        self._hear(foothold)

    def _reckon(self, load: Load | None) -> None:
        now = self._clock.now()
        # One look stands for the time between two, not for a night that a laptop slept.
        passed_s = min(now - self._looked_at, 2 * _TELL_S)
        self._calm, self._looked_at = self._calm.after(load, max(0.0, passed_s)), now
        self.load = load

    def _hear(self, foothold: Foothold) -> None:
        before, self.foothold = self.foothold, foothold
        self._heard_at = self._clock.now()
        if before.rung != foothold.rung:
            _log.warning("ladder_moved", rung=RUNGS[foothold.rung], was=RUNGS[before.rung])


class LadderFigures(Collector):
    """The ladder as Prometheus sees it, to be added to a role's own figures."""

    def __init__(self, lookout: Lookout) -> None:
        self._lookout = lookout

    def collect(self) -> Iterator[Metric]:
        """What the lookout knows now. A load that is not known is left out: it is not 0."""
        foothold, load = self._lookout.foothold, self._lookout.load
        yield GaugeMetricFamily(
            "tertulia_ladder_rung", "The rung of the ladder that holds.", value=foothold.rung
        )
        yield CounterMetricFamily(
            "tertulia_ladder_changes", "Steps of the ladder, up or down.", value=foothold.changes
        )
        loads = GaugeMetricFamily(
            "tertulia_ladder_load",
            "The fullest model's load as it would be on each rung.",
            labels=["rung"],
        )
        for rung, on_rung in enumerate(load.on_rung if load is not None else ()):
            loads.add_metric([str(rung)], on_rung)
        yield loads


async def _waiting(line: Line) -> int | None:
    """The chat turns that nobody has begun; batches wait for idle room and are no load."""
    try:
        view = await line.look(())
    except StoreUnavailable:
        return None
    return sum(state.queued for lane, state in view.lanes.items() if lane.is_chat)


def _small(models: Sequence[ModelState]) -> str | None:
    ready = [model.served for model in models if model.name == SMALL and model.state == "ready"]
    return ready[0] if ready else None


def _slots(models: Sequence[ModelState]) -> dict[str, int]:
    return {model.served: model.slots for model in models if model.state == "ready"}
