"""What prompts begin with, as the door sees it: which version is given, and what it takes.

It counts and never moves a conversation: that is for whoever builds its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tertulia.core.opening import (
    NO_INSTRUCTIONS,
    Footing,
    InstructionsVersion,
    asked,
    has_cut_moved,
)
from tertulia.core.prompt import system_ids
from tertulia.core.rollout import Rollout, prompt_version_at_cut, version_for
from tertulia.core.types import Branch, BranchMessage
from tertulia.gateway.desk import Desk
from tertulia.ports import Vocabulary


@dataclass(frozen=True, slots=True)
class Place:
    """Where a turn hangs: in whose conversation, and on which branch of it."""

    owner: str
    conversation_id: str
    branch: Branch

    @property
    def footing(self) -> Footing:
        """What the conversation stands on now."""
        return Footing(self.branch.prompt_version, self.branch.instructions)


async def rollout_now(desk: Desk) -> Rollout:
    """Which version of the system prompt is given to whom, for all gateways."""
    rollout = await desk.prompts.rollout()
    assert rollout is not None, "a gateway follows its configuration before it serves"
    return rollout


async def version_for_new(desk: Desk, conversation_id: str) -> str:
    """The version of the system prompt that a new conversation of this id begins with."""
    return version_for(conversation_id, await rollout_now(desk))


async def fixed_tokens(desk: Desk, place: Place, vocabulary: Vocabulary) -> int:
    """What every prompt of this conversation holds beside its messages."""
    return await tokens_on(desk, place.owner, place.footing, vocabulary)


async def fixed_tokens_at_cut(
    desk: Desk,
    place: Place,
    vocabulary: Vocabulary,
    path: Sequence[BranchMessage],
    *,
    room_tokens: int,
) -> int | None:
    """The same if this path is cut elsewhere than before, where the conversation may move to
    another system prompt and to newer instructions; None where it is not."""
    _, per_message = vocabulary.cost
    if not has_cut_moved(path, per_message_tokens=per_message, room_tokens=room_tokens):
        return None
    version = prompt_version_at_cut(
        place.conversation_id,
        kept=place.branch.prompt_version,
        rollout=await desk.prompts.rollout(),
    )
    current = await desk.instructions.current(place.owner)
    newest = current.version if current is not None else NO_INSTRUCTIONS
    return await tokens_on(desk, place.owner, Footing(version, newest), vocabulary)


async def tokens_on(desk: Desk, owner: str, footing: Footing, vocabulary: Vocabulary) -> int:
    """What a prompt on this footing holds beside its messages."""
    system = await desk.conversations.prompt_text(footing.prompt_version) or ""
    fixed, per_message = vocabulary.cost
    tokens = fixed + per_message + len(system_ids(vocabulary.encode, system))
    if footing.instructions != NO_INSTRUCTIONS:
        told = await desk.instructions.find(owner, footing.instructions)
        tokens += 0 if told is None else _tokens_of(told, vocabulary)
    return tokens


def _tokens_of(told: InstructionsVersion, vocabulary: Vocabulary) -> int:
    if told.tokenizer == vocabulary.name:
        return told.tokens
    return len(vocabulary.encode(asked(told.text)))
