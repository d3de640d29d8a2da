"""A small dose of `python -m tests.web.cuts`: a line that is cut again and again costs no word."""

from __future__ import annotations

import pytest

from tests.web.cuts import cut_and_compare, plan
from tests.web.line import line_to
from tests.web.person import Person

pytestmark = pytest.mark.anyio


async def test_a_line_that_is_cut_again_and_again_costs_no_word(person: Person) -> None:
    async with line_to(person.service.port) as line:
        person.url = line.url
        assert await cut_and_compare(person, line, plan(replies=2, cuts=8, seed=3)) == 8
