"""What an autoscaler is told: what replicas owe and hold, and how many of them are wanted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tertulia.core.sizing import ScaleRules, Supply
from tertulia.wiring.scaling import ScaleFigures
from tests.conformance.world import ManualClock
from tests.lanes.fleet_rig import fake_fleet, wanted

pytestmark = pytest.mark.anyio

LARGE = Supply("large", replicas=2, slots=20, running=7, owed_tokens=500, prefill_per_s=10_000.0)
SMALL = Supply("small", replicas=1, slots=10, running=0, owed_tokens=0, prefill_per_s=None)


@dataclass
class Told:
    """A page as it is read at one moment and another."""

    supplies: list[Supply]
    waiting: float = 0.0
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        figures = ScaleFigures(
            lambda: self.supplies, lambda: self.waiting, self.clock, ScaleRules(load_s=60)
        )
        self.registry.register(figures)

    def page(self) -> str:
        return generate_latest(self.registry).decode()

    def value(self, name: str, model: str = "large") -> float | None:
        return self.registry.get_sample_value(f"tertulia_{name}", {"model": model})


def test_what_is_known_of_each_model_is_shown() -> None:
    told = Told([LARGE, SMALL], waiting=14)
    assert told.value("replicas_ready") == 2
    assert told.value("decode_slots") == 20
    assert told.value("decode_slots_taken") == 7
    assert told.value("turns_waiting") == 14
    assert told.value("owed_prompt_tokens") == 500
    assert told.value("prefill_tokens_per_second") == 10_000
    assert told.value("owed_prefill_seconds") == pytest.approx(0.05)
    assert told.value("replicas_wanted") == 1 + 3  # 21 of 20 slots, of which 0.7 may be taken
    assert told.value("replicas_wanted", "small") == 2


def test_what_is_not_known_is_left_out() -> None:
    told = Told([SMALL])
    assert told.value("prefill_tokens_per_second", "small") is None
    assert told.value("owed_prefill_seconds", "small") is None
    assert told.value("replicas_ready", "small") == 1


def test_fewer_are_wanted_only_when_the_busy_time_is_past() -> None:
    told = Told([replace(LARGE, running=40)])
    assert told.value("replicas_wanted") == 7
    told.supplies = [replace(LARGE, running=0)]
    told.clock.pass_(59)
    assert told.value("replicas_wanted") == 7
    told.clock.pass_(2)
    assert told.value("replicas_wanted") == 2


def test_a_page_without_models_says_nothing() -> None:
    assert "model=" not in Told([]).page()


def test_there_is_a_most_of_models() -> None:
    many = [replace(SMALL, model=f"m{n}") for n in range(40)]
    assert Told(many).page().count("tertulia_replicas_ready{") == 16


async def test_what_was_sent_and_not_read_is_owed() -> None:
    async with fake_fleet("r1", "r2", slots=4) as fleet:
        before = fleet.replicas.supplies()
        assert [(one.model, one.replicas, one.slots) for one in before] == [("small", 2, 8)]
        assert before[0].owed_tokens == 0
        asked = wanted("a question")
        assert await fleet.replicas.place(asked) is not None
        after = fleet.replicas.supplies()[0]
        assert (after.running, after.owed_tokens) == (1, asked.prompt_tokens)


async def test_a_replica_that_goes_is_no_supply() -> None:
    async with fake_fleet("r1", "r2", slots=4) as fleet:
        fleet.replicas._watch.replicas["r1"].draining = True
        assert fleet.replicas.supplies()[0].replicas == 1


async def test_a_speed_that_one_has_not_told_is_taken_from_the_others() -> None:
    async with fake_fleet("r1", "r2") as fleet:
        assert fleet.replicas.supplies()[0].prefill_per_s is None
        fleet.replicas._watch.replicas["r1"].ledger._prefill_per_s = 900.0
        assert fleet.replicas.supplies()[0].prefill_per_s == 1_800
