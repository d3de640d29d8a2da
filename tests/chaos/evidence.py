"""All that the checker may look at, as plain values: histories, rows, engine and witness logs.

Gathering it is elsewhere: a planted violation is a value made by hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

from tests.chaos.histories import Asked, Call

K = TypeVar("K")
V = TypeVar("V")

# What is asked of an engine for a title or a summary begins so: no turn of anybody's.
TASK = "task-"


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn's row. Times are of the monotonic clock, as everything here."""

    owner: str
    key: str
    reply: str
    conv: str | None
    message: str | None
    plan: str
    status: str
    epoch: int
    attempt: int
    text: str
    input: int
    output: int
    charged: int
    reserved: int
    last_id: int
    created_at: float
    finished_at: float | None
    finish: str = ""
    failure: str = ""
    stop_reason: str = ""
    cached: int = 0


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message's row; `ids` are the reply's tokens."""

    owner: str
    id: str
    conv: str
    role: str
    status: str
    content: str
    n_ids: int = 0
    spelled: str = ""  # what the ids spell


@dataclass(frozen=True, slots=True)
class Settlement:
    """What one run of a turn was charged."""

    owner: str
    reply: str
    epoch: int
    charged: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Balance:
    """What the store says of an owner at rest: how far what is used of the budgets is from what the
    settlements say, in thousandths, and what is still reserved."""

    owner: str
    drift: int
    reserved: int
    running: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation as its engine tells it. `ended_at` is None if the engine never said so.

    `question` names the prompt without what had been said; `prompt_tokens` is its length.
    """

    engine: str
    request: str
    salt: str
    question: int
    prompt_tokens: int
    said_before: int
    max_tokens: int
    began_at: float
    tokens: int
    ended_at: float | None
    reason: str

    @property
    def reply(self) -> str:
        return self.request.rsplit("-", 2)[0]

    @property
    def epoch(self) -> int:
        return int(self.request.rsplit("-", 2)[1])


@dataclass(frozen=True, slots=True)
class Write:
    """One call on a store as a witness in its process saw it return."""

    proc: str
    op: str  # admit, claim, fence, append, reseed, finish
    reply: str
    epoch: int
    attempt: int
    first: int
    last: int
    verdict: str
    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class Incident:
    """One deed of the nemesis: `victim` is a process, or a connection as `g1>valkey`."""

    fault: str  # F1 ... F7
    kind: str
    victim: str
    t0: float
    t1: float
    # Whether logs of replies may have been lost by it.
    loses_logs: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run. `fault` is empty for the baseline and for what comes after the heal."""

    fault: str
    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class Exit:
    """A process that ended though nobody asked for it."""

    name: str
    status: int | None
    at: float
    said: str = ""


@dataclass(frozen=True, slots=True)
class Rest:
    """A process at rest: what it holds when nothing is asked of it.

    `fds` are those that are no connection; `most_to_one` are its connections to whom it has most.
    """

    name: str
    fds: int
    tasks: int
    rss_kb: int
    most_to_one: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text where none of a deleted or a foreign conversation may be."""

    place: str
    marks: frozenset[str]


@dataclass
class Evidence:
    """One run. `heal_at` is when the last fault ended, `quiet_at` when nothing was open."""

    asked: list[Asked] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    turns: dict[str, StoredTurn] = field(default_factory=dict)
    messages: dict[str, StoredMessage] = field(default_factory=dict)
    settlements: list[Settlement] = field(default_factory=list)
    balances: list[Balance] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    # Question -> the undisturbed texts that engines have for it.
    answers: dict[int, set[str]] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    baseline: dict[str, Rest] = field(default_factory=dict)
    at_rest: dict[str, Rest] = field(default_factory=dict)
    quiet_auths: list[int] = field(default_factory=list)  # statuses while Valkey was frozen
    running: dict[str, int] = field(default_factory=dict)  # engine -> sequences at the end
    leaked: dict[str, int] = field(default_factory=dict)  # engine -> blocks that nobody owns
    # Whether engines kept a journal and answer by rote: real ones do neither.
    journalled: bool = True
    unburied: set[str] = field(
        default_factory=set
    )  # deleted replies whose logs a chore will remove
    stores: list[Text] = field(default_factory=list)  # rows and keys
    papers: list[Text] = field(default_factory=list)  # logs, metrics, command lines
    limits: Mapping[str, int] = field(default_factory=dict)  # plan -> replies at once
    step_s: float = 0.015
    lease_s: float = 2.0
    call_s: float = 8.0  # a client's patience
    heal_at: float = 0.0
    quiet_at: float = 0.0

    @cached_property
    def asked_by_key(self) -> dict[tuple[str, str], Asked]:
        return {(one.user, one.key): one for one in self.asked}

    @cached_property
    def owner_of_mark(self) -> dict[str, Asked]:
        return {one.mark: one for one in self.asked}

    @cached_property
    def calls_of_turn(self) -> dict[tuple[str, str], list[Call]]:
        return _grouped((call for call in self.calls if call.key), lambda c: (c.user, c.key))

    @cached_property
    def calls_of_view(self) -> dict[str, list[Call]]:
        return _grouped((call for call in self.calls if call.view), lambda c: c.view)

    @cached_property
    def generations_of(self) -> dict[str, list[Generation]]:
        of_turns = (g for g in self.generations if not g.request.startswith(TASK))
        return _grouped(sorted(of_turns, key=lambda g: g.began_at), lambda g: g.reply)

    @cached_property
    def settlements_of(self) -> dict[str, list[Settlement]]:
        return _grouped(self.settlements, lambda s: s.reply)

    @cached_property
    def writes_of(self) -> dict[str, list[Write]]:
        return _grouped(sorted(self.writes, key=lambda w: w.t1), lambda w: w.reply)

    @cached_property
    def deleted(self) -> dict[str, tuple[float, float | None]]:
        """Conversation -> when its delete was first sent, and when one was answered."""
        found: dict[str, tuple[float, float | None]] = {}
        for call in self.calls:
            if call.op == "delete":
                first, answered = found.get(call.conv, (call.t0, None))
                if call.http == 204 and answered is None:
                    answered = call.t1
                found[call.conv] = (first, answered)
        return found

    def most_runs_of(self, turn: StoredTurn) -> int:
        """How often a turn may have been run: once, and again if it was posted after an end."""
        posts = [
            call
            for call in self.calls_of_turn.get((turn.owner, turn.key), [])
            if call.op in ("post", "again", "repost")
        ]
        ends = sorted(s.at for s in self.settlements_of.get(turn.reply, ()))
        return 1 + sum(
            any(call.t1 > first and call.t0 < second for call in posts)
            for first, second in pairwise(ends)
        )

    def losses_between(self, t0: float, t1: float) -> int:
        """How many deeds that may lose logs touch this time."""
        return sum(i.loses_logs and i.t0 <= t1 and i.t1 >= t0 for i in self.incidents)

    def unreachable_between(self, t0: float, t1: float, *, recovery_s: float = 3.0) -> bool:
        """Whether somebody could not reach Valkey then, or just before."""
        return any(
            "valkey" in i.victim and i.t0 <= t1 and i.t1 + recovery_s >= t0 for i in self.incidents
        )

    def is_calm(self, t0: float, t1: float, *, recovery_s: float = 4.0) -> bool:
        """Whether no fault was there then, nor just before."""
        return not any(
            phase.fault and phase.t0 <= t1 and phase.t1 + recovery_s >= t0 for phase in self.phases
        )


def _grouped(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = defaultdict(list)
    for value in values:
        groups[key(value)].append(value)
    return groups
