"""The ask lane: turns a call into a stored turn, or says why not.

It counts, checks and reserves before anything is generated, and generates nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from tertulia.core.canned import plainly
from tertulia.core.choice import AUTO, Wish, is_served, pickable
from tertulia.core.difficulty import Question
from tertulia.core.ladder import Terms
from tertulia.core.plans import Plan
from tertulia.core.types import (
    HEAD,
    Admission,
    Admitted,
    BranchMessage,
    BudgetExhausted,
    Canned,
    KeyReused,
    Lane,
    Missing,
    NewTurn,
    PromptMessage,
    Refusal,
    Repeated,
    Sampling,
    Status,
    TooManyRunning,
    User,
)
from tertulia.gateway.counting import (
    TooLong,
    count_text,
    prompt_tokens_of,
    vocabulary_for,
)
from tertulia.gateway.desk import Desk
from tertulia.gateway.footing import (
    Begins,
    Place,
    fixed_tokens,
    system_without_conversation,
)
from tertulia.gateway.grading import graded
from tertulia.gateway.stand import Stand, stand_of
from tertulia.gateway.uncharged import uncharged_wait_s

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
    """Messages that come with the call, as in OpenAI's API, a temporary chat or a batch; no
    conversation is kept."""

    messages: tuple[PromptMessage, ...]
    model: str
    key: str
    body_sha: str
    sampling: Sampling = field(default_factory=Sampling)
    answer_tokens: int | None = None
    kind: Literal["stateless", "line"] = "stateless"
    begins: Begins = "plain"


@dataclass(frozen=True, slots=True)
class LineFull:
    """Whoever joined now would wait longer than the plan allows: room is expected by then."""

    retry_after_s: float


@dataclass(frozen=True, slots=True)
class TooManyUncharged:
    """Too many turns of this user ended at the door in the last minute."""

    retry_after_s: float


@dataclass(frozen=True, slots=True)
class NoSuchModel:
    """Nobody here serves that model."""

    name: str


@dataclass(frozen=True, slots=True)
class NotPickable:
    """The plan does not let its users ask for that model; `names` are those that they may."""

    names: tuple[str, ...]


Ask = MessageAsk | RegenerateAsk | StatelessAsk
Answer = Admission | TooLong | NoSuchModel | NotPickable | LineFull | TooManyUncharged


async def admit_turn(desk: Desk, user: User, ask: Ask) -> Answer:
    """Stores the turn and wakes a worker; anything but Admitted and Repeated changed nothing."""
    known = await desk.turns.find_by_key(user.id, ask.key)
    if known is not None and known.status is not Status.FAILED:
        # The cheap way for a retry: no counting, no checks, no write.
        return Repeated(known) if known.body_sha == ask.body_sha else KeyReused()
    plan = desk.plans[user.plan]
    unpicked = pick_refused(desk, plan, ask.model)
    if unpicked is not None:
        return unpicked
    # Before anything is counted: while there is no room, a refusal must cost next to nothing.
    terms = desk.lookout.terms(plan)
    stand = await stand_of(desk, terms, Wish(ask.model))
    retry_after_s = await desk.line.refusal(
        user.id, plan.lane, terms.starts_within_s, stand.awaited, kept_s=plan.wait_s
    )
    if retry_after_s is not None:
        if plan.lane.is_chat:
            desk.lookout.refused(user.id)
        ready = _ready_reply(desk, terms, ask) if known is None else None
        if ready is None:
            return LineFull(retry_after_s)
        return await _store_ready(desk, user, terms, ask, ready) or LineFull(retry_after_s)
    with desk.line.entering(plan.lane, stand.awaited):
        answer = await _store_turn(desk, user, terms, ask, stand)
    if isinstance(answer, Admitted) and answer.turn.status is Status.QUEUED:
        desk.line.joined(plan.lane, answer.turn.awaited)
        desk.bell.ring("turns")
        if plan.lane is Lane.PLUS:
            desk.bell.ring("paid")
    return answer


@dataclass(frozen=True, slots=True)
class _Counted:
    """A turn that could be stored, but for its grade and its place; `pinned` is the model that has
    answered its conversation."""

    turn: NewTurn
    question: Question
    pinned: str | None = None


async def _store_turn(desk: Desk, user: User, terms: Terms, ask: Ask, stand: Stand) -> Answer:
    counted = await _new_turn(desk, user, terms, ask)
    if not isinstance(counted, _Counted):
        return counted
    if counted.turn.refusal is None:
        again = await desk.refusals.again(counted.turn, terms.limits)
        if again is not None:
            return again
    turn = await _graded_turn(desk, terms, counted, stand)
    return await _admit(desk, terms, turn)


async def _admit(desk: Desk, terms: Terms, turn: NewTurn) -> Answer:
    if turn.refusal is not None or turn.canned is not None:
        wait_s = await uncharged_wait_s(desk, turn.owner)
        if wait_s is not None:
            return TooManyUncharged(wait_s)
    answer = await desk.turns.admit(turn, terms.limits)
    if isinstance(answer, BudgetExhausted | TooManyRunning):
        desk.refusals.remember(turn.owner)
    return answer


async def _graded_turn(desk: Desk, terms: Terms, counted: _Counted, stand: Stand) -> NewTurn:
    """With its grade, where that decides (who asks for a model by its name has decided), and with
    what it waits for, now that its conversation is known. What is refused needs neither."""
    turn = counted.turn
    if turn.refusal is not None:
        return turn
    difficulty = await graded(desk, counted.question) if turn.requested == AUTO else 0
    easy = difficulty < desk.rules.small_below
    wish = Wish(turn.requested, counted.pinned, easy=easy)
    stand = await stand_of(desk, terms, wish, entering=stand)
    return turn._replace(difficulty=difficulty, awaited=stand.awaited, lowered=stand.lowered)


def _ready_reply(desk: Desk, terms: Terms, ask: Ask) -> str | None:
    """The reply that is ready for exactly this question, if the ladder may give one."""
    if not terms.may_be_canned or not desk.canned:
        return None
    if isinstance(ask, MessageAsk):
        return desk.canned.get(plainly(ask.content))
    if isinstance(ask, StatelessAsk) and [m.role for m in ask.messages] == ["user"]:
        return desk.canned.get(plainly(ask.messages[0].content))
    return None  # who wants another reply to the same question does not want this one


async def _store_ready(desk: Desk, user: User, terms: Terms, ask: Ask, ready: str) -> Answer | None:
    """The turn with its reply, final at once and for nothing; None where it goes on with something
    said before, which nobody can have thought of."""
    counted = await _new_turn(desk, user, terms, ask)
    if not isinstance(counted, _Counted) or counted.turn.parent_id is not None:
        return None
    reply = Canned(ready, len(desk.vocabulary(ask.model).encode(ready)))
    # What the ladder did to the answer that there is none of now need not be told.
    return await _admit(desk, terms, counted.turn._replace(notices=(), canned=reply))


async def _new_turn(desk: Desk, user: User, terms: Terms, ask: Ask) -> _Counted | TooLong | Missing:
    if isinstance(ask, MessageAsk):
        return await _message_turn(desk, user, terms, ask)
    if isinstance(ask, RegenerateAsk):
        return await _regenerate_turn(desk, user, terms, ask)
    return await _stateless_turn(desk, user, terms, ask)


def pick_refused(desk: Desk, plan: Plan, name: str) -> NoSuchModel | NotPickable | None:
    """Why a user of this plan can't ask for the model `name`; None if it may be asked for."""
    models = desk.replicas.models()
    names = pickable(models, plan.models)
    if name in names:
        return None
    return NotPickable(names) if is_served(name, models) else NoSuchModel(name)


async def _message_turn(
    desk: Desk, user: User, terms: Terms, ask: MessageAsk
) -> _Counted | TooLong | Missing:
    plan = terms.plan
    leaf = HEAD if isinstance(ask.parent_id, Unset) else ask.parent_id
    branch = await desk.messages.branch(user.id, ask.conversation_id, leaf)
    if branch is None:
        return Missing()
    vocabulary = vocabulary_for(desk, ask.model, branch)
    place = Place(user.id, ask.conversation_id, branch)
    fixed = await fixed_tokens(desk, place, vocabulary)
    counted = count_text(desk, plan, vocabulary, ask.content, fixed)
    if isinstance(counted, TooLong):
        return counted
    new = BranchMessage("", "user", Status.COMPLETED, counted, vocabulary.name)
    answer_tokens, notices = terms.shortened(plan.answer_tokens)
    path = [*branch.messages, new]
    prompt_tokens = await prompt_tokens_of(desk, plan, place, vocabulary, path, fixed)
    question = Question(ask.content, counted, prompt_tokens)
    turn = NewTurn(
        owner=user.id,
        key=ask.key,
        body_sha=ask.body_sha,
        kind="message",
        user_message_id=desk.new_id("m"),
        reply_id=desk.new_id("m"),
        plan=plan.name,
        requested=ask.model,
        answer_tokens=answer_tokens,
        notices=notices,
        prompt_tokens=prompt_tokens,
        sampling=ask.sampling,
        conversation_id=ask.conversation_id,
        parent_id=branch.leaf,
        content=ask.content,
        content_tokens=counted,
        tokenizer=vocabulary.name,
        title=_title(ask.content),
        refusal=await _refusal(desk, ask.content),
    )
    return _Counted(turn, question, branch.model)


async def _regenerate_turn(
    desk: Desk, user: User, terms: Terms, ask: RegenerateAsk
) -> _Counted | Missing:
    plan = terms.plan
    reply = await desk.messages.find(user.id, ask.message_id)
    if reply is None or reply.role != "assistant" or reply.parent_id is None:
        return Missing()
    branch = await desk.messages.branch(user.id, reply.conversation_id, reply.parent_id)
    asked = await desk.messages.find(user.id, reply.parent_id)
    if branch is None or asked is None:
        return Missing()
    vocabulary = vocabulary_for(desk, ask.model, branch)
    place = Place(user.id, reply.conversation_id, branch)
    fixed = await fixed_tokens(desk, place, vocabulary)
    answer_tokens, notices = terms.shortened(plan.answer_tokens)
    prompt_tokens = await prompt_tokens_of(desk, plan, place, vocabulary, branch.messages, fixed)
    question = Question(asked.content, asked.tokens, prompt_tokens, "again")
    turn = NewTurn(
        owner=user.id,
        key=ask.key,
        body_sha=ask.body_sha,
        kind="regenerate",
        user_message_id=asked.id,
        reply_id=desk.new_id("m"),
        plan=plan.name,
        requested=ask.model,
        answer_tokens=answer_tokens,
        notices=notices,
        prompt_tokens=prompt_tokens,
        sampling=Sampling(),
        conversation_id=reply.conversation_id,
        parent_id=asked.parent_id,
        tokenizer=vocabulary.name,
        refusal=await _refusal(desk, asked.content),
    )
    return _Counted(turn, question, branch.model)


async def _stateless_turn(
    desk: Desk, user: User, terms: Terms, ask: StatelessAsk
) -> _Counted | TooLong:
    plan = terms.plan
    vocabulary = vocabulary_for(desk, ask.model, None)
    size = sum(len(m.content.encode()) for m in ask.messages)
    if size > desk.rules.body_bytes:
        return TooLong(desk.rules.body_bytes, size, "bytes")
    messages = ask.messages
    if messages[0].role != "system":
        system = await system_without_conversation(desk, user.id, ask.begins)
        messages = (PromptMessage("system", system), *messages)
    fixed, per_message = vocabulary.cost
    counts = [len(vocabulary.encode(m.content)) for m in messages]
    tokens = fixed + sum(counts) + per_message * len(counts)
    limit = plan.room_for_text(vocabulary.window, fixed_tokens=0)
    if tokens > limit:
        return TooLong(limit, tokens, "tokens")
    said = "\n".join(m.content for m in ask.messages if m.role == "user")
    wanted_tokens = plan.answer_tokens if ask.answer_tokens is None else ask.answer_tokens
    answer_tokens, notices = terms.shortened(wanted_tokens)
    turn = NewTurn(
        owner=user.id,
        key=ask.key,
        body_sha=ask.body_sha,
        kind=ask.kind,
        reply_id=desk.new_id("m"),
        plan=plan.name,
        requested=ask.model,
        answer_tokens=answer_tokens,
        notices=notices,
        prompt_tokens=tokens,
        sampling=ask.sampling,
        prompt=messages,
        tokenizer=vocabulary.name,
        refusal=await _refusal(desk, said),
    )
    return _Counted(turn, _newest(messages, counts, tokens))


def _newest(
    messages: Sequence[PromptMessage], counts: Sequence[int], prompt_tokens: int
) -> Question:
    """What was last asked: a program may end with instructions or with half an answer."""
    for message, tokens in zip(reversed(messages), reversed(counts), strict=True):
        if message.role == "user":
            return Question(message.content, tokens, prompt_tokens)
    return Question("", 0, prompt_tokens)


async def _refusal(desk: Desk, text: str) -> Refusal | None:
    verdict = await desk.checks.check_input(text)
    if not verdict.flagged:
        return None
    desk.flags.add("input", verdict.category)
    return Refusal("input", verdict.category, verdict.text)


def _title(content: str) -> str:
    words = " ".join(content.split())
    if len(words) <= _TITLE_CHARS:
        return words
    return words[:_TITLE_CHARS].rsplit(" ", 1)[0] + "…"
