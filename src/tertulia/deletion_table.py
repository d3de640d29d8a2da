"""The table of deletion in the configuration."""

from __future__ import annotations

from pydantic import Field

from tertulia.plan_tables import Table


class DeletionTable(Table):
    """What is kept of deletions themselves. How long words are kept is a setting of each plan."""

    audit_days: int = Field(
        365,
        ge=1,
        le=36_500,
        description="How long it can be looked up when a deletion reached which copies; no words"
        " are in it.",
    )
