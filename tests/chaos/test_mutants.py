"""Every planted bug still fits its place: where the text has changed, that is an error."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.chaos.mutants import MUTANTS, plant


@pytest.fixture(autouse=True)
def _nothing_stays_planted() -> Iterator[None]:
    yield
    patch.stopall()


@pytest.mark.parametrize("name", MUTANTS)
def test_the_bug_fits(name: str) -> None:
    plant(name, MUTANTS[name].roles[0])


def test_a_sound_role_stays_sound() -> None:
    plant("stop without a fence", "w1")
    plant("stop without a fence", "g1")


def test_text_that_is_not_there_is_an_error() -> None:
    plant("no fence in append", "g1")
    with pytest.raises(AssertionError, match="is there 0 times"):
        plant("no fence in append", "g1")
