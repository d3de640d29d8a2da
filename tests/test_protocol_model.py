"""The turn protocol holds in its spin model, and every planted fault is told from the protocol."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import check_protocol

ROOT = Path(__file__).parent.parent


def have_tools() -> bool:
    return shutil.which("spin") is not None and shutil.which("gcc") is not None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    not have_tools() and "CI" not in os.environ,
    reason="needs the Debian packages spin and gcc (scripts/check-protocol installs them)",
)
def test_the_protocol_is_safe_and_every_planted_fault_is_caught() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "check_protocol.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fault_that_misses_its_place_is_an_error() -> None:
    variant = check_protocol.Variant(
        "misspelt", True, "never applied", (check_protocol.Edit("no such line", ""),)
    )
    with pytest.raises(SystemExit, match="found 0"):
        check_protocol.mutate(check_protocol.MODEL.read_text(), variant)


def test_a_search_that_was_cut_short_proves_nothing() -> None:
    report = "error: max search depth too small\n errors: 0\n 12 states, stored"
    with pytest.raises(SystemExit, match="not complete"):
        check_protocol.read_report(report, check_protocol.VARIANTS[0], 0.0)
