"""The token ids of a prompt: the model's template as control tokens, everybody's words as text."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.core.prompt import splice_ids
from tertulia.core.types import PromptMessage, TokenIds
from tertulia.ports import Vocabulary


def prompt_ids(vocabulary: Vocabulary, messages: Sequence[PromptMessage]) -> TokenIds:
    """The ids to send to a replica; ValueError if the template can't show roles in this order."""
    return splice_ids(
        [(chunk.kind == "text", chunk.text) for chunk in vocabulary.render(messages)],
        messages,
        tokenizer=vocabulary.name,
        encode=vocabulary.encode,
        encode_control=vocabulary.encode_control,
    )
