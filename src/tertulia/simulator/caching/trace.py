"""Mooncake's conversation trace: requests with their times, lengths and the names of their blocks.

The trace belongs to its authors (kvcache-ai/Mooncake, Apache-2.0); a small part of it is beside
this file. It reads files that others wrote: each line is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tertulia.core.blocks import Owner
from tertulia.simulator.caching.turns import Text

BLOCK_TOKENS: Final = 512  # the trace's own
SAMPLE: Final = Path(__file__).with_name("mooncake_sample.jsonl")
# More than any trace that can be replayed in memory; a line longer than this is no request.
_MOST_REQUESTS: Final = 1_000_000
_LONGEST_LINE: Final = 100_000
_MOST_TOKENS: Final = 10_000_000
# The first block is the same for nearly all: the platform's own beginning.
_SHARED_BLOCKS: Final = 1


class WrongTrace(Exception):
    """The file is no such trace; the message says where."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: tokens, and the ids of its blocks, the last of which may be partly filled.

    An id stands for its block and all that comes before it.
    """

    at_s: float
    prompt: int
    reply: int
    ids: tuple[int, ...]

    @property
    def conversation(self) -> str:
        """What its turns have in common. The trace names none: the first block that is not
        everybody's does, as no other conversation begins with it."""
        return f"m{self.ids[min(_SHARED_BLOCKS, len(self.ids) - 1)]}"

    def text(self) -> Text:
        """As a cache knows it: the shared beginning is everybody's, the rest one owner's."""
        owner = Owner(self.conversation, _SHARED_BLOCKS * BLOCK_TOKENS, self.conversation)
        return Text(owner, ids=self.ids)


def read_trace(path: Path) -> list[Request]:
    """All of its requests, in the order of their times.

    Raises WrongTrace where a line is none, and OSError where the file can't be read.
    """
    return sorted(_requests(path), key=lambda request: request.at_s)


def _requests(path: Path) -> Iterator[Request]:
    with path.open(encoding="utf-8") as lines:
        for number in range(1, _MOST_REQUESTS + 2):
            line = lines.readline(_LONGEST_LINE + 1)
            if not line:
                return
            if len(line) > _LONGEST_LINE or number > _MOST_REQUESTS:
                raise WrongTrace(f"{path.name}: line {number} is too much for a trace")
            try:
                yield _request(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError) as wrong:
                raise WrongTrace(f"{path.name}: line {number} is no request") from wrong


def _request(fields: dict[str, object]) -> Request:
    at_ms, prompt, reply = (fields[name] for name in ("timestamp", "input_length", "output_length"))
    ids = fields["hash_ids"]
    if not isinstance(ids, list) or not all(type(one) is int and 0 <= one < 2**32 for one in ids):
        raise ValueError(ids)
    for count in (at_ms, prompt, reply):
        if type(count) is not int or not 0 <= count <= _MOST_TOKENS:
            raise ValueError(count)
    assert isinstance(at_ms, int)
    assert isinstance(prompt, int)
    assert isinstance(reply, int)
    if len(ids) != -(-prompt // BLOCK_TOKENS) or prompt == 0:
        raise ValueError(prompt)
    return Request(at_ms / 1000, prompt, max(1, reply), tuple(ids))
