"""The turn's state machine and the bytes of its events.

The table is the only list of transitions: an event that is not in it is an error. The terminal
event is a pure function of the finished turn, so that any process can write the same bytes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from tertulia.core.quota import in_units
from tertulia.core.types import Entry, EventKind, Finish, Status, TokenIds, Turn

# How long the log of an ended reply can be read, unless the settings say otherwise: who lost the
# line is back by then, and from then on the row tells what it said.
LOG_KEPT_S: Final = 600.0

# status -> event -> next status. `docs/explanation/turn-protocol.md` draws it.
TRANSITIONS: Final[Mapping[Status, Mapping[str, Status]]] = {
    Status.QUEUED: {
        "claim": Status.RUNNING,
        "can": Status.COMPLETED,  # a ready reply, at the door
        "seize": Status.QUEUED,
        "stop": Status.STOPPED,
        "refuse": Status.REFUSED,
        "fail": Status.FAILED,
    },
    Status.RUNNING: {
        "claim": Status.RUNNING,
        "seize": Status.RUNNING,
        "complete": Status.COMPLETED,
        "stop": Status.STOPPED,
        "refuse": Status.REFUSED,
        "fail": Status.FAILED,
    },
    Status.COMPLETED: {},
    Status.STOPPED: {},
    Status.REFUSED: {},
    Status.FAILED: {"rerun": Status.QUEUED},
}

# How a turn comes to each of its ends.
EVENT_OF_END: Final[Mapping[Status, str]] = {
    Status.COMPLETED: "complete",
    Status.STOPPED: "stop",
    Status.REFUSED: "refuse",
    Status.FAILED: "fail",
}


def next_status(status: Status, event: str) -> Status:
    """The status after `event`; ValueError when the table has no such step."""
    try:
        return TRANSITIONS[status][event]
    except KeyError:
        raise ValueError(f"a {status} turn can't {event}") from None


def thread_of(turn: Turn) -> str:
    """What goes on from turn to turn, and whose cache can be forgotten: the conversation; what the
    calls of a stateless chat have in common is whose it is, and what was said first."""
    if turn.conversation_id is not None:
        return turn.conversation_id
    opening = next((one.content for one in turn.prompt if one.role != "system"), "")
    return sha256(f"{turn.owner}\0{opening}".encode()).hexdigest()


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as little-endian 32-bit integers."""
    packed = array("I", ids)
    assert packed.itemsize == 4
    return packed.tobytes()


def unpack_ids(packed: bytes) -> TokenIds:
    """The inverse of `pack_ids`."""
    ids = array("I")
    ids.frombytes(packed)
    return tuple(ids)


# Made once: `json.dumps` with arguments makes an encoder at each call.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_TEXT_HEAD: Final = b'{"text":'


def to_json(value: Mapping[str, Any]) -> bytes:
    """Compact JSON in UTF-8. CR and LF are escaped, so it is safe as one SSE `data` line."""
    return _encode(value).encode()


def meta_entry(seq: int, turn: Turn) -> Entry:
    """Who answers and why; first in every attempt."""
    return Entry(
        seq,
        "meta",
        to_json(
            {
                "messageId": turn.reply_id,
                "userMessageId": turn.user_message_id,
                "conversationId": turn.conversation_id,
                "model": turn.model,
                "requested": turn.requested,
                "reason": turn.reason,
                "notices": list(turn.notices),
                "attempt": turn.attempt,
            }
        ),
    )


def delta_entry(seq: int, text: str, ids: bytes) -> Entry:
    """Released text and the tokens it covers."""
    return Entry(seq, "delta", _TEXT_HEAD + _encode(text).encode() + b"}", ids)


def pause_entry(seq: int) -> Entry:
    """The reply is being continued elsewhere."""
    return Entry(seq, "pause", b'{"reason":"replica_lost"}')


def refusal_entry(seq: int, turn: Turn) -> Entry:
    """What is shown instead of the rest."""
    assert turn.refusal is not None
    refusal = turn.refusal
    return Entry(
        seq,
        "refusal",
        to_json({"stage": refusal.stage, "category": refusal.category, "text": refusal.text}),
    )


def terminal_entry(seq: int, turn: Turn) -> Entry:
    """The last event of a finished turn: `fail` when it failed, else `done`."""
    assert turn.status.is_final, turn.status
    if turn.failure is not None:
        failure = turn.failure
        data: dict[str, Any] = {
            "code": failure.code,
            "message": failure.message,
            "retryable": failure.retryable,
        }
        if failure.retry_after_s is not None:
            data["retryAfterSeconds"] = failure.retry_after_s
        return Entry(seq, "fail", to_json(data))
    usage = {"input": turn.usage.input, "cached": turn.usage.cached, "output": turn.usage.output}
    finish = turn.finish or Finish.STOP
    charged = in_units(turn.charged)
    return Entry(seq, "done", to_json({"finish": finish, "usage": usage, "charged": charged}))


def stored_entries(turn: Turn) -> tuple[Entry, ...]:
    """The events of a finished turn whose log is gone, made from its row alone."""
    entries = [meta_entry(1, turn)]
    if turn.text:
        entries.append(delta_entry(len(entries) + 1, turn.text, b""))
    if turn.refusal is not None:
        entries.append(refusal_entry(len(entries) + 1, turn))
    entries.append(terminal_entry(len(entries) + 1, turn))
    return tuple(entries)


def delta_text(entry: Entry) -> str:
    """The text of a `delta`, cut out where nothing is escaped: a reply's end needs all of them."""
    if b"\\" not in entry.data and entry.data.startswith(_TEXT_HEAD):
        return entry.data[len(_TEXT_HEAD) + 1 : -2].decode()
    text: str = json.loads(entry.data)["text"]
    return text


def text_so_far(entries: Sequence[Entry]) -> str:
    """What a client that has seen `entries` shows."""
    return "".join(delta_text(entry) for entry in entries if entry.kind == "delta")


def ids_so_far(entries: Sequence[Entry]) -> TokenIds:
    """The tokens that `entries` cover: a continued reply is prompt + these."""
    return unpack_ids(b"".join(entry.ids for entry in entries))


def is_terminal(kind: EventKind) -> bool:
    """Whether a stream ends with this event."""
    return kind in ("done", "fail")


def frame(entry: Entry) -> bytes:
    """The entry as one server-sent event, written in one piece (an unfinished block is lost)."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (entry.seq, entry.kind.encode(), entry.data)
