"""What caches hold of prompts: exact in small scenes, and within what no cache can pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.hits import Talk, hit_share

# Prompts of 110, 160 and 210 tokens; with their replies 150, 200 and 250.
THREE = Talk(turns=3, system_tokens=100, message_tokens=10, reply_tokens=40)
ASKED = 110 + 160 + 210


def share(
    talk: Talk,
    *,
    room: float,
    replicas: int = 1,
    begins_s: Sequence[float] = (0.0,),
    pauses_s: Sequence[float] = (10.0,),
    places: Sequence[int] = (0,),
) -> float:
    pauses, goes = cycle(pauses_s), cycle(places)
    rooms = [room] * replicas
    return hit_share(talk, rooms, begins_s, lambda: next(pauses), lambda _, __: next(goes))


def test_all_that_was_said_before_is_found_where_it_was_said() -> None:
    assert share(THREE, room=1_000) == (100 + 150 + 200) / ASKED


def test_of_what_was_said_elsewhere_only_the_system_prompt_is_found() -> None:
    assert share(THREE, room=1_000, replicas=3, places=(0, 1, 2)) == 300 / ASKED


def test_who_comes_back_finds_what_was_said_there_and_not_what_was_said_since() -> None:
    found = 100 + 100 + 150  # the third prompt comes to where the first was
    assert share(THREE, room=1_000, replicas=2, places=(0, 1, 0)) == found / ASKED


def test_the_longest_unused_conversation_goes_first() -> None:
    one = Talk(turns=2, system_tokens=100, message_tokens=10, reply_tokens=40)
    # Both fit with their second messages; a third that begins sends the first away before its own.
    kept = share(one, room=350, begins_s=(0.0, 1.0))
    assert kept == (100 + 100 + 150 + 150) / (2 * (110 + 160))
    crowded = share(one, room=350, begins_s=(0.0, 1.0, 2.0))
    assert crowded == 600 / (3 * (110 + 160)), "each is gone when its second message comes"


def test_a_conversation_larger_than_a_cache_is_not_kept() -> None:
    assert share(THREE, room=149) == 300 / ASKED


def test_places_are_asked_for_by_conversation_and_prompt() -> None:
    asked: list[tuple[int, float]] = []

    def replica_of(one: int, prompt: float) -> int:
        asked.append((one, prompt))
        return 0

    hit_share(THREE, [1_000], (5.0, 0.0), lambda: 20.0, replica_of)
    assert asked == [(1, 110), (0, 110), (1, 160), (0, 160), (1, 210), (0, 210)]


def test_of_nothing_nothing_is_found() -> None:
    assert share(THREE, room=1_000, begins_s=()) == 0.0


@given(
    turns=st.integers(1, 9),
    room=st.integers(0, 20_000),
    replicas=st.integers(1, 4),
    places=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    begins_s=st.lists(st.floats(0, 600), min_size=1, max_size=12),
)
def test_found_is_between_the_system_prompt_and_all_but_the_messages(
    turns: int, room: int, replicas: int, places: list[int], begins_s: list[float]
) -> None:
    talk = Talk(turns, system_tokens=1_500, message_tokens=150, reply_tokens=400)
    asked = turns * 1_650 + 550 * turns * (turns - 1) / 2
    found = share(
        talk,
        room=room,
        replicas=replicas,
        begins_s=begins_s,
        places=[place % replicas for place in places],
    )
    least, most = turns * 1_500 / asked, 1 - turns * 150 / asked
    assert least - 1e-9 <= found <= most + 1e-9
    at_home = share(talk, room=1e9, begins_s=begins_s)
    assert at_home == pytest.approx(most), "with room for all of it, all of it is found"
