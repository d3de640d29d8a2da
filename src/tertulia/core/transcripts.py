"""A conversation on its way in from a file: its tree put in order, checked, given ids of its own.

Pure decisions. The order comes from the parents, never from the time stamps; nothing here recurses,
and a tree that is none is refused with a reason instead of being mended.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Final, Literal

from tertulia.core.types import Conversation, Failure, Finish, Message, Reason, Status

Source = Literal["tertulia", "chatgpt", "open-webui"]

# As a message of the API (`GatewayRules.message_bytes`): longer ones fit no prompt.
MESSAGE_BYTES: Final = 400_000
# Five years of daily turns. One conversation is written in one transaction, which nobody may wait
# for longer than a moment.
MESSAGES: Final = 10_000
TITLE_CHARS: Final = 200
# What other programs call a model may be any text.
WORD_CHARS: Final = 200
# Of the reason that came with a rating, as the API takes it.
_WHY_CHARS: Final = 2_000
# Between two pieces of one reply that another program stored as messages of their own, because a
# tool was asked in between: a prompt needs roles that alternate.
_JOINT: Final = "\n\n"
_LOST: Final = "\ufffd"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
# The letters of ids (no I, L, O, U) and their lengths: as all other ids of this service.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS: Final = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_TIME_CHARS: Final = 10
_HASH_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a conversation stays out: a stable word and a sentence without any of its text."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the tree as its file has it. Without a role it is none of ours (a tool's call, a
    hidden note): what hangs under it is hung higher. Times are seconds, 0 where there is none."""

    id: str
    parent_id: str | None
    role: Literal["user", "assistant"] | None
    content: str = ""
    created_at: float = 0.0
    model: str | None = None
    requested: str | None = None
    reason: Reason | None = None
    status: Status = Status.COMPLETED
    finish: Finish | None = None
    notices: tuple[str, ...] = ()
    failure: Failure | None = None
    feedback: Literal["up", "down"] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation as its file has it, with its nodes in the file's order. `head` is the leaf of
    the branch that was shown, if the file says so."""

    source: Source
    id: str
    title: str
    nodes: tuple[Node, ...]
    created_at: float = 0.0
    updated_at: float = 0.0
    pinned: bool = False
    archived: bool = False
    model: str | None = None
    head: str | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A conversation that may be stored: messages in the order of `seq`, parents first.

    `key` is the same whenever the same conversation comes, and no key that a request can send. Ids
    are the same within one import alone: what was deleted must not come back under its old ones.
    `whys` are the reasons that came with ratings, by message. `same_as` is another id under which
    the owner may have it already. `repaired` texts held characters that can't be kept.
    """

    conversation: Conversation
    messages: tuple[Message, ...]
    key: str
    same_as: str | None = None
    whys: Mapping[str, str] = field(default_factory=dict)
    repaired: int = 0


def arranged(
    transcript: Transcript, *, owner: str, import_id: str, prompt_version: str, now: float
) -> Arrival | Flaw:
    """What an import is to store of a transcript, or why nothing. Tokens are not counted yet."""
    if len(transcript.nodes) > MESSAGES:
        return Flaw("too_many_messages", f"It has more than {MESSAGES} messages.")
    ordered = in_order(transcript.nodes)
    if isinstance(ordered, Flaw):
        return ordered
    nodes, place_of = _kept(ordered)
    if transcript.source != "tertulia":
        nodes, place_of = _merged(nodes, place_of)
    if not nodes and transcript.nodes:
        return Flaw("empty", "Nothing in it was said by a person or a model.")
    if any(_is_too_long(node.content) for node in nodes):
        return Flaw("message_too_long", f"A message has more than {MESSAGE_BYTES} bytes.")
    begun = transcript.created_at or min((n.created_at for n in nodes if n.created_at), default=now)
    source = (owner, transcript.source, transcript.id)
    its_id = derived_id("c", transcript.created_at, import_id, *source)
    messages = _messages(nodes, owner, its_id, begun=begun, now=now)
    by_node = {node.id: one.id for node, one in zip(nodes, messages, strict=True)}
    head = place_of.get(transcript.head or "") or (nodes[-1].id if nodes else None)
    title = storable(transcript.title)
    newest = max((one.created_at for one in messages), default=begun)
    conversation = Conversation(
        owner=owner,
        id=its_id,
        title=title[:TITLE_CHARS],
        titled_by="person",  # or elsewhere: it is not for a model of ours to replace
        prompt_version=prompt_version,
        created_at=min(begun, now),
        # A time to come would keep it at the top of every list.
        updated_at=min(transcript.updated_at or max(begun, newest), now),
        pinned=transcript.pinned,
        archived=transcript.archived,
        model=_word(transcript.model),
        head_message_id=by_node[head] if head is not None else None,
    )
    changed = [one.content != node.content for one, node in zip(messages, nodes, strict=True)]
    return Arrival(
        conversation,
        messages,
        key=derived_id("import ", 0.0, *source),
        same_as=transcript.id if transcript.source == "tertulia" else None,
        whys={by_node[node.id]: storable(node.why)[:_WHY_CHARS] for node in nodes if node.why},
        repaired=sum(changed) + (title != transcript.title),
    )


def _messages(
    nodes: Sequence[Node], owner: str, its_id: str, *, begun: float, now: float
) -> tuple[Message, ...]:
    """The nodes as messages of the conversation `its_id`, which began at `begun`."""
    ids = {node.id: derived_id("m", node.created_at, its_id, node.id) for node in nodes}
    times: dict[str, float] = {}
    messages: list[Message] = []
    for seq, node in enumerate(nodes, 1):
        # What has no time is as old as what it answers.
        times[node.id] = min(node.created_at or times.get(node.parent_id or "", begun), now)
        messages.append(
            Message(
                owner=owner,
                conversation_id=its_id,
                id=ids[node.id],
                parent_id=ids[node.parent_id] if node.parent_id is not None else None,
                seq=seq,
                role="user" if node.role == "user" else "assistant",
                content=storable(node.content),
                tokens=0,
                tokenizer="",
                status=node.status,
                created_at=times[node.id],
                model=_word(node.model),
                requested=_word(node.requested),
                reason=node.reason,
                finish=node.finish,
                notices=node.notices,
                failure=node.failure,
                feedback=node.feedback,
            )
        )
    return tuple(messages)


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...] | Flaw:
    """The nodes with every parent before its children, else as the file has them; or what makes
    them no tree: an id that comes twice, a parent that is not there, a circle."""
    place = {node.id: n for n, node in enumerate(nodes)}
    if len(place) < len(nodes):
        return Flaw("duplicate_id", "Two of its messages have the same id.")
    children: dict[str, list[int]] = {}
    ready: list[int] = []
    for n, node in enumerate(nodes):
        if node.parent_id is None:
            ready.append(n)
        elif node.parent_id in place:
            children.setdefault(node.parent_id, []).append(n)
        else:
            return Flaw("dangling_parent", "One of its messages answers one that is not there.")
    heapify(ready)
    ordered: list[Node] = []
    while ready:
        node = nodes[heappop(ready)]
        ordered.append(node)
        for n in children.get(node.id, ()):
            heappush(ready, n)
    if len(ordered) < len(nodes):
        return Flaw("cycle", "Some of its messages answer each other in a circle.")
    return tuple(ordered)


def derived_id(prefix: str, created_at: float, *parts: str) -> str:
    """An id that is the same for the same parts, and sorts by its creation time."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(raw) + raw)
    number = int.from_bytes(digest.digest()[: _HASH_CHARS * 5 // 8])
    ms = max(0, int(created_at * 1000)) % (1 << 5 * _TIME_CHARS)
    return f"{prefix}_{_base32(ms, _TIME_CHARS)}{_base32(number, _HASH_CHARS)}"


def storable(text: str) -> str:
    """The text with a mark in the place of what no store takes: NUL, and halves of surrogates."""
    return _UNSTORABLE.sub(_LOST, text)


def _is_too_long(text: str) -> bool:
    if len(text) * 4 <= MESSAGE_BYTES:
        return False
    return len(text.encode("utf-8", "surrogatepass")) > MESSAGE_BYTES


def _kept(ordered: Iterable[Node]) -> tuple[tuple[Node, ...], Mapping[str, str]]:
    """The nodes that are ours, each under the nearest of ours above it; and for every id the one
    that stands in its place, if any does."""
    place: dict[str, str] = {}
    found: list[Node] = []
    for node in ordered:
        above = place.get(node.parent_id) if node.parent_id is not None else None
        if node.role is not None:
            place[node.id] = node.id
            found.append(replace(node, parent_id=above))
        elif above is not None:
            place[node.id] = above
    return tuple(found), place


def _merged(
    nodes: Sequence[Node], place_of: Mapping[str, str]
) -> tuple[tuple[Node, ...], Mapping[str, str]]:
    """The same with each reply joined to the reply that it is the only child of."""
    n_children = Counter(node.parent_id for node in nodes)
    first_of: dict[str, str] = {}
    found: dict[str, Node] = {}
    pieces: dict[str, list[str]] = {}
    for node in nodes:
        first = first_of[node.parent_id] if node.parent_id is not None else None
        above = found[first] if first is not None else None
        is_alone = n_children[node.parent_id] == 1
        if above is not None and is_alone and node.role == above.role == "assistant":
            first_of[node.id] = above.id
            found[above.id] = replace(above, model=node.model or above.model)
            pieces.setdefault(above.id, [above.content]).append(node.content)
        else:
            first_of[node.id] = node.id
            found[node.id] = replace(node, parent_id=first)
    for first, contents in pieces.items():
        found[first] = replace(found[first], content=_JOINT.join(filter(None, contents)))
    return tuple(found.values()), {one: first_of[its] for one, its in place_of.items()}


def _word(text: str | None) -> str | None:
    return storable(text)[:WORD_CHARS] if text else None


def _base32(number: int, length: int) -> str:
    """So many letters, an even number of them: two at a time, for a large file takes many ids."""
    places = range(10 * (length // 2 - 1), -1, -10)
    return "".join([_PAIRS[number >> place & 1023] for place in places])
