"""`python -m bench [NAME ...]`: runs the named measurements, one after another.

Without a name it runs those that need nothing but this package. `engine` takes options of its own.
"""

from __future__ import annotations

import sys

from bench import store, tokens
from bench.engine import run as engine

MEASUREMENTS = {"tokens": tokens.main, "store": store.main}


def main(given: list[str]) -> int:
    """Runs the measurements; 2 for a name that is none."""
    if given[:1] == ["engine"]:
        engine.main(given[1:])
        return 0
    unknown = [name for name in given if name not in MEASUREMENTS]
    if unknown:
        there_are = ", ".join([*MEASUREMENTS, "engine"])
        print(f"no such measurement: {', '.join(unknown)}; there are {there_are}")
        return 2
    for name in given or MEASUREMENTS:
        print(f"== {name}", flush=True)
        MEASUREMENTS[name]()
    return 0


sys.exit(main(sys.argv[1:]))
