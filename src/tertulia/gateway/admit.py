"""The ask lane: turns a call into a stored turn, or says why not.

It counts, checks and reserves before anything is generated, and generates nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tertulia.core.placement import AUTO
from tertulia.core.plans import Plan
from tertulia.core.prompt import choose_context, exchanges_of
from tertulia.core.types import (
    Admission,
    Admitted,
    BranchMessage,
    Conversation,
    KeyReused,
    Missing,
    NewTurn,
    PromptMessage,
    Refusal,
    Repeated,
    Sampling,
    Status,
    User,
)
from tertulia.gateway.desk import Desk
from tertulia.ports import Vocabulary

# A title until somebody gives a better one: the first words of the first message.
_TITLE_CHARS = 60


class Unset(Enum):
    """Tells an absent `parentId` ("after the newest message") from null ("at the root")."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class MessageAsk:
    """A new message in a conversation."""

    conversation_id: str
    content: str
    parent_id: str | Unset | None
    model: str
    key: str
    body_sha: str
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class RegenerateAsk:
    """Another reply to the question that the reply `message_id` answered."""

    message_id: str
    model: str
    key: str
    body_sha: str


@dataclass(frozen=True, slots=True)
class StatelessAsk:
    """Messages that come with the call, as in OpenAI's API; no conversation is kept."""

    messages: tuple[PromptMessage, ...]
    model: str
    key: str
    body_sha: str
    sampling: Sampling = field(default_factory=Sampling)
    answer_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TooLong:
    """The message does not fit: `count` of `unit` where `limit` are allowed."""

    limit: int
    count: int
    unit: str


@dataclass(frozen=True, slots=True)
class NoSuchModel:
    """Nobody here serves that model."""

    name: str


Ask = MessageAsk | RegenerateAsk | StatelessAsk
Answer = Admission | TooLong | NoSuchModel


async def admit_turn(desk: Desk, user: User, ask: Ask) -> Answer:
    """Stores the turn and wakes a worker; anything but Admitted and Repeated changed nothing."""
    known = await desk.turns.find_by_key(user.id, ask.key)
    if known is not None and known.status is not Status.FAILED:
        # The cheap way for a retry: no counting, no checks, no write.
        return Repeated(known) if known.body_sha == ask.body_sha else KeyReused()
    if not _is_served(desk, ask.model):
        return NoSuchModel(ask.model)
    plan = desk.plans[user.plan]
    if isinstance(ask, MessageAsk):
        made = await _message_turn(desk, user, plan, ask)
    elif isinstance(ask, RegenerateAsk):
        made = await _regenerate_turn(desk, user, plan, ask)
    else:
        made = await _stateless_turn(desk, user, plan, ask)
    if not isinstance(made, NewTurn):
        return made
    answer = await desk.turns.admit(made, plan.limits)
    if isinstance(answer, Admitted):
        desk.bell.ring("turns")
    return answer


def _is_served(desk: Desk, name: str) -> bool:
    return name == AUTO or any(name in (m.name, m.served) for m in desk.replicas.models())


async def _message_turn(
    desk: Desk, user: User, plan: Plan, ask: MessageAsk
) -> NewTurn | TooLong | Missing:
    conversation = await desk.conversations.get(user.id, ask.conversation_id)
    if conversation is None:
        return Missing()
    parent = conversation.head_message_id if isinstance(ask.parent_id, Unset) else ask.parent_id
    vocabulary = _vocabulary(desk, ask.model, conversation)
    fixed = await _fixed_tokens(desk, vocabulary, conversation)
    counted = _count(desk, plan, vocabulary, ask.content, fixed)
    if isinstance(counted, TooLong):
        return counted
    branch = await desk.messages.branch(user.id, conversation.id, parent) if parent else ()
    new = BranchMessage("", "user", Status.COMPLETED, counted, vocabulary.name)
    return NewTurn(
        owner=user.id,
        key=ask.key,
        body_sha=ask.body_sha,
        kind="message",
        user_message_id=desk.new_id("m"),
        reply_id=desk.new_id("m"),
        plan=plan.name,
        requested=ask.model,
        answer_tokens=plan.answer_tokens,
        prompt_tokens=_prompt_tokens(plan, vocabulary, [*branch, new], fixed),
        sampling=ask.sampling,
        conversation_id=conversation.id,
        parent_id=parent,
        content=ask.content,
        content_tokens=counted,
        tokenizer=vocabulary.name,
        title=_title(ask.content),
        refusal=await _refusal(desk, ask.content),
    )


async def _regenerate_turn(
    desk: Desk, user: User, plan: Plan, ask: RegenerateAsk
) -> NewTurn | Missing:
    reply = await desk.messages.find(user.id, ask.message_id)
    if reply is None or reply.role != "assistant" or reply.parent_id is None:
        return Missing()
    conversation = await desk.conversations.get(user.id, reply.conversation_id)
    asked = await desk.messages.find(user.id, reply.parent_id)
    if conversation is None or asked is None:
        return Missing()
    vocabulary = _vocabulary(desk, ask.model, conversation)
    branch = await desk.messages.branch(user.id, conversation.id, asked.id)
    fixed = await _fixed_tokens(desk, vocabulary, conversation)
    return NewTurn(
        owner=user.id,
        key=ask.key,
        body_sha=ask.body_sha,
        kind="regenerate",
        user_message_id=asked.id,
        reply_id=desk.new_id("m"),
        plan=plan.name,
        requested=ask.model,
        answer_tokens=plan.answer_tokens,
        prompt_tokens=_prompt_tokens(plan, vocabulary, branch, fixed),
        sampling=Sampling(),
        conversation_id=conversation.id,
        parent_id=asked.parent_id,
        tokenizer=vocabulary.name,
        refusal=await _refusal(desk, asked.content),
    )


async def _stateless_turn(
    desk: Desk, user: User, plan: Plan, ask: StatelessAsk
) -> NewTurn | TooLong:
    vocabulary = _vocabulary(desk, ask.model, None)
    size = sum(len(m.content.encode()) for m in ask.messages)
    if size > desk.rules.body_bytes:
        return TooLong(desk.rules.body_bytes, size, "bytes")
    messages = ask.messages
    if messages[0].role != "system":
        messages = (PromptMessage("system", desk.rules.system_prompt), *messages)
    fixed, per_message = vocabulary.cost
    tokens = fixed + sum(len(vocabulary.encode(m.content)) + per_message for m in messages)
    limit = plan.room_for_text(vocabulary.window, fixed_tokens=0)
    if tokens > limit:
        return TooLong(limit, tokens, "tokens")
    said = "\n".join(m.content for m in ask.messages if m.role == "user")
    return NewTurn(
        owner=user.id,
        key=ask.key,
        body_sha=ask.body_sha,
        kind="stateless",
        reply_id=desk.new_id("m"),
        plan=plan.name,
        requested=ask.model,
        answer_tokens=_answer_tokens(plan, ask.answer_tokens),
        prompt_tokens=tokens,
        sampling=ask.sampling,
        prompt=messages,
        tokenizer=vocabulary.name,
        refusal=await _refusal(desk, said),
    )


def _vocabulary(desk: Desk, model: str, conversation: Conversation | None) -> Vocabulary:
    """The vocabulary that will most likely answer; the worker counts again with the real one."""
    pinned = conversation.model if conversation is not None else None
    return desk.vocabulary(pinned if model == AUTO and pinned else model)


def _count(
    desk: Desk, plan: Plan, vocabulary: Vocabulary, content: str, fixed: int
) -> int | TooLong:
    """The message's tokens. Sizes are refused by bytes first: counting 50 MB would be an attack."""
    size = len(content.encode())
    if size > desk.rules.message_bytes:
        return TooLong(desk.rules.message_bytes, size, "bytes")
    tokens = len(vocabulary.encode(content))
    limit = plan.room_for_text(vocabulary.window, fixed_tokens=fixed)
    return tokens if tokens <= limit else TooLong(limit, tokens, "tokens")


async def _fixed_tokens(desk: Desk, vocabulary: Vocabulary, conversation: Conversation) -> int:
    """What every prompt of this conversation holds beside its messages."""
    system = await desk.conversations.prompt_text(conversation.prompt_version) or ""
    fixed, per_message = vocabulary.cost
    return fixed + per_message + len(vocabulary.encode(system))


def _prompt_tokens(
    plan: Plan, vocabulary: Vocabulary, branch: Sequence[BranchMessage], fixed: int
) -> int:
    """The worst case to reserve for the prompt of this branch."""
    window = plan.window_on(vocabulary.window)
    room = window - plan.answer_tokens - fixed
    _, per_message = vocabulary.cost
    context = choose_context(exchanges_of(branch, per_message_tokens=per_message), room_tokens=room)
    return min(fixed + context.tokens, window)


def _answer_tokens(plan: Plan, asked: int | None) -> int:
    return plan.answer_tokens if asked is None else min(asked, plan.answer_tokens)


async def _refusal(desk: Desk, text: str) -> Refusal | None:
    verdict = await desk.checks.check_input(text)
    return Refusal("input", verdict.category, verdict.text) if verdict.flagged else None


def _title(content: str) -> str:
    words = " ".join(content.split())
    if len(words) <= _TITLE_CHARS:
        return words
    return words[:_TITLE_CHARS].rsplit(" ", 1)[0] + "…"
