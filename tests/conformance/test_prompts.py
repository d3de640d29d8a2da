"""Promises of the `Prompts`, `Instructions` and `Evaluation` ports."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.core.opening import Footing, InstructionsVersion
from tertulia.core.rollout import ALL, PromptUse, Rollout
from tertulia.core.types import HEAD
from tests.conformance.world import (
    START,
    Backend,
    ManualClock,
    answered,
    conversation,
    message,
    person,
    stateless,
)

pytestmark = pytest.mark.anyio

FIRST = Rollout("v1", "v1", ALL, "v1")


async def stand(backend: Backend, name: str = "c_1", *, owner: str = "ana") -> Footing:
    branch = await backend.messages.branch(owner, name, HEAD)
    found = await backend.conversations.get(owner, name)
    assert branch is not None
    assert found is not None
    assert (found.prompt_version, found.instructions) == (
        branch.prompt_version,
        branch.instructions,
    )
    return Footing(branch.prompt_version, branch.instructions)


async def write(backend: Backend, text: str, *, owner: str = "ana") -> InstructionsVersion:
    return await backend.instructions.write(owner, text, tokens=len(text), tokenizer="small")


# Prompts


async def test_before_the_first_rollout_there_is_none(backend: Backend) -> None:
    assert await backend.prompts.rollout() is None
    assert not await backend.prompts.roll_out(FIRST, Rollout("v1", "v2", 10, "v1"))
    assert await backend.prompts.rollout() is None


async def test_a_rollout_is_what_the_last_one_who_knew_it_made_of_it(backend: Backend) -> None:
    tenth, half = Rollout("v1", "v2", 10, "v1"), Rollout("v1", "v2", 50, "v3")
    assert await backend.prompts.roll_out(None, FIRST)
    assert not await backend.prompts.roll_out(None, half)
    assert await backend.prompts.roll_out(FIRST, tenth)
    assert not await backend.prompts.roll_out(FIRST, half)
    assert await backend.prompts.rollout() == tenth
    assert await backend.prompts.roll_out(tenth, half)
    assert await backend.prompts.rollout() == half


@pytest.mark.parametrize("seen", [None, FIRST])
async def test_of_many_who_roll_out_at_once_one_does(
    backend: Backend, seen: Rollout | None
) -> None:
    if seen is not None:
        assert await backend.prompts.roll_out(None, seen)
    done = await asyncio.gather(
        *(backend.prompts.roll_out(seen, Rollout("v1", "v2", n, "v1")) for n in range(8))
    )
    assert sum(done) == 1
    rollout = await backend.prompts.rollout()
    assert rollout is not None
    assert done[rollout.share]


async def test_versions_are_listed_newest_first_with_who_is_on_them(
    backend: Backend, clock: ManualClock
) -> None:
    for n, version in enumerate(("v1", "v3", "v2")):
        await backend.conversations.prompt_text(version, store=f"Text {n}")
        clock.pass_(1)
    await backend.conversations.prompt_text("v1", store="Another text")
    for n, owner in enumerate(("ana", "ana", "ben")):
        await backend.conversations.create(owner, f"c_{n}", key=None, prompt_version="v1")
    await backend.conversations.create("ben", "c_9", key=None, prompt_version="v2")
    assert list(await backend.prompts.used(limit=10, most=10)) == [
        PromptUse("v2", "Text 2", START + 2, 1),
        PromptUse("v3", "Text 1", START + 1, 0),
        PromptUse("v1", "Text 0", START, 3),
    ]
    counted = await backend.prompts.used(limit=10, most=2)
    assert [use.conversations for use in counted] == [1, 0, 2]
    assert [use.version for use in await backend.prompts.used(limit=1, most=2)] == ["v2"]


async def test_a_conversation_moves_from_where_it_stands(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    before = await backend.conversations.get("ana", "c_1")
    clock.pass_(60)
    seen, to = Footing("v1", 0), Footing("v2", 3)
    assert await backend.prompts.move("ana", "c_1", seen=seen, to=to) == to
    assert await stand(backend) == to
    # Who saw what was before moves nothing, and is told what holds.
    late = Footing("v9", 9)
    assert await backend.prompts.move("ana", "c_1", seen=seen, to=late) == to
    assert await backend.prompts.move("ana", "c_1", seen=Footing("v2", 0), to=late) == to
    assert await stand(backend) == to
    after = await backend.conversations.get("ana", "c_1")
    assert before is not None
    assert after is not None
    assert (after.updated_at, after.head_message_id) == (before.updated_at, before.head_message_id)


async def test_of_two_who_move_it_one_does_and_both_hear_where_it_stands(
    backend: Backend,
) -> None:
    await conversation(backend)
    seen = Footing("v1", 0)
    heard = await asyncio.gather(
        *(
            backend.prompts.move("ana", "c_1", seen=seen, to=Footing(f"v{n}", n))
            for n in range(2, 10)
        )
    )
    assert set(heard) == {await stand(backend)}


async def test_nobody_moves_anothers_conversation_or_one_that_is_gone(backend: Backend) -> None:
    await conversation(backend)
    seen, to = Footing("v1", 0), Footing("v2", 0)
    assert await backend.prompts.move("ben", "c_1", seen=seen, to=to) is None
    assert await stand(backend) == seen
    await backend.conversations.delete("ana", "c_1")
    assert await backend.prompts.move("ana", "c_1", seen=seen, to=to) is None


# Instructions


async def test_instructions_are_versions_of_their_owners(
    backend: Backend, clock: ManualClock
) -> None:
    assert await backend.instructions.current("ana") is None
    first = await write(backend, "Be brief.")
    assert first == InstructionsVersion(1, "Be brief.", 9, "small", START)
    assert await backend.instructions.current("ana") == first
    assert await backend.instructions.find("ana", 1) == first
    assert await backend.instructions.current("ben") is None
    assert await backend.instructions.find("ben", 1) is None
    clock.pass_(5)
    second = await write(backend, "Be long.")
    assert second == InstructionsVersion(2, "Be long.", 8, "small", START + 5)
    assert await backend.instructions.current("ana") == second


async def test_the_same_text_again_is_the_same_version(
    backend: Backend, clock: ManualClock
) -> None:
    first = await write(backend, "Be brief.")
    clock.pass_(5)
    assert await write(backend, "Be brief.") == first
    await write(backend, "Be long.")
    assert (await write(backend, "Be brief.")).version == 3


async def test_instructions_written_at_once_are_all_versions(backend: Backend) -> None:
    written = await asyncio.gather(*(write(backend, f"Text {n}") for n in range(8)))
    assert sorted(one.version for one in written) == list(range(1, 9))
    current = await backend.instructions.current("ana")
    assert current == max(written, key=lambda one: one.version)


async def test_a_conversation_keeps_to_the_version_that_it_began_with(backend: Backend) -> None:
    await conversation(backend, "c_before")
    await write(backend, "Be brief.")
    await conversation(backend, "c_1")
    await conversation(backend, "c_1", owner="ben")
    await write(backend, "Be long.")
    await conversation(backend, "c_2")
    stands = [await stand(backend, name) for name in ("c_before", "c_1", "c_2")]
    assert [one.instructions for one in stands] == [0, 1, 2]
    assert (await stand(backend, "c_1", owner="ben")).instructions == 0
    kept = await backend.instructions.find("ana", 1)
    assert kept is not None
    assert kept.text == "Be brief."


async def test_the_same_key_gives_the_conversation_with_the_instructions_of_then(
    backend: Backend,
) -> None:
    await write(backend, "Be brief.")
    made = await backend.conversations.create("ana", "c_1", key="k", prompt_version="v1")
    await write(backend, "Be long.")
    again = await backend.conversations.create("ana", "c_2", key="k", prompt_version="v2")
    assert again == made
    assert again.instructions == 1


async def test_a_version_that_nobody_keeps_to_goes_with_the_next_one(backend: Backend) -> None:
    await write(backend, "One")
    await conversation(backend, "c_1")
    await write(backend, "Two")
    await write(backend, "Three")
    found = [await backend.instructions.find("ana", version) for version in (1, 2, 3)]
    assert [one.text if one else None for one in found] == ["One", None, "Three"]
    await backend.conversations.delete("ana", "c_1")
    await write(backend, "Four")
    assert await backend.instructions.find("ana", 1) is None


async def test_forgotten_instructions_are_gone_from_every_conversation(backend: Backend) -> None:
    await write(backend, "One")
    await conversation(backend, "c_1")
    await write(backend, "Two")
    await write(backend, "Ben's", owner="ben")
    await backend.instructions.forget("ana")
    await backend.instructions.forget("ana")
    assert await backend.instructions.current("ana") is None
    assert [await backend.instructions.find("ana", version) for version in range(5)] == [None] * 5
    await conversation(backend, "c_2")
    assert (await stand(backend, "c_2")).instructions == 0
    # The number is never used again, or an old conversation would begin to keep to another text.
    assert (await write(backend, "Three")).version > 2
    assert await backend.instructions.find("ana", (await stand(backend)).instructions) is None
    assert await backend.instructions.current("ben") is not None


async def test_to_forget_what_was_never_written_is_nothing(backend: Backend) -> None:
    await backend.instructions.forget("ana")
    assert (await write(backend, "One")).version == 1


# Evaluation


async def usable(backend: Backend, *, limit: int = 50) -> list[tuple[str, str]]:
    """All of them, page after page."""
    found: list[tuple[str, str]] = []
    while page := await backend.evaluation.usable(
        after=found[-1] if found else ("", ""), limit=limit
    ):
        assert len(page) <= limit
        found += [(one.owner, one.id) for one in page]
    return found


async def people(backend: Backend, *agreed: str) -> None:
    for name in ("ana", "ben", "cem"):
        await backend.accounts.add(person(name, evaluation=name in agreed))
        await conversation(backend, "c_1", "c_2", "c_3", owner=f"u_{name}")


async def test_nobodys_conversations_are_usable_until_he_agrees(backend: Backend) -> None:
    await people(backend)
    assert await usable(backend) == []
    assert not await backend.evaluation.is_usable("u_ana", "c_1")
    await backend.accounts.change("u_ana", {"evaluation": True})
    assert await usable(backend) == [("u_ana", name) for name in ("c_1", "c_2", "c_3")]
    assert await backend.evaluation.is_usable("u_ana", "c_1")
    assert not await backend.evaluation.is_usable("u_ben", "c_1")


@pytest.mark.parametrize("limit", [1, 2, 4, 50])
async def test_usable_conversations_are_paged_by_owner_and_id(backend: Backend, limit: int) -> None:
    await people(backend, "ana", "cem")
    whole = [(f"u_{who}", name) for who in ("ana", "cem") for name in ("c_1", "c_2", "c_3")]
    assert await usable(backend, limit=limit) == whole


@pytest.mark.parametrize("change", [{"evaluation": False}, {"disabled": True}])
async def test_who_takes_it_back_or_is_gone_is_out_at_once(
    backend: Backend, change: dict[str, bool]
) -> None:
    await people(backend, "ana", "ben")
    await backend.accounts.change("u_ana", change)
    assert {owner for owner, _ in await usable(backend)} == {"u_ben"}
    assert not await backend.evaluation.is_usable("u_ana", "c_1")


async def test_what_was_deleted_or_never_was_a_conversation_is_not_usable(
    backend: Backend,
) -> None:
    await people(backend, "ana")
    await answered(backend, stateless(1, owner="u_ana"))
    await backend.conversations.delete("u_ana", "c_2")
    assert await usable(backend) == [("u_ana", "c_1"), ("u_ana", "c_3")]
    assert not await backend.evaluation.is_usable("u_ana", "c_2")
    assert not await backend.evaluation.is_usable("u_ana", "c_unknown")


async def test_agreeing_is_found_wherever_a_user_is(backend: Backend) -> None:
    ana = person("ana", evaluation=True)
    await backend.accounts.add(ana)
    await backend.sessions.open("u_ana", "s1", lasts_s=100)
    session = await backend.sessions.find("s1")
    assert session is not None
    assert session.user == ana
    assert await backend.accounts.by_name("ana") == ana
