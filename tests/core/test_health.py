"""When a replica is asked, tried again, taken for dead or given a rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.breaker import FAILURES, FIRST_PAUSE_S, LONGEST_PAUSE_S, PROBE_S, Breaker, State
from tertulia.core.engines import ENGINES, EngineName, refusal_of
from tertulia.core.liveness import (
    FORGOTTEN_S,
    GONE_S,
    STUCK_S,
    UNBEGUN_S,
    Signs,
    is_forgotten,
    slow_ones,
    verdict,
)
from tertulia.core.retries import may_retry


def tripped(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker = breaker.failed(now)
    return breaker


def test_a_few_failures_with_words_between_open_nothing() -> None:
    breaker = Breaker()
    for _ in range(10):
        breaker = breaker.failed(0.0).failed(0.0).succeeded()
    assert breaker == Breaker()
    assert breaker.allows(0.0)
    assert breaker.sending(0.0) is breaker


def test_failures_in_a_row_open_it_for_a_while() -> None:
    breaker = tripped(5.0)
    assert breaker.state is State.OPEN
    assert not breaker.allows(5.0 + FIRST_PAUSE_S - 0.01)
    assert breaker.allows(5.0 + FIRST_PAUSE_S)


def test_what_ends_while_it_is_open_says_nothing_new() -> None:
    breaker = tripped()
    assert breaker.succeeded().state is State.OPEN
    assert breaker.failed(0.5).until == breaker.until


def test_one_probe_goes_through_and_decides() -> None:
    probing = tripped().sending(FIRST_PAUSE_S)
    assert probing.state is State.HALF_OPEN
    assert not probing.allows(FIRST_PAUSE_S + 0.1), "one probe, not two"
    assert probing.succeeded() == Breaker()
    again = probing.failed(2.0)
    assert again.state is State.OPEN
    assert again.until == 2.0 + 2 * FIRST_PAUSE_S


def test_the_pause_grows_to_its_bound_and_no_further() -> None:
    breaker = Breaker(longest_pause_s=3 * FIRST_PAUSE_S)
    for _ in range(FAILURES):
        breaker = breaker.failed(0.0)
    pauses = []
    for _ in range(4):
        breaker = breaker.sending(breaker.until).failed(0.0)
        pauses.append(breaker.until)
    assert pauses == [2 * FIRST_PAUSE_S, *[3 * FIRST_PAUSE_S] * 3]
    assert breaker.sending(breaker.until).succeeded().longest_pause_s == 3 * FIRST_PAUSE_S


def test_a_probe_that_is_never_heard_of_is_followed_by_another() -> None:
    probing = tripped().sending(FIRST_PAUSE_S)
    later = FIRST_PAUSE_S + PROBE_S
    assert probing.allows(later)
    assert probing.sending(later).state is State.HALF_OPEN


@given(st.lists(st.sampled_from(["send", "fail", "succeed"]), max_size=200))
def test_whatever_happens_it_opens_again_in_time(events: list[str]) -> None:
    breaker, now = Breaker(), 0.0
    for event in events:
        now += 0.3
        if event == "send" and breaker.allows(now):
            breaker = breaker.sending(now)
        elif event == "fail":
            breaker = breaker.failed(now)
        elif event == "succeed":
            breaker = breaker.succeeded()
        assert breaker.allows(now + max(LONGEST_PAUSE_S, PROBE_S))


def signs(
    silent_s: float | None, *, gap_s: float | None = 0.03, heard_s: float = 0.0,
    idle_s: float | None = 0.0,
) -> Signs:  # fmt: skip
    return Signs(silent_s, gap_s, heard_s, idle_s)


@pytest.mark.parametrize(
    ("seen", "thought"),
    [
        # Nobody waits for a second token: heartbeats alone decide.
        (signs(None, heard_s=100.0), "alive"),
        # A pause of a few gaps is nothing.
        (signs(0.35), "alive"),
        (signs(0.35, gap_s=None), "alive"),
        # A longer one is asked after, sooner where tokens come fast.
        (signs(0.5), "ask"),
        (signs(0.5, gap_s=0.3), "alive"),
        (signs(0.9, gap_s=0.3), "ask"),
        # A long prompt that others read is no death: it answers, and its figures move.
        (signs(30.0, heard_s=0.2, idle_s=0.5), "ask"),
        # It does not answer any more.
        (signs(GONE_S + 0.1, heard_s=GONE_S + 0.1), "stalled"),
        (signs(GONE_S + 0.1, heard_s=0.5), "ask"),
        # It answers and computes nothing.
        (signs(STUCK_S + 0.1, idle_s=STUCK_S + 0.1), "stalled"),
        (signs(1.0, idle_s=STUCK_S + 0.1), "ask"),
        # It answers, and nobody knows what it does.
        (signs(STUCK_S + 0.1, idle_s=None), "ask"),
        (signs(FORGOTTEN_S + 0.1, idle_s=None), "stalled"),
    ],
)
def test_the_table_of_verdicts(seen: Signs, thought: str) -> None:
    assert verdict(seen) == thought


def test_a_sequence_that_was_forgotten_is_given_up_and_one_that_waits_is_not() -> None:
    assert is_forgotten(FORGOTTEN_S + 1, has_begun=True)
    assert not is_forgotten(FORGOTTEN_S - 1, has_begun=True)
    assert not is_forgotten(FORGOTTEN_S + 1, has_begun=False), "it may be in an engine's own queue"
    assert is_forgotten(UNBEGUN_S + 1, has_begun=False)


def test_the_slow_ones_are_far_from_the_others() -> None:
    assert slow_ones({"a": 0.03, "b": 0.04, "c": 0.03, "d": 0.15}) == {"d"}
    assert slow_ones({"a": 0.03, "b": 0.03, "c": 0.03, "d": 0.08}) == frozenset()
    assert slow_ones({"a": 0.03, "b": 0.15}) == {"b"}
    assert slow_ones({"a": 9.0}) == frozenset(), "alone, nobody is slow"
    # Below what a reader sees nobody is slow either.
    assert slow_ones({"a": 0.002, "b": 0.002, "c": 0.04}) == frozenset()


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.001, 100)))
def test_never_more_than_half_of_a_pool_rests(gaps_s: dict[str, float]) -> None:
    assert len(slow_ones(gaps_s)) <= len(gaps_s) // 2


def test_a_quiet_fleet_may_retry_a_little_and_a_busy_one_a_fifth() -> None:
    assert [may_retry(retrying=n, active=0) for n in (2, 3)] == [True, False]
    assert [may_retry(retrying=n, active=200) for n in (42, 43)] == [True, False]


def test_what_cannot_be_continued_is_refused_with_the_reason() -> None:
    refused: list[EngineName] = ["llama-server", "openai-compatible"]
    assert [name for name in ENGINES if refusal_of(name)] == refused
    assert "token ids" in refusal_of("openai-compatible")
    assert "use tertulia, vllm, sglang" in refusal_of("llama-server")
