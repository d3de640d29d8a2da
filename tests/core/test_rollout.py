"""Who gets which system prompt: the same everywhere, as many as were asked for, and never back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.rollout import (
    ALL,
    Rollout,
    followed,
    prompt_version_at_cut,
    rolled_out,
    version_for,
    version_of,
)

VERSIONS = st.sampled_from(["v1", "v2", "v3"])
SHARES = st.integers(0, ALL)
ROLLOUTS = st.builds(Rollout, VERSIONS, VERSIONS, SHARES, VERSIONS)
IDS = st.text(min_size=1, max_size=30)
DRAWN = (7, 11)  # of twelve ids in a row, those of a share of 30


def ids(count: int) -> list[str]:
    """Ids that follow one another, as those of one busy second do."""
    return [f"c_01J9X4{n:019d}" for n in range(count)]


def on_new(share: int, conversations: list[str], version: str = "v2") -> set[str]:
    rollout = Rollout("v1", version, share, "v1")
    return {one for one in conversations if version_for(one, rollout) == version}


@given(conversation=IDS, rollout=ROLLOUTS)
def test_a_conversation_gets_one_of_the_two_versions(conversation: str, rollout: Rollout) -> None:
    assert version_for(conversation, rollout) in (rollout.base, rollout.version)


@given(conversation=IDS, base=VERSIONS)
def test_all_is_all_and_none_is_none(conversation: str, base: str) -> None:
    assert version_for(conversation, Rollout(base, "v9", ALL, base)) == "v9"
    assert version_for(conversation, Rollout(base, "v9", 0, base)) == base


@given(conversation=IDS, less=SHARES, more=SHARES)
def test_a_larger_share_takes_nobody_back(conversation: str, less: int, more: int) -> None:
    less, more = sorted((less, more))
    assert on_new(less, [conversation]) <= on_new(more, [conversation])


@pytest.mark.parametrize("share", [1, 10, 50, 90])
def test_the_share_is_what_was_asked_for_among_ids_that_follow_one_another(share: int) -> None:
    got = len(on_new(share, ids(20_000))) / 20_000
    assert got == pytest.approx(share / ALL, rel=0.1, abs=0.003)


def test_each_version_is_tried_on_others() -> None:
    conversations = ids(10_000)
    both = on_new(10, conversations, "v2") & on_new(10, conversations, "v3")
    assert len(both) < 200  # a hundredth, as by chance; the same draw for both would give 1,000


def test_the_draw_is_the_same_in_every_release() -> None:
    """A change of the hash would move conversations at their next cut for nothing."""
    assert sorted(on_new(30, ids(12))) == [f"c_01J9X4{n:019d}" for n in DRAWN]


def test_an_old_conversation_moves_where_a_new_one_of_its_id_would_begin() -> None:
    rollout = Rollout("v1", "v2", 50, "v1")
    for one in ids(50):
        at_cut = prompt_version_at_cut(one, kept="v0", rollout=rollout)
        assert at_cut == version_for(one, rollout)
    assert prompt_version_at_cut("c_1", kept="v0", rollout=None) == "v0"


@given(now=ROLLOUTS, version=VERSIONS, share=SHARES)
def test_a_new_rollout_goes_on_from_what_everybody_had(
    now: Rollout, version: str, share: int
) -> None:
    to = rolled_out(now, version, share=share)
    if to is None:
        assert now.is_under_way
        assert version != now.version
        return
    assert (to.version, to.share, to.configured) == (version, share, now.configured)
    assert to.base == (now.base if version == now.version else now.settled)


def test_a_rollout_goes_up_and_back_and_then_another_may_begin() -> None:
    now = Rollout("v1", "v1", ALL, "v1")
    for share in (1, 10, 50, 0):
        ahead = rolled_out(now, "v2", share=share)
        assert ahead == Rollout("v1", "v2", share, "v1")
        now = ahead
    assert rolled_out(now, "v3", share=5) == Rollout("v1", "v3", 5, "v1")
    whole = Rollout("v1", "v2", ALL, "v1")
    assert rolled_out(whole, "v1", share=ALL) == Rollout("v2", "v1", ALL, "v1")


@pytest.mark.parametrize("share", [1, 99])
def test_no_third_version_breaks_into_a_rollout(share: int) -> None:
    now = Rollout("v1", "v2", share, "v1")
    assert rolled_out(now, "v3", share=10) is None
    assert followed(now, "v3") is None


@pytest.mark.parametrize("share", [-1, 101])
def test_a_share_is_of_a_hundred(share: int) -> None:
    with pytest.raises(AssertionError):
        rolled_out(Rollout("v1", "v1", ALL, "v1"), "v2", share=share)


def test_the_configured_prompt_is_the_first() -> None:
    first = followed(None, "v1")
    assert first == Rollout("v1", "v1", ALL, "v1")
    assert version_for("c_1", first) == "v1"


@given(now=ROLLOUTS)
def test_a_restart_changes_nothing(now: Rollout) -> None:
    assert followed(now, now.configured) is None


@pytest.mark.parametrize(("share", "base"), [(ALL, "v2"), (0, "v1")])
def test_an_edited_configuration_is_followed(share: int, base: str) -> None:
    now = Rollout("v1", "v2", share, "v1")
    assert followed(now, "v3") == Rollout(base, "v3", ALL, "v3")


def test_equal_texts_are_one_version() -> None:
    assert version_of("Be kind.") == version_of("Be kind.") != version_of("Be kind. ")
    assert len(version_of("")) == 12
