"""The fast engine gives what the exact one gives, and the same whether it is compiled or not."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from tertulia.core.types import Lane
from tertulia.core.waiting import LaneState, LineView, Pace, wait_s
from tertulia.simulator import fast, heaps, loop
from tertulia.simulator.fast import play_fast
from tertulia.simulator.line import LineTooLong
from tertulia.simulator.outcome import Outcome
from tertulia.simulator.people import PLUS, Message
from tertulia.simulator.scenario import CantUse, Scenario, Variant, parse
from tertulia.simulator.story import Told
from tertulia.simulator.table import as_values
from tertulia.simulator.world import World

WITH_NUMBA = importlib.util.find_spec("numba") is not None


def scenario(**changes: Any) -> Scenario:
    given = {
        "engine": "fast",
        "seconds": 60,
        "warm_s": 20,
        "fleet": {"accelerators": 30},
        "traffic": {"per_s": 140},
        "people": {"users": 5_000, "answer_spread": 0.6},
        **changes,
    }
    return parse("a test", 'title = "a test"', given).variants[0].scenario


class Replayed(World):
    """The exact engine, asked by exactly those who ask the fast one."""

    def __init__(self, one: Scenario) -> None:
        super().__init__(one)
        self._drawn = fast._Run(one, fast._Machine(is_compiled=False))

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
    for name in ("plus", "free"):
        mine, right = quick.group(name), exact.group(name)
        assert mine.n == right.n > 1_000
        assert mine.timed_out == pytest.approx(right.timed_out, abs=0.01)
        assert mine.refused == pytest.approx(right.refused, abs=0.01)
        assert mine.n_small / mine.n == pytest.approx(right.n_small / right.n, abs=0.01)
        # Of the 2 s that one may wait: the quick one looks at the line once a second and less.
        assert mine.wait_p50_s == pytest.approx(right.wait_p50_s, abs=0.2)
    assert quick.busy == pytest.approx(exact.busy, abs=0.01)
    assert quick.most_waiting == pytest.approx(exact.most_waiting, rel=0.1, abs=10)


@pytest.mark.skipif(not WITH_NUMBA, reason="needs numba")
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
    pace = Pace().after(LineView(0.0, states))
    later = {Lane.PLUS: LaneState(queued, 7, 130), Lane.FREE: LaneState(2 * queued, 13, 310)}
    pace = pace.after(LineView(1.0, later))
    view = LineView(1.0, later)
    right = wait_s(view, pace, lane, place=view.queued_before(lane) + 1, n_slots=20)
    for limit_s, is_let_in in ((right + 0.001, True), (right - 0.001, False)):
        assert _is_let_in(lane, limit_s, view, pace) is (is_let_in or right == 0.0)


def _is_let_in(lane: Lane, limit_s: float, view: LineView, pace: Pace) -> bool:
    run = fast._Run(scenario(fleet={"accelerators": 20}), fast._Machine(is_compiled=False))
    n, f = run._n, run._f
    n[loop.N.BUSY] = n[loop.N.SIZE] = 20
    for place, one in enumerate((Lane.PLUS, Lane.FREE)):
        n[loop.N.RUNNING + place] = view.lane(one).running
        f[loop.F.LIMIT_S + place] = limit_s
        f[loop.F.CAP + place] = f[loop.F.LONGEST + place] = 1_000.0
        f[loop.F.REPLY_S + place] = pace.reply_s(one)
        before = sum(pace.running(other, view) for other in (Lane.PLUS, Lane.FREE)[:place])
        f[loop.F.LEFT + place] = max(1.0, 20 - before)
        for _ in range(view.lane(one).queued):
            _stand(run, place)
    for _ in range(20):
        heaps.plain_push(run._ends, (1e9, 1))
    came = ([1.5], [int(lane is Lane.FREE)], [1], [1], [400.0])
    run._machine.play(
        1.0, 2.0, came, n, f, run._bins, run._lanes, run._lane_of_kind, [0, 0], run._ends,
        run._lines, run._store, run._free, run._tags, run._kinds, run._base, run._write,
    )  # fmt: skip
    return int(n[loop.N.REFUSED_NOW]) == 0


def _stand(run: Any, lane: int) -> None:
    n = run._n
    n[loop.N.FREE] -= 1
    heaps.plain_push(run._lines[lane], (0.0, run._free[n[loop.N.FREE]]))
    n[loop.N.LINE + lane] += 1


def test_what_it_does_not_play_is_refused_in_a_sentence() -> None:
    with pytest.raises(CantUse, match="the fast engine plays no faults"):
        scenario(faults=[{"kind": "caches_lost", "at_s": 1}])
