"""The plan of one step keeps its budget, its order and the cache, whatever waits and runs."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.steps import Room, Running, Waiting, plan_step


def test_decodes_come_before_prefill_and_the_oldest_prefills_first() -> None:
    plan = plan_step(
        (Running(3, 0, 3, 50, 0), Running(1, 0, 1, 1, 0), Running(2, 0, 2, 20, 0)),
        (),
        Room(n_slots=5, n_cache=1000, n_step=32),
    )
    assert plan.decode == (1,)
    assert plan.prefill == ((2, 20), (3, 11))


def test_a_lower_priority_number_is_admitted_first_then_the_earlier_arrival() -> None:
    waiting = (Waiting(1, 5, 1, 10, 4), Waiting(2, 0, 2, 10, 4), Waiting(3, 0, 3, 10, 4))
    plan = plan_step((), waiting, Room(n_slots=2, n_cache=100, n_step=32))
    assert plan.admit == (2, 3)


def test_a_small_request_never_passes_a_large_one_that_waits_for_room() -> None:
    waiting = (Waiting(1, 0, 1, 90, 20), Waiting(2, 0, 2, 5, 1))
    plan = plan_step((), waiting, Room(n_slots=8, n_cache=100, n_step=32))
    assert plan.admit == ()


def test_room_owed_to_a_half_read_prompt_is_not_given_away() -> None:
    running = (Running(1, 0, 1, 80, 0),)
    plan = plan_step(running, (Waiting(2, 0, 2, 15, 10),), Room(8, 100, 32))
    assert plan.admit == ()


def test_the_newest_is_put_back_when_the_cache_is_full() -> None:
    running = (Running(1, 0, 1, 1, 40), Running(2, 0, 2, 1, 30), Running(3, 0, 3, 1, 20))
    plan = plan_step(running, (Waiting(4, 0, 4, 1, 1),), Room(5, 2, 32))
    assert plan.put_back == (3,)
    assert plan.decode == (1, 2)
    assert plan.admit == ()


def test_a_less_urgent_sequence_is_put_back_before_a_newer_urgent_one() -> None:
    running = (Running(1, 9, 1, 1, 40), Running(2, 0, 2, 1, 30))
    assert plan_step(running, (), Room(5, 0, 32)).put_back == (1,)


runnings = st.lists(
    st.builds(
        Running,
        key=st.just(0),
        priority=st.integers(-2, 2),
        arrival=st.integers(0, 9),
        n_left=st.integers(1, 60),
        n_held=st.integers(0, 60),
    ),
    max_size=8,
).map(lambda many: tuple(_with_key(one, key) for key, one in enumerate(many)))


def _with_key(one: Running, key: int) -> Running:
    return Running(key, one.priority, one.arrival, one.n_left, one.n_held)


@given(runnings, st.integers(0, 400), st.integers(8, 64))
def test_a_step_never_holds_more_tokens_than_its_budget_or_the_cache(
    running: tuple[Running, ...], n_cache: int, n_step: int
) -> None:
    plan = plan_step(running, (), Room(0, n_cache, n_step))
    n_planned = len(plan.decode) + sum(n_tokens for _, n_tokens in plan.prefill)
    assert n_planned <= n_step
    freed = sum(running[key].n_held for key in plan.put_back)
    if len(running) - len(plan.put_back) > 1:
        assert n_planned <= n_cache + freed
    assert {*plan.decode, *dict(plan.prefill)}.isdisjoint(plan.put_back)
    assert all(running[key].n_left == 1 for key in plan.decode)


@dataclass
class _Life:
    """One sequence of the little simulation below."""

    key: int
    priority: int
    n_prompt: int
    n_reply: int
    n_done: int = 0  # in the cache
    n_made: int = 0  # reply tokens

    @property
    def n_left(self) -> int:
        return self.n_prompt + self.n_made - self.n_done


N_CACHE = 120
lives = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(1, 50)), min_size=1, max_size=12
)


@given(lives, st.integers(1, 4), st.integers(4, 40))
def test_every_sequence_ends_and_the_cache_adds_up_at_every_step(
    asked: list[tuple[int, int, int]], n_slots: int, n_step: int
) -> None:
    waiting = {key: _Life(key, *one) for key, one in enumerate(asked)}
    running: dict[int, _Life] = {}
    admitted: list[tuple[int, int]] = []
    for _ in range(5000):
        if not waiting and not running:
            break
        n_used = sum(one.n_done for one in running.values())
        assert n_used <= N_CACHE
        plan = plan_step(
            tuple(
                Running(one.key, one.priority, one.key, one.n_left, one.n_done)
                for one in running.values()
            ),
            tuple(
                Waiting(
                    one.key,
                    one.priority,
                    one.key,
                    one.n_prompt + one.n_made,
                    min(8, one.n_reply - one.n_made),
                )
                for one in waiting.values()
            ),
            Room(n_slots - len(running), N_CACHE - n_used, n_step),
        )
        for key in plan.put_back:
            back = waiting[key] = running.pop(key)
            back.n_done = 0
        head = sorted((one.priority, one.key) for one in waiting.values())
        assert [(waiting[key].priority, key) for key in plan.admit] == head[: len(plan.admit)]
        batch = [(key, 1) for key in plan.decode] + list(plan.prefill)
        assert plan.admit or batch, "something moves in every step"
        for key in plan.admit:
            admitted.append((waiting[key].priority, key))
            running[key] = waiting.pop(key)
        assert len(running) <= n_slots
        for key, n_tokens in batch:
            one = running[key]
            one.n_done += n_tokens
            if one.n_left == 0:
                one.n_made += 1
                if one.n_made == one.n_reply:
                    del running[key]
    assert not waiting
    assert not running
