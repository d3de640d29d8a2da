"""Formulas as text: what is shown of a figure is what is computed.

The language is Python's arithmetic with names, `large.step_s` for a pool's figure, a handful of
functions, and `x if condition else y`. Nothing else is understood, so that a formula can't do
anything but arithmetic.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from tertulia.planner.hits import prefix_hits

# Gives a name's value; and a part of a formula, which asks for the values it needs.
Lookup = Callable[[str], float]
Term = Callable[[Lookup], float]

FUNCTIONS: Final[Mapping[str, Callable[..., float]]] = {
    "ceil": lambda x: float(math.ceil(x - 1e-9)),  # 3 × (1/3) is no reason for another replica
    "floor": lambda x: float(math.floor(x + 1e-9)),
    "min": min,
    "max": max,
    "sqrt": math.sqrt,
    "log2": math.log2,
    "prefix_hits": prefix_hits,
}
CONSTANTS: Final[Mapping[str, float]] = {"inf": math.inf}
_OPERATORS: Final[Mapping[type[ast.AST], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARISONS: Final[Mapping[type[ast.AST], Callable[[float, float], bool]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula ready to be computed. `names` are those it uses, in their order."""

    text: str
    names: tuple[str, ...]
    compute: Term


@cache
def formula(text: str) -> Formula:
    """Reads a formula; ValueError says what in it is not arithmetic."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no formula: {error.msg}") from error
    names: dict[str, None] = {}
    term = _term(tree, names)
    return Formula(text, tuple(names), term)


def _term(node: ast.expr, names: dict[str, None]) -> Term:
    match node:
        case ast.Constant(value=int() | float() as value):
            number = float(value)
            return lambda _: number
        case ast.Name() | ast.Attribute():
            return _name(node, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            apply = _OPERATORS[type(op)]
            one, other = _term(left, names), _term(right, names)
            return lambda look: apply(one(look), other(look))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _term(operand, names)
            return lambda look: -inner(look)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition = _term(test, names)
            yes, no = _term(body, names), _term(orelse, names)
            return lambda look: yes(look) if condition(look) else no(look)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            compare = _COMPARISONS[type(op)]
            one, other = _term(left, names), _term(right, names)
            return lambda look: float(compare(one(look), other(look)))
        case ast.Call(func=ast.Name(id=function), args=args, keywords=[]) if function in FUNCTIONS:
            call = FUNCTIONS[function]
            parts = tuple(_term(each, names) for each in args)
            return lambda look: call(*(part(look) for part in parts))
    raise ValueError(f"{ast.unparse(node)!r} is no arithmetic that a formula knows")


def _name(node: ast.Name | ast.Attribute, names: dict[str, None]) -> Term:
    name = ast.unparse(node)
    if name in CONSTANTS:
        constant = CONSTANTS[name]
        return lambda _: constant
    names[name] = None
    return lambda look: look(name)
