"""A model's own chat template, rendered in a sandbox with marks in the place of contents.

No text of a person ever goes through a template, and a template that shows a content altered, out
of order, twice or not at all is refused.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NoReturn

from jinja2.exceptions import SecurityError, TemplateError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tertulia.core.types import Role

Roles = tuple[Role, ...]

# What comes after the last message: the beginning of a reply, nothing because that message is to
# be continued, or only its own end.
Ending = Literal["answer", "continue", "closed"]

# The longest template in wide use has 15,000 characters, most of them about tools.
TEMPLATE_CHARS = 100_000
# A window of 131,072 tokens holds fewer messages than this at five tokens of template each.
MESSAGES = 20_000
# What a template may do at most for its messages, or it is trying to keep us busy.
STEPS_A_MESSAGE = 100
STEPS = 10_000
# Distinct lengths of conversations that are being talked in at one time.
SHAPES_KEPT = 512

# Every conversation here is made of these; a template that can't show them is of no use.
_NEEDED_SHAPES: tuple[Roles, ...] = tuple(
    ("system", "user", *(("assistant", "user") * n)) for n in range(4)
)

# Two private-use characters that no template contains.
_OPEN, _CLOSE = "\U000ff0f0", "\U000ff0f1"
# Around the number stands what templates are known to touch: edges, case, markup, braces, runs.
_BEFORE = f" \n\t{_OPEN}aBß<b>&'\"\\ {{{{7*7}}}}  {{% x %}} e\u0301\n\n"
_AFTER = f"</think>{_CLOSE}\t\n "


class TemplateRefused(ValueError):
    """This template can't be used, or can't show messages of these roles in this order."""


class ChatTemplate:
    """Knows for every order of roles what stands before, between and after the contents."""

    def __init__(self, source: str, *, bos_text: str = "", eos_text: str = "") -> None:
        if len(source) > TEMPLATE_CHARS:
            raise TemplateRefused(f"the chat template is longer than {TEMPLATE_CHARS} characters")
        self._tokens = {"bos_token": bos_text, "eos_token": eos_text}
        self._sandbox = _Sandbox()
        self._rendering = threading.Lock()  # the sandbox counts steps, one rendering at a time
        try:
            self._template = self._sandbox.from_string(source)
        except (TemplateError, RecursionError) as error:
            raise TemplateRefused(f"the chat template can't be read: {error}") from error
        self.around = lru_cache(maxsize=SHAPES_KEPT)(self._around)
        for roles in _NEEDED_SHAPES:
            self.around(roles)

    def _around(self, roles: Roles, ending: Ending = "answer") -> tuple[str, ...]:
        """The template's text around the contents of messages: one piece more than `roles`."""
        if not roles or len(roles) > MESSAGES:
            raise TemplateRefused(f"a prompt has 1 to {MESSAGES} messages, not {len(roles)}")
        marks = [f"{_BEFORE}{i}{_AFTER}" for i in range(len(roles))]
        rest = self._rendered(roles, marks, ending)
        pieces: list[str] = []
        for role, mark in zip(roles, marks, strict=True):
            piece, found, rest = rest.partition(mark)
            if not found or _OPEN in piece or _CLOSE in piece:
                raise TemplateRefused(f"the chat template does not show each {role} text as it is")
            pieces.append(piece)
        if _OPEN in rest or _CLOSE in rest:
            raise TemplateRefused("the chat template shows a text more than once")
        if ending == "continue":
            rest = ""
        # Most pieces are alike; kept once, a long conversation's shape is a row of references.
        known: dict[str, str] = {}
        return tuple(known.setdefault(piece, piece) for piece in (*pieces, rest))

    def _rendered(self, roles: Roles, marks: Sequence[str], ending: Ending) -> str:
        messages = [
            {"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)
        ]
        # Each mark is there once in an honest rendering, and the rest is a few words a message.
        chars = 2 * TEMPLATE_CHARS + 1000 * len(roles)
        with self._rendering:
            self._sandbox.steps_left = STEPS + STEPS_A_MESSAGE * len(roles)
            try:
                parts = self._template.generate(
                    messages=messages, add_generation_prompt=ending == "answer", **self._tokens
                )
                return "".join(_at_most(parts, chars))
            except TemplateRefused:
                raise
            # A template is a program of somebody else: whatever it throws, it is refused.
            except Exception as error:
                raise TemplateRefused(f"the chat template can't show {roles}: {error}") from error


def control_splitter(control: Iterable[str]) -> re.Pattern[str]:
    """Splits a template's text at its control tokens: plain, control, plain and so on."""
    # The longest first, so that a token which begins with another one is seen whole.
    longest_first = sorted(control, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})" if longest_first else r"(\Z.)")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with neither a clock nor anything else that varies, and a bound on work.

    The bound is for a careless template. A hostile one is kept out by its model's hash.
    """

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            extensions=["jinja2.ext.loopcontrols"],
            cache_size=0,
        )
        self.steps_left = 0
        # `strftime_now` stays undefined: a date in the prompt would change its first bytes daily.
        self.globals = {
            "raise_exception": _raise_exception,
            "range": self._range,
            "namespace": self.globals["namespace"],
            "dict": dict,
        }

    def call(
        __self,  # noqa: N805  # as jinja names it, since templates pass arguments by name
        __context: Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Every call of a template's own macros and of ours costs a step."""
        __self._spend(1)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Only numbers are multiplied, and only small ones raised: no text of a gigabyte."""
        if operator != "%" and not (isinstance(left, int) and isinstance(right, int)):
            raise SecurityError(f"{operator} is for numbers")
        if operator == "**" and not (abs(left) <= 1000 and 0 <= right <= 10):
            raise SecurityError("the power is too large")
        if operator == "%" and isinstance(left, str):
            raise SecurityError("% is for numbers")
        return super().call_binop(context, operator, left, right)

    def _range(self, *bounds: int) -> range:
        numbers = range(*bounds)
        self._spend(len(numbers))
        return numbers

    def _spend(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise SecurityError("the template does too much")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateRefused(f"the chat template refuses: {message}")


def _at_most(parts: Iterator[str], chars: int) -> Iterator[str]:
    for part in islice(parts, chars):
        chars -= len(part)
        if chars < 0:
            raise TemplateRefused("the chat template writes too much")
        yield part
