"""Holds the tokens of a stream back so that it has fewer events: each costs everybody on its way.

It must never lose a token, a character or the finish, and never hold the first token.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tertulia.replica.generation import Emission


class StreamInterval:
    """The tokens held of one stream: the first goes out alone, then `n_tokens` at a time."""

    def __init__(self, n_tokens: int) -> None:
        self._n_tokens = n_tokens
        self._held: list[Emission] = []
        self._has_begun = False

    def due(self, emissions: Iterable[Emission]) -> Iterator[Emission]:
        """What goes out now: the new ones and what was held, as few emissions as may be."""
        for emission in emissions:
            if emission.finish == "error":
                yield from self._released()  # what had been said before is not part of the error
            self._held.append(emission)
            n_held = sum(len(held.tokens) for held in self._held)
            if emission.finish or not self._has_begun or n_held >= self._n_tokens:
                self._has_begun = True
                yield from self._released()

    def _released(self) -> Iterator[Emission]:
        if self._held:
            yield replace(
                self._held[-1],
                tokens=tuple(token for held in self._held for token in held.tokens),
                text="".join(held.text for held in self._held),
            )
            self._held.clear()
