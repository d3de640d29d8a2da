"""The table of prices in the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tertulia.plan_tables import Table

Dollars = Annotated[float, Field(ge=0, le=1e12)]
Accelerators = Annotated[int, Field(ge=0, le=1_000)]


class CostsTable(Table):
    """What the fleet costs, for the operations page; without `accelerator_per_hour` nothing."""

    accelerator_per_hour: Dollars | None = Field(
        None, description="One accelerator for an hour, in dollars."
    )
    accelerators: dict[str, Accelerators] = Field(
        {},
        description="How many accelerators a replica has, by its model's name as the operations"
        " page shows it; 1 where none is named.",
    )
    team_per_year: Dollars = Field(0.0, description="The people who run it, in dollars.")
    target_per_million: Dollars | None = Field(
        None, description="What a million tokens of answers may cost, in dollars."
    )
