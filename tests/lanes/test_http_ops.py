"""Liveness, readiness, figures, the OpenAPI document, and connections that never finish asking."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tertulia.gateway.patience import PatientHttp
from tertulia.ports import StoreUnavailable
from tests.lanes.gateway_rig import Rig, ScriptedReplicas, ask, new_conversation, rig
from tests.lanes.test_http_refusals import Failing

pytestmark = pytest.mark.anyio


async def test_a_gateway_with_a_store_and_a_model_is_ready() -> None:
    async with rig() as here:
        client = here.client()
        alive, ready = await client.get("/livez"), await client.get("/readyz")
    assert (alive.status_code, alive.json()) == (200, {"status": "alive"})
    assert (ready.status_code, ready.json()["missing"]) == (200, [])


async def test_readiness_names_what_is_missing_and_liveness_does_not_care() -> None:
    broken = Failing(StoreUnavailable())
    async with rig(
        replicas=ScriptedReplicas(states=[]),
        change_desk=lambda desk: replace(desk, accounts=broken),  # type: ignore[arg-type]  # a stand-in that only fails
    ) as here:
        client = here.client()
        alive, ready = await client.get("/livez"), await client.get("/readyz")
    assert alive.status_code == 200
    assert (ready.status_code, ready.json()["missing"]) == (503, ["store", "models"])


async def test_a_draining_gateway_is_not_ready() -> None:
    async with rig() as here:
        here.desk.streams.leaving = True
        ready = await here.client().get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "draining")


async def test_the_figures_count_and_name_nobody() -> None:
    """T40: no text, no user, no id in the metrics."""
    async with rig() as here:
        client = await here.user("canary-name")
        await ask(client, await new_conversation(client), "canary-text")
        await client.get("/v1/conversations/c_canary")
        figures = (await here.client().get("/metrics")).text
    assert 'tertulia_admissions_total{answer="Admitted"} 1.0' in figures
    assert "tertulia_first_text_seconds_count 1.0" in figures
    assert 'tertulia_refusals_total{code="not_found"} 1.0' in figures
    assert "tertulia_open_streams 0.0" in figures
    assert "canary" not in figures
    assert "u_" not in figures.replace("cpu_", "")


async def test_the_openapi_document_tells_what_each_call_does() -> None:
    async with rig() as here:
        document = (await here.client().get("/openapi.json")).json()
        docs = [(await here.client().get(path)).status_code for path in ("/docs", "/redoc")]
    operations = [call for calls in document["paths"].values() for call in calls.values()]
    assert document["info"]["title"] == "Tertulia"
    assert all(call["summary"] and call["description"] for call in operations)
    assert docs == [404, 404]


@pytest.mark.parametrize("begun", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: x\r\n"])
async def test_a_connection_that_never_finishes_asking_is_closed(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T34: the bound is shortened; others are served meanwhile."""
    monkeypatch.setattr(PatientHttp, "headers_s", 0.2)
    async with rig() as here:
        reader, writer = await _connect(here)
        writer.write(begun)
        alive = await here.client().get("/livez")
        rest = await asyncio.wait_for(reader.read(), 5)
        writer.close()
    assert alive.status_code == 200
    assert rest == b""


async def test_a_trickle_of_headers_does_not_move_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PatientHttp, "headers_s", 0.3)
    async with rig() as here:
        reader, writer = await _connect(here)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
        ended = asyncio.create_task(reader.read())
        for _ in range(100):
            if ended.done() or writer.is_closing():
                break
            writer.write(b"X: y\r\n")
            await asyncio.wait({ended}, timeout=0.05)
        assert ended.done()
        writer.close()


@pytest.mark.parametrize("head", [b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\n"])
async def test_headers_without_end_are_refused(head: bytes) -> None:
    """T34: in one address, in one header, in many. The connection ends before 16 MB are taken."""
    more = (b"a" * 59 + b": b\r\n" if head.endswith(b"\r\n") else b"a" * 64) * 1024
    async with rig() as here:
        _, writer = await _connect(here)
        writer.write(head)
        with pytest.raises(ConnectionError):
            await _write(writer, more, times=256)
        writer.close()


async def _write(writer: asyncio.StreamWriter, data: bytes, *, times: int) -> None:
    for _ in range(times):
        writer.write(data)
        await writer.drain()


async def _connect(here: Rig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = here.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))
