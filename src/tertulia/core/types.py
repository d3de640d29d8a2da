"""The values that pass between lanes: turns, messages, log entries and what was counted for them.

Frozen values only; nothing here decides or stores anything. What is made for each token or event is
a named tuple, which takes less than half as long to make as a frozen dataclass; so is what has many
fields and is made anew at each step of a turn, which takes a sixth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from tertulia.core.search import Snippet

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


class Lane(IntEnum):
    """Where a turn waits, and its priority at a replica: the lower number goes first."""

    PLUS = 0
    FREE = 1
    BATCH = 2

    @property
    def is_chat(self) -> bool:
        """Whether a person waits for it."""
        return self is not Lane.BATCH


Role = Literal["system", "user", "assistant"]

# `message` is a new user message and its reply, `regenerate` a further reply to a stored message.
# The others bring their messages with the call and belong to no conversation: `stateless` ones are
# forgotten some minutes after their end (`ports.LooseTurns`), each `line` of a batch when the batch
# has its results.
TurnKind = Literal["message", "regenerate", "stateless", "line"]


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


class DayUse(NamedTuple):
    """What an owner used of one model on one day. `day` counts days of UTC since the epoch,
    `charged` thousandths of a unit. No model: it ended before one was asked."""

    day: int
    model: str | None
    replies: int
    usage: Usage
    charged: int


# `units` weigh tokens by accelerator time (`core.quota.WEIGHTS`), `prompt_tokens` are input alone.
BudgetUnit = Literal["units", "tokens", "prompt_tokens", "turns"]


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget of a plan: a bucket that refills evenly.

    `limit` is in thousandths of `unit`; from empty it is full again after `refill_ms`.
    """

    name: str
    unit: BudgetUnit
    limit: int
    refill_ms: int


@dataclass(frozen=True, slots=True)
class Balance:
    """What an owner had used of a budget at the moment of the last settlement, in thousandths.

    Only settlements change it, so that it can be computed from them again. `limit` and `refill_ms`
    are the budget's as it was charged last: at that pace it comes back, whatever the plan is now.
    """

    used: int
    at_ms: int
    limit: int
    refill_ms: int


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
class Version:
    """Which of its parent's children a message is, oldest first: `number` of `count`, and the ids
    of those beside it."""

    number: int
    count: int
    previous: str | None
    following: str | None


class Message(NamedTuple):
    """One stored message. `tokens` was counted once, with the vocabulary named by `tokenizer`.

    `seq` grows by one with each message of a conversation. For a reply that is not final
    `content` is empty here: its text so far is in the log. `version` comes with pages alone.
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
    version: Version | None = None


class BranchMessage(NamedTuple):
    """The part of a message that decides what enters a prompt; texts are loaded afterwards."""

    id: str
    role: Role
    status: Status
    tokens: int
    tokenizer: str


class Head(Enum):
    """Names the leaf of the branch that a conversation shows, whichever that is."""

    HEAD = "head"


HEAD: Final = Head.HEAD


# The first words of the first message, until a model or a person finds a better title.
TitledBy = Literal["words", "model", "person"]


@dataclass(frozen=True, slots=True)
class Branch:
    """The path from a conversation's root to `leaf`, oldest first, and what every prompt of the
    conversation keeps to; both as they were at one moment. `said` is the text of a leaf that is a
    user's message: whoever answers it needs that in any case. `instructions` is the version of the
    owner's own (`core.opening`), 0 for none."""

    prompt_version: str
    model: str | None
    leaf: str | None
    messages: tuple[BranchMessage, ...]
    said: str | None = None
    instructions: int = 0
    titled_by: TitledBy = "words"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A tree of messages of one owner. `model` is where `auto` stays once it has been answered,
    `instructions` the version of the owner's own that it keeps to, 0 for none.

    `snippet` comes with what a search found in a message, and not in the title."""

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
    snippet: Snippet | None = None
    instructions: int = 0
    titled_by: TitledBy = "words"


class NewTurn(NamedTuple):
    """A turn at the door: everything that is known before it is stored.

    `parent_id` is the parent of the user's message.
    """

    owner: str
    key: str
    body_sha: str
    kind: TurnKind
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
    difficulty: int = 0  # of its question, as `core.difficulty` counts; 0 where a model was picked
    # The model that it waits for, by one of its names (`core.choice.awaited`), and why it must make
    # do with the small one, if that was decided at the door.
    awaited: str | None = None
    lowered: Reason | None = None
    prompt: tuple[PromptMessage, ...] = ()
    title: str = ""
    notices: tuple[str, ...] = ()
    # A turn whose input was refused by the checks is stored final at once and never queued; and so
    # is one that was given a ready reply.
    refusal: Refusal | None = None
    canned: Canned | None = None


@dataclass(frozen=True, slots=True)
class Canned:
    """A ready reply and its tokens, by the turn's `tokenizer`. Nobody computed it."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a check refused, and the text shown instead."""

    stage: Literal["input", "output"]
    category: str
    text: str


class Held(NamedTuple):
    """A claim: whose reply it is and the epoch under which its holder may write."""

    owner: str
    reply_id: str
    epoch: int


class Turn(NamedTuple):
    """A stored turn: always claimable or final.

    `epoch` counts claims: only its holder may write. `attempt` counts logs: it grows when the log
    was lost together with its owner. Times are seconds of the store's clock. `charged` is in
    thousandths of a unit. `budgets` and `abandon_s` are those of its plan when it was admitted,
    kept while it is open, whatever becomes of the plan. `awaited` is the model that it waits for,
    if only that will do. Before there is a `model`, a `reason` is why it must be the small one.
    """

    owner: str
    key: str
    body_sha: str
    kind: TurnKind
    reply_id: str
    plan: str
    lane: Lane
    requested: str
    answer_tokens: int
    reserved: int
    sampling: Sampling
    status: Status
    epoch: int
    attempt: int
    created_at: float
    budgets: tuple[Budget, ...] = ()
    abandon_s: float | None = None
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
    # Of what was cut from its prompt, as it was at the first claim: whoever goes on after a crash
    # sends the same prompt, whatever was summarised since.
    summary_id: str | None = None
    difficulty: int = 0
    awaited: str | None = None
    finished_at: float | None = None
    finish: Finish | None = None
    text: str = ""
    usage: Usage = Usage()
    charged: int = 0
    refusal: Refusal | None = None
    failure: Failure | None = None
    last_event_id: int = 0
    # Set by a stop (`seize`) while the turn is open: whoever claims it next ends it as that.
    stop_reason: str | None = None

    @property
    def held(self) -> Held:
        """The claim under which this turn is held, if it is."""
        return Held(self.owner, self.reply_id, self.epoch)

    @property
    def worst_case(self) -> Usage:
        """What is reserved for it: the most that it can be charged for."""
        if not self.reserved:
            return Usage()
        return Usage(input=self.reserved - self.answer_tokens, output=self.answer_tokens)


class Gone(NamedTuple):
    """A turn of no conversation that was forgotten. `thread` is what it went on with
    (`core.turn.thread_of`); `is_last` says that nothing of that is left."""

    owner: str
    reply_id: str
    thread: str
    is_last: bool


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
    summary_id: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ends: written with its settlement in one transaction, once.

    `ids` are the reply's tokens in order (`tokenizer` says whose), kept so that the next prompt
    repeats them exactly. `last_event_id` is the id of the terminal event. `attempt` is the log's
    attempt that the writer saw: the finish transaction stores it on the turn. `usage` is what was
    accepted (`core.quota.accepted`): the charges follow from it alone. `clamped` says that more,
    or less than nothing, was counted.
    """

    status: Status
    attempt: int
    finish: Finish | None
    text: str
    usage: Usage
    last_event_id: int
    ids: TokenIds = ()
    tokenizer: str = ""
    notices: tuple[str, ...] = ()
    refusal: Refusal | None = None
    failure: Failure | None = None
    clamped: bool = False


EventKind = Literal["meta", "delta", "pause", "refusal", "fail", "done"]


class Entry(NamedTuple):
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
    MISSING = "missing"  # the log, or its end, is lost: its live owner writes it again (`reseed`)


class LogView(NamedTuple):
    """What a reader sees: `entries` are those after the asked id, `last` is the newest id.

    In doubt, there may have been more: the log's system failed over, and nobody wrote since.
    """

    attempt: int
    last: int
    entries: Sequence[Entry]
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class User:
    """An account. `plan` and `role` come from here and never from a request. `evaluation` says
    whether its conversations may be used to judge models and changes: only its owner sets it."""

    id: str
    name: str
    role: Literal["admin", "user"]
    plan: str
    password_hash: str | None
    created_at: float
    disabled: bool = False
    evaluation: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in browser. `age_s` is since a password was last given, by the store's clock."""

    user: User
    token_hash: str
    age_s: float


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session as its owner sees it in a list; times are the store's."""

    token_hash: str
    created_at: float
    expires_at: float


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
    """What a plan allows, as the store checks it and keeps it on the turn, in one transaction.

    `abandon_s` is how long a reply goes on with nobody following it; None is for ever.
    """

    budgets: tuple[Budget, ...]
    replies_running: int
    lane: Lane = Lane.FREE
    abandon_s: float | None = None
    # Fewer answer tokens than this are not worth a turn: refuse instead of capping further.
    min_answer_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Holding:
    """An open turn as a claim on its owner's budgets, which it names."""

    reply_id: str
    lane: Lane
    worst_case: Usage
    budgets: tuple[str, ...]


class Drift(NamedTuple):
    """A balance as it is kept and as the settlements say it has to be; None: there is none."""

    kept: Balance | None
    due: Balance | None


@dataclass(frozen=True, slots=True)
class Spent:
    """What an owner has used and holds now: the input of every budget decision.

    `balances` are what was settled, by budget; `holdings` the open turns, oldest first. `now_ms`
    is the store's clock.
    """

    now_ms: int
    balances: Mapping[str, Balance]
    holdings: tuple[Holding, ...]

    @property
    def running(self) -> tuple[str, ...]:
        """The reply ids of all open turns, oldest first."""
        return tuple(holding.reply_id for holding in self.holdings)

    def running_beside(self, lane: Lane) -> tuple[str, ...]:
        """Those that count against `replies_running` in this lane: a batch takes none of a chat's
        places."""
        return tuple(
            holding.reply_id for holding in self.holdings if holding.lane.is_chat == lane.is_chat
        )


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
    """No budget for this turn. `budget` names it; amounts are in thousandths of its `unit`.

    At `resets_at` there is room for it, if all that is reserved now is used; None: never, because
    even the shortest answer needs more than the whole budget.
    """

    budget: str
    unit: BudgetUnit
    limit: int
    remaining: int
    needed: int
    resets_at: float | None


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


class Unit(NamedTuple):
    """What a replica said: `text` is whole characters, `ids` the tokens it covers."""

    text: str
    ids: TokenIds


class Said(NamedTuple):
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
    session_id: str | None = None  # its thread (`core.turn.thread_of`): so its cache is forgotten
    said_tokens: int = 0  # the last ones of the prompt, which are the reply's own beginning
    thread: str = ""  # what it goes on with, as in `Wanted.conversation`; nothing: it makes no home


@dataclass(frozen=True, slots=True)
class ModelState:
    """What people are told about a model: `state` and, while it is fetched, how far.

    `name` is what clients pick (`small`, `large`), `served` the model behind it. Of the `slots` of
    its replicas `room` are free, and `ranked_slots` are at engines that know priorities.
    """

    name: str
    served: str
    state: Literal["ready", "fetching", "starting", "absent", "failed"]
    room: int = 0
    window: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    message: str = ""
    slots: int = 0
    ranked_slots: int = 0


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
