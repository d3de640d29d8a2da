"""When the messages come: at what rate, and the next moment. Chance is an argument."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tertulia.simulator.scenario import CantUse, SpikeTable, TrafficTable

DAY_S: Final = 86_400.0
_HOUR_S: Final = 3_600.0
# Of a trace: more than the longest public one has, and than the simulator would play.
MOST_ROWS: Final = 3_000_000
Rate = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message of a trace, `at_s` after its first."""

    at_s: float
    prompt_tokens: int
    answer_tokens: int
    cached_tokens: int | None = None


def rate_of(traffic: TrafficTable) -> Rate:
    """How many messages a second come at each moment, in one region."""
    usual = _usual(traffic)
    if not traffic.spikes:
        return usual
    return lambda now: usual(now) * _times(traffic.spikes, now)


def _usual(traffic: TrafficTable) -> Rate:
    if traffic.hourly:
        return _by_the_hour(traffic.per_s, traffic.hourly)
    if traffic.kind == "day":
        return _raised_cosine(traffic.per_s, traffic.peak_factor, traffic.peak_at_h * _HOUR_S)
    return lambda _: traffic.per_s


def _times(spikes: tuple[SpikeTable, ...], now: float) -> float:
    return math.prod(one.times for one in spikes if one.at_s <= now < one.at_s + one.for_s)


def _raised_cosine(per_s: float, peak_factor: float, peak_at_s: float) -> Rate:
    """A day whose mean is `per_s` and whose peak is so many times that: a raised cosine, to the
    power that makes it so. At the bottom a hundredth of the mean is left."""
    power = power_of(peak_factor)
    peak = per_s * peak_factor

    def rate(now: float) -> float:
        raised = (1 + math.cos(2 * math.pi * (now - peak_at_s) / DAY_S)) / 2
        return max(per_s / 100, peak * math.pow(raised, power))

    return rate


def power_of(peak_factor: float) -> float:
    """The power of a raised cosine whose peak is so many times its mean."""
    low, high = 0.0, 1.0
    while _mean_of(high) > 1 / peak_factor:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _mean_of(middle) > 1 / peak_factor else (low, middle)
    return (low + high) / 2


def _mean_of(power: float) -> float:
    """The mean of ((1 + cos)/2) ** power over a turn."""
    return math.exp(math.lgamma(power + 0.5) - math.lgamma(power + 1)) / math.sqrt(math.pi)


def _by_the_hour(per_s: float, hourly: tuple[float, ...]) -> Rate:
    mean = sum(hourly) / len(hourly)

    def rate(now: float) -> float:
        hour, part = divmod(now / _HOUR_S % 24, 1)
        here, there = hourly[int(hour)], hourly[(int(hour) + 1) % 24]
        return max(per_s / 100, per_s * (here + part * (there - here)) / mean)

    return rate


def gaps(traffic: TrafficTable, dice: random.Random) -> Callable[[], float]:
    """The time between two messages, in units of its mean: memoryless, or uneven as `cv` says."""
    if traffic.kind != "bursty":
        return lambda: dice.expovariate(1.0)
    shape = 1 / (traffic.cv * traffic.cv)
    return lambda: dice.gammavariate(shape, 1 / shape)


def trace_of(traffic: TrafficTable) -> Iterator[Arrival]:
    """The messages of a trace's file, in their order; `times` as fast as they came.

    A table with the columns of the Azure traces, or with at_s, prompt_tokens, answer_tokens; or
    lines of JSON as of the Mooncake traces, whose blocks say what a cache without end would find.
    """
    path = Path(traffic.file)
    read = _mooncake if path.suffix == ".jsonl" else _table
    try:
        with path.open(encoding="utf-8", newline="") as file:
            first = last = None
            for number, arrival in enumerate(read(file)):
                if number >= MOST_ROWS:
                    raise CantUse(f"{path} has more than {MOST_ROWS:,} messages.")
                first = arrival.at_s if first is None else first
                if last is not None and arrival.at_s < last:
                    raise CantUse(f"{path}: message {number + 1} lies before the one before it.")
                last = arrival.at_s
                at_s = (arrival.at_s - first) / traffic.times
                yield Arrival(
                    at_s, arrival.prompt_tokens, arrival.answer_tokens, arrival.cached_tokens
                )
    except OSError as error:
        raise CantUse(f"The trace {path} can't be read: {error.strerror}.") from None
    except (KeyError, ValueError, TypeError) as error:
        raise CantUse(f"{path} is no trace that is known here: {error}.") from None


def _table(file: Any) -> Iterator[Arrival]:
    for row in csv.DictReader(file):
        if "TIMESTAMP" in row:
            # Seven digits of a second: more than Python reads.
            at_s = datetime.fromisoformat(row["TIMESTAMP"][:26] + "+00:00").timestamp()
            prompt, answer = row["ContextTokens"], row["GeneratedTokens"]
        else:
            at_s = float(row["at_s"])
            prompt, answer = row["prompt_tokens"], row["answer_tokens"]
        yield Arrival(at_s, max(1, int(prompt)), max(1, int(answer)))


_BLOCK: Final = 512


def _mooncake(file: Any) -> Iterator[Arrival]:
    seen: set[int] = set()
    for line in file:
        row = json.loads(line)
        found = 0
        for block in row["hash_ids"]:
            if block not in seen:
                break
            found += _BLOCK
        seen.update(row["hash_ids"])
        prompt = max(1, int(row["input_length"]))
        cached = min(found, prompt - 1)
        yield Arrival(row["timestamp"] / 1000, prompt, max(1, int(row["output_length"])), cached)
