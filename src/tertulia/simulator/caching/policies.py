"""Where a turn goes: the service's own placement, and others to compare it with.

All see the same: what this router knows of each replica. Only those that are called oracles look
into the caches.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from tertulia.core.fleet import Home, Wanted
from tertulia.core.placement import Candidate, by_rendezvous, place

# As published: no replica carries more than so many times the mean, and each has so many places on
# the ring.
RING_BOUND: Final = 1.25
RING_PLACES: Final = 64


@dataclass(slots=True)
class Choice:
    """A turn that looks for a place. `draw` is from [0, 1); `known` looks into a cache, of which
    `shared_tokens` would be found anywhere."""

    wanted: Wanted
    home: Home | None
    candidates: Sequence[Candidate]
    draw: float
    known: Callable[[str], int]
    shared_tokens: int = 0


Policy = Callable[[Choice], str]


def ours(choice: Choice) -> str:
    """What the service does."""
    placement = place(choice.wanted, choice.home, choice.candidates)
    assert placement is not None, "some replica is ready"
    return placement.replica


def at_random(choice: Choice) -> str:
    """Any of them."""
    return choice.candidates[int(choice.draw * len(choice.candidates))].name


def least_loaded(choice: Choice) -> str:
    """The one with the fewest in flight; among equals, any."""
    return _fewest(choice, choice.candidates)


def rendezvous(choice: Choice) -> str:
    """Always the first in the conversation's own order, whatever it has to do."""
    return by_rendezvous(choice.wanted.conversation, choice.candidates)[0].name


def oracle(choice: Choice) -> str:
    """Sees all caches: to the longest known prefix; among equals, to the fewest in flight."""
    # What all begin with tells nobody apart: a fleet that starts would all go to its first replica.
    least = choice.shared_tokens
    known = {c.name: max(least, choice.known(c.name)) for c in choice.candidates}
    most = max(known.values())
    return _fewest(choice, [c for c in choice.candidates if known[c.name] == most])


def quickest(choice: Choice) -> str:
    """Sees all caches: to where the least is to be read until it begins."""
    return min(
        choice.candidates,
        key=lambda c: (c.owed_tokens + choice.wanted.prompt_tokens - choice.known(c.name), c.name),
    ).name


def _fewest(choice: Choice, among: Sequence[Candidate]) -> str:
    least = min(candidate.running for candidate in among)
    idlest = [candidate for candidate in among if candidate.running == least]
    return idlest[int(choice.draw * len(idlest))].name


@dataclass(slots=True)
class Ring:
    """Consistent hashing: the first replica clockwise that is within the bound."""

    bound: float = math.inf
    places: int = RING_PLACES
    _ring: list[tuple[int, str]] = field(default_factory=list)
    _names: tuple[str, ...] = ()

    def __call__(self, choice: Choice) -> str:
        names = tuple(candidate.name for candidate in choice.candidates)
        if names != self._names:
            self._names = names
            spots = ((_spot(f"{name}#{n}"), name) for name in names for n in range(self.places))
            self._ring = sorted(spots)
        running = {candidate.name: candidate.running for candidate in choice.candidates}
        most = self.bound * (sum(running.values()) + 1) / len(names)
        first = bisect.bisect_left(self._ring, (_spot(choice.wanted.conversation), ""))
        for step in range(len(self._ring)):
            name = self._ring[(first + step) % len(self._ring)][1]
            if self.bound == math.inf or running[name] + 1 <= math.ceil(most):
                return name
        return least_loaded(choice)  # bounds are shares of the mean: never reached above 1


def _spot(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest())


# Made anew for each run: some keep a table of the fleet.
POLICIES: Final[dict[str, Callable[[], Policy]]] = {
    "ours": lambda: ours,
    "bounded": lambda: Ring(RING_BOUND),
    "ring": lambda: Ring(),
    "rendezvous": lambda: rendezvous,
    "least loaded": lambda: least_loaded,
    "random": lambda: at_random,
    "oracle": lambda: oracle,
    "quickest": lambda: quickest,
}
