"""Runs many seeds, or one again: `python -m tests.sim --seeds 200` or `--seed 7`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.sim.world import Result, run_seed


def main() -> int:
    """Prints a line a seed and a sum; the exit status says whether anything was wrong."""
    options = _options()
    first = options.first if options.seed is None else options.seed
    seeds = range(first, first + (options.seeds if options.seed is None else 1))
    begun_at = time.monotonic()
    results: list[Result] = []
    for seed in seeds:
        result = run_seed(seed, chaos_s=options.chaos)
        results.append(result)
        print(result.line(), flush=True)
        for violation in result.violations:
            print(f"    {violation}", flush=True)
        if options.turns and sum(done.turns for done in results) >= options.turns:
            break
        if options.budget and time.monotonic() - begun_at > options.budget:
            break
    reached = sum((result.reached for result in results), Counter[str]())
    print(", ".join(f"{what}: {count}" for what, count in sorted(reached.items())))
    print(f"{summary(results)}; took {time.monotonic() - begun_at:.1f}s")
    return 1 if any(result.violations for result in results) else 0


def summary(results: list[Result]) -> str:
    """All runs on one line."""
    bad = [result.seed for result in results if result.violations]
    return (
        f"{len(results)} runs: {sum(r.kills for r in results)} kills, "
        f"{sum(r.freezes for r in results)} freezes, {sum(r.losses for r in results)} losses, "
        f"{sum(r.turns for r in results)} turns, {sum(r.tokens for r in results)} tokens, "
        f"{sum(r.settled_tokens for r in results)} settled where the replicas' logs say "
        f"{sum(r.accepted_tokens for r in results)}, "
        f"violations in {len(bad)} seeds {bad}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed again")
    parser.add_argument("--first", type=int, default=1, help="the first of many seeds")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds")
    parser.add_argument("--turns", type=int, default=0, help="stop after so many turns")
    parser.add_argument("--chaos", type=float, default=30.0, help="virtual seconds of faults")
    parser.add_argument("--budget", type=float, default=0.0, help="stop after these real seconds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
