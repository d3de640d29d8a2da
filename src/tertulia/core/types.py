"""The values that pass between lanes: turns, messages, log entries and what was counted for them.

Frozen dataclasses only; nothing here decides or stores anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

TokenIds = tuple[int, ...]


class Status(StrEnum):
    """Where a turn stands. The last four are final: such a turn never changes again."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    REFUSED = "refused"

    @property
    def is_final(self) -> bool:
        return self not in (Status.QUEUED, Status.RUNNING)


class Finish(StrEnum):
    """Why a reply ended; the `finish` of its `done` event."""

    STOP = "stop"
    LENGTH = "length"
    STOPPED = "stopped"
    ABANDONED = "abandoned"
    REFUSED = "refused"


class Reason(StrEnum):
    """Why this model answered; the `reason` of the `meta` event."""

    PICKED = "picked"
    AUTO = "auto"
    OVERFLOW = "overflow"
    LADDER = "ladder"
    UNAVAILABLE = "unavailable"


Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. A `seed` makes a reply repeatable on one engine and batch."""

    temperature: float = 0.3  # the small models wander when they are drawn more freely
    top_p: float = 0.9
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn: `cached` is the part of `input` that was read from a prefix cache."""

    input: int = 0
    cached: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """What a person is told when a turn failed, and whether trying again makes sense."""

    code: str
    message: str
    retryable: bool
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message as a prompt sees it. `ids` are a reply's own tokens, made by `tokenizer`."""

    role: Role
    content: str
    ids: TokenIds | None = None
    tokenizer: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a rendered template: `control` text may hold control tokens, `text` never does."""

    kind: Literal["control", "text"]
    text: str


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message. `tokens` was counted once, with the vocabulary named by `tokenizer`.

    `seq` grows by one with each message of a conversation. For a reply that is not final
    `content` is empty here: its text so far is in the log.
    """

    owner: str
    conversation_id: str
    id: str
    parent_id: str | None
    seq: int
    role: Role
    content: str
    tokens: int
    tokenizer: str
    status: Status
    created_at: float
    model: str | None = None
    requested: str | None = None
    reason: Reason | None = None
    finish: Finish | None = None
    notices: tuple[str, ...] = ()
    failure: Failure | None = None
    feedback: Literal["up", "down"] | None = None
    last_event_id: int | None = None
    ids: TokenIds | None = None


@dataclass(frozen=True, slots=True)
class BranchMessage:
    """The part of a message that decides what enters a prompt; texts are loaded afterwards."""

    id: str
    role: Role
    status: Status
    tokens: int
    tokenizer: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A tree of messages of one owner. `model` is where `auto` stays once it has been answered."""

    owner: str
    id: str
    title: str
    prompt_version: str
    created_at: float
    updated_at: float
    pinned: bool = False
    archived: bool = False
    model: str | None = None
    head_message_id: str | None = None
    active_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn at the door: everything that is known before it is stored.

    `kind` is `message` (a new user message and its reply), `regenerate` (a further reply to the
    stored message `user_message_id`) or `stateless` (messages come with the call, nothing is kept
    in a conversation). `parent_id` is the parent of the user's message.
    """

    owner: str
    key: str
    body_sha: str
    kind: Literal["message", "regenerate", "stateless"]
    reply_id: str
    plan: str
    requested: str
    answer_tokens: int
    prompt_tokens: int
    sampling: Sampling
    conversation_id: str | None = None
    user_message_id: str | None = None
    parent_id: str | None = None
    content: str = ""
    content_tokens: int = 0
    tokenizer: str = ""
    prompt: tuple[PromptMessage, ...] = ()
    title: str = ""
    notices: tuple[str, ...] = ()
    # A turn whose input was refused by the checks is stored final at once and never queued.
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a check refused, and the text shown instead."""

    stage: Literal["input", "output"]
    category: str
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A stored turn: always claimable or final.

    `epoch` counts claims: only its holder may write. `attempt` counts logs: it grows when the log
    was lost together with its owner. Times are seconds of the store's clock.
    """

    owner: str
    key: str
    body_sha: str
    kind: Literal["message", "regenerate", "stateless"]
    reply_id: str
    plan: str
    requested: str
    answer_tokens: int
    reserved: int
    sampling: Sampling
    status: Status
    epoch: int
    attempt: int
    created_at: float
    conversation_id: str | None = None
    user_message_id: str | None = None
    prompt: tuple[PromptMessage, ...] = ()
    notices: tuple[str, ...] = ()
    lease_until: float | None = None
    followed_at: float = 0.0
    model: str | None = None
    reason: Reason | None = None
    replica: str | None = None
    request_id: str | None = None
    prompt_tokens: int = 0
    finished_at: float | None = None
    finish: Finish | None = None
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    charged: int = 0
    refusal: Refusal | None = None
    failure: Failure | None = None
    last_event_id: int = 0
    # Set by a stop (`seize`) while the turn is open: whoever claims it next ends it as that.
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Who answers a turn, where and under which request, as the holder of its claim finds out.

    `replica` and `request_id` are None until one is asked. `pin` says whether the conversation
    stays with the model.
    """

    attempt: int
    model: str
    reason: Reason
    replica: str | None
    request_id: str | None
    prompt_tokens: int
    pin: Literal["pin", "keep"]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ends: written with its settlement in one transaction, once.

    `ids` are the reply's tokens in order (`tokenizer` says whose), kept so that the next prompt
    repeats them exactly. `last_event_id` is the id of the terminal event. `attempt` is the log's
    attempt that the writer saw: the finish transaction stores it on the turn.
    """

    status: Status
    attempt: int
    finish: Finish | None
    text: str
    usage: Usage
    charged: int
    last_event_id: int
    ids: TokenIds = ()
    tokenizer: str = ""
    notices: tuple[str, ...] = ()
    refusal: Refusal | None = None
    failure: Failure | None = None


EventKind = Literal["meta", "delta", "pause", "refusal", "fail", "done"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One numbered event of a reply's log.

    `data` is the event's JSON exactly as clients get it; `ids` are the tokens that a `delta`
    covers as little-endian 32-bit integers, which clients never see.
    """

    seq: int
    kind: EventKind
    data: bytes
    ids: bytes = b""


@dataclass(frozen=True, slots=True)
class Fenced:
    """What a fence found: the log's attempt and everything in it."""

    attempt: int
    entries: tuple[Entry, ...]


class Append(StrEnum):
    """The log's answer to a write."""

    DONE = "done"
    STALE = "stale"  # a higher fence, another attempt or a wrong number: stop writing, abort
    MISSING = "missing"  # the log was lost: its live owner writes all of it again (`reseed`)


@dataclass(frozen=True, slots=True)
class LogView:
    """What a reader sees: `entries` are those after the asked id, `last` is the newest id."""

    attempt: int
    last: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class User:
    """An account. `plan` and `role` come from here and never from a request."""

    id: str
    name: str
    role: Literal["admin", "user"]
    plan: str
    password_hash: str | None
    created_at: float
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in browser. `authenticated_at` is when a password was last given."""

    user: User
    token_hash: str
    authenticated_at: float


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A program's credential; only the hash of its secret is kept."""

    id: str
    owner: str
    name: str
    prefix: str
    secret_hash: str
    created_at: float
    last_used_at: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan allows, as the store checks it in the admitting transaction."""

    tokens_per_day: int
    replies_running: int
    # Fewer answer tokens than this are not worth a turn: refuse instead of capping further.
    min_answer_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Spent:
    """What an owner has used and holds now: the input of every budget decision.

    `used_today` are settled tokens of the current UTC day, `reserved` those of open turns,
    `running` are the reply ids of open turns, oldest first; `day_ends_at` is the next UTC midnight,
    store's clock.
    """

    used_today: int
    reserved: int
    running: tuple[str, ...]
    day_ends_at: float


# What the door answers. Expected outcomes are values, not exceptions.


@dataclass(frozen=True, slots=True)
class Admitted:
    """The turn is stored (queued, or final when its input was refused)."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Repeated:
    """This key was seen before with the same body: the stored turn, whatever its status."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class KeyReused:
    """This key was seen before with another body."""


@dataclass(frozen=True, slots=True)
class BudgetExhausted:
    """No budget for this turn. `budget` names it; it resets at `resets_at`."""

    budget: str
    limit: int
    remaining: int
    needed: int
    resets_at: float


@dataclass(frozen=True, slots=True)
class TooManyRunning:
    """The owner already has `limit` replies running."""

    limit: int


@dataclass(frozen=True, slots=True)
class Busy:
    """A reply is running on that branch: `reply_id`."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The conversation or the parent does not exist for this owner."""


Admission = Admitted | Repeated | KeyReused | BudgetExhausted | TooManyRunning | Busy | Missing


@dataclass(frozen=True, slots=True)
class Unit:
    """What a replica said: `text` is whole characters, `ids` the tokens it covers."""

    text: str
    ids: TokenIds


@dataclass(frozen=True, slots=True)
class Said:
    """One paced batch of a running generation; the last one carries `finish` and `usage`.

    `finish` is the engine's own word (`stop`, `length`, `abort`).
    """

    units: tuple[Unit, ...]
    finish: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One generation on one replica, under an id that is known before it is sent."""

    request_id: str
    model: str
    prompt: TokenIds
    max_tokens: int
    sampling: Sampling
    priority: int
    cache_salt: str
    shared_tokens: int = 0  # the first ones of the prompt, which hold nothing of a person
    session_id: str | None = None  # the conversation, so that its cache can be forgotten


@dataclass(frozen=True, slots=True)
class ModelState:
    """What people are told about a model: `state` and, while it is fetched, how far.

    `name` is what clients pick (`small`, `large`), `served` the model behind it.
    """

    name: str
    served: str
    state: Literal["ready", "fetching", "starting", "absent", "failed"]
    room: int = 0
    window: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A check's answer: `flagged` text is never sent. `category` is a stable word."""

    flagged: bool
    category: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; `next_cursor` is None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None
