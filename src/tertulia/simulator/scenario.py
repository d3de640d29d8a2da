"""A scenario: a small TOML file that says who asks what of which machines, and what goes wrong.

It is read once and checked whole; what can't be meant is refused with a sentence that names it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, model_validator

from tertulia.core.ladder import TOP
from tertulia.core.plans import FREE, Plan
from tertulia.core.quota import MILLI
from tertulia.core.timing import PrefillTiming, StepTiming
from tertulia.core.types import Budget, Lane
from tertulia.plan_tables import PLANS, PlanTable, Table, beside_those_that_are_there
from tertulia.simulator.caching.tables import CachesTable
from tertulia.simulator.steps_table import StepsTable
from tertulia.simulator.timing import Calibration, Timing

# What one run may ask of a machine: a minute or two of it. `fast` does ten times as much.
MOST_MESSAGES: Final = 3_000_000
MOST_MESSAGES_FAST: Final = 60_000_000
MOST_VARIANTS: Final = 40
MOST_BYTES: Final = 1_000_000
_SCENARIOS: Final = files("tertulia.simulator") / "scenarios"

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Moment = Annotated[float, Field(ge=0, le=10_000_000)]


class CantUse(Exception):
    """The scenario can't be used, and why, in a sentence."""


class ModelTable(Table):
    """What a model costs, in seconds of one accelerator."""

    read_s: Annotated[float, Field(ge=0, le=10)] = 0.0
    write_s: Annotated[float, Field(ge=0, le=100)] = 0.0
    fixed_s: Annotated[float, Field(ge=0, le=10_000)] = 0.0

    @property
    def timing(self) -> Timing:
        """As the simulator reckons with it."""
        return Timing(self.read_s, self.write_s, self.fixed_s)


class CalibratedTable(Table):
    """A model by a fit of its steps, and how full a replica runs."""

    a_ms: float = Field(ge=0)
    e: float = Field(gt=0, le=1)
    b_ms: float = Field(ge=0)
    p0_ms: float = Field(ge=0)
    p1_us: float = Field(gt=0)
    p2_us: float = Field(0.0, ge=0)
    accelerators: int = Field(ge=1, le=64)
    weights_gb: Positive
    kv_bytes: Positive
    bandwidth_tb_s: Positive
    batch: int = Field(ge=1, le=4096)
    context_tokens: Positive = 3_200.0
    new_tokens: Positive = 390.0

    @property
    def timing(self) -> Timing:
        """The cost of one message of a full batch."""
        fit = Calibration(
            StepTiming(self.bandwidth_tb_s * 1e12, self.e, self.a_ms / 1e3, self.b_ms / 1e3),
            PrefillTiming(self.p1_us / 1e6, self.p2_us / 1e6, self.p0_ms / 1e3),
            accelerators=self.accelerators,
            weights_bytes=self.weights_gb * 1e9,
            kv_bytes=self.kv_bytes,
        )
        return fit.timing(
            batch=self.batch, context_tokens=self.context_tokens, new_tokens=self.new_tokens
        )


class FleetTable(Table):
    """The machines: so many accelerators in each region, shared by both models."""

    accelerators: int = Field(ge=1, le=100_000)
    regions: int = Field(1, ge=1, le=20)
    gateways: int = Field(4, ge=1, le=1_000)
    load_s: Moment = 300.0
    large: ModelTable | CalibratedTable = ModelTable(read_s=0.00035, write_s=0.5333 / 400)
    small: ModelTable | CalibratedTable = ModelTable(read_s=0.00004, write_s=0.16 / 400)


class SpikeTable(Table):
    """For a while, so many times the usual traffic."""

    at_s: Moment
    for_s: Positive
    times: Positive


class TrafficTable(Table):
    """When messages come."""

    kind: Literal["poisson", "bursty", "day", "trace", "burst", "conversations"] = "poisson"
    per_s: Positive = 1.0
    cv: Annotated[float, Field(gt=0, le=20)] = 1.0
    peak_factor: Annotated[float, Field(gt=1, le=20)] = 3.0
    peak_at_h: Annotated[float, Field(ge=0, le=24)] = 20.0
    hourly: tuple[Annotated[float, Field(ge=0)], ...] = ()
    spikes: tuple[SpikeTable, ...] = ()
    file: str = ""
    times: Positive = 1.0
    n: int = Field(0, ge=0, le=1_000_000)
    at_s: Moment = 0.0
    think_s: Positive = 60.0
    turns: Annotated[float, Field(ge=1, le=10_000)] = 8.0

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> TrafficTable:
        if self.kind == "trace" and not self.file:
            raise ValueError("a trace needs its file")
        if self.kind in ("burst", "conversations") and not self.n:
            raise ValueError(f"traffic of kind {self.kind} needs n, how many there are")
        if self.hourly and (len(self.hourly) != 24 or not sum(self.hourly)):
            raise ValueError("hourly needs 24 figures, and not all of them 0")
        return self


class HeavyTable(Table):
    """One user who alone sends this share of a plan's messages."""

    plan: str = FREE
    share: Share


class PeopleTable(Table):
    """Who asks, and what a message of theirs is like."""

    users: int = Field(1_000_000, ge=1, le=10_000_000)
    free_share: Share = 0.6
    easy_share: Share = 0.7
    patience_s: Positive = 10.0
    prompt_tokens: int = Field(3_000, ge=1, le=1_000_000)
    cached_tokens: int = Field(2_610, ge=0, le=1_000_000)
    answer_tokens: int = Field(400, ge=1, le=100_000)
    # Of the logarithm of an answer's length: 0 is always the same, 0.8 is about what people get.
    answer_spread: Annotated[float, Field(ge=0, le=3)] = 0.0
    heavy: HeavyTable | None = None

    @model_validator(mode="after")
    def _caches_no_more_than_there_is(self) -> PeopleTable:
        if self.cached_tokens >= self.prompt_tokens:
            raise ValueError("cached_tokens must be less than prompt_tokens: something is new")
        return self


class PolicyTable(Table):
    """What is switched on. `ladder` is live, off, pinned to a rung, or as the first drawing had it
    (`plain`: by the load that is left)."""

    paid_first: bool = True
    fair: bool = True
    ladder: Literal["live", "off", "plain"] | Annotated[int, Field(ge=0, le=TOP)] = "live"
    plain_gap: Annotated[float, Field(gt=0, lt=1)] = 0.07
    door: bool = True
    estimate: Literal["lane", "pool"] = "lane"
    drops_dead: bool = True
    returns: bool = False
    budgets: bool = False


class FaultTable(Table):
    """Something that goes wrong or is changed."""

    kind: Literal[
        "replica_lost",
        "gateway_lost",
        "counter_store_lost",
        "region_lost",
        "caches_lost",
        "prompt_changed",
        "replicas_replaced",
    ]
    at_s: Moment
    # Until it is over. 0: it lasts as long as new replicas take to load.
    for_s: Moment = 0.0
    n: int = Field(1, ge=1, le=100_000)
    region: int = Field(0, ge=0, le=19)


class ScalingTable(Table):
    """How many accelerators there are over the day. `schedule` knows the day, `measured` only what
    it sees, as an autoscaler does; both in steps of `step`, and new ones need the fleet's `load_s`
    to load. `streams` are the replies that an accelerator writes side by side: slots, as a replica
    counts them."""

    kind: Literal["fixed", "schedule", "measured"] = "fixed"
    headroom: Annotated[float, Field(ge=1, le=10)] = 1.3
    step: int = Field(1, ge=1, le=10_000)
    least: int = Field(1, ge=1, le=100_000)
    most: int = Field(100_000, ge=1, le=100_000)
    every_s: Positive = 60.0
    streams: int = Field(25, ge=1, le=4_096)


class Scenario(Table):
    """All of it. What comes in the first `warm_s` is not counted."""

    title: str = Field(min_length=1, max_length=200)
    about: str = Field("", max_length=4_000)
    seconds: Annotated[float, Field(gt=0, le=864_000)] = 300.0
    warm_s: Moment = 0.0
    seed: int = Field(1, ge=0, le=2**31)
    engine: Literal["exact", "fast"] = "exact"
    fleet: FleetTable = FleetTable(accelerators=150)
    traffic: TrafficTable = TrafficTable()
    people: PeopleTable = PeopleTable()
    policy: PolicyTable = PolicyTable()
    plans: dict[str, PlanTable] = PLANS  # type: ignore[assignment]  # it is copied, never changed
    faults: tuple[FaultTable, ...] = Field((), max_length=100)
    scaling: ScalingTable = ScalingTable()
    steps: StepsTable | None = None
    caches: CachesTable | None = None
    expect: str = Field("", max_length=400)

    @model_validator(mode="before")
    @classmethod
    def _plans_begin_as_those_that_are_there(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("plans"), dict):
            return {**given, "plans": beside_those_that_are_there(given["plans"])}
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Scenario:
        if self.warm_s >= self.seconds:
            raise ValueError("warm_s must be less than seconds: else nothing is counted")
        most = MOST_MESSAGES if self.engine == "exact" else MOST_MESSAGES_FAST
        n_expected = _expected(self.traffic) * self.seconds * self.fleet.regions
        if n_expected > most:
            raise ValueError(
                f"{n_expected:,.0f} messages are more than the {self.engine} engine plays"
                f" ({most:,}): simulate a tenth of the fleet, or less time"
            )
        if self.steps is not None and self.caches is not None:
            raise ValueError("steps and caches are two scenarios: one replica, or many")
        if any(fault.region >= self.fleet.regions for fault in self.faults):
            raise ValueError("a fault names a region that there is not")
        if self.engine == "fast" and (needs := _beyond_fast(self)):
            raise ValueError(f"the fast engine plays no {needs}: use the exact one")
        return self

    @property
    def can_be_compiled(self) -> bool:
        """Whether numba makes it many times as fast."""
        is_of_steps = self.caches is not None and self.caches.kind == "steps"
        return self.engine == "fast" or is_of_steps

    def plan(self, name: str) -> Plan:
        """A plan as the service's decisions take it; without budgets unless they are counted."""
        table = self.plans[name]
        budgets = tuple(
            Budget(one.name, one.unit, one.limit * MILLI, one.refill_s * 1000)
            for one in table.budgets
        )
        given = table.model_dump(exclude={"budgets", "lane", "abandon_s"})
        budgets = budgets if self.policy.budgets else ()
        lane, abandon_s = Lane[table.lane.upper()], table.abandon_s
        return Plan(name=name, lane=lane, budgets=budgets, abandon_s=abandon_s, **given)


def _expected(traffic: TrafficTable) -> float:
    """How many messages come a second, about; of a trace its file says."""
    if traffic.kind in ("trace", "burst"):
        return 0.0
    if traffic.kind == "conversations":
        return traffic.n / traffic.think_s
    return traffic.per_s


def _beyond_fast(scenario: Scenario) -> str:
    """What the scenario has that the fast engine does not play, if anything."""
    policy, traffic = scenario.policy, scenario.traffic
    there = {
        "budgets": policy.budgets,
        "promises to come back": policy.returns,
        "faults": bool(scenario.faults),
        "regions": scenario.fleet.regions > 1,
        f"traffic of kind {traffic.kind}": traffic.kind not in ("poisson", "day"),
        "one heavy user": scenario.people.heavy is not None,
        "estimate by the whole pool": policy.estimate == "pool",
    }
    return next((name for name, is_there in there.items() if is_there), "")


@dataclass(frozen=True, slots=True)
class Variant:
    """One run of a scenario: its own name, and all that holds in it."""

    name: str
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Play:
    """A scenario's file: what it tells, and its variants in the file's order."""

    name: str
    title: str
    about: str
    variants: tuple[Variant, ...]


def shipped() -> Iterator[tuple[str, str]]:
    """The scenarios that come with the product: name and title."""
    for entry in sorted(_SCENARIOS.iterdir(), key=lambda one: one.name):
        if entry.name.endswith(".toml"):
            told = tomllib.loads(entry.read_text(encoding="utf-8"))
            yield entry.name.removesuffix(".toml"), str(told["title"])


def load(name: str, changes: Mapping[str, Any] | None = None) -> Play:
    """The scenario in this file, or the shipped one of this name; `changes` win over the file.

    CantUse, with a sentence, for one that is not there or can't be meant.
    """
    path = Path(name)
    if path.suffix != ".toml":
        inside = _SCENARIOS / f"{name}.toml"
        if "/" in name or not inside.is_file():
            there = ", ".join(one for one, _ in shipped())
            raise CantUse(f"There is no scenario {name}. There are {there}, or your own FILE.toml.")
        text = inside.read_text(encoding="utf-8")
    else:
        text = _text_of(path)
    return parse(path.stem, text, changes or {})


def read(name: str, document: Mapping[str, Any]) -> Scenario:
    """The one scenario of a document; CantUse, with a sentence, for one that can't be meant."""
    return _checked(name, "as it is", document)


def parse(name: str, text: str, changes: Mapping[str, Any] | None = None) -> Play:
    """The scenario that the text of a file says."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CantUse(f"{name} is no TOML: {error}") from None
    variants = given.pop("variants", [{}])
    if not isinstance(variants, list) or not 0 < len(variants) <= MOST_VARIANTS:
        raise CantUse(f"{name}: variants must be 1 to {MOST_VARIANTS} tables.")
    found = []
    for number, own in enumerate(variants, 1):
        variant_name = str(own.pop("name", "as it is" if len(variants) == 1 else number))
        merged = merge(merge(given, own), changes or {})
        found.append(Variant(variant_name, _checked(name, variant_name, merged)))
    names = [variant.name for variant in found]
    if len(set(names)) < len(names):
        raise CantUse(f"{name}: two variants have one name.")
    first = found[0].scenario
    return Play(name, first.title, first.about, tuple(found))


def merge(given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of both; where both say something, `own` wins."""
    merged = dict(given)
    for key, value in own.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(before, value) if both else value  # type: ignore[arg-type]  # just asked
    return merged


def _checked(name: str, variant: str, given: Mapping[str, Any]) -> Scenario:
    try:
        return Scenario.model_validate(given)
    except ValidationError as error:
        lines = [f"{name} ({variant}) can't be used:"]
        for one in error.errors(include_url=False):
            where = ".".join(str(part) for part in one["loc"] if not str(part).endswith("Table"))
            lines.append(f"  {where or 'scenario'}: {one['msg'].removeprefix('Value error, ')}")
        raise CantUse("\n".join(lines[:10])) from None


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise CantUse(f"{path} is too large for a scenario.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CantUse(f"{path} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CantUse(f"{path} is no text.") from None
