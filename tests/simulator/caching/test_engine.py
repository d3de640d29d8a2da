"""An engine that reckons steps together ends where one that takes every step would."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.blocks import Owner
from tertulia.simulator.caching.caches import SpanCache
from tertulia.simulator.caching.engine import NEVER, Engine, EngineBounds
from tertulia.simulator.caching.timing import MEASURED, ROOFLINE, EngineTiming
from tertulia.simulator.caching.turns import Text, Turn

SMALL = EngineBounds(slots=4, chunk_tokens=100)


def turn(key: int, prompt: int, reply: int, at: float = 0.0) -> Turn:
    name = f"c{key}"
    return Turn(key, name, Text(Owner(name, 10, name)), prompt, reply, at)


def finished(engine: Engine, turns: list[Turn]) -> list[Turn]:
    """All of them, each added at its time."""
    left, done = list(turns), []
    while left or engine.next_at < NEVER:
        if left and left[0].asked_at <= engine.next_at:
            one = left.pop(0)
            engine.add(one, one.asked_at)
        else:
            done += engine.happen()[1]
    return done


@dataclass
class Running:
    """A sequence of the fake engine below."""

    turn: Turn
    unread: int
    said: int = 0
    first_at: float = 0.0


def one_by_one(
    timing: EngineTiming, bounds: EngineBounds, turns: list[Turn]
) -> dict[int, tuple[float, float]]:
    """A fake engine for the test: every step by itself, with nothing clever, and no cache but for
    what all share. When each turn's first and last token came."""
    now, waiting, n_shared = 0.0, list(turns), 0
    running: list[Running] = []
    ends: dict[int, tuple[float, float]] = {}
    while waiting or running:
        if not running:
            now = max(now, waiting[0].asked_at)
        while waiting and waiting[0].asked_at <= now and len(running) < bounds.slots:
            turn = waiting.pop(0)
            running.append(Running(turn, turn.prompt - n_shared))
            n_shared = turn.text.owner.n_shared
        decoding = [one for one in running if not one.unread]
        context = sum(one.turn.prompt + one.said - 1 for one in decoding)
        took_s = timing.step_s(len(decoding), context) if decoding else timing.read_fixed_s
        left = bounds.chunk_tokens
        for one in running:
            n_tokens = min(left, one.unread)
            took_s += timing.prefill.chunk_s(n_tokens, one.turn.prompt - one.unread)
            one.unread -= n_tokens
            left -= n_tokens
        now += took_s
        for one in running:
            if not one.unread:
                one.said += 1
                one.first_at = one.first_at or now
            if one.said == one.turn.reply:
                ends[one.turn.key] = one.first_at, now
        running = [one for one in running if one.turn.key not in ends]
    return ends


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([ROOFLINE, MEASURED]))
def test_reckoning_steps_together_changes_nothing(seed: int, timing: EngineTiming) -> None:
    dice = random.Random(seed)
    at, turns = 0.0, []
    for key in range(dice.randint(1, 12)):
        at += dice.expovariate(1 / 0.3)
        turns.append(turn(key, dice.randint(11, 900), dice.choice([1, 2, 5, 60]), at))
    slow = one_by_one(timing, SMALL, [replace(one) for one in turns])
    quick = finished(Engine(timing, SpanCache(10**9), SMALL), turns)
    assert {one.key for one in quick} == set(slow)
    for one in quick:
        assert (one.first_at, one.ended_at) == pytest.approx(slow[one.key], abs=1e-9)


def test_a_prompt_alone_is_read_in_chunks() -> None:
    engine = Engine(ROOFLINE, SpanCache(10_000), SMALL)
    (one,) = finished(engine, [turn(1, 250, 1)])
    assert one.ttft_s == pytest.approx(3 * ROOFLINE.read_fixed_s + 250 * ROOFLINE.prefill.p1_s)
    assert engine.n_steps == 3


def test_a_slow_one_takes_so_many_times_as_long() -> None:
    (usual,) = finished(Engine(MEASURED, SpanCache(10_000), SMALL), [turn(1, 250, 40)])
    slow = Engine(MEASURED, SpanCache(10_000), SMALL, slowness=2.0)
    (twice,) = finished(slow, [turn(1, 250, 40)])
    assert twice.ended_at == pytest.approx(2 * usual.ended_at)


def test_nobody_is_admitted_past_the_slots_nor_past_the_room_of_the_cache() -> None:
    crowd = [turn(key, 100, 50) for key in range(6)]
    by_slots = Engine(ROOFLINE, SpanCache(10_000), SMALL)
    by_room = Engine(ROOFLINE, SpanCache(320), SMALL)  # two turns' own tokens beside the shared
    for engine, n_most in ((by_slots, 4), (by_room, 2)):
        for one in crowd:
            engine.add(replace(one, cached=None), 0.0)
        while engine.next_at < NEVER:
            engine.happen()
            assert len(engine._reading) + len(engine._decoding) <= n_most


def test_what_is_owed_is_what_was_sent_and_not_read() -> None:
    engine = Engine(ROOFLINE, SpanCache(10_000), SMALL)
    engine.add(turn(1, 250, 5), 0.0)
    engine.add(turn(2, 50, 5), 0.0)
    assert (engine.owed_tokens, engine.n_running) == (300, 2)
    engine.happen()
    assert engine.owed_tokens == 150 + 50 - 10  # the second has found what both share
