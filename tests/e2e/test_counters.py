"""The store of counters killed and silent under real gateways: some seconds here, a minute each by
`python -m tests.e2e.counters`, which also measures the first words."""

from __future__ import annotations

import pytest

from tests.e2e.counters import MOST, STREAMS, a_run, drift, run

pytestmark = [
    pytest.mark.processes,
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.anyio,
]


@pytest.mark.timeout(240)
async def test_without_the_store_of_counters_everybody_is_served_and_nobody_has_too_much() -> None:
    async with a_run() as here:
        phases = await run(here, 2.0)
        assert await drift(here) == ""
    by_name = {phase.name: phase for phase in phases}
    for phase in phases:
        assert phase.failed["plus"] == 0, phase
        assert phase.served["plus"] > 0, phase
        assert max(phase.held, default=0) <= MOST, phase
    assert max(by_name["calm"].held) >= STREAMS
    assert by_name["killed"].sliced > 0
    assert by_name["silent"].sliced > 0
