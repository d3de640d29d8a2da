"""Plays comparisons: one run for each policy, size, crowd and seed, and one row for their mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Final

from tertulia.simulator.caching import hits
from tertulia.simulator.caching.caches import CACHES
from tertulia.simulator.caching.fleet import Span, play
from tertulia.simulator.caching.outcome import Outcome
from tertulia.simulator.caching.people import People, Replay
from tertulia.simulator.caching.rows import Rows, Value
from tertulia.simulator.caching.steps import Crowd, count_steps
from tertulia.simulator.caching.tables import CachesTable
from tertulia.simulator.caching.trace import SAMPLE, Request, WrongTrace, read_trace
from tertulia.simulator.caching.turns import Turn
from tertulia.simulator.scenario import CantUse

# As many turns must be inside the targets for a fleet to carry them.
GOOD_SHARE: Final = 0.99
# So finely the number of people that a fleet carries is looked for, and in so many tries at most.
_STEPS_PER_THOUSAND: Final = 32  # a replica
_MOST_STEPS: Final = 40

Hear = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is compared, by which seeds; `tell` is told of each case before it is played."""

    table: CachesTable
    seeds: Sequence[int]
    tell: Hear


def run(table: CachesTable, *, seed: int, heard: Hear) -> Rows:
    """Its rows. `heard` hears of each case before it is played.

    CantUse for a trace that can't be read.
    """
    asked = _Asked(table, range(seed, seed + table.seeds), heard)
    return _KINDS[table.kind](asked)


# How the people of a scenario fare.

_COLUMNS: Final = (
    *("policy", "cache_tokens", "open", "hit_share", "hit_sd", "ttft_p50_s", "ttft_p95_s"),
    *("gap_p95_ms", "turns_per_s", "good_per_s", "good_sd", "good_share", "moved", "imbalance"),
)


def _routing(asked: _Asked) -> Rows:
    rows = []
    for cache_tokens in asked.table.fleet.cache_tokens:
        for n_open in asked.table.people.open:
            for policy in asked.table.policies:
                asked.tell(f"{policy}, {cache_tokens:,} tokens, {n_open:,} open")
                outcomes = _outcomes(asked, policy, cache_tokens, n_open)
                rows.append((policy, cache_tokens, n_open, *_figures(outcomes)))
    return Rows(_COLUMNS, tuple(rows))


def _outcomes(asked: _Asked, policy: str, cache_tokens: int, n_open: int) -> list[Outcome]:
    fleet, habits = asked.table.fleet.fleet(cache_tokens), asked.table.people.habits
    targets = asked.table.targets.targets
    return [
        play(
            fleet,
            People(n_open, seed, habits),
            policy,
            seed=seed,
            span=asked.table.measured,
            targets=targets,
        )
        for seed in asked.seeds
    ]


def _figures(outcomes: Sequence[Outcome]) -> tuple[Value, ...]:
    """In the order of the columns, from `hit_share` on."""
    hit_shares = [outcome.hit_share for outcome in outcomes]
    goods = [outcome.good_per_s for outcome in outcomes]
    return (
        round(mean(hit_shares), 4),
        round(_deviation(hit_shares), 4),
        round(mean(outcome.ttft_s(50) for outcome in outcomes), 4),
        round(mean(outcome.ttft_s(95) for outcome in outcomes), 4),
        round(1000 * mean(outcome.gap_s(95) for outcome in outcomes), 2),
        round(mean(outcome.turns_per_s for outcome in outcomes), 2),
        round(mean(goods), 2),
        round(_deviation(goods), 2),
        round(mean(outcome.good_share for outcome in outcomes), 4),
        round(mean(outcome.moved_share for outcome in outcomes), 4),
        round(mean(outcome.imbalance for outcome in outcomes), 3),
    )


def _deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


# How many people a fleet carries.


def _capacities(asked: _Asked) -> Rows:
    rows = []
    for cache_tokens in asked.table.fleet.cache_tokens:
        for policy in asked.table.policies:
            n_open, outcomes = _capacity(asked, policy, cache_tokens)
            if outcomes:
                rows.append((policy, cache_tokens, n_open, *_figures(outcomes)))
    return Rows(_COLUMNS, tuple(rows))


def _capacity(asked: _Asked, policy: str, cache_tokens: int) -> tuple[int, list[Outcome]]:
    """The most people of whom enough are served inside the targets, all seeds taken together, and
    how they fare; 0 if not even the first step's are."""
    step = max(1, asked.table.fleet.replicas * 1_000 // _STEPS_PER_THOUSAND)
    search = Search(max(1, asked.table.people.open[0] // step))
    found: dict[int, list[Outcome]] = {}
    for _ in range(_MOST_STEPS):
        if search.is_over:
            break
        n_open = search.at * step
        outcomes = _outcomes(asked, policy, cache_tokens, n_open)
        share = mean(outcome.good_share for outcome in outcomes)
        asked.tell(f"{policy}, {cache_tokens:,} tokens, {n_open:,} open: {share:.2%} inside")
        if share >= GOOD_SHARE:
            found = {n_open: outcomes}
            search.fits()
        else:
            search.is_too_much()
    return next(iter(found.items()), (0, []))


@dataclass(slots=True)
class Search:
    """The largest whole number that fits, near a first guess: in strides that double, then halved.

    Invariant: `below` fits, or is 0; `above` is too much, where it is known.
    """

    at: int
    below: int = 0
    above: int | None = None
    _stride: int = 1

    @property
    def is_over(self) -> bool:
        """`below` is the answer."""
        return self.above is not None and self.above - self.below <= 1

    def fits(self) -> None:
        """What was tried does."""
        self.below = self.at
        self._go_on(1)

    def is_too_much(self) -> None:
        """What was tried does not."""
        self.above = self.at
        self._go_on(-1)

    def _go_on(self, sign: int) -> None:
        if self.above is not None and self.below > 0:
            self.at = (self.above + self.below) // 2
        else:
            self.at = max(1, self.at + sign * self._stride)
            self._stride *= 2


# A recorded trace.


def _trace(asked: _Asked) -> Rows:
    requests = _requests(asked.table.trace)
    if min(asked.table.fleet.cache_tokens) < max(one.prompt + one.reply for one in requests):
        raise CantUse("cache_tokens must have room for the longest request of the trace.")
    # All of it counts, from the first request on: a trace has no time to warm up.
    span = Span(0.0, max(1.0, max(request.at_s for request in requests) / asked.table.speed))
    rows = []
    for cache_tokens in asked.table.fleet.cache_tokens:
        fleet = asked.table.fleet.fleet(cache_tokens, cache="trace")
        ceiling = round(one_cache_share(requests, cache_tokens * fleet.replicas), 4)
        for policy in asked.table.policies:
            asked.tell(f"{policy}, {cache_tokens:,} tokens")
            outcomes = [
                play(
                    fleet,
                    Replay(requests, asked.table.speed),
                    policy,
                    seed=seed,
                    span=span,
                    targets=asked.table.targets.targets,
                )
                for seed in asked.seeds
            ]
            rows.append((policy, cache_tokens, len(requests), ceiling, *_figures(outcomes)))
    columns = ("policy", "cache_tokens", "requests", "one_cache", *_COLUMNS[3:])
    return Rows(columns, tuple(rows))


def one_cache_share(requests: Sequence[Request], cache_tokens: int) -> float:
    """What one cache of so many tokens finds of the prompts, answering one after the other: no
    fleet of the same memory finds more by placing well, but for chance."""
    cache = CACHES["trace"](cache_tokens)
    cached = 0
    for key, one in enumerate(requests):
        turn = Turn(key, one.conversation, one.text(), one.prompt, 1, one.at_s)
        found = cache.open(turn)
        assert found is not None, "the caller has looked whether each fits"
        cached += found
        cache.close(turn)
    return cached / sum(one.prompt for one in requests)


def _requests(path: str) -> list[Request]:
    try:
        requests = read_trace(Path(path) if path else SAMPLE)
    except WrongTrace as wrong:
        raise CantUse(f"{wrong}.") from None
    except OSError as error:
        raise CantUse(f"{path} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CantUse(f"{path} is no text.") from None
    if not requests:
        raise CantUse(f"{path} has no request.")
    return requests


# Tokens alone, and steps alone.


def _hits(asked: _Asked) -> Rows:
    columns = ("cache_tokens", "spill_share", "home", "random", "affinity", "sd", "ours")
    seeds = asked.seeds
    rows = []
    for spill_share, moves_home in ((0.0, False), (0.1, False), (0.1, True)):
        for cache_tokens in asked.table.fleet.cache_tokens:
            counted = hits.Counted(
                cache_tokens=cache_tokens,
                replicas=asked.table.fleet.replicas,
                spill_share=spill_share,
                moves_home=moves_home,
            )
            affinity, deviation = hits.mean_hit_share(counted, seeds)
            others = [
                round(hits.mean_hit_share(replace(counted, where=where), seeds)[0], 4)
                for where in ("random", "ours")
            ]
            home = "moves" if moves_home else "stays"
            figures = (others[0], round(affinity, 4), round(deviation, 4), others[1])
            rows.append((cache_tokens, spill_share, home, *figures))
    return Rows(columns, tuple(rows))


def _steps(asked: _Asked) -> Rows:
    table = asked.table.steps
    columns = (
        *("chunk_tokens", "steps", "messages", "tokens", "overflown"),
        *("ttft_p50_s", "ttft_p95_s", "gap_p50_ms", "gap_p95_ms"),
    )
    rows = []
    for chunk_tokens in table.chunk_tokens:
        asked.tell(f"chunks of {chunk_tokens} tokens")
        crowd = Crowd(
            replicas=table.replicas,
            messages_per_s=table.messages_per_s,
            seconds=table.seconds,
            chunk_tokens=chunk_tokens,
        )
        steps = count_steps(crowd, seed=asked.seeds[0])
        counts = (steps.n_steps, steps.n_messages, steps.n_tokens, steps.overflown)
        gaps_ms = (round(1000 * steps.gap_p50_s, 2), round(1000 * steps.gap_p95_s, 2))
        rows.append((chunk_tokens, *counts, steps.ttft_p50_s, steps.ttft_p95_s, *gaps_ms))
    return Rows(columns, tuple(rows))


_KINDS: Final[dict[str, Callable[[_Asked], Rows]]] = {
    "routing": _routing,
    "capacity": _capacities,
    "trace": _trace,
    "hits": _hits,
    "steps": _steps,
}
