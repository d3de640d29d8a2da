"""Generated requests over the whole OpenAPI document: no answer may be a fault of ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Queue
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok

from tests.lanes.gateway_rig import rig

# Few per call: the run is a smoke test; each takes a round trip and a reply takes milliseconds.
EXAMPLES = 12
SEED = 20_261_130


@dataclass(frozen=True)
class Served:
    """A gateway in a thread of its own, for the generator's blocking client."""

    url: str
    authorization: str


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    ready: Queue[Served] = Queue()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with rig() as here:
            client = await here.user("ana")
            ready.put(Served(here.url, client.headers["Authorization"]))
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    yield ready.get(timeout=20)
    loop.call_soon_threadsafe(over.set)
    thread.join(timeout=20)
    loop.close()


@pytest.mark.timeout(120)
def test_no_generated_request_is_answered_with_a_fault(served: Served) -> None:
    config = SchemathesisConfig()
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json", config=config)
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if operation.path == "/v1/me" and operation.method == "delete":
            continue  # it would end the account that the other calls are made with

        @seed(SEED)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def holds(case: Case[Any]) -> None:
            _call(case, served)

        holds()


def _call(case: Case[Any], served: Served) -> None:
    headers: dict[str, Any] = {
        "Authorization": served.authorization,
        "Idempotency-Key": "generated",
    }
    response = case.call(headers=headers, timeout=20)
    # `ready` is a state: a 503 there says what is missing and is no fault.
    if case.path != "/readyz":
        assert response.status_code < 500, (case.method, case.path, response.text)
