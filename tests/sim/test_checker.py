"""The checker sees planted bugs: a green simulation with a dead checker would prove nothing."""

import pytest

from tests.sim.mutants import MUTANTS
from tests.sim.nemesis import FAIL_OVERS, Intensity
from tests.sim.world import Result, run_seed

# Each was seen within five seeds when it was first planted. The bound makes this test fail for a
# checker that became blind.
SEEDS = range(1, 13)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checker_reports(mutant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with MUTANTS[mutant]():
        found = first_report(FAIL_OVERS if "failover" in mutant else None)
    assert found is not None, f"{mutant}: not seen within {len(SEEDS)} seeds"
    with capsys.disabled():
        print(f"\n{mutant}: seed {found.seed}: {found.violations[0]}")


def first_report(intensity: Intensity | None) -> Result | None:
    for seed in SEEDS:
        result = run_seed(seed, intensity=intensity)
        if result.violations:
            return result
    return None


def test_ten_mutants_are_planted() -> None:
    assert len(MUTANTS) >= 10
