"""What the lanes need from the world: small Protocols, each with the promises a back end keeps.

Every promise of a store is a test of `tests/conformance`, run on every back end; those of replicas,
vocabularies and checks are tests of `tests/lanes`. Nothing here does anything.
Times are seconds of the store's own clock; a back end never compares another machine's clock.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from tertulia.core.types import (
    Admission,
    ApiKey,
    Append,
    BranchMessage,
    Chunk,
    Conversation,
    Entry,
    Fenced,
    GenerateRequest,
    Limits,
    LogView,
    Message,
    ModelState,
    NewTurn,
    Note,
    Outcome,
    Page,
    PromptMessage,
    Said,
    Session,
    Spent,
    TokenIds,
    Turn,
    User,
    Verdict,
)


class StoreUnavailable(Exception):
    """The store can't take or give anything now (locked, unreachable): nothing was changed."""


class StoreFull(StoreUnavailable):
    """The disk is full: nothing was changed and what was acknowledged is kept."""


class ReplicaLost(Exception):
    """The replica is gone, silent or broke the stream: continue elsewhere with the sent tokens."""


class ReplicaRefused(Exception):
    """The replica said no (`status`, `code`): for 429 and 503 another time may do."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float | None = None):
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class Clock(Protocol):
    """Time as an argument. `now` never goes back within one process."""

    def now(self) -> float:
        """Seconds since the Unix epoch, for what people see and for stored times."""

    async def sleep(self, seconds: float) -> None: ...


class NewId(Protocol):
    """Makes ids that sort by creation time: `new_id("c")` gives `c_01J9X4...`."""

    def __call__(self, prefix: str) -> str: ...


class Turns(Protocol):
    """The truth about turns and what they cost.

    Promises
    * `admit` is one transaction and answers with the first that holds: KeyReused (this owner's key
      is known with another `body_sha`), Repeated (known, and its turn has not failed), Missing
      (conversation, or parent, or for `regenerate` the user's message is not this owner's), Busy,
      TooManyRunning, BudgetExhausted, Admitted. Everything but Admitted changes nothing.
    * A stored turn that FAILED is admitted again under its key with the same body: it goes back
      to queued with the same ids, an emptied log under an attempt above all before, the next epoch
      (its old owner can't write) and a new reservation. A missing log stays missing. The checks
      before are made for it as for a new one.
    * Busy: an open turn of the same conversation is the parent's own reply, or answers the same
      user message, or, for a new message, hangs its own under the same parent (S-22).
    * Admitting stores the user's message and a queued reply message, moves the conversation's head
      to the reply, sets `updated_at`, and sets the title if it is empty. A `stateless` turn touches
      no conversation. A turn with a `refusal` is stored final, whatever the budgets: REFUSED,
      charged 0, message kept.
    * The reservation is `prompt_tokens + answer_tokens` against `Limits.tokens_per_day`; if less is
      left, `answer_tokens` shrinks to what is left but not below `min_answer_tokens`, and the
      notice `answer_capped` is added. Settled today + reserved of open turns never exceeds the
      limit. Open turns of an owner never exceed `replies_running`.
    * `finish` applies once: only if the turn is open and `epoch` is its epoch; it writes turn,
      reply message (text, ids, tokens = len(ids), status, model...), `attempt` and settlement
      together, and frees the reservation. False means superseded: nothing was written. `charged`
      is at most the reservation (`core.quota.charge`), else the limit above could be passed.
    * `seize` is a stop's claim: whatever the lease, epoch + 1, a lease of 2 s and the stop reason
      stored (`Turn.stop_reason`: whoever claims after that ends the turn as that); None if the
      turn is final or not there.
    * `note` writes under an epoch and returns False when superseded. A noted model is what the
      reply message and (with `pin`) the conversation show; notices are added, each once.
    * Deleting is elsewhere (`Conversations.delete`); a deleted turn is found no more and every
      write to it is refused.
    """

    async def admit(self, turn: NewTurn, limits: Limits) -> Admission: ...
    async def find(self, owner: str, reply_id: str) -> Turn | None: ...
    async def find_by_key(self, owner: str, key: str) -> Turn | None: ...
    async def note(self, reply_id: str, epoch: int, note: Note) -> bool: ...
    async def finish(self, reply_id: str, epoch: int, outcome: Outcome) -> bool: ...
    async def seize(self, owner: str, reply_id: str, reason: str) -> Turn | None: ...


class Queue(Protocol):
    """The same turns, seen as work. Leases run on the store's clock.

    Promises
    * `claim` gives the open turn with no live lease that is first by (lane: plus before free,
      then created_at, reply_id), at epoch + 1 with a lease of `lease_s`, status running; two
      claimers never get the same turn; None when there is none. `skip` lists reply ids not wanted.
    * `renew` extends the leases of the given (reply_id, epoch) and returns those that are no
      longer held (superseded, final or deleted).
    * `release` gives a claim back at once (status stays; the lease ends), for a clean shutdown.
    * `abandoned` lists open turns that no follower has been seen at for `grace_s` (by plan; a
      turn counts as followed when it is admitted, also anew, and again after `restarted`).
    * `stale` lists open turns that nobody holds and that were last held, or if never claimed
      admitted, at least `age_s` ago.
    * `restarted` is called once when this process is the only user of the store (embedded): all
      leases end, and every open turn counts as followed now.
    """

    async def claim(self, *, lease_s: float, skip: Sequence[str] = ()) -> Turn | None: ...
    async def renew(
        self, held: Sequence[tuple[str, int]], *, lease_s: float
    ) -> frozenset[tuple[str, int]]: ...
    async def release(self, held: Sequence[tuple[str, int]]) -> None: ...
    async def abandoned(self, grace_s: Mapping[str, float | None]) -> Sequence[Turn]: ...
    async def stale(self, *, held_age_s: float, queued_age_s: float) -> Sequence[Turn]: ...
    async def restarted(self) -> None: ...


class Presence(Protocol):
    """Who is being listened to. `seen` marks replies as followed now, in one statement."""

    async def seen(self, reply_ids: Iterable[str]) -> None: ...


class Log(Protocol):
    """The numbered events of a reply: the only thing followers read.

    Promises
    * Entries of an attempt are 1, 2, 3 ... without gap; an id always denotes the same bytes.
    * `fence` is one atomic step: None if `epoch` is below the stored fence; else the fence becomes
      `epoch` and attempt and entries are returned. A missing log is created empty, under `attempt`
      if `epoch` is 1 and under `attempt + 1` otherwise (what was there is lost with its owner).
      A log of an earlier attempt than `attempt` counts as missing (the turn was run again).
    * `append` is one atomic step: DONE iff fence == epoch and attempt equal and the entries go on
      from the last id; STALE if not; MISSING if there is no such log. All entries or none.
    * `reseed` creates a missing log with fence `epoch`, `attempt` and all entries: DONE; an
      existing log: STALE.
    * `read` gives a consistent view (attempt, last, entries after `after`; `after` beyond the last
      id gives none); None if missing. Only what was appended durably is ever read.
    * `wait` returns as soon as the log of the reply differs from (`attempt`, `after`) - newer
      entries, another attempt, dropped - or after `timeout_s`. A change between `read` and `wait`
      is not missed (S-04). A missing log is the same as (any attempt, 0).
    * `drop` deletes logs of finished turns older than `older_than_s` (by when the turn finished),
      or exactly those named by `reply_ids`.
    * The log of a deleted turn refuses every writer (`fence` None, the others STALE), for an hour
      at least: nothing brings it back.
    """

    async def fence(self, reply_id: str, epoch: int, attempt: int) -> Fenced | None: ...
    async def append(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append: ...
    async def reseed(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append: ...
    async def read(self, reply_id: str, after: int) -> LogView | None: ...
    async def wait(self, reply_id: str, attempt: int, after: int, *, timeout_s: float) -> None: ...
    async def drop(
        self, *, older_than_s: float | None = None, reply_ids: Sequence[str] = ()
    ) -> int: ...


class Bell(Protocol):
    """Wakes sleepers; may be lost, so every wait has an end. Topics are short words."""

    def ring(self, topic: str) -> None: ...
    async def wait(self, topic: str, *, timeout_s: float) -> None: ...


class Conversations(Protocol):
    """Conversations of one owner. Another owner's is not there: same answer, same path.

    Promises
    * `create` with a key seen before returns the conversation made then (S-19).
    * `list` is newest `updated_at` first, pinned ones first of all, keyset paged, text columns
      not read; `query` matches titles and message texts, literally (no wildcards), any case.
      A cursor that was not made here is a ValueError.
    * `change` touches only the named ones of title, pinned and archived, and never `updated_at`;
      None if missing, ValueError for another field.
    * `delete` removes conversation, messages, turns and logs in one transaction and returns the
      reply ids that were open; an unknown one returns None. Settlements stay (numbers only); an
      open turn with an epoch above 0, which may have been generated for, is settled at its whole
      reservation, so that deleting is no way to answers for nothing. Without a conversation's id
      it deletes the turns that belong to none, in the same way.
    * Prompt versions are stored once and never change.
    """

    async def create(
        self, owner: str, conversation_id: str, *, key: str | None, prompt_version: str
    ) -> Conversation: ...
    async def get(self, owner: str, conversation_id: str) -> Conversation | None: ...
    async def list(
        self, owner: str, *, cursor: str | None, limit: int, query: str, archived: bool
    ) -> Page[Conversation]: ...
    async def change(
        self, owner: str, conversation_id: str, changes: Mapping[str, Any]
    ) -> Conversation | None: ...
    async def delete(self, owner: str, conversation_id: str | None) -> tuple[str, ...] | None: ...
    async def prompt_text(self, version: str, *, store: str | None = None) -> str | None:
        """The system prompt of a version; `store` saves it first if the version is new."""


class Messages(Protocol):
    """Messages of one owner.

    Promises
    * `page` gives the newest `limit` messages before `before` (a message id), oldest first within
      the page, without `ids`; None if the conversation, or `before` in it, is not this owner's.
      `next_cursor` is the next `before`.
    * `branch` gives the path from the root to `leaf` (inclusive), oldest first, without texts.
    * `texts` gives PromptMessages for the ids in the given order (a reply's ids included); what is
      not there is left out.
    * `rate` stores a rating of a reply and touches nothing else (S-23).
    """

    async def page(
        self, owner: str, conversation_id: str, *, before: str | None, limit: int
    ) -> Page[Message] | None: ...
    async def find(self, owner: str, message_id: str) -> Message | None: ...
    async def branch(
        self, owner: str, conversation_id: str, leaf: str | None
    ) -> Sequence[BranchMessage]: ...
    async def texts(self, owner: str, message_ids: Sequence[str]) -> Sequence[PromptMessage]: ...
    async def rate(
        self, owner: str, message_id: str, rating: Literal["up", "down"] | None, why: str
    ) -> Message | None: ...


class Accounts(Protocol):
    """Users. Names are unique without regard to case.

    Promises: `add` returns None if the name is taken; `change` touches only the named ones of role,
    plan, password_hash and disabled; `spent` gives what `admit` would look at now (day of the
    store's clock).
    """

    async def add(self, user: User) -> User | None: ...
    async def find(self, user_id: str) -> User | None: ...
    async def by_name(self, name: str) -> User | None: ...
    async def change(self, user_id: str, changes: Mapping[str, Any]) -> User | None: ...
    async def count(self) -> int: ...
    async def spent(self, user_id: str) -> Spent: ...


class Sessions(Protocol):
    """Signed-in browsers and one-time sign-in links, by the hash of their secret.

    Promises: what is closed, expired or redeemed, and anything of a disabled user, is not found.
    `redeem` of a link works once; a new link of a user ends the earlier ones. `close` without an
    argument closes nothing.
    """

    async def open(self, user_id: str, token_hash: str, *, lasts_s: float) -> None: ...
    async def find(self, token_hash: str) -> Session | None: ...
    async def close(self, *, token_hash: str | None = None, user_id: str | None = None) -> int: ...
    async def add_link(self, user_id: str, token_hash: str, *, lasts_s: float) -> None: ...
    async def redeem(self, token_hash: str) -> User | None: ...


class ApiKeys(Protocol):
    """Credentials of programs, by the hash of their secret.

    Promises: a revoked key, and any of a disabled user, is not found; `revoke` is false for another
    owner's key; `list` is oldest first; a key's last use is written once a minute at most.
    """

    async def add(self, key: ApiKey) -> None: ...
    async def list(self, user_id: str) -> Sequence[ApiKey]: ...
    async def revoke(self, user_id: str, key_id: str) -> bool: ...
    async def by_secret(self, secret_hash: str) -> tuple[User, ApiKey] | None: ...


class Replicas(Protocol):
    """The pools of replicas, each a process that speaks vLLM's HTTP dialect.

    Promises
    * `models` says what can be picked and how much room each has; it never waits.
    * `pick` names the healthy replica of the model with the most room, or None; it never waits.
    * `generate` yields paced batches of whole characters with their token ids; it ends after the
      batch that carries `finish`. ReplicaLost or ReplicaRefused otherwise. Closing the generator
      closes the connection and so ends the sequence.
    * `abort` returns when the replica no longer runs that request, or after a bounded wait;
      aborting what is not there is no error.
    * A replica that does not answer, or whose vocabulary was found to differ, is not picked.
    """

    def models(self) -> Sequence[ModelState]: ...
    def pick(self, model: str) -> str | None: ...
    def generate(self, replica: str, request: GenerateRequest) -> AsyncGenerator[Said, None]: ...
    async def abort(self, replica: str, request_id: str) -> None: ...
    async def changed(self, *, timeout_s: float) -> None:
        """Returns when a replica came, went or freed room, or after `timeout_s`."""


class Vocabulary(Protocol):
    """The model's own tokenizer and chat template, in this process.

    Promises: `encode` never gives a control token, whatever the text; `decode(encode(x)) == x`;
    `render` shows every content verbatim as its own text chunk and ends with the generation
    prompt; the same input always gives the same ids.
    """

    @property
    def name(self) -> str: ...
    @property
    def window(self) -> int: ...
    @property
    def cost(self) -> tuple[int, int]:
        """At most this many tokens does the template add: (to a prompt, to each message)."""

    @property
    def control_ids(self) -> frozenset[int]: ...
    def encode(self, text: str) -> TokenIds: ...
    def encode_control(self, text: str) -> TokenIds: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def render(self, messages: Sequence[PromptMessage]) -> Sequence[Chunk]: ...


class Checks(Protocol):
    """Looks at text before it is used. A check that can't answer raises; output then stays back.

    `check_output` gets the sentence and the released text before it (a tail is enough), so that a
    harmful text split over sentences is seen.
    """

    async def check_input(self, text: str) -> Verdict: ...
    async def check_output(self, before: str, sentence: str) -> Verdict: ...
