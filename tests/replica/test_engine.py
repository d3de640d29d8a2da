"""The engine's logic over a fake model: joining, leaving, reuse and a full cache change no text."""

import random
import threading
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.config import MOST_SLOTS
from tertulia.core.blocks import Owner
from tertulia.core.costs import StepCost
from tertulia.core.prefix import Forgotten
from tertulia.replica.engine import STUCK_S, TooLong
from tertulia.replica.generation import Emission, Generation
from tertulia.replica.inbox import EngineDead, QueueFull
from tertulia.replica.llama import BELOW_TILES
from tertulia.replica.main import N_ANCHORS
from tertulia.replica.model import Cancelled, Choice, Entry
from tertulia.replica.thread import ComputeThread
from tertulia.replica.tuning import SKIPPED, measure_step_cost
from tests.replica.cancels import cancel_at_random
from tests.replica.fake_model import END, STATE_BYTES, TOKEN_S, FakeModel, engine_over, hashed

GREEDY = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)


class Bench:
    """An engine driven by hand, and what it said. Blocks of 4 tokens, about 16 tokens a step."""

    def __init__(
        self,
        model: FakeModel,
        n_slots: int = 4,
        n_queue: int = 64,
        n_queue_tokens: int = 2**63,
        n_anchors: int = 8,
        **tiers: int,
    ) -> None:
        self.model = model
        self.said: dict[int, list[Emission]] = {}
        self.order: list[int] = []
        self.engine = engine_over(
            model, self._heard, n_slots, n_queue, n_queue_tokens, n_anchors, **tiers
        )

    def _heard(self, emissions: list[Emission]) -> None:
        for emission in emissions:
            self.said.setdefault(emission.key, []).append(emission)
            self.order.append(emission.key)

    def ask(self, prompt: str, max_tokens: int = 8, **more: object) -> int:
        fields: dict[str, Any] = {"id": prompt, "choice": GREEDY} | more
        if "salt" in fields:
            whose = (fields.pop("salt"), fields.pop("n_shared", 0), fields.pop("session", None))
            fields["owner"] = Owner(*whose)
        return self.engine.submit(
            Generation(prompt=tuple(prompt.encode()), max_tokens=max_tokens, **fields)
        )

    def run(self, n_steps: int = 2000) -> None:
        for _ in range(n_steps):
            counts = self.engine.counts()
            if not counts.n_running and not counts.n_waiting:
                return
            self.engine.step()
        raise AssertionError("the engine does not come to an end")

    def rest(self) -> None:
        """Steps until nothing is left to be moved either."""
        while self.engine.step():
            pass

    def text(self, key: int) -> str:
        return "".join(emission.text for emission in self.said[key])

    def finish(self, key: int) -> str | None:
        return self.said[key][-1].finish


def nothing(_forgotten: Forgotten) -> None:
    return


def named(request_id: str) -> Callable[[Generation], bool]:
    return lambda asked: asked.id == request_id


def expected(prompt: str, n_tokens: int) -> str:
    tokens = list(prompt.encode())
    for _ in range(n_tokens):
        tokens.append(hashed(tokens))
    return bytes(tokens[len(prompt.encode()) :]).decode()


def test_many_sequences_share_each_step_and_none_changes_another() -> None:
    bench = Bench(FakeModel())
    prompts = [f"question {number} " * (number + 1) for number in range(6)]
    keys = [bench.ask(prompt) for prompt in prompts]
    bench.run()
    assert [bench.text(key) for key in keys] == [expected(prompt, 8) for prompt in prompts]
    assert max(len({entry.sequence for entry in batch}) for batch in bench.model.batches) == 4


def test_no_step_is_larger_than_its_budget_while_a_long_prompt_is_read() -> None:
    bench = Bench(FakeModel())
    first = bench.ask("short", 40)
    bench.engine.step()
    bench.ask("x" * 200, 2)
    bench.run()
    assert max(len(batch) for batch in bench.model.batches) == 16
    assert len(bench.said[first]) == 40
    # The stream that was there moved in every single step until it ended.
    assert len(bench.model.batches[:40]) == 40
    assert all(any(entry.sequence == 15 for entry in batch) for batch in bench.model.batches[:40])


def test_the_cost_comes_from_the_fastest_of_a_few_steps_and_leaves_the_cache_empty() -> None:
    model = FakeModel()
    # Beginning and end of each: 1 token, 32 tokens, 32 tokens far along; the first only warms up.
    took_s = [9.0, 0.05, 0.04, 9.0, 0.36, 0.35, 9.0, 0.43, 0.44]
    moments = iter([moment for took in took_s for moment in (100.0, 100.0 + took)])
    cost, block_bytes = measure_step_cost(model, 4, lambda: next(moments))
    assert cost.token_s == pytest.approx(0.01)
    assert cost.fixed_s == pytest.approx(0.03)
    assert cost.attended_s + cost.scanned_s == pytest.approx(0.08 / 32 / 256)
    assert cost.scanned_s == pytest.approx(SKIPPED * cost.attended_s)
    assert block_bytes == STATE_BYTES
    assert model.n_used == 0


def test_an_odd_measurement_never_makes_a_step_free() -> None:
    seconds = iter(range(100, 0, -1))
    cost, _ = measure_step_cost(FakeModel(), 4, lambda: float(next(seconds)))
    assert min(cost.fixed_s, cost.token_s) > 0
    assert min(cost.attended_s, cost.scanned_s) >= 0


def test_prompts_that_wait_to_be_read_are_refused_beyond_their_number_of_tokens() -> None:
    bench = Bench(FakeModel(), n_slots=1, n_queue_tokens=50)
    bench.ask("x" * 60, 4)  # nobody waits: even a long one is let in
    with pytest.raises(QueueFull, match="60 prompt tokens are waiting"):
        bench.ask("short")
    while not bench.said:
        bench.engine.step()
    bench.ask("y" * 49)  # the first has been read
    bench.ask("z")  # 49 are fewer than 50
    with pytest.raises(QueueFull):
        bench.ask("z")
    bench.run()


def test_the_end_token_ends_the_reply_and_is_not_text() -> None:
    said = iter([104, 105, END])
    bench = Bench(FakeModel(lambda _tokens: next(said)))
    key = bench.ask("a")
    bench.run()
    assert bench.text(key) == "hi"
    assert bench.finish(key) == "stop"
    assert bench.said[key][-1].tokens == (END,)


def test_ignoring_the_end_goes_on_to_the_limit() -> None:
    bench = Bench(FakeModel(lambda _tokens: END))
    key = bench.ask("a", 3, ignore_end=True)
    bench.run()
    assert (bench.text(key), bench.finish(key), len(bench.said[key])) == ("", "length", 3)


def test_a_stop_string_across_tokens_is_cut_before_it_begins() -> None:
    said = iter(b"one STOP two")
    bench = Bench(FakeModel(lambda _tokens: next(said)))
    key = bench.ask("a", 50, stop=("STOP",))
    bench.run()
    assert bench.text(key) == "one "
    assert bench.said[key][-1].stop_string == "STOP"
    assert len(bench.said[key]) == 8


def test_a_character_split_over_tokens_comes_with_its_last_token() -> None:
    said = iter([*"🌧".encode(), END])
    bench = Bench(FakeModel(lambda _tokens: next(said)))
    key = bench.ask("a")
    bench.run()
    assert [emission.text for emission in bench.said[key]] == ["", "", "", "🌧", ""]
    assert [len(emission.tokens) for emission in bench.said[key]] == [1, 1, 1, 1, 1]


def test_continuing_from_prompt_and_sent_tokens_says_the_same() -> None:
    bench = Bench(FakeModel())
    whole = bench.ask("hello", 20)
    bench.run()
    half = bench.text(whole)[:10]
    rest = bench.ask("hello" + half, 10, salt="elsewhere")
    bench.run()
    assert half + bench.text(rest) == bench.text(whole)


def test_aborting_frees_the_slot_before_the_next_step_and_says_how_many_left() -> None:
    bench = Bench(FakeModel(), n_slots=2)
    decoding = bench.ask("decoding", 100)
    bench.engine.step()
    prefilling = bench.ask("p" * 300, 10)
    queued = bench.ask("queued", 10)
    bench.engine.step()
    counts = bench.engine.counts()
    assert (counts.n_running, counts.n_waiting) == (2, 1)
    left: list[int] = []
    for id_ in ("decoding", "p" * 300, "queued", "unknown"):
        bench.engine.abort(named(id_), left.append)
    n_batches = len(bench.model.batches)
    bench.engine.step()
    assert left == [1, 1, 1, 0]
    assert [bench.finish(key) for key in (decoding, prefilling, queued)] == ["abort"] * 3
    assert len(bench.model.batches) == n_batches
    counts = bench.engine.counts()
    assert (counts.n_running, counts.n_waiting) == (0, 0)
    assert counts.n_blocks_free + counts.n_blocks_idle == counts.n_blocks


def test_the_next_turn_computes_only_what_is_new() -> None:
    bench = Bench(FakeModel())
    first = bench.ask("the conversation so far", 8, salt="ada")
    bench.run()
    n_before = sum(len(batch) for batch in bench.model.batches)
    prompt = "the conversation so far" + bench.text(first) + " and more"
    second = bench.ask(prompt, 1, salt="ada")
    bench.run()
    # Whole blocks of the 23 tokens of the prompt and the 7 of the reply that were computed.
    assert bench.said[second][-1].n_cached == 28
    assert sum(len(batch) for batch in bench.model.batches) - n_before == len(prompt) - 28
    assert bench.text(second) == expected(prompt, 1)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [("ada", "ada", True), ("ada", "bob", False), ("ada", None, False), (None, None, True)],
)
def test_a_prefix_is_reused_only_under_the_same_salt(
    one: str | None, other: str | None, shared: bool
) -> None:
    bench = Bench(FakeModel())
    bench.ask("the same words", 2, salt=one)
    bench.run()
    key = bench.ask("the same words", 2, salt=other)
    bench.run()
    assert (bench.said[key][-1].n_cached > 0) == shared


def test_the_shared_beginning_is_found_by_all_and_the_rest_by_its_owner_alone() -> None:
    bench = Bench(FakeModel())
    bench.ask("the platform says: my secret words", 2, salt="ada", n_shared=18)
    bench.run()
    keys = [
        bench.ask("the platform says: my secret words", 2, salt=salt, n_shared=18)
        for salt in ("bob", "ada")
    ]
    bench.run()
    assert [bench.said[key][-1].n_cached for key in keys] == [16, 32]


def test_two_turns_that_branch_share_what_they_have_in_common() -> None:
    bench = Bench(FakeModel())
    bench.ask("the same beginning, one", 4)
    bench.run()
    keys = [bench.ask(f"the same beginning, {end}", 4) for end in ("two", "three")]
    bench.run()
    assert [bench.said[key][-1].n_cached for key in keys] == [20, 20]
    assert bench.text(keys[1]) == expected("the same beginning, three", 4)


def test_the_same_beginning_that_comes_at_once_is_computed_once() -> None:
    bench = Bench(FakeModel())
    keys = [bench.ask("a beginning of forty-eight letters for everybody" + end) for end in "xyz"]
    bench.run()
    assert [bench.said[key][-1].n_cached for key in keys] == [0, 48, 48]
    assert sum(len(batch) for batch in bench.model.batches) == 49 + 1 + 1 + 3 * 7


def test_a_conversation_moved_to_memory_comes_back_for_its_next_turn() -> None:
    bench = Bench(FakeModel(n_cache=200, window_tokens=150), n_idle=2, n_host=100)
    first = bench.ask("a" * 60, 8, salt="ada")
    bench.run()
    bench.rest()
    assert bench.engine.counts().n_blocks_host == 14
    prompt = "a" * 60 + bench.text(first) + " more"
    second = bench.ask(prompt, 4, salt="ada")
    bench.run()
    assert bench.said[second][-1].n_cached == 64
    assert bench.text(second) == expected(prompt, 4)


@pytest.mark.parametrize("n_disk", [0, 10])
def test_memory_and_disk_are_bounded_and_what_was_used_last_stays(n_disk: int) -> None:
    bench = Bench(FakeModel(), n_idle=0, n_host=30, n_disk=n_disk)
    for number in range(6):
        bench.ask(f"{number}" * 100, 2)
        bench.run()
        bench.rest()
        assert bench.engine.counts().n_blocks_host <= 30
    # A conversation has 25 blocks: the last one is there whole, of the one before 5, or 15.
    again = bench.ask("5" * 101, 2)
    bench.run()
    before = bench.ask("4" * 101, 2)
    bench.run()
    forgotten = bench.ask("0" * 101, 2)
    bench.run()
    found = [bench.said[key][-1].n_cached for key in (again, before, forgotten)]
    assert found == [100, 4 * (5 + n_disk), 0]


def test_forgetting_reaches_what_runs_and_every_tier_and_nobody_else() -> None:
    bench = Bench(FakeModel(), n_idle=5, n_host=10, n_disk=100)
    for salt, session in (("ada", "one"), ("ada", "two"), ("bob", "one")):
        bench.ask(f"{session} {salt}" * 10, 2, salt=salt, session=session)
        bench.run()
    bench.rest()
    running = bench.ask("one ada" * 10 + "?", 50, salt="ada", session="one")
    bench.engine.step()
    reached: list[Forgotten] = []
    bench.engine.forget("ada", "one", reached.append)
    bench.engine.step()
    assert bench.finish(running) == "abort"
    assert sum((reached[0].n_device, reached[0].n_host, reached[0].n_disk)) == 70 // 4
    found = {}
    for salt, session in (("ada", "one"), ("ada", "two"), ("bob", "one")):
        key = bench.ask(f"{session} {salt}" * 10, 2, salt=salt, session=session)
        bench.run()
        found[salt, session] = bench.said[key][-1].n_cached
    assert found == {("ada", "one"): 0, ("ada", "two"): 68, ("bob", "one"): 68}


def test_a_full_cache_preempts_the_newest_and_loses_nothing() -> None:
    bench = Bench(FakeModel(n_cache=120, window_tokens=100))
    keys = [bench.ask(f"prompt {number}", 60, salt=str(number)) for number in range(4)]
    bench.run()
    assert bench.engine.counts().n_preempted > 0
    assert [bench.text(key) for key in keys] == [expected(f"prompt {n}", 60) for n in range(4)]


def test_a_paid_arrival_takes_the_place_of_free_work_which_goes_on_afterwards() -> None:
    bench = Bench(FakeModel(), n_slots=1, n_host=50)
    free = bench.ask("free work", 40, priority=1)
    for _ in range(10):
        bench.engine.step()
    paid = bench.ask("paid", 5)
    bench.run()
    assert bench.finish(paid) == "length"
    assert list(bench.said) == [free, paid]
    began = bench.order.index(paid)
    assert 0 < began < 40
    assert bench.order[began : began + 5] == [paid] * 5
    assert bench.text(free) == expected("free work", 40)


def test_the_queue_is_bounded() -> None:
    bench = Bench(FakeModel(), n_slots=1, n_queue=2)
    for number in range(3):  # one takes the free slot at the next step, two wait
        bench.ask(f"{number}")
    with pytest.raises(QueueFull):
        bench.ask("one too many")
    bench.engine.step()
    with pytest.raises(QueueFull):
        bench.ask("one too many")


def test_a_request_that_does_not_fit_the_window_is_refused_and_not_cut() -> None:
    bench = Bench(FakeModel(window_tokens=20))
    with pytest.raises(TooLong):
        bench.ask("x" * 15, 6)


def test_lower_priority_numbers_run_first() -> None:
    bench = Bench(FakeModel(), n_slots=1)
    keys = [bench.ask(f"{number}", 2, priority=number) for number in (3, 1, 2)]
    bench.run()
    assert list(bench.said) == [keys[1], keys[2], keys[0]]


def test_a_dead_step_thread_ends_every_reply_and_refuses_new_ones() -> None:
    def broken(_tokens: list[int]) -> int:
        raise MemoryError("planted")

    deaths: list[BaseException] = []
    bench = Bench(FakeModel(broken))
    key = bench.ask("a")
    bench.engine.start(ComputeThread(), deaths.append)
    assert bench.engine._ended is not None
    bench.engine._ended.result(10)
    assert bench.finish(key) == "error"
    assert isinstance(deaths[0], MemoryError)
    assert not bench.engine.alive
    with pytest.raises(EngineDead):
        bench.ask("b")


def test_a_step_that_fails_loses_nothing_of_what_had_happened_in_it() -> None:
    """Who left before it, or ended in it, hears of that; nobody hears of two ends."""

    class Broken(FakeModel):
        def choose(self, row: int, choice: Choice, tokens: Sequence[int], n_prompt: int) -> int:
            if bytes(tokens[:4]) == b"fail":
                raise MemoryError("planted")
            return super().choose(row, choice, tokens, n_prompt)

    bench = Bench(Broken())
    ends = bench.ask("12345678", 1)  # its only token is chosen before the step fails
    fails = bench.ask("failing!", 5)
    leaves = bench.ask("somebody else", 5)
    bench.engine.abort(named("somebody else"), lambda _n: None)
    bench.engine.start(ComputeThread(), lambda _error: None)
    assert bench.engine._ended is not None
    bench.engine._ended.result(10)
    finishes = {key: [one.finish for one in said] for key, said in bench.said.items()}
    assert finishes == {ends: ["length"], leaves: ["abort"], fails: ["error"]}
    assert bench.text(ends) == expected("12345678", 1)


def test_what_was_asked_before_a_request_came_does_not_reach_it() -> None:
    bench = Bench(FakeModel())
    first = bench.ask("the same id", 5, salt="ada")
    bench.engine.abort(named("the same id"), lambda _n: None)
    again = bench.ask("the same id", 5, salt="ada")
    bench.engine.forget("ada", None, nothing)
    after = bench.ask("the same id", 5, salt="ada")
    left: list[int] = []
    bench.engine.abort(named("unknown"), left.append)
    bench.run()
    assert [bench.finish(key) for key in (first, again, after)] == ["abort", "abort", "length"]
    assert left == [0]


def test_a_step_that_does_not_end_is_no_life() -> None:
    began, may_end = Event(), Event()

    class Slow(FakeModel):
        def decode(self, entries: Sequence[Entry]) -> None:
            began.set()
            assert may_end.wait(10)
            super().decode(entries)

    bench = Bench(Slow())
    bench.engine.start(ComputeThread(), lambda _error: None)
    bench.ask("a")
    assert began.wait(10)
    lives = []
    for passed_s in (0.0, STUCK_S, 1.0):
        bench.model.seconds += passed_s
        lives.append(bench.engine.alive)
    assert lives == [True, True, False]
    may_end.set()
    assert bench.engine.stop(10)


class Endless(FakeModel):
    """Its second token comes only when the decode is interrupted."""

    def __init__(self) -> None:
        super().__init__(self._second)
        self.is_decoding, self.is_cancelled = threading.Event(), threading.Event()

    def _second(self, tokens: list[int]) -> int:
        if len(tokens) > 1:
            self.is_decoding.set()
            assert self.is_cancelled.wait(10)
            raise Cancelled("as asked")
        return hashed(tokens)

    def cancel(self) -> None:
        self.is_cancelled.set()


def test_stopping_ends_the_thread_and_what_it_ran_in_the_middle_of_a_step() -> None:
    model, deaths = Endless(), list[BaseException]()
    bench = Bench(model)
    key = bench.ask("a", 50)
    bench.engine.start(ComputeThread(), deaths.append)
    assert model.is_decoding.wait(10)
    assert bench.engine.stop(10)
    assert (len(bench.said[key]), bench.finish(key), deaths) == (2, "abort", [])


def test_tokens_are_handed_on_every_20_ms_but_the_first_and_the_last_at_once() -> None:
    bench, moments = Bench(FakeModel()), []
    key = bench.ask("a", 100)
    n_said = 0
    while bench.engine.counts().n_waiting + bench.engine.counts().n_running:
        bench.engine.step()
        if len(bench.said.get(key, ())) > n_said:
            n_said = len(bench.said[key])
            moments.append(n_said)
    # A token takes this model one millisecond.
    assert moments == [1, 21, 41, 61, 81, 100]


def test_the_tokens_a_step_has_time_for_follow_the_machine() -> None:
    bench = Bench(FakeModel())
    # Of 16.5 ms the step alone takes 2 · 2, a token 2 · 1.
    bench.engine._scheduler.cost = StepCost(2 * TOKEN_S, TOKEN_S, scale=2, prefill_scale=2)
    assert bench.engine.counts().step_tokens == 6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_random_lives_leave_the_cache_as_counted_and_every_text_right(seed: int) -> None:
    dice = random.Random(seed)
    bench = Bench(
        FakeModel(n_cache=148, window_tokens=110, n_sequences=6 + 3),
        n_slots=3,
        n_anchors=3,
        n_idle=dice.choice([0, 8, 100]),
        n_host=dice.choice([0, 10, 1000]),
        n_disk=dice.choice([0, 20]),
    )
    asked: dict[int, tuple[str, int]] = {}
    for _ in range(120):
        if dice.random() < 0.25 and bench.engine.counts().n_waiting < 20:
            known = [bench.text(key) for key in asked if key in bench.said]
            prompt = dice.choice(["shared beginning ", "other ", *known])
            prompt = (prompt + "x" * dice.randint(1, 40))[:60]
            n_tokens = dice.randint(1, 50)
            key = bench.ask(
                prompt,
                n_tokens,
                salt=dice.choice(["ada", "bob"]),
                n_shared=dice.choice([0, 12]) if prompt.startswith("shared") else 0,
                session=dice.choice(["one", "two"]),
                priority=dice.randint(0, 1),
            )
            asked[key] = prompt, n_tokens
        if dice.random() < 0.1 and asked:
            victim = asked[dice.choice(list(asked))][0]
            bench.engine.abort(named(victim), lambda _n: None)
        if dice.random() < 0.05:
            bench.engine.forget(dice.choice(["ada", "bob"]), dice.choice([None, "one"]), nothing)
        bench.engine.step()
        counts = bench.engine.counts()
        assert bench.model.n_used <= 4 * (counts.n_blocks - counts.n_blocks_free)
    bench.run()
    counts = bench.engine.counts()
    assert counts.n_blocks_free + counts.n_blocks_idle == counts.n_blocks
    assert bench.model.n_used == 4 * counts.n_blocks_idle
    for key, (prompt, n_tokens) in asked.items():
        whole = expected(prompt, n_tokens)
        if bench.finish(key) == "abort":
            assert whole.startswith(bench.text(key))
        else:
            assert bench.text(key) == whole
    for salt in ("ada", "bob"):
        bench.engine.forget(salt, None, nothing)
    bench.engine.step()
    assert bench.model.n_used == 4 * bench.engine.counts().n_blocks_idle <= 12


def test_an_engine_opens_with_as_many_slots_as_the_settings_allow() -> None:
    assert MOST_SLOTS <= BELOW_TILES  # every stream is in every pass
    n_sequences = 2 * MOST_SLOTS + N_ANCHORS + 1  # the last one is the spare
    assert n_sequences <= 256  # llama.cpp's own limit for a context


def test_thousands_of_random_cancels_leave_nothing_behind() -> None:
    found = cancel_at_random(3_000, seed=7)
    assert min(found.queued, found.reading, found.decoding) > 100
