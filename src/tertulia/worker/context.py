"""Builds the prompt of a claimed turn from stored messages, the same bytes at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tertulia.core.prompt import choose_context, exchanges_of, prompt_messages, splice_ids
from tertulia.core.types import BranchMessage, PromptMessage, TokenIds, Turn
from tertulia.ports import Vocabulary
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.pen import Superseded


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a replica is sent: the prompt, and how many tokens the answer may have."""

    ids: TokenIds
    answer_tokens: int
    shared_tokens: int = 0  # the first ones, which hold nothing of a person
    notices: tuple[str, ...] = ()


async def build_prompt(desk: WorkerDesk, turn: Turn, vocabulary: Vocabulary) -> Prompt:
    """The turn's prompt in this vocabulary, within the plan's and the model's window."""
    plan = desk.plans[turn.plan]
    window = plan.window_on(vocabulary.window)
    shared_tokens = 0
    if turn.conversation_id is None:
        messages: tuple[PromptMessage, ...] = turn.prompt
        shortened = False
    else:
        messages, shortened = await _kept_messages(
            desk, turn, vocabulary, room=window - plan.answer_tokens
        )
        shared_tokens = _tokens_of_system(vocabulary, messages)
    ids = prompt_ids(vocabulary, messages)
    answer_tokens = min(turn.answer_tokens, window - len(ids))
    notices: tuple[str, ...] = ("context_shortened",) if shortened else ()
    if answer_tokens < turn.answer_tokens:
        notices += ("answer_capped",)
    return Prompt(ids, answer_tokens, shared_tokens, notices)


def prompt_ids(vocabulary: Vocabulary, messages: Sequence[PromptMessage]) -> TokenIds:
    """The ids to send to a replica; ValueError if the template can't show roles in this order."""
    return splice_ids(
        vocabulary.render(messages),
        messages,
        tokenizer=vocabulary.name,
        encode=vocabulary.encode,
        encode_control=vocabulary.encode_control,
    )


def _tokens_of_system(vocabulary: Vocabulary, messages: Sequence[PromptMessage]) -> int:
    """What the prompt's beginning takes, up to the end of the platform's own system message."""
    assert messages[0].role == "system"
    n_tokens = 0
    for chunk in vocabulary.render(messages):
        if chunk.kind == "text":
            return n_tokens + len(vocabulary.encode(chunk.text))
        n_tokens += len(vocabulary.encode_control(chunk.text))
    return n_tokens


async def _kept_messages(
    desk: WorkerDesk, turn: Turn, vocabulary: Vocabulary, *, room: int
) -> tuple[tuple[PromptMessage, ...], bool]:
    assert turn.conversation_id is not None
    owner, conversation_id = turn.owner, turn.conversation_id
    branch = await desk.messages.branch(owner, conversation_id, turn.user_message_id)
    branch = await _counted(desk, owner, branch, vocabulary)
    conversation = await desk.conversations.get(owner, conversation_id)
    version = conversation.prompt_version if conversation is not None else ""
    system = await desk.conversations.prompt_text(version) or ""
    fixed, per_message = vocabulary.cost
    context = choose_context(
        exchanges_of(branch, per_message_tokens=per_message),
        room_tokens=room - fixed - len(vocabulary.encode(system)),
    )
    wanted = context.message_ids
    texts = dict(zip(wanted, await _texts(desk, owner, wanted), strict=True))
    return prompt_messages(system, context, texts), context.shortened


async def _counted(
    desk: WorkerDesk, owner: str, branch: Sequence[BranchMessage], vocabulary: Vocabulary
) -> Sequence[BranchMessage]:
    """The branch with every count in this vocabulary: those of another model's are made anew."""
    foreign = [m.id for m in branch if m.tokenizer != vocabulary.name and m.tokens]
    if not foreign:
        return branch
    texts = await _texts(desk, owner, foreign)
    counts = {
        message_id: len(vocabulary.encode(text.content))
        for message_id, text in zip(foreign, texts, strict=True)
    }
    return [replace(m, tokens=counts.get(m.id, m.tokens)) for m in branch]


async def _texts(
    desk: WorkerDesk, owner: str, message_ids: Sequence[str]
) -> Sequence[PromptMessage]:
    """Every one of these texts; a conversation that was deleted meanwhile needs no answer."""
    texts = await desk.messages.texts(owner, message_ids)
    if len(texts) != len(message_ids):
        raise Superseded
    return texts
