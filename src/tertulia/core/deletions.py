"""What a deletion has reached, when it is looked at again, and when it is over. No text of anybody
is here: an order says what was to go, never what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import Final, Literal, NamedTuple

DELETIONS_BELL: Final = "deletions"
DAY_S: Final = 86_400.0
# Whoever was writing when the order came has ended by then: a claim lasts 2 s, a statement 5 s, a
# body comes within 10 s. What such a late writer left is found by the look after that.
LATE_S: Final = 30.0
# A look that did not reach everything is followed by others, further and further apart.
_FIRST_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 300.0
# A replica that is nowhere to be seen for so long has ended, and its memory with it.
GONE_S: Final = 600.0
# After this an order is over, whatever it has not reached: the row says what.
GIVEN_UP_S: Final = DAY_S
# An administrator should look at what takes longer than this.
OVERDUE_S: Final = 3_600.0
# Longer than any plan keeps anything: for ever.
FOREVER_S: Final = 1e12


class DeletionKind(StrEnum):
    """What was ordered to go, and by what."""

    CONVERSATION = "conversation"  # its owner asked for it
    MESSAGES = "messages"  # some of a conversation that stays
    CALLS = "calls"  # what was said without a conversation
    RETENTION = "retention"  # a conversation whose time was over
    ACCOUNT = "account"  # everything of a person


class Place(StrEnum):
    """Where copies are, besides the caches of replicas."""

    ROWS = "rows"  # conversations, messages, turns, credentials
    LOGS = "logs"  # events of replies
    BATCHES = "batches"
    FILES = "files"
    DISK = "disk"  # what rows that are gone have left in the store's own files


# What a replica answers: nothing of it is cached there; its engine has no way to be told; it did
# not answer.
CacheAnswer = Literal["forgotten", "unsupported", "unanswered"]

# What a store did to its own files: nothing of it is left there; or dead rows are out of its
# tables, and what its server keeps besides, as a write-ahead log, is not in our power.
Scrubbed = Literal["overwritten", "vacuumed"]

# How a place stands: the first five are ends.
How = Literal[
    "deleted", "overwritten", "vacuumed", "forgotten", "unsupported", "gone", "unreached", "pending"
]
_CACHE: Final = "cache:"


class Reach(NamedTuple):
    """How a place stood when it was last looked at, in seconds of the store's clock."""

    how: How
    at: float


@dataclass(frozen=True, slots=True)
class Deletion:
    """An order to delete, and how far it has come. `target` is the conversation, the account, or
    nothing for what was said without a conversation.

    `reached` has a `Reach` for each place, and for each replica's cache as `cache:NAME`. `looks`
    counts how often it was looked at; `done_at` is set once it is over.
    """

    owner: str
    target: str
    kind: DeletionKind
    requested_at: float
    reached: Mapping[str, Reach] = field(default_factory=dict)
    looks: int = 0
    done_at: float | None = None

    @property
    def is_late(self) -> bool:
        """Whether something was not reached before it was given up."""
        return any(reach.how == "unreached" for reach in self.reached.values())


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at an order found: places that still hold something, what the store says of
    its disk (None: not yet), and each replica's answer."""

    left: frozenset[Place]
    disk: Scrubbed | None
    caches: Mapping[str, CacheAnswer]


def kind_of(conversation_id: str | None, idle_s: float | None) -> DeletionKind:
    """What it is to delete a conversation, for its age if one is given, or what belongs to none."""
    if idle_s is not None:
        return DeletionKind.RETENTION
    return DeletionKind.CALLS if conversation_id is None else DeletionKind.CONVERSATION


def ordered(owner: str, target: str, kind: DeletionKind, now: float) -> Deletion:
    """A new order; its rows are gone in the same transaction, but for an account's."""
    rows = Reach("pending" if kind is DeletionKind.ACCOUNT else "deleted", now)
    return Deletion(owner, target, kind, now, {Place.ROWS.value: rows})


def is_second(deletion: Deletion, now: float) -> bool:
    """Whether a look now comes after all who were still writing when the order came."""
    return now - deletion.requested_at >= LATE_S


def looked(deletion: Deletion, look: Look, now: float) -> Deletion:
    """The order after a look; `done_at` is set if it was the last one."""
    reached = dict(deletion.reached)
    for place in _places(deletion.kind):
        how: How = "pending" if place in look.left else "deleted"
        reached[place.value] = Reach(how, now)
    reached[Place.DISK.value] = Reach(look.disk or "pending", now)
    for name, answer in look.caches.items():
        cache: How = "pending" if answer == "unanswered" else answer
        reached[_CACHE + name] = Reach(cache, now)
    age_s = now - deletion.requested_at
    for name, reach in reached.items():
        is_away = name.startswith(_CACHE) and name.removeprefix(_CACHE) not in look.caches
        if reach.how == "pending" and is_away and age_s >= GONE_S:
            reached[name] = Reach("gone", now)
        elif reach.how == "pending" and age_s >= GIVEN_UP_S:
            reached[name] = Reach("unreached", now)
    is_over = is_second(deletion, now) and not any(r.how == "pending" for r in reached.values())
    return replace(
        deletion,
        reached=reached,
        looks=deletion.looks + 1,
        done_at=now if is_over else None,
    )


def pause_s(deletion: Deletion, now: float) -> float:
    """After how many seconds an order that is not over is looked at again."""
    if not is_second(deletion, now):
        return deletion.requested_at + LATE_S - now
    doubled = _FIRST_PAUSE_S * 2.0 ** min(deletion.looks, 30)
    return min(doubled, _LONGEST_PAUSE_S)


def name_mark(name: str) -> str:
    """All that is kept of the name of somebody who left, so that nobody else can pass for him."""
    return sha256(name.casefold().encode()).hexdigest()


def key_mark(key: str) -> str:
    """All that is kept of the key of a deleted message, so that no late retry brings it back."""
    return sha256(key.encode()).hexdigest()


def retention_s(retention_days: int) -> float:
    """How long a plan keeps what nobody touches; 0 is for ever."""
    return retention_days * DAY_S if retention_days else FOREVER_S


def _places(kind: DeletionKind) -> tuple[Place, ...]:
    if kind is DeletionKind.ACCOUNT:
        return (Place.ROWS, Place.LOGS, Place.BATCHES, Place.FILES)
    return (Place.ROWS, Place.LOGS)
