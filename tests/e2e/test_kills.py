"""Real processes killed in the middle of replies: a few points here, sixty by `tests.e2e.kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.kills import run

pytestmark = [pytest.mark.processes, pytest.mark.model, pytest.mark.anyio]


@pytest.mark.timeout(240)
async def test_a_killed_service_continues_every_reply_to_the_undisturbed_text(
    tmp_path: Path,
) -> None:
    """S-05, S-06, F-20, F-26, F-29: the text of the fake is a function of its prompt."""
    tally = await run(4, 2, tmp_path, engine="fake")
    assert tally.faults == []
    assert tally.resets == 0, "no log was lost"
    assert tally.continued >= 4, "the kills came too late to show anything"


@pytest.mark.timeout(300)
async def test_a_killed_real_engine_loses_and_doubles_no_token(tmp_path: Path) -> None:
    """The stored tokens spell the stored text, each was charged once, each client saw all."""
    tally = await run(2, 4, tmp_path, engine="real")
    assert tally.faults == []
    assert tally.resets == 0, "no log was lost"
