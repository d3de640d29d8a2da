"""A sheet computes what follows, once, from what was given; and the book of figures is sound."""

from collections.abc import Iterator

import pytest

from tertulia.planner.book import BOOK
from tertulia.planner.sheet import POOLS, Book, CantCompute, Figure, Given, Input, Sheet

SMALL_BOOK = Book(
    fleet_inputs={"users": Input("users", "people", 10, 1, 100, "People.")},
    pool_inputs={"width": Input("width", "", 2, 1, 8, "Wide.")},
    fleet={
        "turns": Figure("turns", "turns", "users * 3", "Turns."),
        "both": Figure("both", "", "large.work + small.work", "Both."),
        "large.share": Figure("large.share", "share", "1 - 0.25", "Large."),
        "small.share": Figure("small.share", "share", "0.25", "Small."),
        "broken": Figure("broken", "", "users / (users - 10)", "Broken."),
        "never": Figure("never", "", "inf - inf", "Never."),
    },
    pool={"work": Figure("work", "", "share * turns / width", "Work.")},
)


def sheet(**given: float) -> Sheet:
    return Sheet(SMALL_BOOK, {name: Given(value, "test") for name, value in given.items()})


def test_what_is_not_given_is_the_default_or_follows() -> None:
    assert sheet().value("users") == 10
    assert sheet(users=20).value("turns") == 60


def test_a_pools_formula_means_its_own_names_first() -> None:
    one = Sheet(SMALL_BOOK, {"large.width": Given(3, "test")})
    assert one.value("large.work") == 0.75 * 30 / 3
    assert one.value("both") == 0.75 * 30 / 3 + 0.25 * 30 / 2
    assert one.uses("large.work") == ["large.share", "turns", "large.width"]


def test_a_figure_that_is_given_is_not_computed() -> None:
    one = sheet(turns=4)
    assert one.value("turns") == 4
    assert one.uses("turns") == []
    assert one.value("large.work") == 0.75 * 4 / 2


def test_a_change_leaves_the_sheet_as_it_was() -> None:
    one = sheet()
    assert one.changed({"users": Given(1, "what if")}).value("turns") == 3
    assert one.value("turns") == 30


def test_a_name_that_is_none_is_a_key_error() -> None:
    for name in ("nobody", "large.nobody", "other.width"):
        with pytest.raises(KeyError):
            sheet().value(name)


@pytest.mark.parametrize("name", ["broken", "never"])
def test_a_figure_without_a_value_says_which_it_is(name: str) -> None:
    with pytest.raises(CantCompute, match=name):
        sheet().value(name)


def test_every_name_of_every_formula_stands_for_something() -> None:
    for name in BOOK.names():
        found = BOOK.find(name)
        if isinstance(found, Figure):
            pool = name.rpartition(".")[0]
            for each in found.formula.names:
                assert BOOK.find(BOOK.full(each, pool)) is not None, f"{name} uses {each}"


def test_no_figure_is_computed_from_itself() -> None:
    def walk(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " > ".join((*path, name))
        if name not in sound:
            found = BOOK.find(name)
            if isinstance(found, Figure):
                pool = name.rpartition(".")[0]
                for each in found.formula.names:
                    walk(BOOK.full(each, pool), (*path, name))
            sound.add(name)

    sound: set[str] = set()
    for name in BOOK.names():
        walk(name, ())


def test_every_input_has_a_default_that_makes_sense() -> None:
    for one in (*BOOK.fleet_inputs.values(), *BOOK.pool_inputs.values()):
        assert one.low <= one.default <= one.high, one.name


def test_every_input_matters_to_some_figure() -> None:
    used = set(everything_used())
    idle = [
        name
        for name in BOOK.names()
        if isinstance(BOOK.find(name), Input) and name not in used and name not in TARGETS
    ]
    assert idle == []


# What a plan is compared with, and computes nothing from.
TARGETS = ("first_token_target_s", "cost_target")


def everything_used() -> Iterator[str]:
    for name in BOOK.names():
        found = BOOK.find(name)
        if isinstance(found, Figure):
            pool = name.rpartition(".")[0]
            yield from (BOOK.full(each, pool) for each in found.formula.names)


def test_every_figure_says_what_it_is() -> None:
    for name in BOOK.names():
        found = BOOK.find(name)
        assert found is not None
        assert found.says.endswith("."), name
        assert found.name.rpartition(".")[2] == name.rpartition(".")[2]


def test_both_pools_have_all_figures() -> None:
    large, small = ({n.partition(".")[2] for n in BOOK.names() if n.startswith(p)} for p in POOLS)
    assert large == small
