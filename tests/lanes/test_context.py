"""A turn's prompt is the same whoever builds it and grows until it is cut, whatever happens."""

from __future__ import annotations

import pytest

from tertulia.core.prompt import SUMMARY_OPENING
from tertulia.core.remembering import Summary, summary_id
from tertulia.worker.context import Prompt
from tertulia.worker.remember import make
from tests.lanes.memory_desk import OWNER, PLACE, PLAN, Scribe, ShortLetters, Talk, words

pytestmark = pytest.mark.anyio

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
    assert (await talk.prompt(again._replace(model=None))).summary != prompt.summary


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
