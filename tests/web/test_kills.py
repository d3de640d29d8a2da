"""Processes die by `kill -9` while the page is open: what it shows in the end is what is stored."""

from __future__ import annotations

import pytest

from tests.web.person import LONG, Person

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


async def _loses_nothing(person: Person, begun: str) -> None:
    await person.ended()
    assert (await person.shown()).startswith(begun[:20])
    await person.matches_store()
    assert (person.count("conversations"), person.count("messages")) == (1, 2)


@pytest.mark.parametrize("victim", ["lanes", "replica"])
async def test_a_process_killed_in_mid_answer_costs_no_word(person: Person, victim: str) -> None:
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    assert person.service.kill_child(victim)
    assert await person.still_talking()
    await _loses_nothing(person, begun)


async def test_everything_killed_and_started_again_continues_on_the_open_page(
    person: Person,
) -> None:
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    person.service.kill_tree()
    person.service.start()  # before any assertion: the other tests need it
    assert await person.still_talking()
    await person.service.ready()
    await _loses_nothing(person, begun)
