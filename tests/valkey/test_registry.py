"""What is in the registry was written by whoever can reach Valkey: not all of it is a report."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from structlog.testing import capture_logs

from tertulia.backends.valkey import ValkeyBackend
from tertulia.backends.valkey.registry import is_plain_http
from tertulia.core.fleet import ReplicaReport
from tertulia.drills.valkey_server import ValkeyServer
from tests.conformance.world import ManualClock
from tests.valkey.conftest import Open

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

KEY = "tertulia:registry"
REPORT = ReplicaReport("r1", "first", "http://10.0.0.9:8000", "small-1", 4)


def now_ms(server: ValkeyServer) -> int:
    seconds, micros = server.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def told(report: ReplicaReport, **other: object) -> str:
    return "- 1 " + json.dumps(asdict(report) | other)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "no time\n",
        "{ms} first\n",
        "{ms} first\n- 1 no JSON",
        "{ms} first\n- 1 " + "[" * 4000,
        '{ms} first\n- 1 {"name": "odd"}',
        "{ms} first\n" + told(REPORT, name="odd").replace("- 1 ", "- "),
        "{ms} first\n" + told(REPORT, name="odd").replace("- 1 ", "- -1 "),
        "{ms} first\n" + told(REPORT, name="odd").replace("- 1 ", "- " + "9" * 4000 + " "),
        "{ms} first\n" + told(REPORT, name="odd", slots="8"),
        "{ms} first\n" + told(REPORT, name="odd", slots=0),
        "{ms} first\n" + told(REPORT, name="odd", engine="none such"),
        "{ms} first\n" + told(REPORT, name="odd", url="http://[::1"),
        "{ms} first\n" + told(REPORT, name="o" * 10_000),
    ],
)
async def test_what_is_no_report_hides_no_other(
    server: ValkeyServer, opened: Open, value: str
) -> None:
    backend = await opened(server.url)
    await backend.registry.report(REPORT)
    server.command("HSET", KEY, "odd", value.replace("{ms}", str(now_ms(server))))
    assert [found.name for found in await backend.registry.reports()] == ["r1"]


async def test_more_than_a_fleet_has_is_not_read(server: ValkeyServer, opened: Open) -> None:
    backend = await opened(server.url)
    for number in range(1100):
        value = f"{now_ms(server)} first\n" + told(REPORT, name=f"r{number}")
        server.command("HSET", KEY, f"r{number}", value)
    assert len(await backend.registry.reports()) == 1000


async def test_a_report_by_a_clock_that_was_ahead_is_nobodys_sign_of_life(
    server: ValkeyServer, opened: Open
) -> None:
    """The server before a failover had another clock: its reports would stay new for an hour."""
    backend = await opened(server.url)
    value = f"{now_ms(server) + 3_600_000} first\n" + told(replace(REPORT, name="dead"))
    server.command("HSET", KEY, "dead", value)
    await backend.registry.report(REPORT)
    assert [found.name for found in await backend.registry.reports()] == ["r1"]


async def test_only_who_has_the_fleets_key_is_a_replica_of_it(server: ValkeyServer) -> None:
    """Prompts and the key itself are sent to the address that a report names."""
    backends = [
        await ValkeyBackend.open([server.url], replica_key=key) for key in ("ours", "theirs", None)
    ]
    ours, *strangers = [backend.registry for backend in backends]
    try:
        for stranger in strangers:
            await stranger.report(replace(REPORT, url="http://10.6.6.6:80"))
            assert list(await ours.reports()) == []
        await ours.report(REPORT)
        assert [found.url for found in await ours.reports()] == [REPORT.url]
        sealed = server.command("HGET", KEY, "r1")
        server.command("HSET", KEY, "r1", sealed.replace(b"10.0.0.9", b"10.6.6.6"))
        assert list(await ours.reports()) == []
        assert b"ours" not in sealed
    finally:
        for backend in backends:
            await backend.close()


async def play(server: ValkeyServer, sealed: bytes) -> None:
    """Writes a report that somebody kept, as if it had come this moment."""
    _, _, rest = sealed.partition(b" ")
    server.command("HSET", KEY, "r1", b"%d %b" % (now_ms(server), rest))


async def test_a_sealed_report_that_somebody_kept_is_no_news(server: ValkeyServer) -> None:
    """The replica has moved since; its old address is another's, who would get the prompts."""
    backend = await ValkeyBackend.open([server.url], replica_key="ours")
    try:
        await backend.registry.report(replace(REPORT, url="http://10.0.0.1:80"))
        kept = server.command("HGET", KEY, "r1")
        assert len(await backend.registry.reports()) == 1
        await backend.registry.report(replace(REPORT, incarnation="second"))
        assert [found.url for found in await backend.registry.reports()] == [REPORT.url]
        with capture_logs() as said:
            for _ in range(3):
                await play(server, kept)
                assert list(await backend.registry.reports()) == []
        assert [(line["event"], line["replica"]) for line in said] == [("old_report_refused", "r1")]
        await backend.registry.report(replace(REPORT, tokens_done=7))
        assert [found.tokens_done for found in await backend.registry.reports()] == [7]
    finally:
        await backend.close()


async def test_the_last_report_of_a_dead_replica_is_no_sign_of_life_when_it_is_played_again(
    server: ValkeyServer,
) -> None:
    clock = ManualClock()
    backend = await ValkeyBackend.open([server.url], replica_key="ours", clock=clock)
    try:
        await backend.registry.report(REPORT)
        last = server.command("HGET", KEY, "r1")
        ages = []
        for _ in range(3):
            await play(server, last)
            (found,) = await backend.registry.reports()
            ages.append(found.age_s)
            clock.pass_(20.0)
        assert ages[0] < 1.0
        assert ages[1:] == [20.0, 40.0]
        clock.pass_(5.0)
        await play(server, last)
        assert list(await backend.registry.reports()) == []
    finally:
        await backend.close()


async def test_the_stamps_of_a_replica_grow_also_when_its_clock_stands_still(
    server: ValkeyServer,
) -> None:
    clock = ManualClock()
    backend = await ValkeyBackend.open([server.url], replica_key="ours", clock=clock)
    try:
        for tokens_done in range(5):
            await backend.registry.report(replace(REPORT, tokens_done=tokens_done))
            (found,) = await backend.registry.reports()
            assert found.tokens_done == tokens_done
    finally:
        await backend.close()


@pytest.mark.parametrize("value", ["", "r1", "-5 r1", "x r1", "9999999999999 r1", "7 "])
async def test_a_home_that_is_none_is_no_home(
    server: ValkeyServer, opened: Open, value: str
) -> None:
    backend = await opened(server.url)
    server.command("SET", "tertulia:home:{c_1}", value)
    assert await backend.homes.find("c_1") is None


@pytest.mark.parametrize(
    "url", ["http://10.0.0.9:8000", "http://[fd00::9]:8000", "http://replica-1/engine"]
)
def test_an_address_on_the_network_is_one(url: str) -> None:
    assert is_plain_http(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.9:8000/\r\nX: y",
        "https://10.0.0.9:8000",
        "file:///etc/passwd",
        "http://",
        "http://10.0.0.9:99999",
        "http://10.0.0.9:0",
        "http://[10.0.0.9",
        "http://user@10.0.0.9:8000",
        "http://10.0.0.9:8000?x",
        "http://10.0.0.9:8000#x",
        "http://r\u00e9plica",
    ],
)
def test_an_address_that_could_mislead_is_none(url: str) -> None:
    assert not is_plain_http(url)
