"""Processes die by `kill -9` while the page is open: what it shows in the end is what is stored."""

from __future__ import annotations

import pytest

from tests.e2e.processes import Victim
from tests.web.person import LONG, Person

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


@pytest.mark.parametrize("victim", ["lanes", "tree"])
async def test_what_is_killed_in_mid_answer_costs_no_word(person: Person, victim: Victim) -> None:
    """The lanes, and then everything at once: service, lanes and replica."""
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    assert person.service.kill(victim)
    assert await person.still_talking()
    await person.service.ready()
    await person.lost_nothing(begun)
