"""What a reply becomes when its replica misbehaves: never longer than allowed, never a wrong no."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest

from tertulia.core.types import GenerateRequest, Said, Unit
from tertulia.ports import ReplicaRefused
from tests.lanes.gateway_rig import PLANS, ScriptedReplicas, ask, events, new_conversation, rig
from tests.lanes.gateway_rig import text_of as shown

pytestmark = pytest.mark.anyio


@dataclass
class Refusing(ScriptedReplicas):
    """Answers `status` the first `times`, then as scripted."""

    status: int = 500
    times: int = 1

    async def generate(
        self, replica: str, request: GenerateRequest, **_: object
    ) -> AsyncGenerator[Said, None]:
        if self.times:
            self.times -= 1
            raise ReplicaRefused(self.status, "Told", "told to refuse")
        async for said in super().generate(replica, request):
            yield said


async def test_a_replica_that_says_too_much_ends_at_the_limit() -> None:
    limit = PLANS["free"].answer_tokens
    async with rig(replicas=ScriptedReplicas(script=["word "] * limit)) as here:
        client = await here.user("ana")
        answer = await ask(client, await new_conversation(client))
    assert (len(shown(answer.text)), events(answer.text)[-1][2]["finish"]) == (limit, "length")


@pytest.mark.parametrize("status", [302, 401, 404, 500])
async def test_an_error_of_the_replicas_own_is_tried_again(status: int) -> None:
    async with rig(replicas=Refusing(status=status)) as here:
        client = await here.user("ana")
        answer = await ask(client, await new_conversation(client))
    assert events(answer.text)[-1][1] == "done"


@pytest.mark.parametrize(
    ("status", "code"), [(500, "replica_unavailable"), (400, "replica_refused")]
)
async def test_a_no_is_told_as_what_it_is(status: int, code: str) -> None:
    """Only a request that no replica would take is the person's to change."""
    async with rig(replicas=Refusing(status=status, times=100)) as here:
        client = await here.user("ana")
        answer = await ask(client, await new_conversation(client))
    _, kind, data = events(answer.text)[-1]
    assert (kind, data["code"]) == ("fail", code)


class Unruly(ScriptedReplicas):
    """Begins a turn of its own in the middle of the reply."""

    async def generate(
        self, replica: str, request: GenerateRequest, **_: object
    ) -> AsyncGenerator[Said, None]:
        async for said in super().generate(replica, request):
            yield Said(
                tuple(Unit(unit.text, (1, *unit.ids, 2)) for unit in said.units),
                said.finish,
                said.usage,
            )


async def test_a_control_token_that_a_model_says_is_no_part_of_the_next_prompt() -> None:
    """I19: only the template puts control tokens into a prompt."""
    replicas = Unruly()
    async with rig(replicas=replicas) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        said = shown((await ask(client, conversation, key="first")).text)
        await ask(client, conversation, key="second")
    prompt = replicas.asked[-1].prompt
    assert len(prompt) > len(said)
    # One opens the prompt, one closes each of its four messages.
    assert sum(number in (1, 2) for number in prompt) == 5
