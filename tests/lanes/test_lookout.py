"""A process and the ladder: what it tells, what it hears, and what it does while nobody answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.core.ladder import SHORT_TOKENS, START_S, Foothold
from tertulia.core.load import Sight, Slot
from tertulia.core.plans import Plan
from tertulia.core.types import Lane, ModelState
from tertulia.core.waiting import LaneState, LineView
from tertulia.lookout import LadderFigures, Lookout
from tertulia.ports import StoreUnavailable
from tests.conformance.world import ManualClock
from tests.lanes.gateway_rig import ScriptedReplicas

pytestmark = pytest.mark.anyio

FREE = Plan(name="free", window_tokens=8_000, answer_tokens=1_000, ladder=True)
PLUS = Plan(name="plus", lane=Lane.PLUS, window_tokens=32_000, answer_tokens=2_000)
LARGE, SMALL = "lab/large-8b", "lab/small-1b"
PAID = Slot(LARGE, LARGE, is_eased=False)


@dataclass
class Queueing:
    """A line with so many turns of each lane, or out of reach."""

    queued: dict[Lane, int] = field(default_factory=dict)
    is_away: bool = False

    async def look(self, replies: Iterable[tuple[str, str]]) -> LineView:
        if self.is_away:
            raise StoreUnavailable("away")
        return LineView(0.0, {lane: LaneState(queued=n) for lane, n in self.queued.items()})


class Breaking(MemoryRungs):
    """A keeper that is out of reach while `is_away`; `told` is what it heard."""

    is_away = False

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.told: list[Sight] = []

    async def tell(self, name: str, sight: Sight) -> tuple[Foothold, tuple[Sight, ...]]:
        if self.is_away:
            raise StoreUnavailable("away")
        self.told.append(sight)
        return await super().tell(name, sight)


@dataclass
class Watching:
    """A worker's lookout and a gateway's at one keeper, with four slots of each model."""

    clock: ManualClock = field(default_factory=ManualClock)
    line: Queueing = field(default_factory=Queueing)
    replicas: ScriptedReplicas = field(
        default_factory=lambda: ScriptedReplicas(
            states=[
                ModelState("large", LARGE, "ready", slots=4),
                ModelState("small", SMALL, "ready", slots=4),
            ]
        )
    )

    def __post_init__(self) -> None:
        self.rungs = Breaking(self.clock)
        self.worker = Lookout(self.rungs, self.clock, name="worker")
        self.gateway = Lookout(self.rungs, self.clock, name="gateway")

    async def pass_(self, seconds: float) -> None:
        """Both look as often as they do."""
        for _ in range(int(seconds / 2)):
            self.clock.pass_(2.0)
            await self.worker.look(self.replicas, self.line)
            await self.gateway.look(self.replicas, None)

    @contextmanager
    def full(self, lookout: Lookout) -> Iterator[None]:
        """All slots of the large model hold paid replies."""
        with ExitStack() as running:
            for _ in range(4):
                running.enter_context(lookout.holding(PAID))
            yield

    def rungs_heard(self) -> Sequence[int]:
        return self.worker.foothold.rung, self.gateway.foothold.rung


async def test_a_full_fleet_climbs_the_ladder_and_an_idle_one_comes_down() -> None:
    here = Watching()
    with here.full(here.worker):
        await here.pass_(240.0)
        assert here.rungs_heard() == (3, 3)
        assert here.gateway.terms(FREE).starts_within_s == START_S
        assert here.gateway.terms(FREE).answer_tokens == SHORT_TOKENS
        assert here.gateway.terms(PLUS).answer_tokens == 2_000
    await here.pass_(180.0)
    assert here.rungs_heard() == (3, 3), "so few replies may be few by chance"
    await here.pass_(60.0)
    assert here.rungs_heard() == (0, 0)
    assert here.worker.foothold.changes == 6


async def test_a_gateway_alone_takes_no_step() -> None:
    here = Watching()
    with here.full(here.gateway):
        for _ in range(90):
            here.clock.pass_(2.0)
            await here.gateway.look(here.replicas, None)
    assert here.gateway.load is not None
    assert here.gateway.load.on_rung[0] > 0.9
    assert here.gateway.foothold.rung == 0


async def test_refusals_at_any_door_are_load() -> None:
    here = Watching()
    for _ in range(150):
        with here.worker.holding(PAID), here.worker.holding(PAID):
            for owner in "abcd":
                here.gateway.refused(owner)
                here.gateway.refused(owner)  # who asks again and again is no crowd
            await here.pass_(2.0)
    assert here.worker.load is not None
    assert here.worker.load.on_rung[0] == pytest.approx(2 / 4 * (1 + 4 / 2), abs=0.1)
    assert here.gateway.foothold.rung == 3


async def test_batches_that_wait_are_no_load() -> None:
    here = Watching(line=Queueing({Lane.PLUS: 1, Lane.FREE: 2, Lane.BATCH: 1_000}))
    await here.pass_(4.0)
    assert here.rungs.told[-2].waiting == 3


async def test_while_the_keeper_is_away_the_last_rung_holds() -> None:
    here = Watching()
    with here.full(here.worker):
        await here.pass_(110.0)
        assert here.rungs_heard() == (1, 1)
    here.rungs.is_away = True
    await here.pass_(300.0)
    assert here.rungs_heard() == (1, 1)
    assert here.gateway.heard_s == 300.0
    here.rungs.is_away = False
    await here.pass_(2.0)
    assert here.gateway.heard_s == 0.0
    await here.pass_(160.0)
    assert here.rungs_heard() == (1, 1), "what nobody saw was no calm"
    await here.pass_(30.0)
    assert here.rungs_heard() == (0, 0)


async def test_a_process_that_stood_still_has_seen_no_calm() -> None:
    here = Watching()
    with here.full(here.worker):
        await here.pass_(110.0)
    await here.pass_(100.0)
    here.clock.pass_(10_000.0)
    await here.pass_(2.0)
    assert here.rungs_heard() == (1, 1)


async def test_while_the_line_is_away_no_rung_is_left() -> None:
    here = Watching()
    with here.full(here.worker):
        await here.pass_(110.0)
    here.line.is_away = True
    await here.pass_(300.0)
    assert here.rungs_heard() == (1, 1)
    here.line.is_away = False
    await here.pass_(200.0)
    assert here.rungs_heard() == (0, 0)


async def test_a_fleet_without_models_keeps_its_rung() -> None:
    here = Watching()
    here.replicas.states = [ModelState("small", SMALL, "starting")]
    await here.pass_(30.0)
    assert here.worker.load is None
    assert here.worker.heard_s == 0.0
    assert here.rungs_heard() == (0, 0)


async def test_the_figures_say_what_is_known_and_no_more() -> None:
    here = Watching()
    registry = CollectorRegistry()
    registry.register(LadderFigures(here.worker))
    assert here.worker.heard_s is None
    before = generate_latest(registry).decode()
    assert "tertulia_ladder_rung 0.0" in before
    assert "tertulia_ladder_load{" not in before
    with here.full(here.worker):
        await here.pass_(150.0)
    shown = generate_latest(registry).decode()
    assert "tertulia_ladder_rung 2.0" in shown
    assert "tertulia_ladder_changes_total 2.0" in shown
    assert 'tertulia_ladder_load{rung="2"} 0.9' in shown
