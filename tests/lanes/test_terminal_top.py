"""`tertulia top` against a real gateway: what it shows, to whom, and when the gateway goes away."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest
from rich.console import Console

from tertulia.core.fleet import ReplicaSight
from tertulia.terminal.client import NobodyThere, Refused, Server
from tertulia.terminal.top import watch
from tests.lanes.gateway_rig import ScriptedReplicas, rig

pytestmark = pytest.mark.anyio


def console() -> Console:
    return Console(file=io.StringIO(), width=120, force_terminal=False)


def shown(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


SIGHT = ReplicaSight(
    "[red]a[/red]:8000", "small-1", "tertulia", "ready", 8, 3, 90, cache_used_share=0.5
)


async def test_it_shows_the_replicas_and_a_dash_for_what_nobody_knows() -> None:
    on = console()
    async with rig(replicas=ScriptedReplicas(seen=[SIGHT])) as here:
        here.desk.pulse.beat()
        root = await here.user("root", role="admin")
        key = root.headers["Authorization"].removeprefix("Bearer ")
        with Server(here.url, key) as server:
            await asyncio.to_thread(watch, server, on, once=True)
    row = next(line for line in shown(on).splitlines() if ":8000" in line)
    assert row.split() == ["[red]a[/red]:8000", "small-1", "ready", "3/8", "90", "50%", *"---"]
    assert "rung 0 (paid_first)" in shown(on)


async def test_it_is_for_administrators() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        key = ana.headers["Authorization"].removeprefix("Bearer ")
        with Server(here.url, key) as server, pytest.raises(Refused) as refused:
            await asyncio.to_thread(watch, server, console(), once=True)
    assert refused.value.code == "forbidden"


class Leaving:
    """A server that is there, then away for a look, and then says that the key has died."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self.answers: list[dict[str, Any] | Exception] = [
            seen,
            NobodyThere("http://x does not answer"),
            Refused("Sign in.", "unauthenticated"),
        ]

    def fleet(self) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_gateway_that_goes_away_is_waited_for_and_said() -> None:
    on, waits = console(), list[float]()
    async with rig(replicas=ScriptedReplicas(seen=[SIGHT])) as here:
        here.desk.pulse.beat()
        root = await here.user("root", role="admin")
        seen = (await root.get("/v1/admin/fleet")).json()
    server: Any = Leaving(seen)
    with pytest.raises(Refused):
        watch(server, on, once=False, wait=waits.append)
    assert waits == [2.0, 2.0]
    assert "! http://x does not answer; trying again" in shown(on)
