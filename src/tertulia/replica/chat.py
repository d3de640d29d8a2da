"""Writes the messages of a chat as tokens, with everything people wrote kept as plain text.

It must never let a message forge a turn: only the template itself can write a control token.
"""

from collections.abc import Callable, Sequence

from tertulia.core.types import PromptMessage
from tertulia.replica.description import Description
from tertulia.template import ChatTemplate, Ending, control_splitter


class ChatPrompts:
    """A model's chat template, compiled once; TemplateRefused if it is of no use."""

    def __init__(self, description: Description) -> None:
        self._template = ChatTemplate(
            description.chat_template, bos_text=description.bos_text, eos_text=description.eos_text
        )
        self._control = description.control_ids
        self._splitter = control_splitter(description.control_ids)

    def tokens(
        self,
        messages: Sequence[PromptMessage],
        ending: Ending,
        encode: Callable[[str], list[int]],
    ) -> list[int]:
        """The prompt's tokens; TemplateRefused if the template has no such order of roles."""
        around = self._template.around(tuple(message.role for message in messages), ending)
        said = [*(message.content for message in messages), ""]
        tokens: list[int] = []
        plain = ""  # text between two control tokens is encoded as one, as it was in training
        for piece, text in zip(around, said, strict=True):
            for place, part in enumerate(self._splitter.split(piece)):
                # A capturing split alternates: plain, control, plain ...
                if place % 2:
                    tokens += [*encode(plain), self._control[part]]
                    plain = ""
                else:
                    plain += part
            plain += text
        return tokens + encode(plain)
