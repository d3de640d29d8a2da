"""What a link shows: the settled part of a branch, and nothing that may still change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.shares import (
    NothingToShare,
    SharedMessage,
    Snapshot,
    shared_page,
    snapshot_of,
)
from tertulia.core.types import HEAD, Branch, BranchMessage, Role, Status

SETTLED = {Status.COMPLETED, Status.STOPPED, Status.REFUSED}


def branch(*statuses: Status) -> Branch:
    """Questions and replies in turn; each has the status in its place, a question is completed."""
    roles: tuple[Role, Role] = ("user", "assistant")
    path = tuple(
        BranchMessage(f"m_{n}", roles[n % 2], status, 1, "small")
        for n, status in enumerate(statuses)
    )
    return Branch("v1", None, path[-1].id if path else None, path)


def paths() -> st.SearchStrategy[Branch]:
    replies = st.lists(st.sampled_from(list(Status)), max_size=8)
    return replies.map(
        lambda found: branch(*(status for reply in found for status in (Status.COMPLETED, reply)))
    )


@given(paths())
def test_a_link_shows_all_that_is_settled_and_nothing_else(path: Branch) -> None:
    found = snapshot_of(path, HEAD)
    if not path.messages:
        assert found == NothingToShare()
        return
    assert isinstance(found, Snapshot)
    covered = path.messages[: found.path_messages]
    shown = [message for message in covered if message.id not in found.left_out]
    assert covered[-1].id == found.leaf_id
    assert found.leaf_id not in found.left_out
    assert [m.id for m in shown] == [m.id for m in path.messages if m.status in SETTLED]
    assert len(shown) == found.shown_messages


def test_a_reply_in_progress_is_not_in_it_but_its_question_is() -> None:
    path = branch(Status.COMPLETED, Status.RUNNING)
    assert snapshot_of(path, "m_1") == Snapshot("m_0", 1)


def test_a_failed_reply_that_was_gone_on_from_is_left_out() -> None:
    path = branch(Status.COMPLETED, Status.FAILED, Status.COMPLETED, Status.COMPLETED)
    assert snapshot_of(path, HEAD) == Snapshot("m_3", 4, ("m_1",))


def test_a_leaf_that_is_not_there_is_no_empty_conversation() -> None:
    assert snapshot_of(branch(), "m_9") is None
    assert snapshot_of(branch(), HEAD) == NothingToShare()


def test_a_branch_of_which_nothing_is_settled_can_not_be_shared() -> None:
    assert snapshot_of(branch(Status.QUEUED), HEAD) == NothingToShare()


@pytest.mark.parametrize(("n_found", "n_shown", "after"), [(0, 0, None), (2, 2, None), (3, 2, 2)])
def test_a_page_says_whether_there_is_more(n_found: int, n_shown: int, after: int | None) -> None:
    found = [SharedMessage(n, "user", "Hi", None, Status.COMPLETED) for n in (1, 2, 3)][:n_found]
    page = shared_page("Title", 1.0, found, limit=2)
    assert (len(page.messages), page.next_after) == (n_shown, after)
