"""A conversation on its way in: order by parents, ids that stay the same, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.transcripts import (
    MESSAGE_BYTES,
    MESSAGES,
    Arrival,
    Flaw,
    Node,
    Transcript,
    arranged,
    derived_id,
    in_order,
    storable,
)
from tertulia.core.types import Message

NOW = 1_800_000_000.0
ROLES: tuple[Literal["user", "assistant"] | None, ...] = ("user", "assistant", None)


def user(name: str, parent: str | None = None, content: str = "Why?", **more: object) -> Node:
    return replace(Node(name, parent, "user", content), **more)  # type: ignore[arg-type]  # a test's own words


def reply(name: str, parent: str | None, content: str = "So.", **more: object) -> Node:
    return replace(Node(name, parent, "assistant", content), **more)  # type: ignore[arg-type]  # a test's own words


def hidden(name: str, parent: str | None = None) -> Node:
    return Node(name, parent, None)


def arrive(*nodes: Node, import_id: str = "import_1", **more: object) -> Arrival | Flaw:
    transcript = Transcript("chatgpt", "one", "Title", nodes)
    transcript = replace(transcript, **more)  # type: ignore[arg-type]  # a test's own words
    return arranged(transcript, owner="ana", import_id=import_id, prompt_version="v1", now=NOW)


def arrived(*nodes: Node, **more: object) -> Arrival:
    found = arrive(*nodes, **more)  # type: ignore[arg-type]  # a test's own words
    assert isinstance(found, Arrival), found
    return found


def code_of(found: Arrival | Flaw) -> str:
    assert isinstance(found, Flaw), found
    return found.code


def shape(found: Arrival) -> list[tuple[str, str | None]]:
    """The texts, each with that of its parent."""
    text = {one.id: one.content for one in found.messages}
    return [(one.content, text[one.parent_id] if one.parent_id else None) for one in found.messages]


@st.composite
def trees(draw: st.DrawFn) -> tuple[Node, ...]:
    """Any forest, its nodes in any order."""
    size = draw(st.integers(0, 30))
    nodes = []
    for n in range(size):
        parent = draw(st.none() | st.integers(0, n - 1)) if n else None
        role = draw(st.sampled_from(ROLES))
        at = draw(st.sampled_from([0.0, 5.0, NOW - n, NOW + 10]))
        above = f"n{parent}" if parent is not None else None
        nodes.append(Node(f"n{n}", above, role, f"text {n}", at))
    return tuple(draw(st.permutations(nodes)))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Node, ...]:
    """Anything that a file may claim: circles, parents that are not there, ids that come twice."""
    names = st.sampled_from([f"n{n}" for n in range(8)])
    return tuple(
        Node(draw(names), draw(st.none() | names), draw(st.sampled_from(["user", "assistant"])))
        for _ in range(draw(st.integers(0, 10)))
    )


@given(trees())
def test_every_parent_comes_before_its_children(nodes: tuple[Node, ...]) -> None:
    found = in_order(nodes)
    assert not isinstance(found, Flaw)
    assert sorted(found, key=lambda node: node.id) == sorted(nodes, key=lambda node: node.id)
    seen: set[str] = set()
    for node in found:
        assert node.parent_id is None or node.parent_id in seen
        seen.add(node.id)


@given(trees())
def test_what_is_in_order_stays_as_it_is(nodes: tuple[Node, ...]) -> None:
    once = in_order(nodes)
    assert not isinstance(once, Flaw)
    assert in_order(once) == once


@given(graphs())
def test_a_broken_graph_is_told_and_a_sound_one_is_taken(nodes: tuple[Node, ...]) -> None:
    found = in_order(nodes)
    ids = [node.id for node in nodes]
    parents = {node.id: node.parent_id for node in nodes}
    if len(set(ids)) < len(ids):
        assert isinstance(found, Flaw)
        assert found.code == "duplicate_id"
    elif any(parent is not None and parent not in parents for parent in parents.values()):
        assert isinstance(found, Flaw)
        assert found.code == "dangling_parent"
    else:
        for one in ids:
            at: str | None = one
            for _ in ids:
                at = parents[at] if at is not None else None
            if at is not None:  # more steps than there are nodes: a circle
                assert isinstance(found, Flaw)
                assert found.code == "cycle"
                return
        assert not isinstance(found, Flaw)


@given(trees())
def test_messages_make_a_tree_of_their_own(nodes: tuple[Node, ...]) -> None:
    found = arrive(*nodes)
    if isinstance(found, Flaw):
        assert found.code == "empty"
        assert all(node.role is None for node in nodes)
        return
    assert [one.seq for one in found.messages] == list(range(1, len(found.messages) + 1))
    seen: dict[str, Message] = {}
    for one in found.messages:
        assert one.parent_id is None or one.parent_id in seen
        assert 0 < one.created_at <= NOW
        seen[one.id] = one
    assert len(seen) == len(found.messages)
    head = found.conversation.head_message_id
    assert head in seen if head is not None else not seen
    assert 0 < found.conversation.created_at <= NOW
    assert 0 < found.conversation.updated_at <= NOW
    assert found.repaired == 0


@given(trees())
def test_what_is_ours_is_kept_message_by_message(nodes: tuple[Node, ...]) -> None:
    kept = [node for node in nodes if node.role is not None]
    found = arrive(*kept, source="tertulia") if _is_closed(kept) else None
    if isinstance(found, Arrival):
        assert sorted(one.content for one in found.messages) == sorted(n.content for n in kept)
        assert found.same_as == "one"


def _is_closed(nodes: list[Node]) -> bool:
    ids = {node.id for node in nodes}
    return all(node.parent_id is None or node.parent_id in ids for node in nodes)


def test_a_very_long_branch_takes_no_recursion() -> None:
    nodes = [user("n0")]
    for n in range(1, MESSAGES):
        made = (reply if n % 2 else user)(f"n{n}", f"n{n - 1}")
        nodes.append(made)
    found = arrived(*reversed(nodes))
    assert len(found.messages) == MESSAGES
    assert found.messages[-1].id == found.conversation.head_message_id
    assert code_of(arrive(*nodes, user("more", "n0"))) == "too_many_messages"


def test_hidden_nodes_are_left_out_and_their_children_hung_higher() -> None:
    found = arrived(
        hidden("root"), hidden("system", "root"), user("q", "system"), hidden("tool", "q"),
        reply("a", "tool", "A"), reply("b", "tool", "B"), head="tool",
    )  # fmt: skip
    assert shape(found) == [("Why?", None), ("A", "Why?"), ("B", "Why?")]
    assert found.conversation.head_message_id == found.messages[0].id


def test_pieces_of_one_reply_are_joined() -> None:
    found = arrived(
        user("q"),
        reply("a", "q", "Let me look.", model="m-1"),
        hidden("tool", "a"),
        reply("b", "tool", ""),
        reply("c", "b", "Here it is.", model="m-2"),
        user("q2", "c", "Thanks"),
        head="c",
    )
    assert shape(found) == [
        ("Why?", None),
        ("Let me look.\n\nHere it is.", "Why?"),
        ("Thanks", "Let me look.\n\nHere it is."),
    ]
    assert found.messages[1].model == "m-2"
    assert found.conversation.head_message_id == found.messages[1].id


def test_replies_that_branch_are_not_joined() -> None:
    found = arrived(user("q"), reply("a", "q", "A"), reply("b", "a", "B"), reply("c", "a", "C"))
    assert shape(found) == [("Why?", None), ("A", "Why?"), ("B", "A"), ("C", "A")]


def test_our_own_replies_are_never_joined() -> None:
    found = arrived(user("q"), reply("a", "q", "A"), reply("b", "a", "B"), source="tertulia")
    assert shape(found) == [("Why?", None), ("A", "Why?"), ("B", "A")]


def ids_of(found: Arrival) -> set[str]:
    return {found.conversation.id, *(one.id for one in found.messages)}


def test_ids_are_the_same_within_one_import_alone_and_keys_always() -> None:
    nodes = (user("q", created_at=NOW - 9), reply("a", "q"))
    once, again = arrived(*nodes), arrived(*nodes)
    assert once == again
    later = arrive(*nodes, import_id="import_2")
    others = arranged(
        Transcript("chatgpt", "one", "Title", nodes),
        owner="ben",
        import_id="import_1",
        prompt_version="v1",
        now=NOW,
    )
    assert isinstance(later, Arrival)
    assert isinstance(others, Arrival)
    assert ids_of(once).isdisjoint(ids_of(later) | ids_of(others))
    assert once.key == later.key
    keys = {once.key, arrived(*nodes, source="open-webui").key, arrived(*nodes, id="two").key}
    assert len(keys) == 3
    assert " " in once.key


def test_derived_ids_sort_by_time_and_can_not_be_confused() -> None:
    assert derived_id("m", 5.0, "a", "bc") != derived_id("m", 5.0, "ab", "c")
    assert derived_id("m", NOW, "a") < derived_id("m", NOW + 1, "a")
    assert len(derived_id("m", NOW, "\ud800")) == len("m_") + 26
    assert derived_id("m", -1.0, "a")[:12] == "m_0000000000"


def test_dates_are_kept_and_those_to_come_are_not() -> None:
    found = arrived(
        user("q", created_at=100.0), reply("a", "q", created_at=NOW + 5), created_at=50.0
    )
    assert [one.created_at for one in found.messages] == [100.0, NOW]
    assert found.conversation.created_at == 50.0
    assert found.conversation.updated_at == NOW
    assert arrived(user("q"), updated_at=77.0, created_at=50.0).conversation.updated_at == 77.0
    late = arrived(user("q", created_at=60.0), created_at=NOW + 9, updated_at=NOW + 9).conversation
    assert (late.created_at, late.updated_at) == (NOW, NOW)


def test_what_has_no_date_is_as_old_as_what_it_answers() -> None:
    found = arrived(user("q", created_at=100.0), reply("a", "q"), user("q2", "a"), user("r"))
    assert [one.created_at for one in found.messages] == [100.0, 100.0, 100.0, 100.0]
    assert arrived(user("q")).messages[0].created_at == NOW


def test_an_own_empty_conversation_comes_in_and_a_foreign_one_of_tools_does_not() -> None:
    empty = arrived(source="tertulia", model="m-1")
    assert empty.messages == ()
    assert empty.conversation.head_message_id is None
    assert empty.conversation.created_at == NOW
    assert empty.conversation.model == "m-1"
    assert code_of(arrive(hidden("root"))) == "empty"


def test_a_head_that_is_not_there_is_the_newest_message() -> None:
    found = arrived(user("q"), reply("a", "q"), head="gone")
    assert found.conversation.head_message_id == found.messages[1].id


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", "plain"),
        ("a\x00b", "a\ufffdb"),
        ("\ud83d half", "\ufffd half"),
        ("\U0001f600 whole", "\U0001f600 whole"),
    ],
)
def test_what_no_store_takes_is_marked(text: str, kept: str) -> None:
    assert storable(text) == kept
    found = arrived(user("q", None, text), title=text)
    assert found.messages[0].content == found.conversation.title == kept
    assert found.repaired == (2 if text != kept else 0)


def test_a_message_beyond_the_limit_keeps_its_conversation_out() -> None:
    assert code_of(arrive(user("q", None, "x" * (MESSAGE_BYTES + 1)))) == "message_too_long"
    assert arrived(user("q", None, "x" * MESSAGE_BYTES)).messages[0].content
    assert code_of(arrive(user("q", None, "\u20ac" * (MESSAGE_BYTES // 3 + 1)))) == (
        "message_too_long"
    )


def test_a_reason_comes_with_its_rating() -> None:
    found = arrived(user("q"), reply("a", "q", feedback="down", why="No\x00"), source="tertulia")
    assert found.whys == {found.messages[1].id: "No\ufffd"}
    assert found.messages[1].feedback == "down"


def test_what_is_no_tree_stays_out() -> None:
    assert code_of(arrive(user("q", "gone"))) == "dangling_parent"
    assert code_of(arrive(user("q", "a"), reply("a", "q"))) == "cycle"
    assert code_of(arrive(user("q"), user("q"))) == "duplicate_id"
