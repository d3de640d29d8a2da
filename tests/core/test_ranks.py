"""A lane is fair between users, whatever they ask and however often."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.quota import cost
from tertulia.core.ranks import rank_of, unused_cost, virtual_time, worst_cost
from tertulia.core.types import Lane, Sampling, Status, Turn, Usage

USERS = ("ana", "ben", "eva")
users = st.sampled_from(USERS)
costs = st.one_of(st.integers(1, 100), st.integers(1, 1_000_000))


@dataclass(frozen=True)
class Asked:
    number: int
    user: str
    cost: int
    rank: int


@dataclass
class OneLane:
    """A lane as a store keeps it: ranks and tags by the rules under test, and nothing else."""

    tags: dict[str, int] = field(default_factory=dict)
    waiting: list[Asked] = field(default_factory=list)
    running: list[Asked] = field(default_factory=list)
    n_asked: int = 0

    def ask(self, user: str, its_cost: int) -> Asked:
        first = min((turn.rank for turn in self.waiting), default=None)
        own = [turn.rank for turn in self.waiting if turn.user == user]
        rank = rank_of(
            tag=self.tags.get(user, 0),
            floor=virtual_time(first, max(self.tags.values(), default=None)),
            last=max(own, default=None),
        )
        self.tags[user] = rank + its_cost
        self.n_asked += 1
        asked = Asked(self.n_asked, user, its_cost, rank)
        self.waiting.append(asked)
        return asked

    def claim(self) -> Asked:
        first = min(self.waiting, key=lambda turn: (turn.rank, turn.number))
        self.waiting.remove(first)
        self.running.append(first)
        return first

    def end(self, share: float) -> None:
        """The oldest running turn ends, having cost only a part of what was reserved."""
        turn = self.running.pop(0)
        self.tags[turn.user] -= int(turn.cost * (1 - share))


def a_history(lane: OneLane, steps: list[tuple[str, str, int, float]]) -> list[Asked]:
    """Anything that may happen; the turns in the order of their claims."""
    claimed = []
    for step, user, its_cost, share in steps:
        if step == "ask":
            lane.ask(user, its_cost)
        elif step == "claim" and lane.waiting:
            claimed.append(lane.claim())
        elif step == "end" and lane.running:
            lane.end(share)
    return claimed


histories = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "claim", "end"]), users, costs, st.floats(0, 1)),
    max_size=60,
)


@given(histories)
def test_the_turns_of_one_user_go_in_the_order_in_which_he_asked(
    steps: list[tuple[str, str, int, float]],
) -> None:
    lane = OneLane()
    claimed = a_history(lane, steps)
    claimed += [lane.claim() for _ in range(len(lane.waiting))]
    for user in USERS:
        numbers = [turn.number for turn in claimed if turn.user == user]
        assert numbers == sorted(numbers)


@given(histories, st.integers(0, 30), st.lists(st.tuples(users, costs), max_size=60), costs)
def test_a_newcomer_waits_behind_one_turn_of_each_other_user_at_most(
    steps: list[tuple[str, str, int, float]],
    n_heavy: int,
    later: list[tuple[str, int]],
    its_cost: int,
) -> None:
    """However many turns a heavy user has in the line, however huge, and whoever asks after."""
    lane = OneLane()
    a_history(lane, steps)
    for _ in range(n_heavy):
        lane.ask("ana", 1_000_000)
    newcomer = lane.ask("zoe", its_cost)
    before = []
    for user, more in [*later, *[("ana", 1)] * len(lane.waiting)]:
        claimed = lane.claim()
        if claimed == newcomer:
            break
        before.append(claimed.user)
        lane.ask(user, more)
    assert len(before) == len(set(before))


@given(
    histories,
    st.lists(st.tuples(costs, costs, costs), min_size=2, max_size=60),
    st.sampled_from([1, 2, 5]),
)
def test_two_who_both_have_turns_in_the_line_get_as_much_within_one_turn_of_each(
    steps: list[tuple[str, str, int, float]], asks: list[tuple[int, int, int]], n_ahead: int
) -> None:
    """The bound of start-time fair queueing, from any moment to any other, whatever was before: who
    was away or cost less than thought has no credit from that."""
    lane = OneLane()
    a_history(lane, steps)
    lane.waiting.clear()
    for _ in range(n_ahead):
        lane.ask("ana", 1)
        lane.ask("ben", 1)
    got = {"ana": 0, "ben": 0, "eva": 0}
    differences = [0]
    for ana, ben, eva in asks:
        for user, its_cost in (("ana", ana), ("ana", ana), ("ben", ben), ("ben", ben)):
            lane.ask(user, its_cost)  # as many as are claimed: so both always have one
        lane.ask("eva", eva)
        for _ in range(2):
            claimed = lane.claim()
            got[claimed.user] += claimed.cost
            differences.append(got["ana"] - got["ben"])
    dearest = max(ana for ana, _, _ in asks) + max(ben for _, ben, _ in asks)
    assert max(differences) - min(differences) <= dearest


@given(histories, st.lists(costs, min_size=2, max_size=20))
def test_nobody_gains_by_having_been_away(
    steps: list[tuple[str, str, int, float]], asks: list[int]
) -> None:
    """He who always asked is at most one turn further back than he who comes now."""
    lane = OneLane()
    a_history(lane, steps)
    lane.waiting.clear()
    lane.ask("ana", 1)
    always, back = lane.ask("ana", 1), lane.ask("zoe", asks[0])
    assert back.rank >= always.rank - 1
    ranks = [lane.ask("zoe", its_cost).rank for its_cost in asks[1:]]
    assert ranks == sorted(set(ranks))


@given(histories)
def test_a_tag_never_falls_below_nothing(steps: list[tuple[str, str, int, float]]) -> None:
    lane = OneLane()
    a_history(lane, steps)
    assert all(tag >= 0 for tag in lane.tags.values())


def a_turn(**more: object) -> Turn:
    known: dict[str, object] = {
        "owner": "ana",
        "key": "k",
        "body_sha": "sha",
        "kind": "stateless",
        "reply_id": "m_1",
        "plan": "free",
        "lane": Lane.FREE,
        "requested": "auto",
        "answer_tokens": 200,
        "reserved": 300,
        "sampling": Sampling(),
        "status": Status.COMPLETED,
        "epoch": 1,
        "attempt": 1,
        "created_at": 0.0,
    }
    return Turn(**{**known, **more})  # type: ignore[arg-type]  # the fields of one turn


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200))
def test_a_turn_costs_what_it_used_in_the_end(prompt: int, cached: int, answer: int) -> None:
    usage = Usage(prompt, min(cached, prompt), answer)
    ended = a_turn(usage=usage)
    assert worst_cost(ended) == 100 * 1000 + 200 * 4000
    assert worst_cost(ended) - unused_cost(ended) == cost("units", usage)


def test_a_turn_for_which_nothing_was_reserved_still_passes_nobody() -> None:
    assert worst_cost(a_turn(reserved=0)) == 1
