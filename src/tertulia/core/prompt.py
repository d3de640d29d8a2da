"""What enters a prompt, in which order, and where a long conversation is cut.

The order is fixed: system prompt, summary of what was cut, kept exchanges verbatim, new message.
Nothing that varies from turn to turn stands before the new message, so that between two cuts each
prompt begins with the bytes of the one before and the replica's prefix cache is worth something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tertulia.core.types import BranchMessage, Chunk, PromptMessage, Status, TokenIds

# Between two user messages that share a turn because the first one was never answered.
_JOINT = "\n\n"


# A summary says in a page what a cut left out; a small window can't spare that much of itself.
SUMMARY_TOKENS: Final = 400
SUMMARY_SHARE: Final = 8
# Its exchange in a prompt. A changed word here changes every long prompt once.
SUMMARY_OPENING: Final = "This is what we talked about before:\n\n"
SUMMARY_READ: Final = "Yes, I remember that."
# From this part of the room on the next cut is fixed. A quarter is some turns: time for a summary.
_FULL: Final = (3, 4)

# System prompts in use times vocabularies in use. Only the platform's own come here: what people
# write is not kept in memory.
_SYSTEMS_KEPT = 64


@lru_cache(maxsize=_SYSTEMS_KEPT)
def system_ids(encode: Callable[[str], TokenIds], system: str) -> TokenIds:
    """The ids of the platform's system prompt, which begins every prompt of a conversation."""
    return encode(system)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the user said (more than one message if a reply failed) and what was answered.

    `asked` has the tokens of each of the user's messages; every count is with the template's part.
    """

    user_ids: tuple[str, ...]
    asked: tuple[int, ...]
    reply_id: str | None = None
    reply_tokens: int = 0

    @property
    def asked_tokens(self) -> int:
        """What the user's side takes."""
        return sum(self.asked)

    @property
    def tokens(self) -> int:
        """What both sides take."""
        return self.asked_tokens + self.reply_tokens

    @property
    def message_ids(self) -> tuple[str, ...]:
        """Its messages, oldest first."""
        return self.user_ids if self.reply_id is None else (*self.user_ids, self.reply_id)


@dataclass(frozen=True, slots=True)
class Context:
    """The exchanges that a prompt keeps; `first` of them were left out before.

    `next_first` is where the next cut will be, as soon as that is certain: what lies before it can
    be summarised ahead. `shortened` says that something is left out, `moved` that the prompt of the
    turn before was cut elsewhere: then its cache is worth nothing, whatever this one begins with.
    """

    exchanges: tuple[Exchange, ...]
    first: int
    tokens: int
    next_first: int | None = None
    shortened: bool = False
    moved: bool = False

    @property
    def message_ids(self) -> tuple[str, ...]:
        """Every message needed, oldest first."""
        return tuple(one for exchange in self.exchanges for one in exchange.message_ids)


NO_CONTEXT: Final = Context((), 0, 0)


@dataclass(frozen=True, slots=True)
class Course:
    """A branch in exchanges, and what its turn before was asked after: the first `n_before` of
    them, and then `before`, which had no reply yet (None: this turn is the first)."""

    exchanges: tuple[Exchange, ...]
    n_before: int = 0
    before: Exchange | None = None


def course_of(branch: Sequence[BranchMessage], *, per_message_tokens: int) -> Course:
    """Groups a branch that ends with the new message."""
    exchanges = exchanges_of(branch, per_message_tokens=per_message_tokens)
    asked: list[BranchMessage] = []
    for message in reversed(branch[:-1]):
        if message.role == "user":
            asked.append(message)
        elif asked and not _leaves_open(message):
            break
    if not asked:
        return Course(exchanges)
    before = _exchange(asked[::-1], per_message_tokens)
    # It was answered, or joined the new one; where it was refused, it is in neither.
    n_before = len(exchanges) - 1
    for i in range(max(0, len(exchanges) - 2), len(exchanges)):
        if exchanges[i].user_ids[0] == before.user_ids[0]:
            n_before = i
    return Course(exchanges, n_before, before)


def exchanges_of(
    branch: Sequence[BranchMessage], *, per_message_tokens: int
) -> tuple[Exchange, ...]:
    """Groups a branch (oldest first) into exchanges.

    A refused exchange is left out whole. A reply that failed, or holds nothing, is left out and its
    question joins the next one, so that roles alternate for every template (S-27). The last
    exchange is the new message and has no reply.
    """
    found: list[Exchange] = []
    asked: list[BranchMessage] = []
    for message in branch:
        if message.role == "user":
            asked.append(message)
        elif message.status is Status.REFUSED:
            asked = []
        elif _leaves_open(message):
            continue
        elif asked:
            reply_tokens = message.tokens + per_message_tokens
            found.append(_exchange(asked, per_message_tokens, message.id, reply_tokens))
            asked = []
    if asked:
        found.append(_exchange(asked, per_message_tokens))
    return tuple(found)


def _leaves_open(reply: BranchMessage) -> bool:
    """Whether the question before joins the next one."""
    if reply.status is Status.REFUSED:
        return False
    return reply.status is Status.FAILED or reply.tokens == 0


def _exchange(
    asked: Sequence[BranchMessage],
    per_message_tokens: int,
    reply_id: str | None = None,
    reply_tokens: int = 0,
) -> Exchange:
    # Lists are quicker than generators where there is one message, as there nearly always is.
    return Exchange(
        tuple([message.id for message in asked]),
        tuple([message.tokens + per_message_tokens for message in asked]),
        reply_id,
        reply_tokens,
    )


def choose_context(exchanges: Sequence[Exchange], *, room_tokens: int) -> Context:
    """Keeps the newest exchanges that fit, cutting rarely: when the room is full, down to half.

    A pure fold over the history, so every process cuts at the same place. A window that slid each
    turn would change the prefix each turn and lose the cache each turn (F-41). Each exchange is
    looked at as its own prompt saw it, before its reply; so no later look moves a cut. Where the
    next cut will be is certain once three quarters are full: its summary is made meanwhile.
    The newest exchange is always kept: the door refused it if it could not fit alone.
    """
    return context_of(Course(tuple(exchanges)), room_tokens=room_tokens)


def context_of(course: Course, *, room_tokens: int) -> Context:
    """The same, and whether that is another cut than the turn before had: in one fold, as both have
    most of it in common."""
    exchanges = course.exchanges
    fold = _Fold(exchanges, room_tokens)
    for i in range(course.n_before):
        fold.take(i, exchanges[i])
    began_with = fold.first_id_with(course.n_before, course.before)
    for i in range(course.n_before, len(exchanges)):
        fold.take(i, exchanges[i])
    kept = fold.kept(exchanges[fold.first :])
    shortened = fold.first > 0 or (bool(kept) and kept[0] != exchanges[fold.first])
    return Context(
        tuple(kept),
        fold.first,
        sum(e.tokens for e in kept),
        fold.planned,
        shortened,
        shortened and kept[0].user_ids[0] != began_with,
    )


@dataclass(slots=True)
class _Fold:
    """Exchanges taken in one by one: `first` is the first that is kept, `total` what those take
    that are, `planned` where the next cut will be."""

    exchanges: Sequence[Exchange]
    room_tokens: int
    first: int = 0
    total: int = 0
    planned: int | None = None

    def take(self, i: int, exchange: Exchange) -> None:
        """Makes room for exchange `i`, and keeps it."""
        asked_tokens = sum(exchange.asked)
        if self.first < i and self.total + asked_tokens > self.room_tokens:
            if self.planned is None:  # it came too suddenly to be foreseen
                self.planned = _cut_point(self.exchanges, self.first, i - 1, self.room_tokens)
            # Further only where this exchange alone demands it.
            while self.first < self.planned or (
                self.first < i and self.total + asked_tokens > self.room_tokens
            ):
                self.total -= self.exchanges[self.first].tokens
                self.first += 1
            self.planned = None
        self.total += asked_tokens + exchange.reply_tokens
        may_plan = self.planned is None and exchange.reply_id is not None
        if may_plan and _is_full(self.total, self.room_tokens):
            self.planned = _cut_point(self.exchanges, self.first, i, self.room_tokens)

    def kept(self, exchanges: Sequence[Exchange]) -> list[Exchange]:
        """These, from the first one kept on, as they stand in a prompt."""
        kept = list(exchanges)
        if len(kept) == 1 and kept[0].reply_id is None:
            kept[0] = _trimmed(kept[0], self.room_tokens)
        return kept

    def first_id_with(self, i: int, newest: Exchange | None) -> str | None:
        """The first message of a prompt for exchange `i`, if that were `newest`; None without."""
        if newest is None:
            return None
        then = replace(self)
        then.take(i, newest)
        return then.kept([*self.exchanges[then.first : i], newest])[0].user_ids[0]


def next_cut(context: Context, exchanges: Sequence[Exchange], *, room_tokens: int) -> int | None:
    """Where the next cut will be, once the newest of these exchanges has its reply; None where that
    is not certain yet. `context` is what they came to before it."""
    total = sum(exchange.tokens for exchange in exchanges[context.first :])
    if context.next_first is not None or not _is_full(total, room_tokens):
        return context.next_first
    return _cut_point(exchanges, context.first, len(exchanges) - 1, room_tokens)


def _is_full(tokens: int, room_tokens: int) -> bool:
    return tokens > room_tokens * _FULL[0] // _FULL[1]


def _cut_point(exchanges: Sequence[Exchange], first: int, last: int, room_tokens: int) -> int:
    """The first exchange that the next cut keeps: half of the room is free before it. Of `first`
    to `last`, which are kept now, it keeps the last one if there are two."""
    at, dropped = first, 0
    while at < last and dropped < room_tokens // 2:
        dropped += exchanges[at].tokens
        at += 1
    return max(at, first + 1)


def _trimmed(newest: Exchange, room_tokens: int) -> Exchange:
    """Questions that were never answered go before the one that waits for its answer."""
    skipped, tokens = 0, newest.tokens
    while skipped < len(newest.asked) - 1 and tokens > room_tokens:
        tokens -= newest.asked[skipped]
        skipped += 1
    return replace(newest, user_ids=newest.user_ids[skipped:], asked=newest.asked[skipped:])


def summary_room(window_tokens: int) -> int:
    """The tokens of a window that are kept free for the summary of what was cut, from the first
    turn on: a cut must not depend on whether there is a summary."""
    return min(SUMMARY_TOKENS, window_tokens // SUMMARY_SHARE)


def exchange_room(window_tokens: int, *, answer_tokens: int, begins_with_tokens: int) -> int:
    """What is left of a window for exchanges, beside the answer, what every prompt begins with and
    the room for a summary. It may be negative."""
    return window_tokens - answer_tokens - begins_with_tokens - summary_room(window_tokens)


def prompt_messages(
    system: PromptMessage,
    context: Context,
    texts: Mapping[str, PromptMessage],
    *,
    summary: str | None = None,
) -> tuple[PromptMessage, ...]:
    """The messages of a prompt, in order. `texts` has every id of the context.

    The summary stands as an exchange of its own before the first one kept: what people said never
    comes to speak as the system, and roles alternate as in any talk.
    """
    messages = [system]
    if summary is not None:
        messages += summary_messages(summary)
    for exchange in context.exchanges:
        said = _JOINT.join(texts[message_id].content for message_id in exchange.user_ids)
        messages.append(PromptMessage("user", said))
        if exchange.reply_id is not None:
            messages.append(texts[exchange.reply_id])
    return tuple(messages)


def summary_messages(summary: str) -> tuple[PromptMessage, PromptMessage]:
    """The exchange in which a prompt shows a summary."""
    return PromptMessage("user", SUMMARY_OPENING + summary), PromptMessage(
        "assistant", SUMMARY_READ
    )


def splice_ids(
    chunks: Sequence[Chunk],
    messages: Sequence[PromptMessage],
    *,
    tokenizer: str,
    encode: Callable[[str], TokenIds],
    encode_control: Callable[[str], TokenIds],
) -> TokenIds:
    """The prompt's token ids: the template's chunks with control tokens, texts without.

    `chunks` are in template order, the texts among them being those of `messages` in order.
    A reply keeps the very tokens it was generated as, if this tokenizer made them.
    """
    ids: list[int] = []
    contents = iter(messages)
    for chunk in chunks:
        if chunk.kind == "control":
            ids.extend(encode_control(chunk.text))
            continue
        message = next(contents)
        assert message.content == chunk.text, "the template shows messages in order, verbatim"
        if message.ids is not None and message.tokenizer == tokenizer:
            ids.extend(message.ids)
        else:
            ids.extend(encode(chunk.text))
    return tuple(ids)
