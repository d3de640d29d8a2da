"""`python -m bench [NAME ...]`: runs the named measurements, or all of them, one after another."""

from __future__ import annotations

import sys

from bench import levers, store, tokens

MEASUREMENTS = {"tokens": tokens.main, "store": store.main, "levers": levers.main}


def main(names: list[str]) -> int:
    """Runs the measurements; 2 for a name that is none."""
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}")
        return 2
    for name in names or MEASUREMENTS:
        print(f"== {name}", flush=True)
        MEASUREMENTS[name]()
    return 0


sys.exit(main(sys.argv[1:]))
