"""`python -m tests.chaos --seed 7 --size gate`: the fault plan over real processes, then mutants.

Prints figures and every violation with its seed; exits 1 when there is one, or when a planted bug
was not reported, and 3 when it could not be played. `--only F1,F4` plays some faults, `--mutants
none` leaves the planted bugs out, `--times told` finds nothing wrong in how long pauses are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from tests.chaos.checker import check
from tests.chaos.fleet import Size
from tests.chaos.mutants import MUTANTS
from tests.chaos.nemesis import Dose
from tests.chaos.people import Habits
from tests.chaos.report import Report, report_of
from tests.chaos.scene import Script, Stage, play
from tests.chaos.stage import set_stage
from tests.e2e.processes import installed_models

# How much is done: a smoke for every change, the gate for every landing, the full size by hand.
DOSES: Final = {
    "smoke": Dose(
        baseline_s=2.0, breath_s=0.5, gateway_kills=5, engine_kills=2, engine_freezes=1,
        engine_slow=1, engine_deaf=1, engine_breaks=1, worker_kills=3, worker_freezes=1,
        lost_with_owner=1, valkey_kills=1, valkey_freezes=0, valkey_flushes=1, valkey_promotions=1,
        valkey_cuts=1, postgres_kills=1, postgres_freezes=0, partitions=2, lost_answers=3, breaks=2,
        full_disks=0, clock_jumps=0, quiet_auths=0,
    ),
    "gate": Dose(),
    "full": Dose(
        baseline_s=60.0, gateway_kills=1800, engine_kills=240, engine_freezes=160, engine_slow=50,
        engine_deaf=50, engine_breaks=80, worker_kills=500, worker_freezes=60, lost_with_owner=30,
        valkey_kills=80, valkey_freezes=20, valkey_flushes=80, valkey_promotions=30,
        valkey_cuts=200, postgres_kills=50, postgres_freezes=20, partitions=100, breaks=120,
        full_disks=10, clock_jumps=20, quiet_auths=5,
    ),
}  # fmt: skip
CANT_PLAY: Final = 3
_TRIES: Final = 4
_SMALL: Final = Size(gateways=2, workers=2, engines=2)
# Two engines on one thread each are all that two cores bear; `--rate 0.5` goes with it.
_REAL: Final = Size(engines=2, engine="real", slots=8, answer_tokens=160)


def main() -> int:
    """The command."""
    options = _options()
    print(f"seed {options.seed}, size {options.size}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="tertulia-chaos-"))
    try:
        return asyncio.run(_run(options, folder))
    except Exception:  # noqa: BLE001  # whatever it is, it is no violation
        traceback.print_exc()
        return CANT_PLAY


async def _run(options: argparse.Namespace, folder: Path) -> int:
    missed: list[str] = []
    violations = 0
    async with set_stage(folder, installed_models()) as stage:
        if options.mutants != "only":
            script = Script(
                "run",
                options.seed,
                size=_REAL if options.engine == "real" else Size(),
                habits=Habits(rate=options.rate),
                dose=DOSES[options.size],
                only=frozenset(filter(None, options.only.split(","))),
            )
            report = await perform(stage, script)
            judged = [
                one for one in report.violations if options.times == "judged" or one[:3] != "C18"
            ]
            violations = len(judged)
            print("\n".join(report.lines()), flush=True)
            print(json.dumps(asdict(report)), flush=True)
        if options.mutants != "none":
            names = [name for name in MUTANTS if options.mutant in ("", name)]
            missed = [name for name in names if not await seen_once(stage, name, options.seed)]
            print(f"{len(names) - len(missed)} of {len(names)} planted bugs reported", flush=True)
    for name in missed:
        print(f"NOT REPORTED: {name}", flush=True)
    print(f"what was left is in {folder}" if violations or missed else "", flush=True)
    return 1 if violations or missed else 0


async def perform(stage: Stage, script: Script) -> Report:
    """Plays a scene and checks it."""
    begun_at = time.monotonic()
    evidence, _ = await play(stage, script)
    (stage.folder / script.name / "evidence").write_bytes(pickle.dumps(evidence))
    return report_of(evidence, check(evidence), script.seed, time.monotonic() - begun_at)


async def seen_once(stage: Stage, name: str, seed: int) -> bool:
    """Whether the checker reports a planted bug that some moment must meet: one of a few seeds."""
    for more in range(_TRIES):
        if await reports(stage, name, seed + more):
            return True
    return False


async def reports(stage: Stage, name: str, seed: int) -> bool:
    """Whether the checker reports a planted bug."""
    mutant = MUTANTS[name]
    script = Script(
        f"mutant-{list(MUTANTS).index(name)}-{seed}",
        seed,
        size=replace(_SMALL, gateways=3 if "each gateway" in name else 2, step_s=mutant.step_s),
        habits=mutant.habits,
        dose=mutant.dose,
        only=frozenset(mutant.only),
        mutant=name,
        people=6,
        reposted=0.2,
        quiet_s=12.0,  # a planted bug may leave turns open for good
    )
    report = await perform(stage, script)
    seen = [one for one in report.violations if one.split(" ")[0] in mutant.seen_by]
    first = seen[0][:200] if seen else "NOTHING"
    print(f"{name}: {len(seen)} reports in {report.took_s:.0f} s: {first}", flush=True)
    return bool(seen)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--size", choices=tuple(DOSES), default="gate")
    parser.add_argument("--only", default="", help="faults, as F1,F4")
    parser.add_argument("--rate", type=float, default=10.0, help="new turns a second")
    parser.add_argument("--engine", choices=("fake", "real"), default="fake")
    parser.add_argument("--times", choices=("judged", "told"), default="judged")
    parser.add_argument("--mutants", choices=("all", "none", "only"), default="all")
    parser.add_argument("--mutant", default="", help="only this one")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
