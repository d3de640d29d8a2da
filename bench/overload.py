"""The day the accelerators run out, at a tenth of its size: 150 of them, 700 messages a second.

`python -m bench overload [--quick]` prints each part of the story beside what is expected of it. It
computes in virtual time: nothing else that runs here changes a figure.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

from tertulia.planner.overload import (
    ALL,
    LIVE,
    OFF,
    PAID_FIRST,
    SHORT,
    TO_SMALL,
    Policy,
    Scene,
    Story,
    tell,
)

ACCELERATORS = 150
# What they can answer: 0.67 accelerator seconds for each hard message and 0.18 for each easy one.
CAPACITY_PER_S = 1 / (0.3 * 0.6698 + 0.7 * 0.1756)  # of each
TWICE_PER_S = 7_000 / 1_500  # of each, twice what is planned: 151 % of the capacity
# A line that grows by a tenth of what is asked takes a while to become as long as people wait.
WARM_S = 90.0
SPIKE_S = (60.0, 120.0)
# An hour is long: a fifth of the pool, whose load varies more by chance, makes it no easier.
FEWER = 30


def main(given: list[str]) -> None:
    """Tells the story."""
    asked = argparse.ArgumentParser(prog="python -m bench overload", description=__doc__)
    asked.add_argument("--quick", action="store_true", help="half of the pool, a sixth of the time")
    if asked.parse_args(given).quick:
        _rungs(ACCELERATORS // 2, 60.0)
        _changes(600.0)
        _spike(ACCELERATORS // 2)
    else:
        _rungs(ACCELERATORS, 240.0)
        _changes(3600.0)
        _spike(ACCELERATORS)


def _rungs(accelerators: int, seconds: float) -> None:
    per_s = accelerators * TWICE_PER_S
    print(f"{accelerators} accelerators, {per_s:.0f} messages/s, {seconds:.0f} s")
    print("policy            timed out: all   plus   free   free refused   free p95 wait   busy")
    parts: list[tuple[str, Policy, str]] = [
        ("off", OFF, "33.8 +- 1.5 % of all time out"),
        ("paid first", PAID_FIRST, "plus 0, free 56.5 +- 2 %"),
        ("+ small", TO_SMALL, "free 20 +- 2 %"),
        ("+ short", SHORT, "0; busy 98.4 %"),
        ("+ refused", ALL, "0 refused; free starts within 2.3 s"),
        ("live ladder", LIVE, "plus >= 99.9 % answered; free starts within 2.3 s"),
        ("off, dead served", Policy(False, 0, drops_dead=False, has_door=False), "nearly all"),
    ]
    for name, policy, expected in parts:
        story = tell(_scene(per_s, WARM_S + seconds, WARM_S, accelerators), policy)
        print(
            f"{name:16} {story.timed_out:15.1%} {story.plus.timed_out:6.1%}"
            f" {story.free.timed_out:6.1%} {story.free.refused:14.1%}"
            f" {story.free.wait_p95_s:13.2f} s {story.busy:6.1%}   ({expected})"
        )


def _changes(seconds: float) -> None:
    print(f"\n{FEWER} accelerators, {seconds:.0f} s of a constant load: changes of the rung (<= 3)")
    for percent in range(80, 165, 10):
        per_s = FEWER * CAPACITY_PER_S * percent / 100
        story = tell(_scene(per_s, seconds, 0.0, FEWER), LIVE)
        print(f"{percent:4} %  {len(story.steps)}  {_told(story)}", flush=True)


def _spike(accelerators: int) -> None:
    begins, ends = SPIKE_S
    twice_per_s = accelerators * TWICE_PER_S

    def rate(now: float) -> float:
        return twice_per_s if begins <= now < ends else twice_per_s / 2

    after = Scene(rate, accelerators, ends + 150.0, warm_s=ends + 10.0)
    story = tell(after, LIVE)
    print(f"\na minute of twice the load, from {begins:.0f} s to {ends:.0f} s: {_told(story)}")
    print(
        f"of what came 10 s after it or later: plus p95 {story.plus.wait_p95_s:.2f} s, free p95"
        f" {story.free.wait_p95_s:.2f} s, {story.free.refused:.1%} refused,"
        f" {story.timed_out:.1%} timed out"
    )


def _scene(per_s: float, seconds: float, warm_s: float, accelerators: int) -> Scene:
    return Scene(lambda _: per_s, accelerators, seconds, warm_s=warm_s)


def _told(story: Story) -> str:
    shown = [f"{rung} at {at:.0f} s" for at, rung in story.steps]
    closest = min((b[0] - a[0] for a, b in pairwise(story.steps)), default=None)
    steps = ", ".join(shown) or "none"
    return steps if closest is None else f"{steps} (closest {closest:.0f} s)"
