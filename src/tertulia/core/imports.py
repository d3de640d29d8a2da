"""An import: how far it is, what it has brought in, and what stayed out. Pure decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from tertulia.core.transcripts import Arrival, Flaw

# What stayed out is told one by one up to here, and counted beyond.
FLAWS_TOLD: Final = 100
# So often may an import be taken up without getting any further: then its file brings gateways
# down, or nothing that reads it lives long enough.
FRUITLESS_CLAIMS: Final = 3
_SOURCE_ID_CHARS: Final = 100


class ImportState(StrEnum):
    """Where an import stands. The last three are final."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return not IMPORT_TRANSITIONS[self]


# state -> event -> next state. `docs/howto/export-and-import.md` tells it.
IMPORT_TRANSITIONS: Final[Mapping[ImportState, Mapping[str, ImportState]]] = {
    ImportState.WAITING: {"claim": ImportState.RUNNING, "cancel": ImportState.CANCELLED},
    ImportState.RUNNING: {
        "claim": ImportState.RUNNING,
        "complete": ImportState.COMPLETED,
        "fail": ImportState.FAILED,
        "cancel": ImportState.CANCELLED,
    },
    ImportState.COMPLETED: {},
    ImportState.FAILED: {},
    ImportState.CANCELLED: {},
}


@dataclass(frozen=True, slots=True)
class Left:
    """A conversation that stayed out: its place in the file, from 1, and its id there."""

    n: int
    source_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NewImport:
    """An import at the door: whose, and the stored file that it reads."""

    owner: str
    id: str
    file_id: str
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Import:
    """A stored import. Times are the store's.

    Of `read` conversations of the file (out of `total`, where that is known) `made` came in,
    `known` were there as they are, `differing` were there with another number of messages and left
    alone, `refused` are none. `messages` came in with those that were made; `repaired` texts held
    characters that no store takes. `read_bytes` of `total_bytes` of the file's text were read.
    `failure` is a code and a sentence. `epoch` counts claims: only the holder of the last one may
    save; `saved_epoch` is that under which it got further last.
    """

    owner: str
    id: str
    file_id: str
    file_bytes: int
    state: ImportState
    created_at: float
    epoch: int = 0
    saved_epoch: int = 0
    ended_at: float | None = None
    total: int | None = None
    read: int = 0
    made: int = 0
    known: int = 0
    differing: int = 0
    refused: int = 0
    messages: int = 0
    repaired: int = 0
    read_bytes: int = 0
    total_bytes: int = 0
    left: tuple[Left, ...] = ()
    failure: tuple[str, str] | None = None

    @property
    def is_fruitless(self) -> bool:
        """Whether it was taken up again and again and got no further."""
        return self.epoch - self.saved_epoch > FRUITLESS_CLAIMS


class Taken(StrEnum):
    """What a store did with one conversation."""

    MADE = "made"
    KNOWN = "known"  # it is there, with as many messages
    DIFFERING = "differing"  # it is there, and it or the file has gone on since: left alone


@dataclass(frozen=True, slots=True)
class Found:
    """One conversation of the file, by its place in it: what is to be stored, or why nothing is."""

    n: int
    source_id: str
    what: Arrival | Flaw


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step of an import read, written together or not at all.

    Released, the import may be claimed again; else its lease begins anew, for `lease_s`.
    """

    job: Import
    found: tuple[Found, ...] = ()
    then: Literal["release", "hold"] = "hold"
    lease_s: float = 0.0

    @property
    def arrivals(self) -> tuple[Arrival, ...]:
        """What is to be stored, in the file's order."""
        return tuple(found.what for found in self.found if isinstance(found.what, Arrival))


@dataclass(frozen=True, slots=True)
class TooManyImports:
    """The owner has `limit` imports that have not ended."""

    limit: int


@dataclass(frozen=True, slots=True)
class ImportRules:
    """The numbers of imports, fixed at start."""

    # An export of 15,000 conversations has about a fifth of that.
    file_bytes: int = 200_000_000
    # Of what is read out of an archive: text packs to about a fifth.
    inflated_bytes: int = 2_000_000_000
    # One conversation is parsed at once, which holds this process up: about 10 ms a megabyte.
    conversation_bytes: int = 16_000_000
    conversations: int = 200_000
    user_imports: int = 1
    kept_s: float = 30 * 86_400.0
    # A gateway that dies is replaced after this; no step between two saves takes as long.
    lease_s: float = 30.0
    # How often new work is looked for where no bell was heard.
    pause_s: float = 2.0


def begun(new: NewImport, now: float) -> Import:
    """The import as its store keeps it first."""
    return Import(new.owner, new.id, new.file_id, new.file_bytes, ImportState.WAITING, now)


def moved_on(job: Import, event: str) -> Import:
    """The import after `event`; ValueError when the table has no such step."""
    try:
        state = IMPORT_TRANSITIONS[job.state][event]
    except KeyError:
        raise ValueError(f"a {job.state} import can't {event}") from None
    return replace(job, state=state)


def dated(job: Import, now: float) -> Import:
    """The import as a store writes it at this moment: one that ends, ends now."""
    return replace(job, ended_at=now if job.state.is_final else None)


def failed(job: Import, code: str, message: str) -> Import:
    """The import after something that it can't go on from."""
    return replace(moved_on(job, "fail"), failure=(code, message))


def tallied(progress: Progress, outcomes: Sequence[Taken], now: float) -> Import:
    """The import after a step, by what the store did with each of its arrivals."""
    job, outcome = progress.job, iter(outcomes)
    counts = dict.fromkeys(Taken, 0)
    left = list(job.left)
    messages = repaired = refused = 0
    for found in progress.found:
        if isinstance(found.what, Flaw):
            refused += 1
            left.append(_left(found, found.what))
            continue
        taken = next(outcome)
        counts[taken] += 1
        if taken is Taken.DIFFERING:
            left.append(_left(found, _DIFFERS))
        elif taken is Taken.MADE:
            messages += len(found.what.messages)
            repaired += found.what.repaired
    return replace(
        dated(job, now),
        read=job.read + len(progress.found),
        made=job.made + counts[Taken.MADE],
        known=job.known + counts[Taken.KNOWN],
        differing=job.differing + counts[Taken.DIFFERING],
        refused=job.refused + refused,
        messages=job.messages + messages,
        repaired=job.repaired + repaired,
        left=tuple(left[:FLAWS_TOLD]),
        saved_epoch=job.epoch if progress.found else job.saved_epoch,
    )


def compared(n_there: int, arrival: Arrival) -> Taken:
    """What becomes of a conversation that is there already, with so many messages."""
    return Taken.KNOWN if n_there == len(arrival.messages) else Taken.DIFFERING


def _left(found: Found, flaw: Flaw) -> Left:
    return Left(found.n, found.source_id[:_SOURCE_ID_CHARS], flaw.code, flaw.message)


_DIFFERS: Final = Flaw("differs", "It is here already, with other messages; it was left as it is.")
