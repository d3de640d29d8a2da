"""When what keeps failing, a replica or a store, is asked again: a table of states. Time is an
argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

# One loss may be the network's; three in a row, without a token between them, are the replica's.
FAILURES: Final = 3
# As long as a process needs to start again, at first; one that stays broken costs a reply a try.
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
# A probe that says nothing for so long has failed without a word.
PROBE_S: Final = 10.0


class State(StrEnum):
    """Closed lets through, open does not, half open lets one through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


# state -> event -> next state; an event that is not here is an error.
TABLE: Final[Mapping[State, Mapping[str, State]]] = {
    State.CLOSED: {"succeed": State.CLOSED, "fail": State.CLOSED, "trip": State.OPEN},
    # What was sent before it opened may still end, either way: that says nothing new.
    State.OPEN: {"succeed": State.OPEN, "fail": State.OPEN, "probe": State.HALF_OPEN},
    State.HALF_OPEN: {
        "succeed": State.CLOSED,
        "trip": State.OPEN,
        "probe": State.HALF_OPEN,  # the last one was never heard of again
    },
}


@dataclass(frozen=True, slots=True)
class Breaker:
    """One breaker. `until` is the end of the pause, or of the probe's time.

    `longest_pause_s` may be short where a probe costs nobody anything.
    """

    state: State = State.CLOSED
    failures: int = 0
    pause_s: float = FIRST_PAUSE_S
    until: float = 0.0
    longest_pause_s: float = LONGEST_PAUSE_S

    def allows(self, now: float) -> bool:
        """Whether a generation may be sent now; if it is not closed, that one is the probe."""
        return self.state is State.CLOSED or now >= self.until

    def sending(self, now: float) -> Breaker:
        """A generation is being sent, as was allowed."""
        assert self.allows(now)
        if self.state is State.CLOSED:
            return self
        return self._after("probe", until=now + PROBE_S)

    def succeeded(self) -> Breaker:
        """A generation said something."""
        if self.state is State.OPEN:
            return self._after("succeed")
        closed = TABLE[self.state]["succeed"]
        return Breaker(closed, longest_pause_s=self.longest_pause_s)

    def failed(self, now: float) -> Breaker:
        """A generation broke off through a fault of the replica's."""
        if self.state is State.OPEN:
            return self._after("fail")
        failures = self.failures + 1
        if self.state is State.CLOSED and failures < FAILURES:
            return self._after("fail", failures=failures)
        pause_s = self.pause_s
        if self.state is State.HALF_OPEN:
            pause_s = min(2 * pause_s, self.longest_pause_s)
        return self._after("trip", pause_s=pause_s, until=now + pause_s)

    def _after(
        self,
        event: str,
        *,
        failures: int = 0,
        pause_s: float | None = None,
        until: float | None = None,
    ) -> Breaker:
        return replace(
            self,
            state=TABLE[self.state][event],
            failures=failures,
            pause_s=self.pause_s if pause_s is None else pause_s,
            until=self.until if until is None else until,
        )
