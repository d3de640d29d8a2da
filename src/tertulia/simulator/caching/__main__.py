"""`python -m tertulia.simulator.caching NAME` plays a scenario and prints its table.

NAME is one of those that come along, or a TOML file of your own. Figures go to standard output,
progress to standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tertulia.simulator.caching import CantUse, load, run, shipped
from tertulia.simulator.caching.plots import NoPlots, plot


def main(given: Sequence[str] | None = None) -> int:
    """0, or 2 for what can't be played."""
    asked = _parser().parse_args(given)
    changes = {
        name: value
        for name, value in vars(asked).items()
        if name in ("seeds", "policies", "trace") and value
    }
    try:
        if asked.name is None:
            print("\n".join(f"{name:14} {title}" for name, title in shipped()))
            return 0
        rows = run(load(asked.name, changes), told=lambda what: print(what, file=sys.stderr))
        if asked.plot:
            plot(rows, asked.plot)
    except (CantUse, NoPlots) as refused:
        print(refused, file=sys.stderr)
        return 2
    print({"text": rows.text, "json": rows.json, "csv": rows.csv}[asked.form](), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tertulia.simulator.caching", description=__doc__
    )
    parser.add_argument("name", nargs="?", help="without one, those that there are")
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--policies", nargs="+")
    parser.add_argument("--trace", help="a trace's file, instead of the scenario's")
    parser.add_argument("--as", dest="form", choices=["text", "json", "csv"], default="text")
    parser.add_argument("--plot", type=Path, help="a picture's file: .svg or .png")
    return parser


if __name__ == "__main__":
    sys.exit(main())
