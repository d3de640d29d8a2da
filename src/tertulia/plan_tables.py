"""The tables of the plans in the configuration, and the plans that are there without any.

An unknown or misspelt setting is an error that names it, here as in every table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from tertulia.core.plans import BATCH, FREE
from tertulia.core.types import BudgetUnit

Tokens = Annotated[int, Field(ge=1, le=10_000_000_000)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]

# In the file, for no time at all: TOML has no word for nothing.
NEVER: Final = "never"


class Table(BaseModel):
    """A table of the file: a key that is not a setting is refused, at any depth."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetTable(Table):
    """A bucket that a user's turns draw from; it refills evenly."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,39}$", description="A name of your own, in small letters."
    )
    unit: BudgetUnit = Field(
        description="What is counted; units weigh tokens by their cost: new input 1, cached input"
        " 0.1, output 4."
    )
    limit: int = Field(ge=1, le=10_000_000_000, description="How much a full one holds.")
    refill_s: int = Field(
        ge=1, le=2_678_400, description="In how many seconds an empty one is full again."
    )


class PlanTable(Table):
    """What users of a plan may use."""

    lane: Literal["plus", "free", "batch"] = Field(
        "free", description="Where its turns wait: plus before free, batch when nobody waits."
    )
    window_tokens: Tokens = Field(8_000, description="Prompt and answer together.")
    answer_tokens: Tokens = Field(1_000, description="Longest answer.")
    budgets: tuple[BudgetTable, ...] = Field(
        (
            BudgetTable(name="units_3h", unit="units", limit=25_000, refill_s=10_800),
            BudgetTable(name="tokens_minute", unit="tokens", limit=30_000, refill_s=60),
            BudgetTable(name="tokens_day", unit="tokens", limit=200_000, refill_s=86_400),
            # A dozen prompts as long as the window: whoever sends more makes us read, not answer.
            BudgetTable(name="prompt_hour", unit="prompt_tokens", limit=100_000, refill_s=3_600),
            BudgetTable(name="turns_minute", unit="turns", limit=20, refill_s=60),
        ),
        description="What a user may use; a list that is given replaces all of it, and an empty"
        " one sets no limit.",
    )
    replies_running: int = Field(
        2, ge=1, le=100_000, description="Replies of a user at the same time, over all gateways."
    )
    open_streams: int = Field(
        20, ge=1, le=100_000, description="Open answer streams of a user, over all gateways."
    )
    wait_s: Seconds = Field(10.0, description="The longest that a turn is let wait for its start.")
    models: tuple[str, ...] = Field(
        ("small",), description="Names that may be picked besides auto, which always may."
    )
    ladder: bool = Field(
        True, description="Whether overload may bring smaller models, shorter answers, refusals."
    )
    abandon_s: Seconds | None = Field(
        30.0,
        description="How long a reply goes on with nobody following it, from more than 0 to 86,400;"
        ' `"never"` ends none for that.',
    )
    retention_days: int = Field(
        30,
        ge=0,
        le=36_500,
        description="Days after which a conversation is deleted that nobody wrote in, pinned or"
        " archived as it may be; 0 keeps it for ever.",
    )

    @field_validator("abandon_s", mode="before")
    @classmethod
    def _is_a_time_or_never(cls, given: object) -> object:
        if given is None or given == NEVER:
            return None
        try:
            # From the environment it is a text. To Python a yes is 1, but to nobody else.
            return float(given) if isinstance(given, str | float) else int(f"{given}")
        except ValueError:
            raise ValueError(f'must be a number of seconds, or "{NEVER}"') from None

    @field_serializer("abandon_s")
    def _as_the_file_has_it(self, abandon_s: float | None) -> float | str:
        return NEVER if abandon_s is None else abandon_s

    @field_validator("budgets")
    @classmethod
    def _are_named_once(cls, budgets: tuple[BudgetTable, ...]) -> tuple[BudgetTable, ...]:
        names = [budget.name for budget in budgets]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name} is given twice")
        return budgets

    @model_validator(mode="after")
    def _leaves_room_for_a_question(self) -> PlanTable:
        if self.answer_tokens >= self.window_tokens:
            raise ValueError("answer_tokens must be less than window_tokens, which holds both")
        return self


PLANS: Final[Mapping[str, PlanTable]] = {
    FREE: PlanTable(),
    "plus": PlanTable(
        lane="plus",
        window_tokens=32_000,
        answer_tokens=2_000,
        budgets=(
            BudgetTable(name="units_3h", unit="units", limit=250_000, refill_s=10_800),
            BudgetTable(name="tokens_minute", unit="tokens", limit=150_000, refill_s=60),
            BudgetTable(name="tokens_day", unit="tokens", limit=2_000_000, refill_s=86_400),
            BudgetTable(name="prompt_hour", unit="prompt_tokens", limit=1_000_000, refill_s=3_600),
            BudgetTable(name="turns_minute", unit="turns", limit=60, refill_s=60),
        ),
        wait_s=30.0,
        models=("small", "large"),
        ladder=False,
    ),
    # Of its own, so that a batch uses up nothing of its owner's chat.
    BATCH: PlanTable(
        lane="batch",
        budgets=(
            BudgetTable(name="batch_tokens_day", unit="tokens", limit=2_000_000, refill_s=86_400),
        ),
        replies_running=100,
        wait_s=86_400,
        models=("small", "large"),
        ladder=False,
        abandon_s=None,
    ),
}


def beside_those_that_are_there(plans: Mapping[str, Any]) -> dict[str, Any]:
    """The plans that are given and those that are not: new accounts begin on `free`.

    What a table leaves out is as it is without that table.
    """
    begun: dict[str, Any] = {name: table.model_dump() for name, table in PLANS.items()}
    for name, table in plans.items():
        is_changed = isinstance(table, dict) and name in begun
        begun[name] = {**begun[name], **table} if is_changed else table
    return begun


def demand_one_unit_for_each_name(plans: Mapping[str, PlanTable]) -> None:
    """ValueError for a budget whose name means another unit in another plan: a user who changes
    plans keeps what was used under it."""
    units: dict[str, str] = {}
    for plan in plans.values():
        for budget in plan.budgets:
            if units.setdefault(budget.name, budget.unit) != budget.unit:
                raise ValueError(f"the budget {budget.name} has two units in two plans")
