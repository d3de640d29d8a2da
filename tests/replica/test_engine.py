"""The engine's logic over a fake model: joining, leaving, reuse and a full cache change no text."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.replica.engine import Engine, EngineDead, EngineSettings, QueueFull, TooLong
from tertulia.replica.generation import Emission, Generation
from tertulia.replica.model import Choice
from tertulia.replica.tuning import measure_step_tokens, retuned
from tests.replica.fake_model import END, FakeModel, hashed

GREEDY = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)


class Bench:
    """An engine driven by hand, and what it said."""

    def __init__(self, model: FakeModel, n_slots: int = 4, **bounds: float) -> None:
        self.model = model
        self.said: dict[int, list[Emission]] = {}
        limits: dict[str, Any] = {"n_queue": 64, "step_tokens": 16, "growth_tokens": 4}
        limits |= bounds
        self.engine = Engine(
            model, EngineSettings(n_slots=n_slots, **limits), self._heard, clock=lambda: 0.0
        )

    def _heard(self, emissions: list[Emission]) -> None:
        for emission in emissions:
            self.said.setdefault(emission.key, []).append(emission)

    def ask(self, prompt: str, max_tokens: int = 8, **more: object) -> int:
        fields: dict[str, object] = {"id": prompt, "choice": GREEDY} | more
        return self.engine.submit(
            Generation(prompt=tuple(prompt.encode()), max_tokens=max_tokens, **fields)  # type: ignore[arg-type]  # a test names any field
        )

    def run(self, n_steps: int = 2000) -> None:
        for _ in range(n_steps):
            counts = self.engine.counts()
            if not counts.n_running and not counts.n_waiting:
                return
            self.engine.step()
        raise AssertionError("the engine does not come to an end")

    def text(self, key: int) -> str:
        return "".join(emission.text for emission in self.said[key])

    def finish(self, key: int) -> str | None:
        return self.said[key][-1].finish


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
    assert all(any(entry.sequence == 11 for entry in batch) for batch in bench.model.batches[:40])


def test_the_budget_follows_the_machine_and_stays_where_it_is_right() -> None:
    assert retuned(100, n_tokens=100, took_s=0.2, target_s=0.1) == 90
    assert retuned(100, n_tokens=100, took_s=0.05, target_s=0.1) == 110
    assert retuned(100, n_tokens=8, took_s=0.05, target_s=0.1) == 100  # too small to say anything
    assert retuned(100, n_tokens=100, took_s=0.1, target_s=0.1) == 100
    assert retuned(16, n_tokens=16, took_s=9, target_s=0.1) == 16
    assert retuned(256, n_tokens=256, took_s=0.01, target_s=0.1) == 256


def test_the_first_budget_comes_from_the_fastest_of_a_few_small_steps() -> None:
    model = FakeModel()
    moments = iter([0.0, 9.0, 10.0, 10.05, 20.0, 20.04])  # warming up, then 50 ms and 40 ms
    assert measure_step_tokens(model, 0.1, lambda: next(moments)) == 40
    assert model.n_used == 0


def test_slow_steps_shrink_while_a_long_prompt_is_read() -> None:
    model = FakeModel()
    bench = Bench(model, step_tokens=64, step_target_s=0.1)
    seconds = iter(range(1, 10_000))
    bench.engine._clock = lambda: float(next(seconds))
    key = bench.ask("x" * 300, 4)
    bench.run()
    sizes = [len(batch) for batch in model.batches]
    assert sizes[:3] == [64, 58, 53]
    assert bench.text(key) == expected("x" * 300, 4)


def test_prompts_that_wait_to_be_read_are_refused_beyond_their_number_of_tokens() -> None:
    bench = Bench(FakeModel(), n_slots=1, n_queue_tokens=50)
    bench.ask("x" * 60, 4)  # nobody waits: even a long one is let in
    with pytest.raises(QueueFull, match="max_num_queued_tokens"):
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
    assert (counts.n_running, counts.n_waiting, counts.cache_share) == (0, 0, 0.0)


def test_the_next_turn_computes_only_what_is_new() -> None:
    bench = Bench(FakeModel())
    first = bench.ask("the conversation so far", 8, salt="ada")
    bench.run()
    n_before = sum(len(batch) for batch in bench.model.batches)
    prompt = "the conversation so far" + bench.text(first) + " and more"
    second = bench.ask(prompt, 1, salt="ada")
    bench.run()
    # All but the reply's last token, whose key and value nobody had computed yet.
    assert bench.said[second][-1].n_cached == len("the conversation so far") + 7
    assert sum(len(batch) for batch in bench.model.batches) - n_before == 10
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


def test_two_turns_that_branch_share_what_they_have_in_common() -> None:
    bench = Bench(FakeModel())
    bench.ask("the same beginning, one", 4)
    bench.run()
    keys = [bench.ask(f"the same beginning, {end}", 4) for end in ("two", "three")]
    bench.run()
    assert [bench.said[key][-1].n_cached for key in keys] == [20, 20]
    assert bench.text(keys[1]) == expected("the same beginning, three", 4)


def test_a_conversation_moved_to_memory_comes_back_for_its_next_turn() -> None:
    bench = Bench(FakeModel(n_cache=200, window_tokens=150), parked_share=0.1)
    first = bench.ask("a" * 60, 8, salt="ada")
    bench.run()
    assert bench.engine.counts().n_host_bytes > 0
    prompt = "a" * 60 + bench.text(first) + " more"
    second = bench.ask(prompt, 4, salt="ada")
    bench.run()
    assert bench.said[second][-1].n_cached == 67
    assert bench.text(second) == expected(prompt, 4)


def test_the_memory_of_moved_conversations_is_bounded() -> None:
    bench = Bench(FakeModel(), parked_share=0.0, host_bytes=1500)
    for number in range(6):
        bench.ask(f"{number}" * 100, 2)
        bench.run()
        assert bench.engine.counts().n_host_bytes <= 1500
    again = bench.ask("5" * 100, 2)
    forgotten = bench.ask("0" * 100, 2)
    bench.run()
    assert bench.said[again][-1].n_cached > 0
    assert bench.said[forgotten][-1].n_cached == 0


def test_a_full_cache_puts_the_newest_back_and_loses_nothing() -> None:
    bench = Bench(FakeModel(n_cache=120, window_tokens=100))
    keys = [bench.ask(f"prompt {number}", 60, salt=str(number)) for number in range(4)]
    bench.run()
    assert bench.engine.counts().n_put_back > 0
    assert [bench.text(key) for key in keys] == [expected(f"prompt {n}", 60) for n in range(4)]


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
    bench.engine.start(deaths.append)
    bench.engine._thread.join(10)
    assert bench.finish(key) == "error"
    assert isinstance(deaths[0], MemoryError)
    assert not bench.engine.alive
    with pytest.raises(EngineDead):
        bench.ask("b")


def test_stopping_ends_the_thread_and_what_it_ran() -> None:
    bench = Bench(FakeModel())
    bench.engine.start(lambda _error: None)
    assert bench.engine.stop(10)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_random_lives_leave_the_cache_as_counted_and_every_text_right(seed: int) -> None:
    dice = random.Random(seed)
    shares = dice.choice([0.0, 0.2, 0.5]), dice.choice([0, 800, 10**6])
    bench = Bench(
        FakeModel(n_cache=150, window_tokens=110),
        n_slots=3,
        parked_share=shares[0],
        host_bytes=shares[1],
    )
    asked: dict[int, tuple[str, int]] = {}
    for _ in range(120):
        if dice.random() < 0.25 and bench.engine.counts().n_waiting < 20:
            known = [bench.text(key) for key in asked if key in bench.said]
            prompt = dice.choice(["shared beginning ", "other ", *known]) + "x" * dice.randint(
                1, 40
            )
            prompt, n_tokens = prompt[:60], dice.randint(1, 50)
            salt = dice.choice(["ada", "bob"])
            asked[bench.ask(prompt, n_tokens, salt=salt, priority=dice.randint(0, 1))] = (
                prompt,
                n_tokens,
            )
        if dice.random() < 0.1 and asked:
            victim = asked[dice.choice(list(asked))][0]
            bench.engine.abort(named(victim), lambda _n: None)
        bench.engine.step()
        cells = bench.engine._cells
        assert cells.n_cells - cells.n_free == bench.model.n_used
    bench.run()
    assert bench.engine.counts().cache_share == 0
    for key, (prompt, n_tokens) in asked.items():
        whole = expected(prompt, n_tokens)
        if bench.finish(key) == "abort":
            assert whole.startswith(bench.text(key))
        else:
            assert bench.text(key) == whole
