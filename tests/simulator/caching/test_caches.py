"""Caches of both grains keep what is used, drop what was longest unused, and agree."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.blocks import Owner
from tertulia.simulator.caching.caches import BlockCache, Cache, SpanCache
from tertulia.simulator.caching.turns import Text, Turn

SHARED = 64
BOTH = pytest.mark.parametrize("make", [SpanCache, lambda size: BlockCache(size, block_tokens=16)])


def text(name: str) -> Text:
    return Text(Owner(name, SHARED, name))


def turn(key: int, name: str, prompt: int, reply: int = 16, of: Text | None = None) -> Turn:
    return Turn(key, name, of or text(name), prompt, reply, 0.0)


def answered(cache: Cache, one: Turn) -> int:
    found = cache.open(one)
    assert found is not None
    cache.close(one)
    return found


@BOTH
def test_the_next_turn_finds_prompt_and_reply(make: type[SpanCache]) -> None:
    cache, mine = make(4_096), text("a")
    assert answered(cache, turn(1, "a", 112, 16, mine)) == 0
    assert cache.known(mine, 160) == 128
    assert answered(cache, turn(2, "a", 160, 16, mine)) == 128


@BOTH
def test_others_find_what_is_everybodys_and_no_more(make: type[SpanCache]) -> None:
    cache = make(4_096)
    answered(cache, turn(1, "a", 160))
    assert answered(cache, turn(2, "b", 160)) == SHARED


@BOTH
def test_after_a_cut_only_the_shared_beginning_is_found(make: type[SpanCache]) -> None:
    cache, mine = make(4_096), text("a")
    answered(cache, turn(1, "a", 320, 16, mine))
    mine.cut(3, 16)
    assert answered(cache, turn(2, "a", 320, 16, mine)) == SHARED


@BOTH
def test_the_longest_unused_goes_first_and_from_its_end(make: type[SpanCache]) -> None:
    cache = make(SHARED + 128 + 128 + 160 + 16)
    texts = {name: text(name) for name in "abc"}
    for key, name in enumerate("abc"):
        answered(cache, turn(key, name, SHARED + 112, 16, texts[name]))
    answered(cache, turn(3, "a", SHARED + 144, 16, texts["a"]))
    answered(cache, turn(9, "d", SHARED + 48, 16))
    assert cache.known(texts["b"], 1_000) == SHARED + 128 - 48
    assert cache.known(texts["a"], 1_000) == SHARED + 160
    assert cache.known(texts["c"], 1_000) == SHARED + 128


@BOTH
def test_what_running_turns_hold_is_never_taken(make: type[SpanCache]) -> None:
    cache = make(600)
    running = turn(1, "a", 240)
    assert cache.open(running) == 0
    assert cache.open(turn(2, "b", 240)) is not None
    assert cache.open(turn(3, "c", 240)) is None, "there is no room beside two"
    assert cache.held_share > 0.7
    cache.close(running)
    assert cache.open(turn(4, "c", 240)) is not None


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10_000))
def test_whole_conversations_and_blocks_find_nearly_the_same(seed: int) -> None:
    dice = random.Random(seed)
    caches: tuple[Cache, ...] = (SpanCache(6_000), BlockCache(6_000, block_tokens=4))
    texts = {f"c{number}": text(f"c{number}") for number in range(12)}
    lengths = dict.fromkeys(texts, SHARED)
    found = [0, 0]
    total = 0
    for key in range(150):
        name = dice.choice(list(texts))
        if lengths[name] > 1_200:
            lengths[name] = SHARED
            texts[name].cut(texts[name].version + 1, 4)
        prompt, reply = lengths[name] + dice.randint(10, 120), dice.randint(1, 80)
        lengths[name] = prompt + reply
        total += prompt
        for place, cache in enumerate(caches):
            found[place] += answered(cache, turn(key, name, prompt, reply, texts[name]))
    assert found[0] / total == pytest.approx(found[1] / total, abs=0.03)
