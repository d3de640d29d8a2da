"""`python -m bench [NAME ...]`: runs the named measurements, one after another.

Without a name it runs those that take no options. `context`, `engine`, `isolation`, `levers`,
`overload`, `page`, `remembering`, `routing`, `rush`, `soak` and `tokens` do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import (
    admission,
    batches,
    context,
    history,
    isolation,
    levers,
    moving,
    overload,
    placement,
    remembering,
    routing,
    rush,
    soak,
    store,
    turns,
    valkey_log,
)
from bench.engine import run as engine
from bench.page import run as page
from bench.tokens import run as tokens

MEASUREMENTS = {
    "store": store.main,
    "turns": turns.main,
    "log": valkey_log.main,
    "placement": placement.main,
    "admission": admission.main,
    "batches": batches.main,
    "history": history.main,
    "moving": moving.main,
}
WITH_OPTIONS: dict[str, Callable[[list[str]], None]] = {
    "context": context.main,
    "engine": engine.main,
    "isolation": isolation.main,
    "levers": levers.main,
    "overload": overload.main,
    "page": page.main,
    "remembering": remembering.main,
    "routing": routing.main,
    "rush": rush.main,
    "soak": soak.main,
    "tokens": tokens.main,
}


def main(given: list[str]) -> int:
    """Runs the measurements; 2 for a name that is none."""
    if given and given[0] in WITH_OPTIONS:
        WITH_OPTIONS[given[0]](given[1:])
        return 0
    unknown = [name for name in given if name not in MEASUREMENTS]
    if unknown:
        there_are = ", ".join([*MEASUREMENTS, *WITH_OPTIONS])
        print(f"no such measurement: {', '.join(unknown)}; there are {there_are}")
        return 2
    for name in given or MEASUREMENTS:
        print(f"== {name}", flush=True)
        MEASUREMENTS[name]()
    return 0


sys.exit(main(sys.argv[1:]))
