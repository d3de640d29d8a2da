"""Invented people say the same under every policy, and their prompts grow as the service's do."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import mean

import pytest

from tertulia.simulator.caching.people import People
from tertulia.simulator.caching.talk import Habits, Talk

HABITS = Habits()


def talk(seed: int, habits: Habits = HABITS) -> Talk:
    return Talk("c1", habits, random.Random(seed))


def test_each_prompt_begins_with_the_one_before_and_its_reply() -> None:
    one = talk(1, replace(HABITS, turns=50.0, long_share=0.0))
    prompt, reply = one.ask(64)
    for _ in range(8):
        one.hear(reply)
        before, said = prompt, reply
        prompt, reply = one.ask(64)
        assert one.text.version == 0
        assert prompt > before + said


def test_a_conversation_that_outgrows_its_window_is_cut_and_becomes_another_text() -> None:
    one = talk(1, replace(HABITS, turns=500.0, long_share=0.0, window_tokens=8_000))
    prompts, versions = [], set()
    for _ in range(60):
        prompt, reply = one.ask(64)
        one.hear(reply)
        prompts.append(prompt)
        versions.add(one.text.version)
    assert max(prompts) <= 8_000 - HABITS.answer_tokens
    assert len(versions) > 3


def test_lengths_and_turns_have_the_means_they_are_given() -> None:
    asked = []
    turns = []
    for seed in range(400):
        one = talk(seed, replace(HABITS, long_share=0.0))
        turns.append(one._left)
        prompt, reply = one.ask(64)
        asked.append((prompt - HABITS.system_tokens, reply))
    assert mean(prompt for prompt, _ in asked) == pytest.approx(154, rel=0.15)
    assert mean(reply for _, reply in asked) == pytest.approx(400, rel=0.15)
    assert mean(turns) == pytest.approx(8, rel=0.2)


def test_what_somebody_says_does_not_depend_on_when_others_end() -> None:
    """Else policies would be compared over different people."""
    said = []
    for order in ((0, 1), (1, 0)):
        people = People(2, seed=7, habits=replace(HABITS, turns=1.0))
        assert len(list(people.begin())) == 2
        heard = {}
        for who in order:
            first = people.ask(who, 0.0, 1)
            people.after(who, 1.0, first)
            heard[who] = (first.prompt, people.ask(who, 60.0, 2).prompt)
        said.append(heard)
    assert said[0] == said[1]
