"""Whatever administrators and people change meanwhile: a prompt goes on from the one before unless
its context was cut or its owner's words were deleted, and the door had room for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tertulia.backends.memory import MemoryBackend
from tertulia.core.opening import Footing, asked
from tertulia.core.plans import Plan
from tertulia.core.rollout import ALL, Rollout, rolled_out
from tertulia.core.types import HEAD, BranchMessage, Status, TokenIds, Turn, Usage
from tertulia.gateway.counting import prompt_tokens_of
from tertulia.gateway.footing import Place, fixed_tokens
from tertulia.worker.context import Prompt, build_prompt, read_branch
from tertulia.worker.figures import WorkerFigures
from tertulia.worker.pen import Superseded
from tests.conformance.world import ManualClock, admitted, claimed, completed, message, note
from tests.lanes.gateway_rig import Letters

PLAN = Plan(name="free", window_tokens=420, answer_tokens=80)
VOCABULARY = Letters()
SYSTEMS = {"v1": "Be kind.", "v2": "Be terse, please.", "v3": "B"}


@dataclass(frozen=True)
class Ask:
    question: int
    answer: int


@dataclass(frozen=True)
class Write:
    text: str


@dataclass(frozen=True)
class Delete:
    pass


@dataclass(frozen=True)
class RollOut:
    version: str
    share: int


Step = Ask | Write | Delete | RollOut
ASKS = st.builds(Ask, st.integers(1, 60), st.integers(1, 60))
CHANGES = st.one_of(
    st.builds(Write, st.text("<ab>", min_size=1, max_size=9).filter(str.strip)),
    st.just(Delete()),
    st.builds(RollOut, st.sampled_from(sorted(SYSTEMS)), st.sampled_from([0, 50, ALL])),
)


class Talk:
    """One conversation in memory, asked and answered by the real lanes' own functions."""

    def __init__(self) -> None:
        self.backend = MemoryBackend(ManualClock())
        self.desk: Any = SimpleNamespace(
            plans={"free": PLAN},
            messages=self.backend.messages,
            conversations=self.backend.conversations,
            prompts=self.backend.prompts,
            instructions=self.backend.instructions,
            summaries=self.backend.summaries,
            figures=WorkerFigures(),
        )
        self.n_asked = 0
        self.last: Prompt | None = None
        self.told = ""
        self.told_by_now = ""

    async def begin(self, before: list[Step]) -> None:
        for version, text in SYSTEMS.items():
            await self.backend.conversations.prompt_text(version, store=text)
        await self.backend.prompts.roll_out(None, Rollout("v1", "v1", ALL, "v1"))
        for step in before:
            await self.do(step)
        await self.backend.conversations.create("ana", "c_1", key=None, prompt_version="v1")
        self.told = self.told_by_now

    async def do(self, step: Step) -> None:
        if isinstance(step, Ask):
            await self.ask(step)
        elif isinstance(step, Write):
            text = step.text.strip()
            tokens = len(VOCABULARY.encode(asked(text)))
            await self.backend.instructions.write(
                "ana", text, tokens=tokens, tokenizer=VOCABULARY.name
            )
            self.told_by_now = text
        elif isinstance(step, Delete):
            await self.backend.instructions.forget("ana")
            if self.told:
                self.last = None  # what is deleted is said no more: that prompt is nobody's now
            self.told = self.told_by_now = ""
        else:
            now = await self.backend.prompts.rollout()
            assert now is not None
            to = rolled_out(now, step.version, share=step.share)
            if to is not None:
                await self.backend.prompts.roll_out(now, to)

    async def ask(self, step: Ask) -> None:
        turn, reserved = await self.let_in("q" * step.question)
        branch = await read_branch(self.desk, turn)
        assert branch is not None
        prompt = await build_prompt(self.desk, turn, branch, VOCABULARY)
        again = await build_prompt(self.desk, turn, await read_branch(self.desk, turn), VOCABULARY)
        assert again == prompt  # the same turn has the same prompt, whoever builds it
        assert len(prompt.ids) <= reserved
        await self.begins_rightly(prompt)
        held = await claimed(self.backend)
        assert await note(self.backend, held)
        said = "a" * step.answer
        outcome = completed(
            text=said,
            ids=VOCABULARY.encode(said),
            tokenizer=VOCABULARY.name,
            usage=Usage(len(prompt.ids), 0, step.answer),
        )
        assert await self.backend.turns.finish(held.held, outcome)

    async def let_in(self, content: str) -> tuple[Turn, int]:
        """The turn as the door takes it, and what it reserved for the prompt."""
        branch = await self.backend.messages.branch("ana", "c_1", HEAD)
        assert branch is not None
        place, tokens = Place("ana", "c_1", branch), len(VOCABULARY.encode(content))
        new = BranchMessage("", "user", Status.COMPLETED, tokens, VOCABULARY.name)
        fixed = await fixed_tokens(self.desk, place, VOCABULARY)
        path = [*branch.messages, new]
        reserved = await prompt_tokens_of(self.desk, PLAN, place, VOCABULARY, path, fixed)
        self.n_asked += 1
        asked_now = message(
            self.n_asked,
            content=content,
            content_tokens=tokens,
            tokenizer=VOCABULARY.name,
            parent_id=branch.leaf,
            prompt_tokens=reserved,
            answer_tokens=PLAN.answer_tokens,
        )
        return await admitted(self.backend, asked_now), reserved

    async def begins_rightly(self, prompt: Prompt) -> None:
        conversation = await self.backend.conversations.get("ana", "c_1")
        assert conversation is not None
        system = SYSTEMS[conversation.prompt_version]
        assert prompt.ids[: prompt.shared_tokens] == ids_of(f"<{system}", control="<")
        if self.last is not None and not goes_on(self.last.ids, prompt.ids):
            assert "context_shortened" in prompt.notices
            self.told = self.told_by_now
        own = asked(self.told) if self.told else ""
        whole = ids_of(f"<{system}{own}>", control="<>")
        if self.last is not None:
            assert prompt.ids[: len(whole)] == whole
        self.last = prompt


def ids_of(text: str, *, control: str) -> TokenIds:
    """The ids of a text whose first character, and last if it is one of two, are control tokens."""
    last = VOCABULARY.encode_control(text[-1]) if len(control) > 1 else ()
    inner = text[1:-1] if last else text[1:]
    return VOCABULARY.encode_control(text[0]) + VOCABULARY.encode(inner) + last


def goes_on(before: TokenIds, after: TokenIds) -> bool:
    return after[: len(before)] == before


async def talked(before: list[Step], steps: list[Step]) -> None:
    talk = Talk()
    await talk.begin(before)
    for step in steps:
        await talk.do(step)


@given(
    before=st.lists(CHANGES, max_size=2),
    steps=st.lists(st.one_of(ASKS, ASKS, ASKS, CHANGES), min_size=4, max_size=20),
)
def test_a_prompt_goes_on_from_the_one_before_unless_it_was_cut(
    before: list[Step], steps: list[Step]
) -> None:
    asyncio.run(talked(before, steps))


async def until_cut(move: Callable[[Talk], Awaitable[Footing | None]]) -> Prompt:
    """The first prompt that is cut while `v2` is rolled out, where `move` comes first."""
    talk = Talk()
    await talk.begin([RollOut("v2", ALL)])
    talk.desk.prompts = SimpleNamespace(
        rollout=talk.backend.prompts.rollout, move=lambda *_, **__: move(talk)
    )
    for _ in range(20):
        turn, _ = await talk.let_in("q" * 40)
        branch = await read_branch(talk.desk, turn)
        prompt = await build_prompt(talk.desk, turn, branch, VOCABULARY)
        if "context_shortened" in prompt.notices:
            return prompt
        held = await claimed(talk.backend)
        said = completed(usage=Usage(len(prompt.ids), 0, 40), ids=VOCABULARY.encode("a" * 40))
        assert await talk.backend.turns.finish(held.held, replace(said, tokenizer="letters"))
    raise AssertionError("nothing was cut")


def test_who_comes_second_to_a_cut_begins_as_the_first_one_did() -> None:
    async def moved_by_another(talk: Talk) -> Footing | None:
        first = Footing("v3", 0)
        await talk.backend.prompts.move("ana", "c_1", seen=Footing("v1", 0), to=first)
        return first

    prompt = asyncio.run(until_cut(moved_by_another))
    assert prompt.ids[: prompt.shared_tokens] == ids_of(f"<{SYSTEMS['v3']}", control="<")


def test_a_conversation_that_was_deleted_at_a_cut_needs_no_prompt() -> None:
    async def gone(_: Talk) -> Footing | None:
        return None

    with pytest.raises(Superseded):
        asyncio.run(until_cut(gone))
