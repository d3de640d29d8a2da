"""Which rung of the ladder holds in a region, by the load that is seen there.

`live` are the service's own rules. `Plain` is the ladder of the first drawing, kept to be compared:
it looks at the load that is left, and so its rungs take away their own reason.
"""

from __future__ import annotations

from typing import Final, Protocol

from tertulia.core.choice import SMALL
from tertulia.core.ladder import TOP, UP, Calm, Foothold, may_step, wanted_rung
from tertulia.core.load import AVERAGED_S, Demand, Load, Sight, Slot, Spell, Tally, load_of

_POOL: Final = "shared"
# As often as the service looks at its load.
LOOK_S: Final = 2.0
# As often as the plain ladder looks, and over so long.
_PLAIN_S: Final = 10.0


class Ladder(Protocol):
    """A ladder as a region asks it."""

    @property
    def rung(self) -> int:
        """The rung that holds."""

    def look(self, now: float, load: Load | None, busy: float) -> bool:
        """Whether it stepped; `busy` is the share of the pool used since the last look."""


class Pinned:
    """A ladder that stays where it was put."""

    def __init__(self, rung: int) -> None:
        self.rung = rung

    def look(self, now: float, load: Load | None, busy: float) -> bool:  # noqa: ARG002  # a ladder's
        """Never."""
        return False


class Live:
    """The service's own ladder, looked at every `look_s`."""

    def __init__(self, look_s: float) -> None:
        self._look_s = look_s
        self._foothold = Foothold()
        self._stepped_at = 0.0
        self._calm = Calm()

    @property
    def rung(self) -> int:
        """The rung that holds."""
        return self._foothold.rung

    def look(self, now: float, load: Load | None, busy: float) -> bool:  # noqa: ARG002  # a ladder's
        """Takes or leaves a rung by the load that there would be without it."""
        held_s = now - self._stepped_at
        seen = Foothold(self._foothold.rung, held_s, self._foothold.changes)
        self._calm = self._calm.after(load, self._look_s)
        to = wanted_rung(seen.rung, load, self._calm)
        if not may_step(seen, seen=seen, to=to):
            return False
        self._foothold = Foothold(to, 0.0, seen.changes + 1)
        self._stepped_at = now
        return True


class Plain:
    """The ladder of the first drawing: every ten seconds by how busy the pool was."""

    def __init__(self, gap: float, look_s: float) -> None:
        self.rung = 0
        self._look_s = look_s
        self._gap = gap
        self._busy: list[float] = []

    def look(self, now: float, load: Load | None, busy: float) -> bool:  # noqa: ARG002  # a ladder's
        """One rung at a call, by the load that is left."""
        self._busy.append(busy)
        if len(self._busy) * self._look_s < _PLAIN_S:
            return False
        seen = sum(self._busy) / len(self._busy)
        self._busy = []
        before = self.rung
        if before < TOP and seen >= UP[before]:
            self.rung += 1
        elif before > 0 and seen < UP[before - 1] - self._gap:
            self.rung -= 1
        return self.rung != before


def ladder_of(wanted: str | int, plain_gap: float, *, look_s: float = LOOK_S) -> Ladder:
    """The ladder that a policy asks for."""
    if isinstance(wanted, int):
        return Pinned(wanted)
    if wanted == "off":
        return Pinned(0)
    return Live(look_s) if wanted == "live" else Plain(plain_gap, look_s)


class Watch:
    """What is seen of a region's load."""

    def __init__(self) -> None:
        self.load: Load | None = None
        self._tally = Tally(0.0)

    def began(self, slot: Slot, now: float) -> None:
        """A reply holds the slot."""
        self._tally.began(slot, now)

    def ended(self, slot: Slot, now: float, seconds: float) -> None:
        """It held it for so long."""
        self._tally.ended(slot, now, seconds=seconds)

    def counted(self, slot: Slot, now: float, spell: Spell) -> None:
        """What all replies of one kind did, in place of the two above."""
        self._tally.counted(slot, now, spell)

    def refused(self, n: int = 1) -> None:
        """So many were sent away."""
        self._tally.refused(n)

    def look(self, now: float, *, waiting: int, n_slots: int) -> Load | None:
        """The load now."""
        over_s = AVERAGED_S if self.load is None else self.load.averaged_s
        told = self._tally.told(now, small=SMALL, waiting=waiting, over_s=over_s)
        self.load = load_of([in_one_pool(told)], {_POOL: n_slots})
        return self.load


def in_one_pool(sight: Sight) -> Sight:
    """What is seen where both models are on the same accelerators."""
    together = [0.0, 0.0, 0.0]
    for one in sight.demand:
        together = [sum(pair) for pair in zip(together, one.slots, strict=True)]
    demand = Demand(_POOL, (together[0], together[1], together[2]))
    return Sight((demand,), sight.begun_per_s, sight.refused_per_s, sight.waiting)
