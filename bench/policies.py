"""Other ways to place a generation, to measure the service's own against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tertulia.core.fleet import Home, Wanted
from tertulia.core.placement import Candidate, by_rendezvous, place

# (wanted, home, candidates that are ready, a number drawn from [0, 1)) -> the replica's name
Policy = Callable[[Wanted, Home | None, Sequence[Candidate], float], str]


def ours(wanted: Wanted, home: Home | None, ready: Sequence[Candidate], _draw: float) -> str:
    """What the service does."""
    placement = place(wanted, home, ready)
    assert placement is not None
    return placement.replica


def at_random(_wanted: Wanted, _home: Home | None, ready: Sequence[Candidate], draw: float) -> str:
    """Any of them."""
    return ready[int(draw * len(ready))].name


def by_name(wanted: Wanted, _home: Home | None, ready: Sequence[Candidate], _draw: float) -> str:
    """Always the first in the conversation's rendezvous order, whatever it has to do."""
    return by_rendezvous(wanted.conversation, ready)[0].name


def least_loaded(
    _wanted: Wanted, _home: Home | None, ready: Sequence[Candidate], draw: float
) -> str:
    """The one with the fewest in flight; among equals, any."""
    least = min(c.running for c in ready)
    idlest = [c for c in ready if c.running == least]
    return idlest[int(draw * len(idlest))].name


def sticky(wanted: Wanted, home: Home | None, ready: Sequence[Candidate], draw: float) -> str:
    """Where the conversation was, for ever; a new one goes to the least loaded."""
    if home is not None and any(c.name == home.replica for c in ready):
        return home.replica
    return least_loaded(wanted, None, ready, draw)


POLICIES: Final[Mapping[str, Policy]] = {
    "ours": ours,
    "random": at_random,
    "rendezvous": by_name,
    "least-loaded": least_loaded,
    "sticky": sticky,
}
