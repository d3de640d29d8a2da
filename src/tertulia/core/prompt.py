"""What enters a prompt, in which order, and where a long conversation is cut.

The order is fixed: system prompt, kept exchanges verbatim, new message. Nothing that varies from
turn to turn stands before the new message, so that between two cuts each prompt begins with the
bytes of the one before and the replica's prefix cache is worth something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tertulia.core.types import BranchMessage, Chunk, PromptMessage, Status, TokenIds

# Between two user messages that share a turn because the first one was never answered.
_JOINT = "\n\n"


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the user said (more than one message if a reply failed) and what was answered."""

    user_ids: tuple[str, ...]
    reply_id: str | None
    tokens: int


@dataclass(frozen=True, slots=True)
class Context:
    """The exchanges that a prompt keeps; `shortened` if older ones were left out."""

    exchanges: tuple[Exchange, ...]
    shortened: bool
    tokens: int

    @property
    def message_ids(self) -> tuple[str, ...]:
        """Every message needed, oldest first."""
        ids: list[str] = []
        for exchange in self.exchanges:
            ids.extend(exchange.user_ids)
            if exchange.reply_id is not None:
                ids.append(exchange.reply_id)
        return tuple(ids)


def exchanges_of(
    branch: Sequence[BranchMessage], *, per_message_tokens: int
) -> tuple[Exchange, ...]:
    """Groups a branch (oldest first) into exchanges.

    A refused exchange is left out whole. A reply that failed, or holds nothing, is left out and its
    question joins the next one, so that roles alternate for every template (S-27). The last
    exchange is the new message and has no reply.
    """
    found: list[Exchange] = []
    asked: list[str] = []
    tokens = 0
    for message in branch:
        if message.role == "user":
            asked.append(message.id)
            tokens += message.tokens + per_message_tokens
        elif message.status is Status.REFUSED:
            asked, tokens = [], 0
        elif message.status is Status.FAILED or message.tokens == 0:
            continue
        elif asked:
            tokens += message.tokens + per_message_tokens
            found.append(Exchange(tuple(asked), message.id, tokens))
            asked, tokens = [], 0
    if asked:
        found.append(Exchange(tuple(asked), None, tokens))
    return tuple(found)


def choose_context(exchanges: Sequence[Exchange], *, room_tokens: int) -> Context:
    """Keeps the newest exchanges that fit, cutting rarely: when the room is full, down to half.

    A pure fold over the history, so every process cuts at the same place. A window that slid each
    turn would change the prefix each turn and lose the cache each turn (F-41). The newest exchange
    is always kept: the door refused it if it could not fit alone.
    """
    first, total = 0, 0
    for i, exchange in enumerate(exchanges):
        if total + exchange.tokens > room_tokens:
            # Measured without the newest, so that the cut is the same before and after its reply.
            while first < i and total > room_tokens // 2:
                total -= exchanges[first].tokens
                first += 1
            while first < i and total + exchange.tokens > room_tokens:
                total -= exchanges[first].tokens
                first += 1
        total += exchange.tokens
    return Context(tuple(exchanges[first:]), first > 0, total)


def prompt_messages(
    system: str, context: Context, texts: Mapping[str, PromptMessage]
) -> tuple[PromptMessage, ...]:
    """The messages of a prompt, in order. `texts` has every id of the context."""
    messages = [PromptMessage("system", system)]
    for exchange in context.exchanges:
        said = _JOINT.join(texts[message_id].content for message_id in exchange.user_ids)
        messages.append(PromptMessage("user", said))
        if exchange.reply_id is not None:
            messages.append(texts[exchange.reply_id])
    return tuple(messages)


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
