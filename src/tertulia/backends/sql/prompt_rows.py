"""Between rows and values: system prompts, their rollout, and people's own instructions."""

from __future__ import annotations

from typing import Any

from tertulia.backends.sql.rows import Row
from tertulia.core.opening import Footing, InstructionsVersion
from tertulia.core.rollout import PromptUse, Rollout


def rollout_of(row: Row) -> Rollout:
    """The row of `rollout`."""
    return Rollout(row["base"], row["version"], row["share"], row["configured"])


def rollout_values(seen: Rollout | None, to: Rollout) -> tuple[str, dict[str, Any]]:
    """The name of the statement that rolls out, and its values."""
    values = {
        "base": to.base,
        "version": to.version,
        "share": to.share,
        "configured": to.configured,
    }
    if seen is None:
        return "first", values
    seen_values = {
        "seen_base": seen.base,
        "seen_version": seen.version,
        "seen_share": seen.share,
        "seen_configured": seen.configured,
    }
    return "next", {**values, **seen_values}


def prompt_use_of(row: Row) -> PromptUse:
    """A row of `prompts`, with how many conversations are on it."""
    return PromptUse(row["version"], row["text"], row["created_at"], row["conversations"])


def footing_of(row: Row) -> Footing:
    """What a row of `conversations` stands on."""
    return Footing(row["prompt_version"], row["instructions"])


def move_values(owner: str, conversation_id: str, seen: Footing, to: Footing) -> dict[str, Any]:
    """The values of a move."""
    return {
        "owner": owner,
        "id": conversation_id,
        "prompt_version": to.prompt_version,
        "instructions": to.instructions,
        "seen_prompt_version": seen.prompt_version,
        "seen_instructions": seen.instructions,
    }


def instructions_of(row: Row | None) -> InstructionsVersion | None:
    """A row of `instructions`; None also for the one that says that there are none any more."""
    if row is None or not row["text"]:
        return None
    return InstructionsVersion(
        row["version"], row["text"], row["tokens"], row["tokenizer"], row["written_at"]
    )
