"""A turn's prompt is the same whoever builds it and grows until it is cut, whatever happens."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tertulia.core.prompt import SUMMARY_OPENING, choose_context
from tertulia.core.remembering import Summary, summary_id
from tertulia.core.types import Status, TokenIds, Turn
from tertulia.worker.context import Prompt
from tertulia.worker.remember import make
from tests.lanes.memory_desk import OWNER, PLACE, PLAN, Scribe, ShortLetters, Talk, words

pytestmark = pytest.mark.anyio

R = TypeVar("R")

LONG = "It goes on and on. " * 4


async def long_talk(turns: int = 12, *, replicas: Scribe | None = None) -> Talk:
    """A talk in which nobody has summarised anything yet."""
    talk = Talk(replicas)
    await talk.open()
    await talk.turn("My code word is quince.", "I see. ")
    for n in range(turns):
        await talk.turn(f"Question {n}. {LONG}", f"Answer {n}. ")
    return talk


async def remember(talk: Talk) -> int:
    """Does all tasks that are due, at once; how many there were."""
    n_done = 0
    while (task := await talk.backend.tasks.claim(lease_s=10)) is not None:
        made = await make(talk.desk, task)
        assert made is not None
        assert await talk.backend.tasks.finish(task, made)
        n_done += 1
    return n_done


def first_of(prompt: Prompt) -> int:
    return prompt.context.first


async def test_without_a_summary_the_prompt_is_cut_all_the_same_and_says_so() -> None:
    talk = await long_talk()
    prompt = await talk.turn("And now?", "Now. ")
    assert prompt.notices == ("context_shortened",)
    assert prompt.summary is None
    assert "quince" not in words(prompt.ids)
    assert words(prompt.ids).startswith("Be kind.")


async def test_what_is_cut_next_is_summarised_before_it_is_cut() -> None:
    replicas = Scribe(lambda request: "The code word is quince.")
    talk = Talk(replicas)
    await talk.open()
    await talk.turn("My code word is quince.", "I see. ")
    cuts = 0
    before = 0
    for n in range(30):
        prompt = await talk.turn(f"Question {n}. {LONG}", f"Answer {n}. ")
        first = first_of(prompt)
        if first:
            # The summary is there in the very turn that is cut.
            assert prompt.summary is not None
            assert prompt.talk is not None
            assert prompt.summary.upto == prompt.talk.exchanges[first - 1].reply_id
            assert SUMMARY_OPENING + "The code word is quince." in words(prompt.ids)
            assert prompt.notices == ("context_shortened",)
        cuts += first != before
        before = first
        await remember(talk)
    assert cuts >= 3


async def test_a_late_summary_is_used_from_the_next_turn_on() -> None:
    talk = await long_talk()
    assert (await talk.turn("One", "1. ")).summary is None
    assert await remember(talk) > 0
    assert (await talk.turn("Two", "2. ")).summary is not None


async def test_an_older_summary_is_better_than_none() -> None:
    talk = await long_talk()
    await remember(talk)
    for n in range(24):
        prompt = await talk.turn(f"More {n}. {LONG}", f"Yes {n}. ")
        assert prompt.summary is not None
    assert prompt.talk is not None
    assert prompt.summary is not None
    covered = [one.reply_id for one in prompt.talk.exchanges[: first_of(prompt)]]
    assert prompt.summary.upto in covered[:-1]


async def test_a_summary_that_is_too_long_for_the_window_is_not_used() -> None:
    talk = await long_talk()
    turn = await talk.ask("And now?", parent=await head(talk))
    prompt = await talk.prompt(turn)
    assert prompt.talk is not None
    upto = prompt.talk.exchanges[first_of(prompt) - 1].reply_id or ""
    for text, is_used in (("a" * prompt.room.summary, True), ("a" * 200, False)):
        for tokenizer in ("letters", "another"):
            made = Summary(summary_id(upto, text), upto, None, text, len(text), tokenizer, "m", "1")
            talk.backend.store.summaries[OWNER, PLACE, upto] = made
            assert ((await talk.prompt(turn)).summary is not None) is is_used


async def test_a_turn_that_another_worker_goes_on_with_sends_the_same_prompt() -> None:
    talk = await long_talk()
    turn = await talk.ask("And now?", parent=(await head(talk)))
    prompt = await talk.prompt(turn)
    assert prompt.summary is None
    await talk.begin(turn, prompt)
    assert await remember(talk) > 0
    again = await talk.claim()
    assert (await talk.prompt(again, talk.new_desk())).ids == prompt.ids
    await talk.end(again, prompt, "Now. ")
    # And the same with an older summary, when a newer one has come since.
    for n in range(24):
        await talk.turn(f"More {n}. {LONG}", f"Yes {n}. ")
    turn = await talk.ask("And then?", parent=(await head(talk)))
    prompt = await talk.prompt(turn)
    assert prompt.summary is not None
    await talk.begin(turn, prompt)
    assert await remember(talk) > 0
    again = await talk.claim()
    assert (await talk.prompt(again, talk.new_desk())).ids == prompt.ids
    assert (await talk.prompt(replace(again, model=None))).summary != prompt.summary


async def head(talk: Talk) -> str | None:
    found = await talk.backend.conversations.get(OWNER, PLACE)
    assert found is not None
    return found.head_message_id


async def test_the_message_that_just_fits_leaves_room_for_the_summary_and_an_answer() -> None:
    talk = await long_talk()
    await remember(talk)
    fixed, per_message = ShortLetters.cost
    room = PLAN.room_for_text(
        ShortLetters.window, fixed_tokens=fixed + per_message + len("Be kind.")
    )
    longest = room - ShortLetters.window // 8
    prompt = await talk.turn("a" * longest, "Yes. ")
    assert prompt.summary is not None
    assert len(prompt.ids) + PLAN.min_answer_tokens <= ShortLetters.window


@dataclass(frozen=True)
class Told:
    """A turn that was answered: its reply, the prompt and what was said."""

    reply_id: str
    prompt: Prompt
    said: TokenIds


class Talking(RuleBasedStateMachine):
    """People append, edit, regenerate, stop and branch while workers crash and summarise."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.talk = Talk(Scribe(lambda request: f"Said {len(request.prompt)} things. "))
        self.told: dict[str, Told] = {}  # by reply
        self.asked_by: dict[str, str] = {}  # the reply that a user's message hangs under
        self.run(self.talk.open())

    def run(self, work: Awaitable[R]) -> R:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.loop.close()

    @initialize()
    def begins_long(self) -> None:
        for n in range(8):
            self._turn(f"Early {n}. {LONG}", "Yes. ", Status.COMPLETED, self.newest())

    def newest(self) -> str | None:
        return list(self.told)[-1] if self.told else None

    @rule(
        content=st.text(min_size=1, max_size=120),
        said=st.text(alphabet="abc. ", max_size=120),
        status=st.sampled_from((Status.COMPLETED,) * 4 + (Status.STOPPED, Status.FAILED)),
        where=st.integers(0, 3),
        crash=st.booleans(),
    )
    def appends(self, content: str, said: str, status: Status, where: int, crash: bool) -> None:
        replies = list(self.told)
        parent = replies[max(-len(replies), -1 - where)] if replies else None
        self._turn(content, said, status, parent, crash=crash)

    @rule(said=st.text(alphabet="abc. ", min_size=1, max_size=80), where=st.integers(1, 3))
    @precondition(lambda self: len(self.told) > 3)
    def regenerates(self, said: str, where: int) -> None:
        old = self.told[list(self.told)[-where]]
        assert old.prompt.talk is not None
        asked = old.prompt.talk.exchanges[-1].user_ids[-1]
        turn = self.run(self.talk.ask("", again=asked))
        self._answer(turn, said, Status.COMPLETED, self.asked_by[asked], crash=False)

    @rule(n=st.integers(1, 3))
    def summarises(self, n: int) -> None:
        for _ in range(n):
            task = self.run(self.talk.backend.tasks.claim(lease_s=10))
            if task is not None:
                made = self.run(make(self.talk.desk, task))
                assert made is not None
                self.run(self.talk.backend.tasks.finish(task, made))

    def _turn(
        self, content: str, said: str, status: Status, parent: str | None, *, crash: bool = False
    ) -> None:
        turn = self.run(self.talk.ask(content, parent=parent))
        self.asked_by[turn.user_message_id or ""] = parent or ""
        self._answer(turn, said, status, parent or "", crash=crash)

    def _answer(self, turn: Turn, said: str, status: Status, parent: str, *, crash: bool) -> None:
        prompt = self.run(self.talk.prompt(turn))
        self.run(self.talk.begin(turn, prompt))
        if crash:
            self.summarises(3)
            turn = self.run(self.talk.claim())
            assert self.run(self.talk.prompt(turn, self.talk.new_desk())).ids == prompt.ids
        self._holds(prompt)
        self._goes_on(prompt, parent)
        self.run(self.talk.end(turn, prompt, said if status is not Status.FAILED else "", status))
        ids = ShortLetters().encode(said)
        if status is not Status.FAILED and ids:
            self.told[turn.reply_id] = Told(turn.reply_id, prompt, ids)

    def _holds(self, prompt: Prompt) -> None:
        """I19: it fits, the system prompt is first and whole, nothing said is a control token."""
        assert prompt.talk is not None
        assert len(prompt.ids) + prompt.answer_tokens <= ShortLetters.window
        assert prompt.answer_tokens >= PLAN.min_answer_tokens
        system = ShortLetters().encode("Be kind.")
        assert prompt.ids[: 1 + len(system)] == (1, *system)
        context = choose_context(prompt.talk.exchanges, room_tokens=prompt.room.exchanges)
        n_messages = 1 + 2 * len(context.exchanges) - 1 + (2 if prompt.summary is not None else 0)
        assert sum(one in (1, 2) for one in prompt.ids) == 1 + n_messages
        if prompt.summary is not None:
            covered = [one.reply_id for one in prompt.talk.exchanges[: context.first]]
            assert prompt.summary.upto in covered

    def _goes_on(self, prompt: Prompt, parent: str) -> None:
        """I3: between two changes of cut or summary it begins with the last one and its reply."""
        before = self.told.get(parent)
        if before is None or first_of(before.prompt) != first_of(prompt):
            return
        if before.prompt.summary == prompt.summary:
            beginning = before.prompt.ids + before.said
            assert prompt.ids[: len(beginning)] == beginning

    @invariant()
    def every_summary_ends_at_a_reply(self) -> None:
        for _, _, upto in self.talk.backend.store.summaries:
            assert upto in self.told


Talking.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestTalking = Talking.TestCase


_PROGRAM = """
import asyncio, hashlib
from tests.lanes.test_context import long_talk, remember

async def told():
    talk = await long_talk()
    await remember(talk)
    prompt = await talk.turn("Ünd jetzt? Ndiyo? <|im_start|>", "Ja. ")
    assert prompt.summary is not None
    print(hashlib.sha256(str(prompt.ids).encode()).hexdigest())

asyncio.run(told())
"""


def test_a_prompt_is_the_same_in_every_process() -> None:
    found = set()
    for seed, locale, zone in (
        ("0", "C", "UTC"),
        ("1", "tr_TR.UTF-8", "Asia/Kathmandu"),
        ("77", "de_DE.UTF-8", "America/St_Johns"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": zone},
            capture_output=True,
            check=True,
            text=True,
        )
        found.add(ran.stdout)
    assert len(found) == 1
