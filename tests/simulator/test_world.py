"""What happens to people when something fails, is changed or grows, in small worlds."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.core.liveness import GONE_S
from tertulia.simulator.outcome import Outcome
from tertulia.simulator.scenario import parse
from tertulia.simulator.world import play


def outcome(**changes: Any) -> Outcome:
    given = {
        "seconds": 120,
        "fleet": {"accelerators": 20, "load_s": 30},
        "traffic": {"per_s": 40},
        "people": {"users": 2_000},
        **changes,
    }
    (variant,) = parse("a test", 'title = "a test"', given).variants
    return play(variant.scenario)


def fault(kind: str, **more: Any) -> list[dict[str, Any]]:
    return [{"kind": kind, "at_s": 40, **more}]


def test_with_room_to_spare_nobody_waits_or_is_sent_away() -> None:
    calm = outcome()
    assert calm.all.n > 4_000
    assert calm.all.timed_out + calm.all.refused == 0.0
    assert calm.busy == pytest.approx(40 * 0.324 / 20, abs=0.05)
    assert not calm.steps


def test_replies_of_a_lost_replica_pause_until_it_is_noticed_and_then_go_on() -> None:
    lost = outcome(faults=fault("replica_lost", n=4))
    assert 0 < lost.all.n_paused <= 8
    assert all(GONE_S < pause_s < GONE_S + 3 for pause_s in lost.pauses_s)
    sizes = {sample.at: sample.accelerators for sample in lost.samples}
    assert (sizes[39], sizes[45], sizes[75]) == (20, 16, 20)
    assert lost.all.timed_out == 0.0


def test_every_message_is_told_one_end() -> None:
    """Also where half of the machines go in the middle of an overload."""
    crowded = outcome(traffic={"per_s": 90}, faults=fault("replica_lost", n=10))
    everyone = crowded.all
    left = everyone.n - everyone.n_begun - everyone.n_timed_out - everyone.n_refused
    assert left == 0
    assert crowded.group("plus").n_refused == 0


def test_a_lost_gateway_costs_those_who_ask_there_a_second() -> None:
    lost = outcome(faults=fault("gateway_lost", n=2, for_s=4))
    assert 1.0 <= lost.longest_wait_s < 1.5
    assert lost.figures["streams_cut"] > 0
    assert lost.all.timed_out == 0.0


def test_without_the_counter_store_the_rung_stays_where_it_is() -> None:
    store = fault("counter_store_lost", for_s=60)
    frozen = outcome(traffic={"per_s": 90}, faults=[{**store[0], "at_s": 11}])
    free = outcome(traffic={"per_s": 90})
    assert [at for at, _, _ in free.steps if 12 < at < 70]
    assert not [at for at, _, _ in frozen.steps if 12 < at < 70]
    assert [at for at, _, _ in frozen.steps if at > 70]


@pytest.mark.parametrize("kind", ["caches_lost", "prompt_changed"])
def test_lost_caches_are_read_anew_once_by_each(kind: str) -> None:
    cold = outcome(faults=fault(kind))
    shares = {sample.at: sample.cold for sample in cold.samples}
    assert shares[40] == 0.0
    assert shares[41] > 0.9
    # 40 messages a second of 2,000 people: after a mean time of each, about a third is left.
    assert shares[90] == pytest.approx(0.37, abs=0.12)
    assert outcome().n_cold == 0


def test_a_prompt_that_changes_part_by_part_costs_little_at_a_time() -> None:
    often = {"users": 200}  # each asks every five seconds
    at_once = outcome(people=often, faults=fault("prompt_changed"))
    slowly = outcome(people=often, faults=fault("prompt_changed", for_s=60))
    assert max(sample.cold for sample in at_once.samples) > 0.8
    assert max(sample.cold for sample in slowly.samples) < 0.4


def test_replicas_that_are_replaced_are_away_a_few_at_a_time() -> None:
    replaced = outcome(faults=fault("replicas_replaced", n=5, for_s=10))
    sizes = [sample.accelerators for sample in replaced.samples]
    assert min(sizes) == 15
    assert sizes[-1] == 20
    assert replaced.n_cold > 0
    assert replaced.all.n_paused == 0, "what runs on them may end"


def test_a_lost_regions_people_are_answered_elsewhere_from_cold_caches() -> None:
    fleet = {"accelerators": 20, "regions": 3}
    lost = outcome(fleet=fleet, traffic={"per_s": 25}, faults=fault("region_lost", region=1))
    assert lost.samples[-1].accelerators == 40
    assert lost.n_cold > 0
    assert lost.all.n_paused > 0
    assert lost.group("plus").timed_out == 0.0
    assert lost.all.n == lost.all.n_begun + lost.all.n_timed_out, "each is told one end"
    assert lost.all.timed_out < 0.01
    back = outcome(
        fleet=fleet, traffic={"per_s": 25}, faults=fault("region_lost", region=1, for_s=30)
    )
    assert back.samples[-1].accelerators == 60


def test_those_sent_away_with_a_promise_come_back_and_are_let_in() -> None:
    spike = {"at_s": 10, "for_s": 20, "times": 3}
    policy = {"returns": True, "ladder": "off"}
    traffic = {"per_s": 45, "spikes": [spike]}
    plans = {"free": {"wait_s": 3}}
    promised = outcome(seconds=300, traffic=traffic, policy=policy, plans=plans)
    assert promised.all.n_refused > 500
    assert promised.all.n_came_back > 0.95 * promised.all.n_refused


def test_people_in_conversations_ask_only_after_they_were_answered() -> None:
    traffic = {"kind": "conversations", "n": 600, "think_s": 20}
    talk = outcome(traffic=traffic)
    # Each asks once in a thinking time and a reply; the last ten seconds do not count.
    assert talk.all.n == pytest.approx(600 * 110 / 20.4, rel=0.07)
    # Where everybody waits ten seconds for nothing, they ask a third less often.
    crowd = outcome(traffic={**traffic, "n": 3_000}, policy={"ladder": "off", "door": False})
    assert crowd.all.n < 0.85 * 3_000 * 110 / 20.4


def test_a_trace_is_played_at_its_own_moments(tmp_path: Any) -> None:
    path = tmp_path / "t.csv"
    rows = "\n".join(f"{at},3000,400" for at in range(100))
    path.write_text(f"at_s,prompt_tokens,answer_tokens\n{rows}\n")
    traced = outcome(traffic={"kind": "trace", "file": str(path)})
    assert traced.all.n == 100
    assert sum(round(sample.asked_per_s) for sample in traced.samples) == 100


def test_uneven_traffic_of_the_same_mean_waits_longer() -> None:
    even = outcome(traffic={"per_s": 55}, policy={"ladder": "off"})
    uneven = outcome(traffic={"kind": "bursty", "cv": 5, "per_s": 55}, policy={"ladder": "off"})
    assert uneven.all.n == pytest.approx(even.all.n, rel=0.15)
    assert uneven.most_waiting > 2 * even.most_waiting


def test_a_heavy_user_waits_for_himself_where_the_line_is_fair() -> None:
    people = {"users": 2_000, "heavy": {"plan": "free", "share": 0.5}, "patience_s": 20}
    given = {"people": people, "traffic": {"per_s": 75}, "warm_s": 30}
    fair = outcome(policy={"ladder": "off", "door": False}, **given)
    plain = outcome(policy={"ladder": "off", "door": False, "fair": False}, **given)
    assert fair.group("free").wait_p95_s < 2.0
    assert fair.group("heavy").timed_out > 0.2
    assert plain.group("free").wait_p95_s > 5.0


def test_thirty_at_once_get_what_their_budget_pays_for() -> None:
    budget = {"name": "minute", "unit": "tokens", "limit": 6_000, "refill_s": 60}
    burst = outcome(
        traffic={"kind": "burst", "n": 30},
        people={"free_share": 1.0, "users": 1, "prompt_tokens": 836, "cached_tokens": 0,
                "answer_tokens": 64, "patience_s": 30},
        policy={"budgets": True, "ladder": "off", "door": False},
        plans={"free": {"replies_running": 100, "answer_tokens": 64, "budgets": [budget]}},
    )  # fmt: skip
    assert (burst.all.n_begun, burst.all.n_over_budget) == (6, 24)
    assert burst.figures["retry_s"] == pytest.approx(3.0, abs=0.001)


def test_a_spike_of_a_minute_makes_a_line_of_twelve_hundred() -> None:
    spike = {"at_s": 10, "for_s": 60, "times": 2}
    one_s = {"fixed_s": 1.0}
    spiked = outcome(
        seconds=200,
        fleet={"accelerators": 50, "large": one_s, "small": one_s},
        traffic={"per_s": 35, "spikes": [spike]},
        people={"patience_s": 1_000},
        policy={"paid_first": False, "ladder": "off", "door": False, "fair": False},
    )
    # 20 a second more than can be done; what comes in a minute varies by 65.
    assert spiked.most_waiting == pytest.approx(1_200, abs=200)
    assert spiked.longest_wait_s == pytest.approx(24.0, abs=4.0)
    assert spiked.longest_wait_s == pytest.approx(spiked.most_waiting / 50, abs=0.5)


def test_the_same_seed_gives_the_same_and_another_seed_another() -> None:
    assert outcome(seconds=30) == outcome(seconds=30)
    assert outcome(seconds=30) != outcome(seconds=30, seed=2)
