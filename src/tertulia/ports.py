"""What the lanes need from the world: small Protocols, each with the promises a back end keeps.

Every promise of a store is a test of `tests/conformance`, run on every back end; those of replicas,
vocabularies and checks are tests of `tests/lanes`. Nothing here does anything.
Times are seconds of the store's own clock; a back end never compares another machine's clock.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from tertulia.core.deletions import CacheAnswer
from tertulia.core.difficulty import Question
from tertulia.core.fleet import Home, ReplicaReport, Wanted
from tertulia.core.ladder import Foothold
from tertulia.core.load import Sight
from tertulia.core.shares import NewShare, NothingToShare, Share, SharedPage, TooManyShares
from tertulia.core.types import (
    Admission,
    ApiKey,
    Append,
    Branch,
    Chunk,
    Conversation,
    Drift,
    Entry,
    Fenced,
    GenerateRequest,
    Gone,
    Head,
    Held,
    Lane,
    Limits,
    LogView,
    Message,
    ModelState,
    NewTurn,
    Note,
    OpenSession,
    Outcome,
    Page,
    PromptMessage,
    Said,
    Session,
    Spent,
    TokenIds,
    Turn,
    Unit,
    User,
    Verdict,
)
from tertulia.core.waiting import Claimable, LineView


class StoreUnavailable(Exception):
    """The store can't take or give anything now (locked, unreachable).

    A write is whole or not there. Where the connection broke before its answer came it may be
    there: whoever does it again under the same key or epoch finds out.
    """


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
      is known with another `body_sha`), Repeated (known, and its turn has not failed, or something
      was said below its reply), Missing (conversation, or parent, or for `regenerate` the user's
      message is not this owner's; what was begun there under this key was deleted; or the owner's
      account was closed), Busy, TooManyRunning, BudgetExhausted, Admitted. Everything but Admitted
      changes nothing.
    * A stored turn that FAILED is admitted again under its key with the same body, as long as no
      message hangs below its reply (the prompts of those are built without it): it goes back
      to queued with the same ids, under an attempt above all before, with its log emptied or
      dropped, the next epoch (its old owner can't write) and a new reservation. A missing log
      stays missing. The checks before are made for it as for a new one.
    * Ids are made by their callers and never twice: one that this owner has already is a
      ValueError, and changes nothing.
    * Busy: an open turn of the same conversation is the parent's own reply, or answers the same
      user message, or, for a new message, hangs its own under the same parent (S-22).
    * Admitting stores the user's message and a queued reply message, moves the conversation's head
      to the reply, sets `updated_at`, and sets the title if it is empty. A `stateless` turn touches
      no conversation. A turn with a `refusal` is stored final, whatever the budgets: REFUSED,
      charged 0, message kept. So is a new one with a `canned` reply: COMPLETED, with the model and
      the notice `canned`, and the reply's text on turn and message.
    * The reservation, `prompt_tokens` and `answer_tokens`, is held against every budget of the
      limits (`core.quota.reserve`); where less is left `answer_tokens` shrinks, but not below
      `min_answer_tokens`, and the notice `answer_capped` is added. What is settled and what open
      turns hold never exceed a budget together, whoever else admits at that moment, through
      whichever gateway. Open turns of an owner, batches apart, never exceed `replies_running`.
    * A turn keeps the lane, the budgets and the patience of the limits it was admitted under.
    * `finish` applies once: only if the turn is open and `epoch` is its epoch; it writes turn,
      reply message (text, ids, tokens = len(ids), status, model...), `attempt`, settlement and
      balances together, and frees the reservation. False means superseded: nothing was written.
      It charges the turn's budgets for `usage` alone; one beyond the reservation is a ValueError
      and changes nothing, else a limit could be passed.
    * Settlements of an owner have a moment each, in their order: the balances can be computed from
      them again, exactly (`Ledger`).
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
    async def note(self, held: Held, note: Note) -> bool: ...
    async def finish(self, held: Held, outcome: Outcome) -> bool: ...
    async def seize(self, owner: str, reply_id: str, reason: str) -> Turn | None: ...


class LooseTurns(Protocol):
    """Turns of no conversation (`stateless` ones): kept while their stream can be followed.

    Promises
    * `forget` removes those that ended `ended_s` ago or before, the oldest first and at most
      `limit`: words, key and log, which is buried. Settlements stay (numbers only). It names them.
      No other turn is touched, and none that is open again at that moment.
    * `delete` does the same at once for one that has ended; None if there is none, or it is open.
      With the last of a thread it leaves an order to forget that one (`ports_of_deletions`).
    * A thread's last is the one with which no turn of it is left, open or ended, of any kind.
    * From then on the turn is not found, its log refuses every writer, and its key is free.
    * The `line` of a batch becomes one of these when its batch has its results
      (`BatchWork.sweep`).
    """

    async def forget(self, *, ended_s: float, limit: int) -> Sequence[Gone]: ...
    async def delete(self, owner: str, reply_id: str) -> Gone | None: ...


class Queue(Protocol):
    """The same turns, seen as work. Leases run on the store's clock.

    Promises
    * `claim` gives the open turn with no live lease that is first by (lane, once claimed before
      never claimed, rank, created_at, reply_id), at epoch + 1 with a lease of `lease_s`, status
      running; two claimers never get the same turn; None when there is none. `skip` lists reply ids
      not wanted. Only the lanes that `core.waiting.lowest_lane` allows for `may` are looked at, and
      no turn that it lets wait (`Claimable.lets_wait`) and that was never claimed; where it is
      None, all.
    * A turn's rank is given when it is admitted, also anew (`core.waiting.rank_of`): the owner's
      tag in the lane becomes the rank and the worst that the turn may cost. When it ends, or is
      deleted without ever having been claimed, the tag goes down by what it did not cost.
    * `renew` extends leases and returns the claims that are lost: superseded, final or deleted.
    * `release` gives a claim back at once (status stays; the lease ends), for a clean shutdown.
    * `abandoned` lists open turns that no follower has been seen at for their `abandon_s` (a turn
      counts as followed when it is admitted, also anew, and again after `restarted`).
    * `stale` lists open turns whose lease ended `held_age_s` ago or before, and those never claimed
      that were admitted `queued_age_s` ago or before; a batch may wait for as long as it takes.
    * `restarted` is called once when this process is the only user of the store (embedded): all
      leases end, and every open turn counts as followed now.
    """

    async def claim(
        self, *, lease_s: float, skip: Sequence[str] = (), may: Claimable | None = None
    ) -> Turn | None: ...
    async def renew(self, held: Sequence[Held], *, lease_s: float) -> frozenset[Held]: ...
    async def release(self, held: Sequence[Held]) -> None: ...
    async def abandoned(self) -> Sequence[Turn]: ...
    async def stale(self, *, held_age_s: float, queued_age_s: float) -> Sequence[Turn]: ...
    async def restarted(self) -> None: ...


class Line(Protocol):
    """The queue as those see it who wait in it, and those at its door.

    Promises: `look` is one view of the store: how many turns of each lane wait that were never
    claimed, how many run, how many were ever begun (claimed for the first time since they were
    admitted), how many of those never claimed await one model, and how many run on each model, as
    far as that was noted; and for those of the `replies`, each with its owner, that were never
    claimed, where they stand among all of those in the order of claims.
    """

    async def look(self, replies: Iterable[tuple[str, str]]) -> LineView: ...


class Promises(Protocol):
    """When those who were refused at the door may come back: places in the line's future, the same
    for every gateway. All of it may be lost.

    Promises: `ask` is one atomic step on what was promised in this lane and pool, by the store's
    clock, and answers what `core.returns.Returns.ask` does: None to come in, or after how many
    seconds to come back. What is promised in one pool changes nothing in another.
    """

    async def ask(
        self,
        lane: Lane,
        owner: str,
        *,
        pool: str = "",
        wait_s: float,
        limit_s: float,
        kept_s: float,
        starts_per_s: float,
    ) -> float | None: ...


class Presence(Protocol):
    """Who is being listened to: `seen` marks replies, each with its owner, as followed now."""

    async def seen(self, followed: Iterable[tuple[str, str]]) -> None: ...


class Log(Protocol):
    """The numbered events of a reply: the only thing followers read.

    Promises
    * Entries of an attempt are 1, 2, 3 ... without gap; an id always denotes the same bytes.
    * `fence` is one atomic step: None if `epoch` is below the stored fence; else the fence becomes
      `epoch` and attempt and entries are returned. A missing log is created empty, under `attempt`
      if `epoch` is 1 and under `attempt + 1` otherwise (what was there is lost with its owner).
      A log of an earlier attempt than `attempt` (it was run again) or in doubt counts as missing.
    * A log is in doubt once its system failed over to a copy: its end, or its last fence, may be
      lost. Only its live owner knows better. Readers read what is there.
    * `append` is one atomic step: DONE iff fence == epoch and attempt equal and the entries go on
      from the last id, or are the last already (their writer did not hear the answer). MISSING if
      there is no such log, or if the fence is not above `epoch` and the log is in doubt or lacks
      entries before these. STALE otherwise. All entries or none.
    * `reseed` answers MISSING: it writes all entries under fence `epoch` and `attempt`. DONE if the
      log is missing; if it is in doubt and neither fence nor attempt are above these; or if both
      are these and it holds no more than these entries. STALE otherwise.
    * `read` gives a consistent view (attempt, last, entries after `after`, if any) or None if
      missing. Only what was appended is ever read.
    * `wait` returns as soon as the log of the reply differs from (`attempt`, `after`) - newer
      entries, another attempt, dropped - or after `timeout_s`. A change between `read` and `wait`
      is not missed (S-04). A missing log is the same as (any attempt, 0).
    * `drop` deletes the logs of turns that finished `older_than_s` ago (unless their store ends old
      ones by its own clock), or exactly those named by `reply_ids`.
    * `bury` removes logs for good: each refuses every writer (`fence` None, the others STALE) for
      an hour at least, whether it was there or not. It is done for the turns that are deleted.
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
    async def bury(self, reply_ids: Sequence[str]) -> None: ...


class Bell(Protocol):
    """Wakes sleepers; may be lost, so every wait has an end. Topics are short words."""

    def ring(self, topic: str) -> None: ...
    async def wait(self, topic: str, *, timeout_s: float) -> None: ...


class Registry(Protocol):
    """The replicas that are there, by their own word, for every gateway and worker.

    Promises
    * `reports` gives each name's newest report with its age by the registry's clock, by name.
    * A report of another incarnation replaces the one before it, and a `leave` of an incarnation
      that was replaced leaves its successor alone. What was not reported for a minute is forgotten.
    """

    async def report(self, report: ReplicaReport) -> None: ...
    async def leave(self, name: str, incarnation: str) -> None: ...
    async def reports(self) -> Sequence[ReplicaReport]: ...


class Homes(Protocol):
    """Which replica holds a conversation's prefix. A hint: it is kept for an hour, and may be lost.

    Promises: `find` gives what was last moved, or None; two moves leave one of them.
    """

    async def find(self, conversation_id: str) -> Home | None: ...
    async def move(self, conversation_id: str, home: Home) -> None: ...


class Rungs(Protocol):
    """Which rung of the ladder holds, and what each process sees, for all of them. May be lost:
    then the ladder begins at its foot.

    Promises
    * `tell` replaces what was told under the name, and gives the foothold and the sights that are
      not older than six seconds, this one among them. Times are the keeper's own.
    * `step` is one atomic step: it is taken exactly if `core.ladder.may_step` allows it at that
      moment, so that of all who saw the same foothold one steps, and no two steps of the fleet are
      closer than ten seconds. It gives the foothold afterwards.
    """

    async def tell(self, name: str, sight: Sight) -> tuple[Foothold, Sequence[Sight]]: ...
    async def step(self, seen: Foothold, to: int) -> Foothold: ...


# A process that says each second that it lives, and is silent for so long, is dead or as good as.
PROCESS_S: Final = 3.0


class Leases(Protocol):
    """How many of something a name holds, over all processes: leases that end by themselves.

    Open streams are leases that are renewed, tries within a window leases that are not. All of them
    may be lost: then more is let in than should be, and nothing else is wrong.

    Promises
    * `take` is one atomic step. None: `lease` is held by `name` from now on, for `lasts_s`. Else
      `name` holds `limit` others, nothing was changed, and it is told in how many seconds there
      is room if nobody renews. A lease that is held already is taken again whatever the limit.
    * A lease ends `lasts_s` after it was last taken or renewed, by the store's clock. One name's
      leases all last equally long.
    * `renew` holds leases (name, lease) for another `lasts_s`, also those that were lost: they are
      in use, so they count, whatever the limit. With none it still says that this process lives.
    * A lease `of_process` is over with the process that took it, and may be: whoever finds no room
      for one gets it from a process that has renewed nothing for `PROCESS_S`. Only such leases are
      renewed.
    * `free` ends a lease and `forget` all of a name's. They never wait and never fail: what they
      did not reach ends by itself.
    """

    async def take(
        self, name: str, lease: str, *, limit: int, lasts_s: float, of_process: bool = False
    ) -> float | None: ...
    async def renew(self, held: Sequence[tuple[str, str]], *, lasts_s: float) -> None: ...
    def free(self, name: str, lease: str) -> None: ...
    def forget(self, name: str) -> None: ...


class Conversations(Protocol):
    """Conversations of one owner. Another owner's is not there: same answer, same path.

    Promises
    * `create` with a key seen before returns the conversation made then (S-19). A new one keeps to
      the instructions that its owner has at that moment.
    * `list` is newest `updated_at` first, pinned ones first of all, keyset paged, text columns
      not read. A cursor that was not made here is a ValueError.
    * With a `query` it keeps those whose title or messages hold it, literally (no wildcards) and
      in any case (`core.search.folded`), with a `snippet` of the newest such message where the
      title does not. One call looks through no more than `core.search.looked_through`: it may
      give fewer than `limit`, or none, and still a `next_cursor`.
    * `change` touches only the named ones of title, pinned and archived, and never `updated_at`;
      None if missing, ValueError for another field.
    * `delete` removes conversation, messages and turns in one transaction, and buries their logs,
      and returns the reply ids that were open; an unknown one returns None. Settlements stay
      (numbers only); an open turn with an epoch above 0, which may have been generated for, is
      settled at its whole reservation, so that deleting is no way to answers for nothing. Without
      a conversation's id it deletes the turns that belong to none, in the same way. With `idle_s`
      it is a conversation's age that deletes it: only if nobody wrote in it for so long, else None.
    * In the same transaction it leaves an order to reach every other copy (`Deletions`).
    * Where logs are in another system, which may be away at that moment, the transaction keeps
      their ids and `bury_deleted` (a chore) does what is left; it says how many.
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
    async def delete(
        self, owner: str, conversation_id: str | None, *, idle_s: float | None = None
    ) -> tuple[str, ...] | None: ...
    async def bury_deleted(self) -> int: ...
    async def prompt_text(self, version: str, *, store: str | None = None) -> str | None:
        """The system prompt of a version; `store` saves it first if the version is new."""


class Messages(Protocol):
    """Messages of one owner.

    Promises
    * `page` gives the newest `limit` messages before `before` (a message id), oldest first within
      the page, without `ids` and each with its `version`; None if the conversation, or `before` in
      it, is not this owner's. `next_cursor` is the next `before`.
    * `branch` gives the path from the root to `leaf` (inclusive; HEAD is the newest message),
      without texts but for that of a user's leaf, with what the conversation keeps to; None if the
      conversation is not this owner's. No path leads to None, or to what is not in it.
    * `texts` gives PromptMessages for the ids in the given order (a reply's ids included); what is
      not there is left out.
    * `rate` stores a rating of a reply and touches nothing else (S-23).
    """

    async def page(
        self, owner: str, conversation_id: str, *, before: str | None, limit: int
    ) -> Page[Message] | None: ...
    async def find(self, owner: str, message_id: str) -> Message | None: ...
    async def branch(
        self, owner: str, conversation_id: str, leaf: str | Head | None
    ) -> Branch | None: ...
    async def texts(self, owner: str, message_ids: Sequence[str]) -> Sequence[PromptMessage]: ...
    async def rate(
        self, owner: str, message_id: str, rating: Literal["up", "down"] | None, why: str
    ) -> Message | None: ...


class Shares(Protocol):
    """Links to snapshots of branches, by the hash of their secret.

    Promises
    * `add` notes which messages a link shows (`core.shares.snapshot_of`) and the title of that
      moment, and copies no message. It answers None if the conversation, or the leaf in it, is not
      this owner's, NothingToShare, TooManyShares if the owner has `limit` already, or the Share;
      everything but that changes nothing.
    * `list` is newest first, of one conversation where it is named; None if that is not this
      owner's.
    * `revoke` is false for another owner's; what is revoked is not found from then on.
    * `page` gives up to `limit` messages of a link after the place `after`, the same whatever came
      later. None: there is no such link, its owner is disabled, or any message of its branch, shown
      or not, is gone.
    * A conversation's links are deleted with it, in the same transaction.
    """

    async def add(
        self, new: NewShare, *, limit: int
    ) -> Share | NothingToShare | TooManyShares | None: ...
    async def list(self, owner: str, conversation_id: str | None) -> Sequence[Share] | None: ...
    async def revoke(self, owner: str, share_id: str) -> bool: ...
    async def page(self, token_hash: str, *, after: int, limit: int) -> SharedPage | None: ...


class Branches(Protocol):
    """The branches of one owner's conversations: each remembers the leaf it was last shown at.

    Promises
    * The head of a conversation is the leaf of the branch that is shown. Only a turn that is
      admitted, `switch`, and the deletion of the head move it (S-23).
    * Of the leaves below a message its branch was last at the one that was the head most lately,
      or at the newest if none ever was (S-24). A message with nothing below it is a leaf.
    * `page` gives the newest `limit` messages before `before` of the branch that leads through a
      message (HEAD: the shown one) down to where it was last at, as `Messages.page` gives them.
      None if the conversation, or one of the two in it, is not this owner's.
    * `switch` makes the leaf where the message's branch was last at the head, and changes nothing
      else; it gives the conversation, or None if there is no such message in it.
    * `running` names the open replies at or below a message, oldest first; None if there is no such
      message.
    * `delete` removes a message and all below it with their turns in one transaction, and does with
      turns and logs what `Conversations.delete` does. If the head was among them it becomes where
      the parent's branch was last at, or for a root that of the whole tree; a title that was made
      of a message that is gone is emptied: its words, or (by a model) the first answered exchange
      there. An order to forget the rest of it is left
      (`ports_of_deletions`). It gives the reply ids that were open; None if there is no such
      message.
    """

    async def page(
        self,
        owner: str,
        conversation_id: str,
        *,
        through: str | Head,
        before: str | None,
        limit: int,
    ) -> Page[Message] | None: ...
    async def switch(
        self, owner: str, conversation_id: str, message_id: str
    ) -> Conversation | None: ...
    async def running(self, owner: str, message_id: str) -> tuple[str, ...] | None: ...
    async def delete(self, owner: str, message_id: str) -> tuple[str, ...] | None: ...


class Accounts(Protocol):
    """Users. Names are unique without regard to case. Whoever's account was closed is not there.

    Promises: `add` returns None if the name is taken, or was until its account was closed; `change`
    touches only the named ones of role, plan, password_hash, disabled and evaluation; `page` gives
    users in the order of their ids, after the id `after`, of one plan where it is named, and
    `next_cursor` is the next `after`; `spent` gives what `admit` would look at now.
    """

    async def add(self, user: User) -> User | None: ...
    async def find(self, user_id: str) -> User | None: ...
    async def by_name(self, name: str) -> User | None: ...
    async def change(self, user_id: str, changes: Mapping[str, Any]) -> User | None: ...
    async def count(self) -> int: ...
    async def page(self, *, plan: str | None, after: str | None, limit: int) -> Page[User]: ...
    async def spent(self, user_id: str) -> Spent: ...


class Ledger(Protocol):
    """The settlements and the balances that follow from them, for their maintenance.

    Promises
    * `owners` pages through everybody who was ever settled, in a fixed order, after `after`.
    * `check` gives the names of the balances that are not what the owner's settlements say, with
      what they are and what they should be, both read at one moment; `rebuild` also writes those.
    """

    async def owners(self, *, after: str, limit: int) -> Sequence[str]: ...
    async def check(self, owner: str) -> Mapping[str, Drift]: ...
    async def rebuild(self, owner: str) -> Mapping[str, Drift]: ...


class Sessions(Protocol):
    """Signed-in browsers and one-time sign-in links, by the hash of their secret.

    Promises: what is closed, expired or redeemed, and anything of a disabled user, is not found;
    `alive` gives those of the hashes that `find` would find.
    `redeem` of a link works once; a new link of a user ends the earlier ones. `close` without an
    argument closes nothing. `list` is newest first, at most `limit`, without those of a disabled
    user.
    """

    async def open(self, user_id: str, token_hash: str, *, lasts_s: float) -> None: ...
    async def find(self, token_hash: str) -> Session | None: ...
    async def alive(self, token_hashes: Sequence[str]) -> frozenset[str]: ...
    async def list(self, user_id: str, *, limit: int) -> Sequence[OpenSession]: ...
    async def close(self, *, token_hash: str | None = None, user_id: str | None = None) -> int: ...
    async def add_link(self, user_id: str, token_hash: str, *, lasts_s: float) -> None: ...
    async def redeem(self, token_hash: str) -> User | None: ...


class ApiKeys(Protocol):
    """Credentials of programs, by the hash of their secret.

    Promises: a revoked key, and any of a disabled user, is not found; `alive` gives those of the
    hashes that `by_secret` would find, and is no use of them; `revoke` is false for another owner's
    key; `list` is oldest first; a key's last use is written once a minute at most.
    """

    async def add(self, key: ApiKey) -> None: ...
    async def list(self, user_id: str) -> Sequence[ApiKey]: ...
    async def revoke(self, user_id: str, key_id: str) -> bool: ...
    async def by_secret(self, secret_hash: str) -> tuple[User, ApiKey] | None: ...
    async def alive(self, secret_hashes: Sequence[str]) -> frozenset[str]: ...


class Replicas(Protocol):
    """The pools of replicas, each a process that speaks vLLM's HTTP dialect.

    Promises
    * `models` says what can be picked and how much room each has; it never waits.
    * `place` names the replica that should generate, or None while none can; it counts the prompt
      there at once, so that the next one sees it, and asks nobody for long. A placed request that
      is not generated within seconds is forgotten.
    * `generate` yields paced batches of whole characters with their token ids; it ends after the
      batch that carries `finish`. Units that `ripens` says no to (it sees all, in order) may come
      with the next batch. ReplicaLost or ReplicaRefused otherwise. Closing the generator
      closes the connection and so ends the sequence.
    * `abort` returns when the replica no longer runs that request, or after a bounded wait;
      aborting what is not there is no error.
    * `forget` asks every replica that is known here, of each pool, to end what runs for an owner,
      or in one of his conversations, and to drop what its cache has of it, in every tier. It gives
      each one's answer by name: one that is away has not answered.
    * A replica that does not answer, or whose vocabulary was found to differ, is not chosen.
    """

    def models(self) -> Sequence[ModelState]: ...
    async def place(self, wanted: Wanted) -> str | None: ...
    def generate(
        self,
        replica: str,
        request: GenerateRequest,
        *,
        ripens: Callable[[Sequence[Unit]], bool] | None = None,
    ) -> AsyncGenerator[Said, None]: ...
    async def abort(self, replica: str, request_id: str) -> None: ...
    async def forget(
        self, owner: str, conversation_id: str | None
    ) -> Mapping[str, CacheAnswer]: ...
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


class Grader(Protocol):
    """Says how hard a question is, from 0 to `core.difficulty.HARDEST`.

    It may be slow or raise whatever it likes: the door then goes by a crude rule and does not wait.
    """

    async def difficulty(self, question: Question) -> int: ...
