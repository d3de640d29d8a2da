"""A small dose of every fault over real processes; `make chaos` has the rest."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.chaos.__main__ import DOSES, perform, reports
from tests.chaos.checker import CHECKS
from tests.chaos.mutants import MUTANTS
from tests.chaos.people import Habits
from tests.chaos.scene import Script
from tests.chaos.stage import set_stage
from tests.e2e.processes import installed_models

pytestmark = [pytest.mark.processes, pytest.mark.model, pytest.mark.anyio]
SEED = 11


@pytest.mark.timeout(300)
# A relay between two processes that are killed has no moment to wait for its sockets' ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_small_dose_of_everything_breaks_no_promise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And a checker that sees nothing would be seen: a planted bug is played afterwards."""
    with tempfile.TemporaryDirectory(prefix="tertulia-chaos-") as folder:
        async with set_stage(Path(folder), installed_models()) as stage:
            habits = Habits(rate=6.0)
            report = await perform(stage, Script("run", SEED, habits=habits, dose=DOSES["smoke"]))
            with capsys.disabled():
                print("\n" + "\n".join(report.lines()))
            seen = await reports(stage, "freed without charge", SEED)
    # How long pauses are says nothing here, beside other tests: the gate measures that.
    assert [one for one in report.violations if not one.startswith("C18")] == []
    assert report.deadly >= 15
    assert report.tokens > 1_000
    assert seen


def test_enough_bugs_are_planted() -> None:
    assert len(MUTANTS) >= 10
    assert len(CHECKS) >= 19
