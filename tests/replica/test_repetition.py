"""When a reply counts as a loop: a pure function, tested by its properties."""

from hypothesis import given
from hypothesis import strategies as st

from tertulia.replica.catalogue import SMALL
from tertulia.replica.generation import Emission, Generation
from tertulia.replica.model import Choice
from tertulia.replica.repetition import LOOPS, RepetitionRule
from tests.replica.fake_model import FakeModel, engine_over

RULE = RepetitionRule(max_pattern_size=5, min_pattern_size=1, min_count=3)
tokens = st.lists(st.integers(0, 3), max_size=60)


def told_slowly(reply: list[int], rule: RepetitionRule) -> bool:
    """The rule as it reads, token by token."""
    for size in range(rule.min_pattern_size, rule.max_pattern_size + 1):
        pattern = reply[-size:]
        if len(pattern) == size and reply[-size * rule.min_count :] == pattern * rule.min_count:
            return True
    return False


@given(tokens, tokens, st.integers(1, 4), st.integers(0, 4), st.integers(2, 5))
def test_it_says_what_the_rule_says(
    prompt: list[int], reply: list[int], smallest: int, more: int, count: int
) -> None:
    rule = RepetitionRule(smallest + more, smallest, count)
    assert rule.ends(prompt + reply, len(prompt)) == told_slowly(reply, rule)


@given(tokens, st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_a_pattern_so_many_times_at_the_end_is_a_loop(
    before: list[int], pattern: list[int]
) -> None:
    assert RULE.ends(before + pattern * 3, 0)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), tokens)
def test_a_loop_in_the_prompt_ends_no_reply(pattern: list[int], prompt: list[int]) -> None:
    looping = prompt + pattern * 9
    assert not RULE.ends(looping, len(looping))
    assert not RULE.ends([*looping, pattern[0], pattern[-1]], len(looping))


@given(st.lists(st.integers(), unique=True, max_size=60))
def test_what_never_repeats_is_no_loop(reply: list[int]) -> None:
    assert not RULE.ends(reply, 0)


def test_the_small_models_rule_ends_a_looping_line_but_no_row_of_zeros() -> None:
    rule = SMALL.sampling.repetition
    assert rule is not None
    line = list(range(20))
    assert rule.ends(line * 8, 0)
    assert not rule.ends(line * 7, 0)
    assert not rule.ends([7] * 31, 0)
    assert rule.ends([7] * 32, 0)


def said(next_tokens: str, **more: object) -> Emission:
    """How an engine ends a reply that goes on for ever with these letters."""
    emissions: list[Emission] = []
    model = FakeModel(lambda held: ord(next_tokens[(len(held) - 2) % len(next_tokens)]))
    engine = engine_over(model, emissions.extend)
    greedy = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)
    engine.submit(Generation("a", (1, 2), 40, greedy, **more))  # type: ignore[arg-type]  # a test names any field
    while engine.step():
        pass
    assert "".join(one.text for one in emissions) == (next_tokens * 40)[: len(emissions)]
    return emissions[-1]


def test_a_looping_reply_ends_with_all_of_its_text_and_says_why() -> None:
    last = said("abc", repetition=RULE)
    assert (last.finish, last.stop_string) == ("repetition", LOOPS)


def test_without_a_rule_it_goes_on_to_its_limit() -> None:
    assert said("abc").finish == "length"


def test_the_limit_and_a_stop_string_go_before_the_loop() -> None:
    assert said("abc", repetition=RepetitionRule(3, 3, 13)).finish == "repetition"
    assert said("abcd", repetition=RepetitionRule(4, 4, 10)).finish == "length"
