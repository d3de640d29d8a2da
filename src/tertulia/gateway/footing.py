"""What prompts begin with, as the door sees it: which version is given, and what it takes.

It counts and never moves a conversation: that is for whoever builds its prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tertulia.beginning import footing_now
from tertulia.core.opening import NO_INSTRUCTIONS, Footing, InstructionsVersion, asked
from tertulia.core.prompt import system_ids
from tertulia.core.rollout import Rollout, version_for
from tertulia.core.types import Branch
from tertulia.gateway.desk import Desk
from tertulia.ports import Vocabulary

# How a prompt begins that no conversation stands behind: a person's chat as his conversations do,
# with his own instructions; a program says what it wants said.
Begins = Literal["plain", "instructed"]


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


async def system_without_conversation(desk: Desk, owner: str, begins: Begins) -> str:
    """The system message of messages that come without one, and belong to no conversation."""
    # By its owner: each of his calls that begins alike finds the same prefix.
    system = await desk.conversations.prompt_text(await version_for_new(desk, owner)) or ""
    told = await desk.instructions.current(owner) if begins == "instructed" else None
    return system if told is None else system + asked(told.text)


async def fixed_tokens(desk: Desk, place: Place, vocabulary: Vocabulary) -> int:
    """What every prompt of this conversation holds beside its messages."""
    return await tokens_on(desk, place.owner, place.footing, vocabulary)


async def fixed_tokens_at_cut(desk: Desk, place: Place, vocabulary: Vocabulary) -> int:
    """The same where the conversation's context is cut, and it may move to another system prompt
    and to newer instructions."""
    to = await footing_now(desk, place.owner, place.conversation_id, kept=place.footing)
    return await tokens_on(desk, place.owner, to, vocabulary)


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
