"""Renders the model's chat template into tokens, with everything people wrote kept as plain text.

It must never let a message forge a turn: only the template itself can write a control token.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tertulia.replica.description import Description


class TemplateRefused(ValueError):
    """The template does not accept these messages."""


@dataclass(frozen=True)
class Said:
    """One message: who speaks, and the plain text."""

    role: str
    text: str


class ChatTemplate:
    """A model's chat template, compiled once."""

    def __init__(self, description: Description, encode: Callable[[str], list[int]]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        self._template = environment.from_string(description.chat_template)
        self._description = description
        self._encode = encode
        self._controls = re.compile(
            "(" + "|".join(re.escape(text) for text in description.control_ids) + ")"
        )

    def render(self, messages: Sequence[Said], ending: str) -> list[int]:
        """The prompt's tokens. `ending`: "answer" opens a reply, "continue" leaves the last message
        open so that it is continued, "closed" does neither.
        """
        # The template sees a mark instead of each text; nobody can write a mark drawn just now.
        mark = secrets.token_hex(16)
        marks = [f"{mark}-{place}-" for place in range(len(messages))]
        rendered = self._rendered(
            [
                {"role": said.role, "content": sign}
                for said, sign in zip(messages, marks, strict=True)
            ],
            add_prompt=ending == "answer",
        )
        if ending == "continue":
            place = rendered.rfind(marks[-1])
            if place < 0:
                raise TemplateRefused("the template leaves out the message to continue")
            rendered = rendered[: place + len(marks[-1])]
        return self._tokens(rendered, dict(zip(marks, messages, strict=True)), mark)

    def _rendered(self, messages: list[dict[str, str]], *, add_prompt: bool) -> str:
        try:
            return self._template.render(
                messages=messages,
                tools=None,
                add_generation_prompt=add_prompt,
                bos_token=self._description.bos_text,
                eos_token=self._description.eos_text,
            )
        except TemplateError as error:
            raise TemplateRefused(str(error)) from error

    def _tokens(self, rendered: str, said: dict[str, Said], mark: str) -> list[int]:
        tokens: list[int] = []
        plain = ""  # text between two control tokens is encoded as one, as it was in training
        for piece in re.split(f"({mark}-[0-9]+-)", rendered):
            if piece in said:
                plain += said[piece].text
                continue
            for part in self._controls.split(piece):
                control = self._description.control_ids.get(part)
                if control is None:
                    plain += part
                else:
                    tokens += [*self._encode(plain), control]
                    plain = ""
        return tokens + self._encode(plain)


def _refuse(message: str) -> Any:
    raise TemplateError(message)
