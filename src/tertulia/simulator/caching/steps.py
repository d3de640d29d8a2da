"""A large fleet, every step of every engine: an hour of 750 replicas is some 100 million steps.

Written for numba (`pip install tertulia[simulate]`), which makes it some hundred times as fast; the
same lines run without it and give the same figures. There are no caches here: the part of a prompt
that is found is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from tertulia.core.timing import PrefillTiming, StepTiming
from tertulia.simulator.caching.timing import EngineTiming
from tertulia.simulator.machine import has_numba

# Powers of two: a remainder is then one operation.
_RING: Final = 2_048  # steps ahead in which a reply can end: the longest reply
_QUEUE: Final = 1_024  # prompts that wait at one replica; a fleet where more do is overloaded
_BINS: Final = 8_000  # of the two histograms
_BIN_S: Final = 0.0005
# Two generators of 31 bits, added (L'Ecuyer 1988): products fit into 64 bits everywhere, so that
# compiled and plain draws are the same.
_FIRST: Final = (40_014, 2_147_483_563)
_SECOND: Final = (40_692, 2_147_483_399)

# 70B in BF16 on four accelerators: 62 % of the bandwidth, 40 % of the arithmetic.
LARGE_ON_FOUR: Final = EngineTiming(
    "70B on four",
    35e9,
    81_920.0,
    StepTiming(3.35e12, 0.62),
    PrefillTiming(0.35e-3 / 4),
    reads_weights=True,
)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Messages that come by themselves (Poisson) to replicas chosen by chance: the less busy of
    two, or any. Lengths of replies are exponential, up to 2,047 tokens."""

    replicas: int = 750
    messages_per_s: float = 3_472.2
    seconds: float = 3_600.0
    prompt_tokens: int = 3_000
    uncached_tokens: int = 390
    reply_tokens: float = 400.0
    chunk_tokens: int = 512
    slots: int = 256
    of_two: bool = True
    timing: EngineTiming = LARGE_ON_FOUR


@dataclass(frozen=True, slots=True)
class Steps:
    """What happened: counts, and percentiles in seconds. `overflown` prompts found a full queue."""

    n_steps: int
    n_messages: int
    n_tokens: int
    overflown: int
    ttft_p50_s: float
    ttft_p95_s: float
    gap_p50_s: float
    gap_p95_s: float


class _Machine(NamedTuple):
    """One replica's costs in seconds, and its bounds."""

    fixed_s: float
    context_s: float
    batch_s: float
    read_fixed_s: float
    p1_s: float
    p2_s: float
    chunk: int
    slots: int
    prompt: int
    uncached: int


class _State(NamedTuple):
    """All replicas', one after the other. `counts` are steps, messages, tokens and overflown.

    How many end in a step is looked at in every one of them: so small a number each stays near.
    """

    at: Any
    decoding: Any
    context: Any
    step: Any
    head: Any
    waiting: Any
    ending: Any
    ended_replies: Any
    unread: Any
    reply: Any
    asked_at: Any
    ttfts: Any
    gaps: Any
    counts: Any


class _Asked(NamedTuple):
    """Who asks: replicas, messages a second, seconds, mean reply, and whether of two."""

    replicas: int
    per_s: float
    seconds: float
    reply: float
    of_two: int


def count_steps(crowd: Crowd, *, seed: int = 1, fast: bool | None = None) -> Steps:
    """Plays it. `fast`: with numba; None: if it is there."""
    is_fast = has_numba() if fast is None else fast
    timing = crowd.timing
    machine = _Machine(
        timing.decode_fixed_s,
        timing.context_token_s,
        timing.step.b_s,
        timing.read_fixed_s,
        timing.prefill.p1_s,
        timing.prefill.p2_s,
        crowd.chunk_tokens,
        crowd.slots,
        crowd.prompt_tokens,
        crowd.uncached_tokens,
    )
    asked = _Asked(
        crowd.replicas,
        crowd.messages_per_s,
        crowd.seconds,
        crowd.reply_tokens,
        int(crowd.of_two),
    )
    state = _empty(crowd.replicas, is_fast=is_fast)
    _kernel(is_fast)(machine, asked, state, 1 + seed % (_SECOND[1] - 1), 1 + seed // _SECOND[1])
    n_steps, n_messages, n_tokens, overflown = (int(count) for count in state.counts)
    ttft_p50_s, ttft_p95_s = (_percentile(state.ttfts, percent) for percent in (50, 95))
    gap_p50_s, gap_p95_s = (_percentile(state.gaps, percent) for percent in (50, 95))
    return Steps(
        n_steps, n_messages, n_tokens, overflown, ttft_p50_s, ttft_p95_s, gap_p50_s, gap_p95_s
    )


@cache
def _kernel(is_fast: bool) -> Any:  # a function, or what numba makes of it
    if is_fast:
        from numba import njit

        return _play_with(njit(error_model="numpy"))
    return _play_with(lambda function: function)


def _play_with(compiled: Callable[[Any], Any]) -> Any:
    advance, draw = compiled(_advance), compiled(_draw)

    def play(machine: _Machine, asked: _Asked, state: _State, first: int, second: int) -> None:
        now = 0.0
        while True:
            first, second, drawn = draw(first, second)
            now -= math.log(drawn) / asked.per_s
            if now >= asked.seconds:
                break
            first, second, drawn = draw(first, second)
            chosen = int(drawn * asked.replicas)
            advance(machine, state, chosen, now)
            if asked.of_two:
                first, second, drawn = draw(first, second)
                other = int(drawn * asked.replicas)
                advance(machine, state, other, now)
                if (
                    state.decoding[other] + state.waiting[other]
                    < state.decoding[chosen] + state.waiting[chosen]
                ):
                    chosen = other
            first, second, drawn = draw(first, second)
            reply = min(_RING - 1, 1 + int(-math.log(drawn) * asked.reply))
            state.counts[1] += 1
            if state.waiting[chosen] == _QUEUE:
                state.counts[3] += 1
                continue
            place = chosen * _QUEUE + ((state.head[chosen] + state.waiting[chosen]) & (_QUEUE - 1))
            state.unread[place] = machine.uncached
            state.reply[place] = reply
            state.asked_at[place] = now
            state.waiting[chosen] += 1
        for replica in range(asked.replicas):
            advance(machine, state, replica, asked.seconds)

    return compiled(play)


def _draw(first: int, second: int) -> tuple[int, int, float]:
    """The next state of the dice, and a number in (0, 1)."""
    first = first * 40_014 % 2_147_483_563
    second = second * 40_692 % 2_147_483_399
    return first, second, ((first - second) % 2_147_483_562 + 0.5) / 2_147_483_562


def _advance(machine: _Machine, state: _State, r: int, until: float) -> None:
    """Takes all steps of replica `r` that begin before `until`."""
    at, batch, context = state.at[r], state.decoding[r], state.context[r]
    step, head, waiting = state.step[r], state.head[r], state.waiting[r]
    while at < until:
        if batch == 0 and waiting == 0:
            at = until
            break
        if batch:
            took_s = machine.fixed_s + machine.context_s * context + machine.batch_s * batch
        else:
            took_s = machine.read_fixed_s
        # As many prompts as fit into the chunk, in their order; the last one as far as it goes.
        left, n_read = machine.chunk, 0
        while left > 0 and n_read < waiting and batch + n_read < machine.slots:
            place = r * _QUEUE + ((head + n_read) & (_QUEUE - 1))
            tokens = min(left, state.unread[place])
            done = machine.prompt - state.unread[place]
            took_s += machine.p1_s * tokens
            took_s += machine.p2_s * ((done + tokens) * (done + tokens) - done * done)
            state.unread[place] -= tokens
            left -= tokens
            if state.unread[place] > 0:
                break
            n_read += 1
        at += took_s
        state.gaps[min(_BINS - 1, int(took_s / _BIN_S))] += batch
        state.counts[0] += 1
        state.counts[2] += batch + n_read
        context += batch
        step += 1
        ring = r * _RING + (step & (_RING - 1))
        n_ended = state.ending[ring]
        if n_ended:
            batch -= n_ended
            context -= n_ended * (machine.prompt - 1) + state.ended_replies[ring]
            state.ending[ring] = state.ended_replies[ring] = 0
        for _ in range(n_read):
            place = r * _QUEUE + head
            state.ttfts[min(_BINS - 1, int((at - state.asked_at[place]) / _BIN_S))] += 1
            head = (head + 1) & (_QUEUE - 1)
            waiting -= 1
            reply = state.reply[place]
            if reply > 1:
                batch += 1
                context += machine.prompt
                ring = r * _RING + ((step + reply - 1) & (_RING - 1))
                state.ending[ring] += 1
                state.ended_replies[ring] += reply
    state.at[r], state.decoding[r], state.context[r] = at, batch, context
    state.step[r], state.head[r], state.waiting[r] = step, head, waiting


def _empty(replicas: int, *, is_fast: bool) -> _State:
    def zeros(size: int, kind: str = "int64") -> Any:
        return _zeros(size, kind, is_fast=is_fast)

    return _State(
        at=zeros(replicas, "float64"),
        decoding=zeros(replicas),
        context=zeros(replicas),
        step=zeros(replicas),
        head=zeros(replicas),
        waiting=zeros(replicas),
        ending=zeros(replicas * _RING, "int16"),
        ended_replies=zeros(replicas * _RING, "int32"),
        unread=zeros(replicas * _QUEUE, "int32"),
        reply=zeros(replicas * _QUEUE, "int32"),
        asked_at=zeros(replicas * _QUEUE, "float64"),
        ttfts=zeros(_BINS),
        gaps=zeros(_BINS),
        counts=zeros(4),
    )


def _zeros(size: int, kind: str, *, is_fast: bool) -> Any:
    if is_fast:
        import numpy

        return numpy.zeros(size, kind)
    return [0.0 if kind == "float64" else 0] * size


def _percentile(bins: Any, percent: float) -> float:
    total, seen = sum(int(count) for count in bins), 0
    for number, count in enumerate(bins):
        seen += int(count)
        if total and seen >= total * percent / 100:
            return (number + 0.5) * _BIN_S
    return 0.0
