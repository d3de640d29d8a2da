"""What a conversation's prompts would begin with if it began now.

The door counts for it, and the worker moves to it where a context is cut: both ask here, or they
would not mean the same.
"""

from __future__ import annotations

from typing import Protocol

from tertulia.core.opening import NO_INSTRUCTIONS, Footing
from tertulia.core.rollout import prompt_version_at_cut
from tertulia.ports_of_prompts import Instructions, Prompts


class Beginning(Protocol):
    """The ports that it needs."""

    @property
    def prompts(self) -> Prompts: ...
    @property
    def instructions(self) -> Instructions: ...


async def footing_now(
    tools: Beginning, owner: str, conversation_id: str, *, kept: Footing
) -> Footing:
    """What a conversation that stands on `kept` would stand on after a cut."""
    version = prompt_version_at_cut(
        conversation_id, kept=kept.prompt_version, rollout=await tools.prompts.rollout()
    )
    current = await tools.instructions.current(owner)
    return Footing(version, NO_INSTRUCTIONS if current is None else current.version)
