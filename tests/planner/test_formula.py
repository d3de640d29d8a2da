"""Formulas are arithmetic and nothing else, and say which names they use."""

import math

import pytest

from tertulia.planner.formula import formula

VALUES = {"x": 7.0, "y": 2.0, "large.z": 5.0}


def computed(text: str) -> float:
    return formula(text).compute(VALUES.__getitem__)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x + y * 2 - 1", 10),
        ("-x / y", -3.5),
        ("x ** y", 49),
        ("large.z + 1e3", 1005),
        ("ceil(x / y)", 4),
        ("floor(x / y)", 3),
        ("min(x, y, large.z) + max(x, y)", 9),
        ("x if x > y else y", 7),
        ("x if y == 3 else y", 2),
        ("sqrt(49) + log2(8)", 10),
        ("(x > y) * 4", 4),
        ("inf", math.inf),
    ],
)
def test_arithmetic_is_computed(text: str, value: float) -> None:
    assert computed(text) == value


def test_a_whole_number_that_lost_a_digit_is_not_rounded_up() -> None:
    assert computed("ceil(3 * (1 / 3) + 1 / 10 + 2 / 10 - 3 / 10)") == 1


def test_names_come_in_their_order_and_once() -> None:
    assert formula("y * large.z + min(x, y)").names == ("y", "large.z", "x")


def test_only_the_branch_that_holds_is_computed() -> None:
    assert computed("1 if x > y else x / 0") == 1


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "x.__class__()",
        "[x]",
        "x and y",
        "lambda: x",
        "x := 1",
        "f'{x}'",
        "max(x, key=y)",
        "open(x)",
        "x < y < 3",
        "x @ y",
        "'text'",
        "x +",
        "",
    ],
)
def test_what_is_no_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no formula|no arithmetic"):
        formula(text)
