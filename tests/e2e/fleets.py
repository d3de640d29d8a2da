"""Fleets of real processes for tests: real stores, gateways and workers, and replicas that answer
with a function of the question, so that a reply can be compared with one that nothing disturbed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tertulia.drills.fleet import DrillFleet, ReplicaTable, a_fleet, a_folder
from tertulia.drills.stage import Stage, new_stage
from tests.e2e.processes import installed_models

# What takes its time for people's sake takes less here.
SWIFT = {"TERTULIA_SERVER__DRAIN_S": "0.5", "TERTULIA_WORKER__DRAIN_S": "0.5"}
# Slow enough for words to come for some seconds, and as fast as a busy engine.
STEP_S = 0.03
PLAN = """
[plans.plus]
answer_tokens = 400
budgets = []
replies_running = 100
"""


def fake(folder: Path, *, step_s: float = STEP_S) -> ReplicaTable:
    """A replica that computes nothing and logs each end."""
    model_dir = installed_models() / "small"
    command = [sys.executable, "-m", "tests.fake_replica", "--port", "{port}"]
    command += ["--model-dir", str(model_dir), "--step-s", str(step_s)]
    command += ["--log", str(folder / "engine-{port}.jsonl")]
    return ReplicaTable("fake-1", model_dir, slots=64, command=tuple(command))


@asynccontextmanager
async def a_stage(
    *, replicas: int = 2, gateways: int = 2, workers: int = 2, step_s: float = STEP_S
) -> AsyncGenerator[Stage, None]:
    """A fleet with a person in front of it; its timeline is printed."""
    with a_folder("fleet") as folder:
        tables = [fake(folder, step_s=step_s)] * replicas
        async with a_fleet(
            folder,
            tables,
            gateways=gateways,
            workers=workers,
            toml=PLAN,
            environment=SWIFT,
        ) as fleet:
            yield await new_stage(fleet, print)


def generations(fleet: DrillFleet) -> list[dict[str, Any]]:
    """Every generation that has ended at one of the replicas, as they logged it."""
    return [
        json.loads(line)
        for path in sorted(fleet.folder.glob("engine-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
