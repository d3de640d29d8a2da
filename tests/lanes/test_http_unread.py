"""A prompt that no replica has read is not charged, whoever ends its turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tertulia.core.types import GenerateRequest, Said, Status
from tertulia.ports import ReplicaRefused
from tests.lanes.gateway_rig import ScriptedReplicas, ask_later, new_conversation, rig, until

pytestmark = pytest.mark.anyio


class Full(ScriptedReplicas):
    """Has no room for anything, and wants to be asked again much later."""

    is_full: bool = True

    async def generate(
        self, replica: str, request: GenerateRequest, **_: object
    ) -> AsyncGenerator[Said, None]:
        self.asked.append(request)
        if self.is_full:
            raise ReplicaRefused(503, "busy", "no room", retry_after_s=60.0)
        yield Said((), finish="stop")


async def test_a_turn_that_is_stopped_after_replicas_refused_it_costs_nothing() -> None:
    async with rig(replicas=Full()) as here:
        client = await here.user("ana")
        posted = (await ask_later(client, await new_conversation(client))).json()
        store = here.backend.store

        def is_noted() -> bool:
            turn = store.turns[posted["messageId"]]
            return bool(here.replicas.asked) and turn.model is not None and not turn.request_id

        await until(is_noted)
        stopped = await client.post(f"/v1/messages/{posted['messageId']}/stop")
        turn = store.turns[posted["messageId"]]
    assert stopped.status_code == 200
    assert (turn.status, turn.usage.input, turn.charged) == (Status.STOPPED, 0, 0)
