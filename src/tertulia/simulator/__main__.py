"""`python -m tertulia.simulator`: plays one scenario of messages for another program.

It reads the scenario as JSON from its standard input, and writes lines of JSON: how far it is, a
hundred times at most, and last what came of it, or why nothing did. It ends when nobody reads.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any, Final

from tertulia.simulator.line import LineTooLong
from tertulia.simulator.outcome import Outcome, Sample
from tertulia.simulator.scenario import CantUse, Scenario, read
from tertulia.simulator.world import play

# Whoever serves people on this machine goes first.
_NICENESS: Final = 15
# However it is asked: no scenario of a page takes as long, and none may for ever.
_MOST_CPU_S: Final = 120
_PARTS: Final = 100


def main() -> None:
    """One scenario, from reading it to telling it."""
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
    try:
        scenario = read("The scenario", json.load(sys.stdin))
        told = _told(scenario, play(scenario, Teller(scenario.seconds)))
    except (CantUse, LineTooLong) as error:
        _say({"why": " ".join(str(error).split())})
        return
    _say({"told": told})


class Teller:
    """Says how far it is, once for each hundredth."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._said = 0

    def __call__(self, sample: Sample) -> None:
        part = int(sample.at / self._seconds * _PARTS)
        if part > self._said:
            self._said = part
            _say({"share": part / _PARTS})


def _told(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    return {
        "seconds": scenario.seconds,
        "warm_s": scenario.warm_s,
        "accelerators": scenario.fleet.accelerators,
        "in_use": outcome.busy,
        "rung_changes": len(outcome.steps),
        "groups": {
            name: {
                "messages": fate.n,
                "timed_out": fate.timed_out,
                "refused": fate.refused,
                "small": fate.n_small / max(1, fate.n_begun),
                "short": fate.n_short / max(1, fate.n_begun),
                "wait_p50_s": fate.wait_p50_s,
                "wait_p95_s": fate.wait_p95_s,
            }
            for name, fate in outcome.groups.items()
        },
        "points": [
            [one.at, one.asked_per_s, one.begun_per_s, one.waiting, one.rung, one.busy]
            for one in outcome.samples
        ],
    }


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        # Nobody reads any more. Python would complain once more while it puts its output away.
        os._exit(0)
