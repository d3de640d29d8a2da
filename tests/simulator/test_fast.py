"""The fast engine gives what the exact one gives, and the same whether it is compiled or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.types import Lane
from tertulia.core.waiting import LaneState, LineView, Pace, wait_s
from tertulia.simulator import fast, heaps, loop
from tertulia.simulator.fast import play_fast
from tertulia.simulator.line import LineTooLong
from tertulia.simulator.machine import Machine, has_numba
from tertulia.simulator.outcome import Outcome
from tertulia.simulator.people import PLUS, Message
from tertulia.simulator.scenario import CantUse, Scenario, Variant, parse
from tertulia.simulator.story import Told
from tertulia.simulator.table import as_values
from tertulia.simulator.world import World


def scenario(**changes: Any) -> Scenario:
    told = {
        "engine": "fast",
        "seconds": 60,
        "warm_s": 20,
        "fleet": {"accelerators": 30},
        "traffic": {"per_s": 140},
        "people": {"users": 5_000, "answer_spread": 0.6},
        **changes,
    }
    return parse("a test", 'title = "a test"', told).variants[0].scenario


class Replayed(World):
    """The exact engine, asked by exactly those who ask the fast one."""

    def __init__(self, one: Scenario) -> None:
        super().__init__(one)
        self._drawn = fast._Run(one, Machine(is_compiled=False))

    def _plan_traffic(self) -> None:
        for message in self._messages():
            self.clock.at(message.at, lambda message=message: self.ask(message))  # type: ignore[misc]  # bound at once

    def _messages(self) -> Iterator[Message]:
        people, second = self.scenario.people, 0
        while second < self.scenario.seconds:
            came = zip(*self._drawn._come(float(second), second + 1.0), strict=True)
            for at, plan, easy, owner, answer in came:
                message = self._crowd.of(at, (PLUS, "free")[plan], owner=owner)
                message.is_easy, message.answer_tokens = bool(easy), int(answer)
                until = self.scenario.seconds - people.patience_s
                message.counts = self.scenario.warm_s <= at < until
                yield message
            second += 1


def values(one: Scenario, outcome: Outcome) -> Any:
    return as_values(Told(Variant("a test", one), outcome))


@pytest.mark.parametrize(
    "policy",
    [
        {"paid_first": False, "ladder": "off", "door": False},
        {"ladder": "off", "door": False},
        {"ladder": 1, "door": False, "fair": False},
        {"ladder": 0},
        {"ladder": "live"},
    ],
)
def test_it_agrees_with_the_exact_engine_message_by_message(policy: dict[str, Any]) -> None:
    # Far enough from every rung's line that chance takes none.
    traffic = {"per_s": 190 if policy["ladder"] == "live" else 140}
    one = scenario(policy=policy, plans={"free": {"wait_s": 2.0}}, traffic=traffic)
    quick, exact = play_fast(one, is_compiled=False), Replayed(one).play()
    assert [rung for _, rung, _ in quick.steps] == [rung for _, rung, _ in exact.steps]
    # Whom a door sends away decides whom the next ones meet: by and by the two runs part.
    within, at_most = (0.02, 0.2) if one.policy.door else (0.01, 0.1)
    for name in ("plus", "free"):
        mine, right = quick.group(name), exact.group(name)
        assert mine.n == right.n > 1_000
        assert mine.timed_out == pytest.approx(right.timed_out, abs=within)
        assert mine.refused == pytest.approx(right.refused, abs=within)
        assert mine.n_small / mine.n == pytest.approx(right.n_small / right.n, abs=within)
        # Of the 2 s that one may wait: the quick one looks at the line once a second and less.
        assert mine.wait_p50_s == pytest.approx(right.wait_p50_s, abs=0.2)
    assert quick.busy == pytest.approx(exact.busy, abs=0.01)
    assert quick.most_waiting == pytest.approx(exact.most_waiting, rel=at_most, abs=10)


@pytest.mark.skipif(not has_numba(), reason="needs numba")
def test_compiled_it_gives_the_same_to_the_last_message() -> None:
    """It takes as long as a compiler takes."""
    one = scenario(policy={"ladder": "live"}, plans={"free": {"wait_s": 2.0}})
    plain, compiled = play_fast(one, is_compiled=False), play_fast(one, is_compiled=True)
    assert values(one, plain) == values(one, compiled)


def test_the_same_seed_gives_the_same_and_another_seed_another() -> None:
    first, again = play_fast(scenario(seconds=30)), play_fast(scenario(seconds=30))
    other = play_fast(scenario(seconds=30, seed=2))
    assert first == again
    assert first != other


def test_who_has_left_may_be_served_all_the_same() -> None:
    policy = {"paid_first": False, "ladder": "off", "door": False, "drops_dead": False}
    one = scenario(seconds=80, warm_s=40, policy=policy, people={"users": 1_000_000})
    served = play_fast(one, is_compiled=False)
    assert served.all.timed_out > 0.9


def test_it_scales_and_pays_for_what_loads() -> None:
    """Twice the traffic from one minute on, of which the schedule knows."""
    one = {
        "seconds": 240,
        "fleet": {"accelerators": 20, "load_s": 60},
        "traffic": {"per_s": 20, "spikes": [{"at_s": 120, "for_s": 60, "times": 2}]},
        "scaling": {"kind": "schedule", "every_s": 10},
    }
    scaled = play_fast(scenario(**one), is_compiled=False)
    sizes = {sample.at: sample.accelerators for sample in scaled.samples}
    assert (sizes[60], sizes[130], sizes[230]) == (9, 17, 9)
    # 9 all the time, and 8 more while they load and for a minute.
    assert scaled.paid_s == pytest.approx(9 * 240 + 8 * 130, rel=0.06)
    assert scaled.all.timed_out == 0.0


def test_a_line_that_no_memory_holds_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "MOST_WAITING", 50)
    policy = {"ladder": "off", "door": False}
    with pytest.raises(LineTooLong, match="more than 50 messages wait"):
        play_fast(scenario(policy=policy), is_compiled=False)


@pytest.mark.parametrize("lane", [Lane.PLUS, Lane.FREE])
@pytest.mark.parametrize("queued", [0, 3, 40])
def test_its_door_reckons_the_wait_as_the_service_does(lane: Lane, queued: int) -> None:
    """The loop has the formula of `core.waiting` in its own words; here both see one line."""
    states = {Lane.PLUS: LaneState(queued, 7, 100), Lane.FREE: LaneState(2 * queued, 13, 300)}
    pace = Pace().after(LineView(0.0, states), n_slots=20)
    later = {Lane.PLUS: LaneState(queued, 7, 130), Lane.FREE: LaneState(2 * queued, 13, 310)}
    pace = pace.after(LineView(1.0, later), n_slots=20)
    view = LineView(1.0, later)
    right = wait_s(view, pace, lane, place=view.queued_before(lane) + 1, n_slots=20)
    for limit_s, is_let_in in ((right + 0.001, True), (right - 0.001, False)):
        assert _is_let_in(lane, limit_s, view, pace) is (is_let_in or right == 0.0)


def _is_let_in(lane: Lane, limit_s: float, view: LineView, pace: Pace) -> bool:
    run = fast._Run(scenario(fleet={"accelerators": 20}), Machine(is_compiled=False))
    state, run._pace = run._state, pace
    state.n[loop.BUSY] = 20
    for place, one in enumerate((Lane.PLUS, Lane.FREE)):
        state.running[place] = view.lane(one).running
        for _ in range(view.lane(one).queued):
            state.n[loop.FREE] -= 1
            state.line[place] += 1
            heaps.plain_push(state.lines[place], (0.0, state.free[state.n[loop.FREE]]))
    for _ in range(20):
        heaps.plain_push(state.ends, (1e9, 1))
    beat = replace(run._beat(1.0, 2.0), limit_s=(limit_s, limit_s))
    run._machine.play(run._rules, beat, ([1.5], [int(lane is Lane.FREE)], [1], [1], [400.0]), state)
    return int(state.n[loop.REFUSED]) == 0


def test_it_learns_how_long_replies_last_as_the_exact_engine_does() -> None:
    one = scenario(policy={"ladder": "off"}, plans={"free": {"wait_s": 2.0}})
    quick, exact = fast._Run(one, Machine(is_compiled=False)), Replayed(one)
    quick.play()
    exact.play()
    right = exact.cells[0].line.pace
    for lane in (Lane.PLUS, Lane.FREE):
        assert quick._pace.reply_s(lane) == pytest.approx(right.reply_s(lane), rel=0.1)


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=200))
def test_a_heap_in_arrays_gives_what_pythons_own_gives(keys: list[int | None]) -> None:
    """A number is put in, None takes one out; equal numbers come out in the order of their ids."""
    mine, right = heaps.array_heap(len(keys)), heaps.plain_heap(len(keys))
    for number, key in enumerate(keys):
        if key is not None:
            heaps.array_push(mine, (float(key), number))
            heaps.plain_push(right, (float(key), number))
        elif right:
            assert heaps.array_pop(mine) == heaps.plain_pop(right)
    while right:
        assert mine[0][0] == right[0][0]
        assert heaps.array_pop(mine) == heaps.plain_pop(right)


def test_what_it_does_not_play_is_refused_in_a_sentence() -> None:
    with pytest.raises(CantUse, match="the fast engine plays no faults"):
        scenario(faults=[{"kind": "caches_lost", "at_s": 1}])
