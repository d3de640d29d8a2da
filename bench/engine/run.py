"""`python -m bench engine [options]`: the whole comparison, or some of it.

It must print a figure in which we lose like any other.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.engine.chats import Load
from bench.engine.contestants import PEER_PYTHON, ROOT
from bench.engine.parts import PARTS, Bench, Effort, Report
from bench.engine.words import words_of

MODELS: Final = Path(os.environ.get("TERTULIA_MODELS_DIR") or ROOT / ".tertulia" / "models")
THINK_S: Final = 0.5  # at the mean, between two turns: an engine is asked for all it has

# A prompt token of the large model takes three times as long, one of a reply five times: it has
# less to do. A quick run of both takes eight minutes; a whole one of the large model 45 minutes.
WHOLE: Final = {
    "small": Effort(
        is_whole=True,
        rounds=2,
        window_s=3.0,
        chat=Load(32, 4, 1000, (40, 120), THINK_S),
        huge_tokens=1500,
        turn_tokens=1000,
        repeats=2,
        n_others=6,
        small_cache_tokens=4096,
    ),
    "large": Effort(
        is_whole=True,
        rounds=1,
        window_s=3.0,
        chat=Load(32, 4, 1000, (10, 30), THINK_S),
        huge_tokens=500,
        turn_tokens=1000,
        repeats=1,
        n_others=3,
        small_cache_tokens=2048,
    ),
}
QUICK: Final = {
    "small": Effort(
        is_whole=False,
        rounds=1,
        window_s=2.0,
        chat=Load(12, 2, 500, (20, 60), THINK_S),
        huge_tokens=1000,
        turn_tokens=500,
        repeats=1,
        n_others=4,
        small_cache_tokens=1536,
    ),
    "large": Effort(
        is_whole=False,
        rounds=1,
        window_s=2.0,
        chat=Load(12, 2, 250, (10, 30), THINK_S),
        huge_tokens=500,
        turn_tokens=250,
        repeats=1,
        n_others=4,
        small_cache_tokens=768,
    ),
}


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    models: tuple[str, ...]
    parts: tuple[str, ...]
    threads: int
    is_quick: bool
    is_search: bool
    path: Path


def main(given: list[str]) -> None:
    """Runs the parts for each model, prints their tables and writes them as JSON."""
    options = _options(given)
    if not PEER_PYTHON.exists():
        raise SystemExit("llama-server is not installed: start this with make bench-engine")
    document: dict[str, Any] = {"threads": options.threads}
    for model in options.models:
        bench = _bench(model, options)
        document[model] = {"effort": asdict(bench.effort)}
        for name in options.parts:
            measure, peers = PARTS[name]
            began_s = time.perf_counter()
            report = measure(bench, peers if options.is_search else peers[:1])
            print(f"\n### {model}: {report.title}\n\n{_table(report)}")
            print(f"({time.perf_counter() - began_s:.0f} s)", flush=True)
            document[model][name] = report.data
            options.path.parent.mkdir(parents=True, exist_ok=True)
            options.path.write_text(json.dumps(document, indent=1))
    print(f"\nwritten to {options.path}")


def _options(given: list[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench engine", description=__doc__)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--models", default="small,large", help="installed models to run")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run")
    parser.add_argument("--threads", type=int, default=cores, help="of each engine")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--search", action="store_true", help="try all of the peer's settings")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "engine.json")
    seen = parser.parse_args(given)
    models, parts = tuple(seen.models.split(",")), tuple(seen.only.split(","))
    for asked, known in ((models, WHOLE), (parts, PARTS)):
        unknown = [name for name in asked if name not in known]
        if unknown:
            parser.error(f"no such name: {', '.join(unknown)}; there are {', '.join(known)}")
    return Options(models, parts, seen.threads, seen.quick, seen.search, seen.json)


def _bench(model: str, options: Options) -> Bench:
    folder = MODELS / model
    if not (folder / "model.gguf").is_file():
        raise SystemExit(f"{folder} is not installed: tertulia models pull {model}")
    effort = (QUICK if options.is_quick else WHOLE)[model]
    return Bench(folder, words_of(folder), options.threads, effort)


def _table(report: Report) -> str:
    rows = [report.head, *report.rows]
    widths = [max(len(row[n]) for row in rows) for n in range(len(report.head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([*lines, *("\n" + note for note in report.notes)])
