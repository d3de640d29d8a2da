"""The simulator for another program: it tells in lines, and ends when nobody reads."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

QUIET = {"fleet": {"accelerators": 20}, "traffic": {"per_s": 20}, "seconds": 120, "title": "It"}
LONG_S = 50


def played(scenario: dict[str, Any]) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-m", "tertulia.simulator"],
        input=json.dumps(scenario),
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=True,
    )
    assert ran.stderr == ""
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_it_says_how_far_it_is_and_then_what_came_of_it() -> None:
    *progress, last = played(QUIET)
    shares = [line["share"] for line in progress]
    assert shares == sorted(set(shares))
    assert 50 < len(shares) <= 100
    assert last["told"]["groups"].keys() == {"free", "plus"}
    assert 0 < last["told"]["in_use"] < 1


def test_what_it_does_not_play_is_told_in_one_line() -> None:
    (told,) = played({**QUIET, "fleet": {"accelerators": 0}})
    assert "fleet.accelerators" in told["why"]
    assert "\n" not in told["why"]


def test_it_ends_without_a_word_when_nobody_reads() -> None:
    endless = {**QUIET, "seconds": 100_000}
    with subprocess.Popen(
        [sys.executable, "-m", "tertulia.simulator"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(endless).encode())
        process.stdin.close()
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(LONG_S) == 0
        assert process.stderr.read() == b""
