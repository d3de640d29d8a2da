"""What a scenario of caches says: which replicas, which people or trace, and what to compare.

What can't be meant is refused with a sentence that names it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from tertulia.plan_tables import Table
from tertulia.simulator.caching.engine import EngineBounds
from tertulia.simulator.caching.fleet import Fleet, Span
from tertulia.simulator.caching.outcome import Targets
from tertulia.simulator.caching.policies import POLICIES
from tertulia.simulator.caching.talk import Habits
from tertulia.simulator.caching.timing import TIMINGS

Positive = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[int, Field(ge=1, le=1_000_000_000)]

# What one scenario may ask of a machine: about 100 µs each.
MOST_TURNS: Final = 20_000_000
# A message so many times as long as the mean is one in a million.
_LONGEST_TIMES: Final = 20


class FleetTable(Table):
    """The replicas and their routers; each of the `cache_tokens` is a case of its own."""

    replicas: int = Field(8, ge=1, le=1_000)
    cache_tokens: tuple[Tokens, ...] = Field((10_000_000,), min_length=1, max_length=20)
    timing: Literal["roofline", "measured"] = "roofline"
    cache: Literal["spans", "blocks"] = "spans"
    slots: int = Field(256, ge=1, le=4_096)
    chunk_tokens: int = Field(512, ge=1, le=1_000_000)
    routers: int = Field(1, ge=1, le=64)
    report_s: Annotated[float, Field(ge=0.05, le=60)] = 0.25
    slow_replicas: int = Field(0, ge=0, le=1_000)
    slow_times: Annotated[float, Field(ge=1, le=100)] = 2.0

    def fleet(self, cache_tokens: int, *, cache: str | None = None) -> Fleet:
        """As it is simulated, with caches of this size."""
        return Fleet(
            replicas=self.replicas,
            cache_tokens=cache_tokens,
            timing=TIMINGS[self.timing],
            bounds=EngineBounds(self.slots, self.chunk_tokens),
            cache=cache or self.cache,
            routers=self.routers,
            report_s=self.report_s,
            slow=dict.fromkeys(range(self.slow_replicas), self.slow_times),
        )


class PeopleTable(Table):
    """Who asks; each number of `open` conversations is a case of its own."""

    open: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] = Field(
        (6_500,), min_length=1, max_length=20
    )
    think_s: Positive = 60.0
    turns: Annotated[float, Field(ge=1, le=1_000)] = 8.0
    message_tokens: Annotated[float, Field(ge=1, le=100_000)] = 150.0
    reply_tokens: Annotated[float, Field(ge=1, le=100_000)] = 400.0
    spread: Annotated[float, Field(ge=0, le=3)] = 0.7
    long_share: Share = 0.01
    long_tokens: int = Field(16_000, ge=0, le=1_000_000)
    system_tokens: int = Field(1_500, ge=1, le=1_000_000)
    window_tokens: int = Field(32_000, ge=1, le=10_000_000)
    answer_tokens: int = Field(2_000, ge=1, le=1_000_000)

    @property
    def habits(self) -> Habits:
        """As they are simulated."""
        return Habits(**self.model_dump(exclude={"open"}))

    @model_validator(mode="after")
    def _fits_into_the_window(self) -> PeopleTable:
        if self.habits.room_tokens < self.long_tokens + _LONGEST_TIMES * self.message_tokens:
            raise ValueError("window_tokens must have room for the longest message")
        return self


class SpanTable(Table):
    """What is counted: from `warm_s` on, for `measured_s`."""

    warm_s: Annotated[float, Field(ge=0, le=100_000)] = 180.0
    measured_s: Annotated[float, Field(gt=0, le=100_000)] = 240.0


class TargetsTable(Table):
    """Inside the targets is a turn with its first token and its mean gap within these."""

    ttft_s: Positive = 1.0
    gap_ms: Positive = 50.0

    @property
    def targets(self) -> Targets:
        """In seconds."""
        return Targets(self.ttft_s, self.gap_ms / 1000)


class StepsTable(Table):
    """A large fleet without caches, every step of it."""

    replicas: int = Field(750, ge=1, le=10_000)
    messages_per_s: Annotated[float, Field(gt=0, le=100_000)] = 3_472.2
    seconds: Annotated[float, Field(gt=0, le=3_600)] = 3_600.0
    chunk_tokens: tuple[Annotated[int, Field(ge=1, le=100_000)], ...] = (512,)


class CachesTable(Table):
    """Replicas with caches, and turns that look for theirs. Each case is played `seeds` times, from
    the scenario's own seed on. Policies: see `policies.py`; the first is the one that others are
    compared to."""

    kind: Literal["routing", "capacity", "trace", "hits", "steps"]
    seeds: int = Field(3, ge=1, le=20)
    policies: tuple[str, ...] = Field(tuple(POLICIES), min_length=1, max_length=20)
    fleet: FleetTable = FleetTable()
    people: PeopleTable = PeopleTable()
    span: SpanTable = SpanTable()
    targets: TargetsTable = TargetsTable()
    steps: StepsTable = StepsTable()
    trace: str = Field("", max_length=1_000)  # empty: the sample that comes along
    speed: Annotated[float, Field(gt=0, le=1_000)] = 1.0

    @property
    def measured(self) -> Span:
        """As the simulator takes it."""
        return Span(self.span.warm_s, self.span.measured_s)

    @model_validator(mode="after")
    def _can_be_meant(self) -> CachesTable:
        unknown = sorted(set(self.policies) - set(POLICIES))
        if unknown:
            raise ValueError(f"there is no policy {unknown[0]}: there are {', '.join(POLICIES)}")
        if self.fleet.slow_replicas > self.fleet.replicas:
            raise ValueError("more replicas are slow than there are")
        if self.kind in ("routing", "capacity"):
            self._has_room_and_time()
        return self

    def _has_room_and_time(self) -> None:
        if min(self.fleet.cache_tokens) < 2 * self.people.window_tokens:
            raise ValueError("cache_tokens must have room for two full windows")
        n_turns = sum(self.people.open) / self.people.think_s * self.measured.ends_at
        n_turns *= len(self.fleet.cache_tokens) * len(self.policies) * self.seeds
        if self.kind == "routing" and n_turns > MOST_TURNS:
            raise ValueError(
                f"{n_turns:,.0f} turns are more than is played at once ({MOST_TURNS:,}):"
                " fewer seeds, policies or people"
            )
