"""A fleet of real processes over real Postgres and Valkey: replies outlive each of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from typer.testing import CliRunner

from tertulia.cli import app
from tertulia.drills.fleet import REPLICA_KEY
from tertulia.drills.listener import Seen
from tertulia.drills.loopback import loopback
from tertulia.drills.processes import Role, tertulia
from tertulia.drills.stage import QUESTION, Promise, Stage, whole
from tertulia.listening import free_port
from tests.e2e.fleets import STEP_S, a_stage, generations
from tests.e2e.stops import measure

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.model,
    pytest.mark.timeout(180),  # the first test of the module starts the fleet
]

# On two busy cores; what is promised is measured by the drills.
PATIENT_S = 8.0


@pytest.fixture(scope="module")
async def stage() -> AsyncIterator[Stage]:
    """One fleet for all tests of this module: each mends what it broke."""
    async with a_stage() as made:
        yield made


@pytest.fixture(autouse=True)
async def _mended(stage: Stage) -> AsyncIterator[None]:
    yield
    for role in stage.fleet.roles:
        await role.start()
    await stage.fleet.ready()


@pytest.fixture(scope="module")
async def undisturbed(stage: Stage) -> str:
    """What the replicas answer in peace: a function of the question."""
    return (await stage.ask(Seen(QUESTION))).text


async def broken_by(
    stage: Stage,
    expected: str,
    break_it: Callable[[], Awaitable[object]],
    *,
    patient_s: float = PATIENT_S,
) -> Seen:
    """A reply under which something was broken, whole all the same, and word for word."""
    seen = await stage.in_mid_reply(break_it)
    gateway = next(n for n, role in enumerate(stage.fleet.gateways) if role.is_up)
    assert_kept(await whole(stage, seen, gateway=gateway))
    assert seen.text == expected
    assert seen.longest_gap_s < patient_s
    return seen


def assert_kept(promises: list[Promise]) -> None:
    assert [(promise.text, promise.seen) for promise in promises if not promise.kept] == []


async def test_a_reply_asked_for_at_one_gateway_is_followed_at_the_other(stage: Stage) -> None:
    posted = Seen(QUESTION)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(stage.ask(posted))
        await _until(lambda: posted.last > 2)
        other = await stage.call("GET", f"/v1/messages/{posted.reply_id}/stream", gateway=1)
        await asking
    ids = [line for line in other.text.splitlines() if line.startswith("id: ")]
    assert ids == [f"id: {n}" for n in range(1, posted.last + 1)]
    assert posted.connections == 1


async def test_a_reply_outlives_its_worker(stage: Stage, undisturbed: str) -> None:
    async def break_it() -> None:
        await stage.kill(await stage.busy(stage.fleet.workers, "worker"))

    await broken_by(stage, undisturbed, break_it)


async def test_a_reader_outlives_its_gateway(stage: Stage, undisturbed: str) -> None:
    seen = await broken_by(stage, undisturbed, lambda: stage.kill(stage.fleet.gateways[0]))
    assert seen.connections > 1
    assert seen.pauses == 0


async def test_a_reply_outlives_its_replica(stage: Stage, undisturbed: str) -> None:
    async def break_it() -> None:
        await stage.kill(await stage.busy(stage.fleet.replicas, "replica"))

    await broken_by(stage, undisturbed, break_it)


async def test_a_reply_outlives_its_gateway_and_worker_and_replica_at_once(
    stage: Stage, undisturbed: str
) -> None:
    async def break_it() -> None:
        fleet = stage.fleet
        worker = await stage.busy(fleet.workers, "worker")
        replica = await stage.busy(fleet.replicas, "replica")
        for role in (fleet.gateways[0], worker, replica):
            await stage.kill(role)

    await broken_by(stage, undisturbed, break_it)


async def test_a_reply_outlives_a_rolling_restart_of_every_role(
    stage: Stage, undisturbed: str
) -> None:
    """The replicas are slow until all is over, so that it is one reply from beginning to end: a
    sentence takes them some seconds."""
    statuses: dict[str, int] = {}

    async def break_it() -> None:
        await pace(stage, 0.4)
        fleet = stage.fleet
        first = await stage.busy(fleet.workers, "worker")
        others = [role for role in fleet.workers if role is not first]
        for role in (first, *others, *fleet.gateways):
            statuses[role.name] = await role.end()
            await stage.bring_back(role)
        await pace(stage, STEP_S)

    seen = await broken_by(stage, undisturbed, break_it, patient_s=8 * PATIENT_S)
    assert set(statuses.values()) == {0}, statuses
    assert seen.connections > 1, "no gateway closed its stream"
    claims = {
        one["request_id"].rsplit("-", 2)[-2]
        for one in generations(stage.fleet)
        if one["request_id"].startswith(f"{seen.reply_id}-")
    }
    assert len(claims) > 1, "no worker gave it to another"


async def test_the_lanes_of_serve_join_a_fleet(stage: Stage, undisturbed: str) -> None:
    """One machine's gateway and worker in one process, over the stores of all."""
    port = free_port()
    both = Role(
        "lanes",
        tertulia("lanes", "--config", str(stage.fleet.config)),
        stage.fleet.folder / "lanes.log",
        f"http://127.0.0.1:{port}",
        {"TERTULIA_SERVER__PORT": str(port)},
    )
    await both.start()
    try:
        await stage.fleet.ready([both])
        for worker in stage.fleet.workers:
            await worker.kill()
        seen = await stage.ask(Seen(QUESTION))
    finally:
        status = await both.end()
    assert_kept(await whole(stage, seen))
    assert (seen.text, status) == (undisturbed, 0)


async def test_a_draining_gateway_refuses_new_turns_with_a_time_and_is_not_ready(
    stage: Stage,
) -> None:
    conversation = await stage.conversation()
    gateway = stage.fleet.gateways[0]
    async with asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(gateway.end())
        await _until_not_ready(gateway)
        refused = await stage.call(
            "POST", f"/v1/conversations/{conversation}/messages", {"content": "Now?"}
        )
        await leaving
    assert leaving.result() == 0
    assert (refused.status_code, refused.json()["code"]) == (503, "draining")
    assert int(refused.headers["retry-after"]) > 0


async def test_who_is_signed_in_reads_what_is_finished_while_valkey_is_down(stage: Stage) -> None:
    before = await stage.ask(Seen("Say hello."))
    await asyncio.to_thread(stage.fleet.valkey.kill)
    try:
        me = await stage.call("GET", "/v1/me")
        kept = await stage.stored(before)
        followed = await stage.call("GET", f"/v1/messages/{before.reply_id}/stream")
    finally:
        await asyncio.to_thread(stage.fleet.valkey.start)
    assert me.status_code == 200
    assert kept["content"] == before.text
    assert "event: done" in followed.text
    assert (await stage.ask(Seen("Say hello."))).text == before.text


async def test_doctor_looks_at_every_store_and_replica_and_shows_no_key(stage: Stage) -> None:
    config = ["doctor", "--json", "--config", str(stage.fleet.config)]
    whole = await asyncio.to_thread(CliRunner().invoke, app, config)
    await asyncio.to_thread(stage.fleet.valkey.kill)
    try:
        broken = await asyncio.to_thread(CliRunner().invoke, app, config)
    finally:
        await asyncio.to_thread(stage.fleet.valkey.start)
    found = {one["name"]: one for one in json.loads(whole.stdout)["findings"]}
    assert "commits are durable" in found["postgres"]["text"]
    assert "primary" in found["valkey"]["text"]
    assert "stops by id" in found["replica replica-1"]["text"]
    assert {found[name]["state"] for name in ("postgres", "valkey", "replica replica-1")} == {"ok"}
    assert REPLICA_KEY not in whole.stdout + broken.stdout
    states = {one["name"]: one["state"] for one in json.loads(broken.stdout)["findings"]}
    assert (states["postgres"], states["valkey"]) == ("ok", "fail")


async def test_a_stop_at_the_other_gateway_reaches_the_engine_within_one_step(
    stage: Stage,
) -> None:
    stops = await measure(stage, 12)
    assert max(stop.steps_after for stop in stops) <= 1


async def pace(stage: Stage, step_s: float) -> None:
    """How long every replica takes for a token from now on."""
    async with loopback(5) as http:
        for role in stage.fleet.replicas:
            await http.post(f"{role.url}/pace", json={"step_s": step_s})


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # it becomes true in another process
        await asyncio.sleep(0.01)


async def _until_not_ready(role: Role) -> None:
    async with loopback(5) as http:
        while (await http.get(role.url + "/readyz")).status_code == 200:  # noqa: ASYNC110  # another process again
            await asyncio.sleep(0.01)
