"""Prompts as token ids from a seed: plain words, so that replies are plain text as well.

It must give both engines the same tokens.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

PLAIN = re.compile(r"Ġ[a-z]{2,}")


@dataclass
class Words:
    """Draws tokens of a model's vocabulary."""

    ids: list[int]
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def draw(self, n_tokens: int) -> list[int]:
        return self.chance.choices(self.ids, k=n_tokens)

    def seeded(self, seed: int) -> Words:
        """The same vocabulary, drawn from anew."""
        return Words(self.ids, random.Random(seed))


def words_of(folder: Path) -> Words:
    """Reads an installed model's vocabulary."""
    document = json.loads((folder / "tokenizer.json").read_text())
    vocabulary: dict[str, int] = document["model"]["vocab"]
    return Words(sorted(number for piece, number in vocabulary.items() if PLAIN.fullmatch(piece)))
