"""How long a plan takes: what a page asks for whenever somebody moves a slider.

It must count CPU time: how busy the machine is elsewhere is not the plan's doing.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from tertulia.planner.plan import Wish, plan_for
from tertulia.planner.telling import quick, told

ROUNDS: Final = 50


def main() -> None:
    """Prints the CPU time of a plan with all its figures, as it is and by the other timing."""
    took_ms = []
    for n in range(ROUNDS):
        began_s = time.process_time()
        plan = plan_for([Wish({"users": 100_000 + n}, "bench")])
        for sheet in (plan.sheet, plan.other):
            for name in quick():
                told(sheet, name)
        took_ms.append(1e3 * (time.process_time() - began_s))
    print(f"a plan of 2 × {len(quick())} figures: {median(took_ms):.2f} ms CPU (goal: < 10 ms)")
