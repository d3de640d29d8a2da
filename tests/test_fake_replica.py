"""The fake replica is a fair stand-in: the real client reads it, and it breaks as it is told."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory.fleet import MemoryHomes
from tertulia.backends.replicas import HttpReplicas
from tertulia.backends.replicas.fleet import Fleet, FleetSource, ReplicaAddress
from tertulia.core.fleet import Wanted
from tertulia.core.types import GenerateRequest, ModelState, Said, Sampling, TokenIds, Unit
from tertulia.ports import ReplicaLost, ReplicaRefused
from tests.fake_answers import answer
from tests.fake_replica import FakeReplica, Fault
from tests.sim.language import EOS, SERVED, FakeVocabulary

ROOT = Path(__file__).parent.parent
VOCABULARY = FakeVocabulary()
QUESTION: TokenIds = (
    *VOCABULARY.encode_control("<user>"),
    *VOCABULARY.encode("oak? é🌲"),
    *VOCABULARY.encode_control("<end><assistant>"),
)
WANTED = Wanted("m_1-1-1", SERVED, "c_1", len(QUESTION))
WHOLE = answer(VOCABULARY, QUESTION)


def fake(*faults: Fault) -> FakeReplica:
    replica = FakeReplica(VOCABULARY, SERVED, EOS, step_s=0.001)
    replica.faults.extend(faults)
    return replica


@asynccontextmanager
async def client_of(url: str) -> AsyncGenerator[HttpReplicas, None]:
    fleet = Fleet(
        (ModelState("small", SERVED, "starting"),),
        (ReplicaAddress("r", SERVED, url, 8, engine="tertulia"),),
    )
    clock = SystemClock()
    replicas = HttpReplicas(
        FleetSource(fleet),
        vocabulary=lambda _: VOCABULARY,
        clock=clock,
        homes=MemoryHomes(clock),
        pace_s=0.01,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(replicas.run())
        async with asyncio.timeout(10):
            while await replicas.place(WANTED) is None:
                await replicas.changed(timeout_s=1)
        yield replicas
        running.cancel()


def asked(prompt: TokenIds) -> GenerateRequest:
    return GenerateRequest("m_1-1-1", SERVED, prompt, 500, Sampling(), 0, "ann")


async def said(replicas: HttpReplicas, prompt: TokenIds) -> list[Said]:
    got: list[Said] = []
    await listen(replicas, prompt, got)
    return got


async def listen(replicas: HttpReplicas, prompt: TokenIds, into: list[Said]) -> None:
    async for one in replicas.generate("r", asked(prompt)):
        into.append(one)


def text_of(units: Sequence[Unit]) -> str:
    return "".join(unit.text for unit in units)


def units_of(batches: Sequence[Said]) -> list[Unit]:
    return [unit for one in batches for unit in one.units]


@pytest.mark.anyio
async def test_the_real_client_reads_the_whole_answer() -> None:
    async with fake().listening() as replica, client_of(replica.url) as replicas:
        batches = await said(replicas, QUESTION)
    assert text_of(units_of(batches)) == text_of(WHOLE)
    assert batches[-1].finish == "stop"
    assert replica.log[0].reason == "stop"


@pytest.mark.anyio
async def test_a_continuation_gets_exactly_the_rest() -> None:
    before = WHOLE[:9]
    prompt = QUESTION + tuple(unit.ids[0] for unit in before)
    async with fake().listening() as replica, client_of(replica.url) as replicas:
        batches = await said(replicas, prompt)
    assert text_of(before) + text_of(units_of(batches)) == text_of(WHOLE)


@pytest.mark.anyio
async def test_tokens_that_were_never_said_are_refused() -> None:
    async with fake().listening() as replica, client_of(replica.url) as replicas:
        with pytest.raises(ReplicaRefused, match="400"):
            await said(replicas, (*QUESTION, 104, 104, 104))


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["reset", "cut", "end", "error"])
async def test_a_broken_stream_is_a_lost_replica_and_what_came_is_a_beginning(kind: str) -> None:
    got: list[Said] = []
    fault = Fault(kind, after=12)  # type: ignore[arg-type]  # the cases are its words
    async with fake(fault).listening() as replica, client_of(replica.url) as replicas:
        with pytest.raises(ReplicaLost):
            await listen(replicas, QUESTION, got)
    assert text_of(WHOLE).startswith(text_of(units_of(got)))
    assert [one.reason for one in replica.log] == [kind]


@pytest.mark.anyio
async def test_a_told_refusal_is_a_refusal() -> None:
    async with fake(Fault("refuse")).listening() as replica, client_of(replica.url) as replicas:
        with pytest.raises(ReplicaRefused, match="503"):
            await said(replicas, QUESTION)


@pytest.mark.anyio
async def test_an_abort_ends_a_slow_sequence() -> None:
    got: list[Said] = []
    slow = fake(Fault("slow", after=3, for_s=0.05))
    async with (
        slow.listening(),
        client_of(slow.url) as replicas,
        asyncio.timeout(5),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(lose(replicas, got))
        while not slow.log or slow.log[0].tokens < 4:
            await replicas.changed(timeout_s=0.01)
        await replicas.abort("r", "m_1-1-1")
        while slow.log[0].ended_at is None:
            await replicas.changed(timeout_s=0.01)
    assert slow.log[0].reason in ("abort", "gone")
    assert slow.log[0].tokens < len(WHOLE)


@pytest.mark.anyio
async def test_an_abort_casts_no_doubt_on_the_replica() -> None:
    """A stop is a person's wish: the next turn must not wait for the replica to prove itself."""
    got: list[Said] = []
    stalled = Fault("stall", after=3)
    async with fake(stalled).listening() as replica, client_of(replica.url) as replicas:
        async with asyncio.TaskGroup() as tasks:
            losing = tasks.create_task(lose(replicas, got))
            while not got:  # noqa: ASYNC110  # the list has no event to wait on
                await asyncio.sleep(0.001)
            await replicas.abort("r", "m_1-1-1")
            await losing
        assert await replicas.place(WANTED) == "r"


async def lose(replicas: HttpReplicas, into: list[Said]) -> None:
    with pytest.raises(ReplicaLost):
        await listen(replicas, QUESTION, into)


@pytest.mark.processes
def test_the_process_says_its_port_and_dies_when_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    faults = json.dumps([{"do": "die", "after": 5}])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fake_replica", "--faults", faults, "--log", str(log)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]

        async def ask() -> None:
            async with client_of(f"http://127.0.0.1:{port}") as replicas:
                with pytest.raises(ReplicaLost):
                    await said(replicas, QUESTION)

        asyncio.run(ask())
        assert process.wait(10) == 9
    finally:
        process.kill()
        process.communicate()
    assert json.loads(log.read_text())["tokens"] == 5
