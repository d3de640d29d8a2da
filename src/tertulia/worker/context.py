"""Builds the prompt of a claimed turn from stored messages, the same bytes at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tertulia.core.opening import Footing, Opening
from tertulia.core.prompt import (
    NO_CONTEXT,
    Context,
    Exchange,
    context_of,
    course_of,
    exchange_room,
    exchanges_of,
    prompt_messages,
    splice_ids,
    summary_messages,
    summary_room,
)
from tertulia.core.quota import CAPPED_NOTICE
from tertulia.core.remembering import Summary, covered_ids
from tertulia.core.types import Branch, BranchMessage, PromptMessage, TitledBy, TokenIds, Turn
from tertulia.ports import Vocabulary
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.opening import opening_of, opening_on
from tertulia.worker.pen import Superseded

# Older messages are not in the prompt as they were said.
SHORTENED_NOTICE = "context_shortened"


@dataclass(frozen=True, slots=True)
class Talk:
    """A branch as prompts see it: the system message and its tokens, of which the first are shared
    with everybody, then the exchanges."""

    system: PromptMessage
    system_tokens: int
    shared_tokens: int
    exchanges: tuple[Exchange, ...]
    titled_by: TitledBy


@dataclass(frozen=True, slots=True)
class Room:
    """How many tokens of a window are there for exchanges, and for the words of a summary."""

    exchanges: int
    summary: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a replica is sent: the prompt, and how many tokens the answer may have.

    Of a conversation, also what it was made of, and what is kept of that.
    """

    ids: TokenIds
    answer_tokens: int
    shared_tokens: int = 0  # the first ones, which hold nothing of a person
    notices: tuple[str, ...] = ()
    summary: Summary | None = None
    talk: Talk | None = None
    room: Room = Room(0, 0)
    context: Context = NO_CONTEXT


async def read_branch(desk: WorkerDesk, turn: Turn) -> Branch | None:
    """Where the turn hangs in its conversation, or None if it belongs to none."""
    if turn.conversation_id is None:
        return None
    branch = await desk.messages.branch(turn.owner, turn.conversation_id, turn.user_message_id)
    if branch is None:
        raise Superseded  # it was deleted meanwhile and needs no answer
    return branch


async def build_prompt(
    desk: WorkerDesk, turn: Turn, branch: Branch | None, vocabulary: Vocabulary
) -> Prompt:
    """The turn's prompt in this vocabulary, within the plan's and the model's window."""
    plan = desk.plans[turn.plan]
    window = plan.window_on(vocabulary.window)
    if branch is None:
        ids = prompt_ids(vocabulary, turn.prompt)
        return _fitted(turn, Prompt(ids, window - len(ids)))
    path = await _counted(desk, turn.owner, branch.messages, vocabulary)
    _, per_message = vocabulary.cost
    course = course_of(path, per_message_tokens=per_message)

    def beside(opening_tokens: int) -> Context:
        room = room_of(window, plan.answer_tokens, opening_tokens, vocabulary)
        return context_of(course, room_tokens=room.exchanges)

    begins, context = await opening_of(desk, turn, branch, vocabulary, beside)
    talk = _talk_of(branch, course.exchanges, begins, vocabulary)
    room = room_of(window, plan.answer_tokens, len(begins.ids), vocabulary)
    summary = await _summary(desk, turn, context, talk, room, vocabulary)
    texts = await _texts_of(desk, turn.owner, branch, context.message_ids)
    messages = prompt_messages(
        talk.system, context, texts, summary=summary.text if summary is not None else None
    )
    ids = prompt_ids(vocabulary, messages)
    prompt = Prompt(
        ids,
        window - len(ids),
        shared_tokens=tokens_before(vocabulary, messages) + talk.shared_tokens,
        notices=(SHORTENED_NOTICE,) if context.shortened else (),
        summary=summary,
        talk=talk,
        room=room,
        context=context,
    )
    return _fitted(turn, prompt)


def _fitted(turn: Turn, prompt: Prompt) -> Prompt:
    """The answer is as long as was asked for, or as long as there is room."""
    if prompt.answer_tokens < turn.answer_tokens:
        return replace(prompt, notices=(*prompt.notices, CAPPED_NOTICE))
    return replace(prompt, answer_tokens=turn.answer_tokens)


async def read_talk(desk: WorkerDesk, owner: str, branch: Branch, vocabulary: Vocabulary) -> Talk:
    """A branch as prompts see it, counted in this vocabulary, on what its conversation keeps to."""
    path = await _counted(desk, owner, branch.messages, vocabulary)
    _, per_message = vocabulary.cost
    exchanges = exchanges_of(path, per_message_tokens=per_message)
    kept = Footing(branch.prompt_version, branch.instructions)
    return _talk_of(branch, exchanges, await opening_on(desk, owner, kept, vocabulary), vocabulary)


def _talk_of(
    branch: Branch, exchanges: tuple[Exchange, ...], begins: Opening, vocabulary: Vocabulary
) -> Talk:
    return Talk(
        PromptMessage("system", begins.text, begins.ids, vocabulary.name),
        len(begins.ids),
        begins.shared_tokens,
        exchanges,
        branch.titled_by,
    )


def room_of(window: int, answer_tokens: int, opening_tokens: int, vocabulary: Vocabulary) -> Room:
    """How a window is shared out."""
    fixed, _ = vocabulary.cost
    begins_with = fixed + opening_tokens
    return Room(
        exchange_room(window, answer_tokens=answer_tokens, begins_with_tokens=begins_with),
        max(0, summary_room(window) - summary_cost(vocabulary)),
    )


def summary_cost(vocabulary: Vocabulary) -> int:
    """What the exchange that shows a summary takes beside the summary."""
    _, per_message = vocabulary.cost
    return _around_summaries(vocabulary.encode) + 2 * per_message


@lru_cache(maxsize=64)  # vocabularies are few, and each turn asks
def _around_summaries(encode: Callable[[str], TokenIds]) -> int:
    return sum(len(encode(one.content)) for one in summary_messages(""))


async def _summary(
    desk: WorkerDesk,
    turn: Turn,
    context: Context,
    talk: Talk,
    room: Room,
    vocabulary: Vocabulary,
) -> Summary | None:
    """What stands for the cut part: the newest summary of it. A turn that was begun before keeps
    what it was begun with, or whoever goes on with it would send another prompt."""
    assert turn.conversation_id is not None
    place = (turn.owner, turn.conversation_id)
    if not context.first:
        return None
    if turn.model is None:
        upto = covered_ids(talk.exchanges[: context.first])
        found = await desk.summaries.latest(*place, upto)
    elif turn.summary_id is not None:
        found = await desk.summaries.find(*place, turn.summary_id)
    else:
        return None
    if found is None or _tokens(found, vocabulary) > room.summary:
        return None
    return found


def _tokens(summary: Summary, vocabulary: Vocabulary) -> int:
    if summary.tokenizer == vocabulary.name:
        return summary.tokens
    return len(vocabulary.encode(summary.text))


def prompt_ids(vocabulary: Vocabulary, messages: Sequence[PromptMessage]) -> TokenIds:
    """The ids to send to a replica; ValueError if the template can't show roles in this order."""
    return splice_ids(
        vocabulary.render(messages),
        messages,
        tokenizer=vocabulary.name,
        encode=vocabulary.encode,
        encode_control=vocabulary.encode_control,
    )


def tokens_before(vocabulary: Vocabulary, messages: Sequence[PromptMessage]) -> int:
    """What the template says before the first message."""
    n_tokens = 0
    for chunk in vocabulary.render(messages):
        if chunk.kind == "text":
            break
        n_tokens += len(vocabulary.encode_control(chunk.text))
    return n_tokens


async def _texts_of(
    desk: WorkerDesk, owner: str, branch: Branch, wanted: Sequence[str]
) -> Mapping[str, PromptMessage]:
    """The texts by their messages' ids. What the turn itself says was read with its branch."""
    texts = {}
    if branch.leaf is not None and branch.said is not None:
        texts[branch.leaf] = PromptMessage("user", branch.said)
    others = [message_id for message_id in wanted if message_id not in texts]
    if others:
        texts.update(zip(others, await texts_of_ids(desk, owner, others), strict=True))
    return texts


async def _counted(
    desk: WorkerDesk, owner: str, path: Sequence[BranchMessage], vocabulary: Vocabulary
) -> Sequence[BranchMessage]:
    """The path with every count in this vocabulary: those of another model's are made anew."""
    foreign = [m.id for m in path if m.tokenizer != vocabulary.name and m.tokens]
    if not foreign:
        return path
    texts = await texts_of_ids(desk, owner, foreign)
    counts = {
        message_id: len(vocabulary.encode(text.content))
        for message_id, text in zip(foreign, texts, strict=True)
    }
    return [m._replace(tokens=counts.get(m.id, m.tokens)) for m in path]


async def texts_of_ids(
    desk: WorkerDesk, owner: str, message_ids: Sequence[str]
) -> Sequence[PromptMessage]:
    """Every one of these texts; a conversation that was deleted meanwhile needs no answer."""
    texts = await desk.messages.texts(owner, message_ids)
    if len(texts) != len(message_ids):
        raise Superseded
    return texts
