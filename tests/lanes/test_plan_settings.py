"""Plans in the settings: what is given changes what is there; what can't be meant is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tertulia.config import ConfigError, Settings, load_settings
from tertulia.core.types import Budget, Lane
from tertulia.wiring.desks import plans_of


def loaded(folder: Path, text: str) -> Settings:
    (folder / "tertulia.toml").write_text(text)
    return load_settings(folder / "tertulia.toml")


def budget(**changes: object) -> str:
    """A plan with one budget, as the file has it."""
    given = {"name": '"day"', "unit": '"tokens"', "limit": 5, "refill_s": 60, **changes}
    inner = ", ".join(f"{key} = {value}" for key, value in given.items() if value is not None)
    return f"[plans.gold]\nbudgets = [{{ {inner} }}]\n"


def test_without_settings_there_are_free_plus_and_batch(tmp_path: Path) -> None:
    plans = plans_of(loaded(tmp_path, "").plans)
    assert {name: plan.lane for name, plan in plans.items()} == {
        "free": Lane.FREE,
        "plus": Lane.PLUS,
        "batch": Lane.BATCH,
    }
    assert Budget("units_3h", "units", 25_000_000, 10_800_000) in plans["free"].budgets
    units = {"units", "tokens", "prompt_tokens", "turns"}
    for kind in ("free", "plus"):
        assert {budget.unit for budget in plans[kind].budgets} == units
    assert [plan.ladder for plan in plans.values()] == [True, False, False]
    assert plans["batch"].abandon_s is None
    chat = {budget.name for name in ("free", "plus") for budget in plans[name].budgets}
    assert not chat & {budget.name for budget in plans["batch"].budgets}, "a batch has its own"


def test_a_table_changes_only_what_it_names(tmp_path: Path) -> None:
    before = plans_of(loaded(tmp_path, "").plans)
    plans = plans_of(loaded(tmp_path, "[plans.plus]\nanswer_tokens = 77\n").plans)
    assert plans["plus"].answer_tokens == 77
    assert (plans["plus"].lane, plans["plus"].budgets) == (Lane.PLUS, before["plus"].budgets)
    assert plans["free"] == before["free"]


def test_a_plan_of_ones_own_begins_as_the_free_one_is(tmp_path: Path) -> None:
    plans = plans_of(loaded(tmp_path, '[plans.gold]\nlane = "plus"\nmodels = ["large"]\n').plans)
    assert (plans["gold"].lane, plans["gold"].models) == (Lane.PLUS, ("large",))
    assert plans["gold"].budgets == plans["free"].budgets
    assert plans["unknown"] is plans["free"]


def test_a_list_of_budgets_replaces_all_of_them(tmp_path: Path) -> None:
    plans = plans_of(loaded(tmp_path, budget() + "[plans.free]\nbudgets = []\n").plans)
    assert plans["gold"].budgets == (Budget("day", "tokens", 5_000, 60_000),)
    assert plans["free"].budgets == ()


def test_a_reply_may_go_on_for_ever_with_nobody_following_it(tmp_path: Path) -> None:
    """The file has a word for it, which is also what `tertulia config` prints."""
    settings = loaded(tmp_path, '[plans.gold]\nabandon_s = "never"\n[plans.free]\nabandon_s = 5\n')
    plans = plans_of(settings.plans)
    assert (plans["gold"].abandon_s, plans["free"].abandon_s) == (None, 5.0)
    assert settings.plans["gold"].model_dump()["abandon_s"] == "never"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (budget(limit=0), "plans.gold.budgets.0.limit: Input should be greater than or equal to 1"),
        (budget(limit=-5), "plans.gold.budgets.0.limit: Input should be greater"),
        (budget(limit=10**18), "plans.gold.budgets.0.limit: Input should be less"),
        (budget(limit=1.5), "plans.gold.budgets.0.limit"),
        (budget(limit=None), "plans.gold.budgets.0.limit: Field required"),
        (budget(refill_s=0), "plans.gold.budgets.0.refill_s: Input should be greater"),
        (budget(refill_s=-60), "plans.gold.budgets.0.refill_s: Input should be greater"),
        (budget(refill_s=10**9), "plans.gold.budgets.0.refill_s: Input should be less"),
        (budget(unit='"euros"'), "plans.gold.budgets.0.unit"),
        (budget(name='"A day"'), "plans.gold.budgets.0.name"),
        (budget(colour='"blue"'), "plans.gold.budgets.0.colour: there is no such setting"),
        ('[plans.gold]\nlane = "fast"\n', "plans.gold.lane"),
        ("[plans.gold]\nreplies_running = 0\n", "plans.gold.replies_running"),
        ("[plans.gold]\nopen_streams = -1\n", "plans.gold.open_streams"),
        ("[plans.gold]\nwait_s = 0\n", "plans.gold.wait_s"),
        ('[plans.gold]\nabandon_s = "none"\n', "plans.gold.abandon_s: must be a number"),
        ("[plans.gold]\nabandon_s = [1]\n", 'a number of seconds, or "never"'),
        ("[plans.gold]\nabandon_s = 0\n", "plans.gold.abandon_s: Input should be greater than 0"),
        ("[plans.gold]\nabandon_s = -1.5\n", "plans.gold.abandon_s"),
        ("[plans.gold]\nabandon_s = nan\n", "plans.gold.abandon_s"),
        ("[plans.gold]\nabandon_s = true\n", 'a number of seconds, or "never"'),
        ("[plans.free]\ntokens_per_day = 5\n", "plans.free.tokens_per_day: there is no such"),
        ('plans = "all"\n', "plans"),
    ],
)
def test_a_plan_that_can_not_be_meant_is_refused_with_its_name(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    assert said in str(refused.value)


def test_a_name_is_given_once_in_a_plan(tmp_path: Path) -> None:
    one = '{ name = "day", unit = "tokens", limit = 5, refill_s = 60 }'
    with pytest.raises(ConfigError, match="the name day is given twice"):
        loaded(tmp_path, f"[plans.gold]\nbudgets = [{one}, {one}]\n")


def test_a_name_means_one_unit_in_all_plans(tmp_path: Path) -> None:
    """What was used under it goes with the user to another plan."""
    with pytest.raises(ConfigError, match="the budget units_3h has two units in two plans"):
        loaded(tmp_path, budget(name='"units_3h"'))
