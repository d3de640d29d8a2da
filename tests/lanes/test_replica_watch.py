"""What is heard of replicas, and what is made of it when the hearing is bad."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory.fleet import MemoryHomes, MemoryRegistry
from tertulia.backends.replicas.homes import HomeTable
from tertulia.backends.replicas.questions import Load, read_load
from tertulia.config import ConfigError, load_settings
from tertulia.core.engines import ENGINES
from tertulia.core.fleet import Home, ReplicaReport, Wanted
from tertulia.ports import ReplicaLost, StoreUnavailable
from tests.lanes.fleet_rig import asked, fake_fleet, wanted
from tests.sim.language import SERVED

VLLM = ENGINES["vllm"].metrics
assert VLLM is not None

METRICS = """\
# HELP vllm:num_requests_running Number of requests.
vllm:num_requests_running{engine="0",model_name="a model {odd}"} 3.0
vllm:num_requests_running{engine="1",model_name="a model {odd}"} 4.0 1700000000
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:generation_tokens_total{engine="0"} 1.5e+03
"""


def test_a_load_is_read_and_what_is_missing_is_unknown() -> None:
    assert VLLM is not None
    assert read_load(METRICS, VLLM) == Load(7, 2, None, 1500.0, generated_tokens=1500.0)
    hits = "vllm:prefix_cache_hits_total{} 30\nvllm:prefix_cache_queries_total{} "
    assert read_load(f"{hits}120", VLLM).cache_hit_share == 0.25
    assert read_load(f"{hits}0", VLLM).cache_hit_share is None
    assert read_load("", VLLM) == Load()
    assert (
        read_load("vllm:num_requests_running{} no number\nvllm:num_requests_running", VLLM)
        == Load()
    )


@pytest.mark.anyio
async def test_what_continues_elsewhere_is_bounded() -> None:
    """A failing fleet must not be asked more than a well one."""
    async with fake_fleet("r1", "r2") as fleet:
        places = [
            await fleet.replicas.place(
                Wanted(f"q{n}", SERVED, f"c_{n}", 10, avoid=frozenset({"r9"}))
            )
            for n in range(20)
        ]
        assert places[:3].count(None) == 0
        assert 3 <= len(places) - places.count(None) <= 4
        assert await fleet.replicas.place(wanted("oak")) is not None, "anything else goes on"


@pytest.mark.anyio
async def test_what_was_placed_on_a_replica_that_is_gone_takes_up_no_retry() -> None:
    async with fake_fleet("r1") as fleet:
        found = fleet.replicas._watch.replicas["r1"]
        for n in range(10):
            again = replace(wanted("oak", n), avoid=frozenset({"r9"}))
            assert await fleet.replicas.place(again) == "r1"
            found.healthy = False  # lost between the decision and the request
            with pytest.raises(ReplicaLost):
                await anext(fleet.replicas.generate("r1", asked("oak", n)))
            found.healthy = True


class FailingRegistry(MemoryRegistry):
    failing = False

    async def reports(self) -> tuple[ReplicaReport, ...]:
        if self.failing:
            raise StoreUnavailable("gone")
        return await super().reports()


@pytest.mark.anyio
async def test_a_registry_that_is_away_takes_no_replica_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.lanes.fleet_rig.MemoryRegistry", FailingRegistry)
    async with fake_fleet("r1", "r2", registered=True) as fleet:
        FailingRegistry.failing = True
        try:
            await asyncio.sleep(2.6)  # longer than a silent replica is believed in
            assert fleet.well == ["r1", "r2"]
        finally:
            FailingRegistry.failing = False


class SlowHomes(MemoryHomes):
    def __init__(self, clock: SystemClock, *, error: Exception | None = None) -> None:
        super().__init__(clock)
        self.error = error
        self.moved: list[str] = []

    async def find(self, conversation_id: str) -> Home | None:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(60)
        return None

    async def move(self, conversation_id: str, home: Home) -> None:
        self.moved.append(conversation_id)
        if self.error is not None:
            raise self.error
        await super().move(conversation_id, home)


@pytest.mark.anyio
@pytest.mark.parametrize("error", [None, StoreUnavailable("gone")])
async def test_a_table_of_homes_that_is_away_makes_nobody_wait(
    error: StoreUnavailable | None,
) -> None:
    table = HomeTable(SlowHomes(SystemClock(), error=error))
    async with asyncio.timeout(10):  # a sixth of what the table takes
        assert await table.find("c_1") is None


@pytest.mark.anyio
async def test_a_move_is_known_at_once_and_written_behind() -> None:
    homes = MemoryHomes(SystemClock())
    table = HomeTable(homes)
    table.move("c_1", Home("r1", 10))
    table.move("c_1", Home("r2", 20))
    assert await table.find("c_1") == Home("r2", 20)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(table.run())
        while await homes.find("c_1") is None:  # noqa: ASYNC110  # a table has no event
            await asyncio.sleep(0)
        writing.cancel()
    assert await homes.find("c_1") == Home("r2", 20)


@pytest.mark.anyio
async def test_moves_that_cannot_be_written_are_let_go() -> None:
    homes = SlowHomes(SystemClock(), error=StoreUnavailable("gone"))
    table = HomeTable(homes)
    for number in range(10):
        table.move(f"c_{number}", Home("r1", 10))
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(table.run())
        while not homes.moved:  # noqa: ASYNC110  # a list has no event
            await asyncio.sleep(0)
        writing.cancel()
    assert homes.moved == ["c_0"]


@pytest.mark.parametrize("engine", ["llama-server", "openai-compatible", "unheard-of"])
def test_an_engine_that_could_not_continue_is_refused_by_name(tmp_path: Path, engine: str) -> None:
    file = tmp_path / "tertulia.toml"
    file.write_text(
        f"""
[[replicas]]
name = "r"
model = "m"
url = "http://127.0.0.1:1"
vocabulary = "{tmp_path}"
engine = "{engine}"
"""
    )
    with pytest.raises(ConfigError, match=r"replicas.0.engine"):
        load_settings(file)
