"""The simulator's speed: an hour of 3,500 messages a second, in seconds of CPU time.

`python -m bench simulator [--minutes N]`; the plain loop plays a part of the hour, as it is slow.
"""

from __future__ import annotations

import argparse
import time

from tertulia.simulator.fast import play_fast
from tertulia.simulator.machine import compiled, has_numba
from tertulia.simulator.scenario import Scenario, parse

PER_S = 3_500
ACCELERATORS = 1_500
HOUR_S = 3_600


def main(given: list[str]) -> None:
    """Plays the hour, or as many minutes as are asked for."""
    asked = argparse.ArgumentParser(prog="python -m bench simulator", description=__doc__)
    asked.add_argument("--minutes", type=int, default=60, help="of the hour, for each loop")
    minutes = asked.parse_args(given).minutes
    for is_compiled in (True, False):
        if is_compiled and not has_numba():
            print("compiled: numba is not installed")
            continue
        if is_compiled:
            _compile()
        started = time.process_time()
        outcome = play_fast(_peak(60.0 * minutes), is_compiled=is_compiled)
        took_s = time.process_time() - started
        an_hour_s = took_s * 60 / minutes
        print(
            f"{'compiled' if is_compiled else 'plain':8} {outcome.all.n:12,} messages"
            f" {took_s:7.2f} s; an hour: {an_hour_s:.1f} s"
        )


def _compile() -> None:
    started = time.process_time()
    compiled()
    play_fast(_peak(2.0), is_compiled=True)
    print(f"compiling {time.process_time() - started:.1f} s")


def _peak(seconds: float) -> Scenario:
    given = {
        "seconds": seconds,
        "engine": "fast",
        "fleet": {"accelerators": ACCELERATORS},
        "traffic": {"per_s": PER_S},
    }
    return parse("peak", 'title = "a peak hour"', given).variants[0].scenario
