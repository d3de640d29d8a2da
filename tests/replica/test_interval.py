"""A stream with fewer events says the same: tokens, text, finish and counts."""

from hypothesis import given
from hypothesis import strategies as st

from tertulia.replica.generation import Emission, Finish
from tertulia.replica.interval import StreamInterval


def emission(number: int, finish: Finish | None = None) -> Emission:
    tokens = () if finish in ("abort", "error") else (number,)
    return Emission(0, tokens, f"<{number}>", finish, None, 3, 0.0, 0.0)


def emissions(n_tokens: int, finish: Finish | None) -> list[Emission]:
    return [emission(number) for number in range(n_tokens)] + [emission(n_tokens, finish)]


@given(
    st.integers(0, 30),
    st.integers(1, 12),
    st.sampled_from(["stop", "length", "repetition", "abort", "error"]),
    st.lists(st.integers(1, 5), max_size=20),
)
def test_nothing_is_lost_and_the_order_stays(
    n_tokens: int, interval: int, finish: Finish, bursts: list[int]
) -> None:
    given_out = emissions(n_tokens, finish)
    held = StreamInterval(interval)
    seen: list[Emission] = []
    left = given_out
    for size in [*bursts, len(given_out)]:  # however the engine's words arrive together
        seen += held.due(left[:size])
        left = left[size:]
    assert [token for one in seen for token in one.tokens] == [
        token for one in given_out for token in one.tokens
    ]
    assert "".join(one.text for one in seen) == "".join(one.text for one in given_out)
    assert [one.finish for one in seen if one.finish] == [finish]
    assert seen[-1].finish == finish
    assert {one.n_cached for one in seen} == {3}
    if finish == "error":
        assert seen[-1].tokens == ()  # what had been said before goes out by itself


def test_the_first_token_goes_alone_then_every_four_and_the_rest_at_the_end() -> None:
    seen = list(StreamInterval(4).due(emissions(19, "length")))
    assert [len(one.tokens) for one in seen] == [1, 4, 4, 4, 4, 3]


def test_an_interval_of_one_changes_nothing() -> None:
    given_out = emissions(9, "stop")
    assert list(StreamInterval(1).due(given_out)) == given_out
