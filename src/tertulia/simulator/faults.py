"""What goes wrong, or is changed, in the middle of a run: each kind is one function.

How soon a loss is noticed, and what a reply needs to go on, are the service's own figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tertulia.simulator.cell import Cell
from tertulia.simulator.scenario import FaultTable

if TYPE_CHECKING:
    from tertulia.simulator.world import World

# Proxies leave a gateway out that refused this long.
GATEWAY_S: Final = 2.0
# A change that is rolled out reaches people in so many parts.
_PARTS: Final = 50


def plan_faults(world: World) -> None:
    """Has everything happen when the scenario says."""
    for fault in world.scenario.faults:
        kind = _KINDS[fault.kind]
        world.clock.at(fault.at_s, lambda fault=fault, kind=kind: _happen(world, fault, kind))  # type: ignore[misc]  # bound at once


def _happen(world: World, fault: FaultTable, kind: Callable[[World, FaultTable], None]) -> None:
    world.outcome.notes.append((world.clock.now, fault.kind.replace("_", " ")))
    kind(world, fault)


def _replica_lost(world: World, fault: FaultTable) -> None:
    """`n` accelerators go with what runs on them, and come back once others have loaded."""
    cell = world.cells[fault.region]
    if not cell.size:
        return
    _forget_part(world, cell, min(1.0, fault.n / cell.size))
    n = min(fault.n, cell.size)
    cell.notice(cell.lose(n))
    back_s = fault.for_s or world.scenario.fleet.load_s
    world.clock.at(world.clock.now + back_s, lambda: cell.resize(cell.size + n))


def _replicas_replaced(world: World, fault: FaultTable) -> None:
    """All of a region, `n` accelerators at a time: they take nothing new, then others load."""
    cell, clock = world.cells[fault.region], world.clock
    load_s = fault.for_s or world.scenario.fleet.load_s
    n_all, n = cell.size, fault.n
    n_batches = -(-n_all // n)

    def replace(number: int) -> None:
        if number >= n_batches:
            return
        here = min(n, n_all - number * n)
        cell.resize(cell.size - here)
        cell.warmth.lose(clock.now, number * n / n_all, (number * n + here) / n_all)
        clock.at(clock.now + load_s, lambda: cell.resize(cell.size + here))
        clock.at(clock.now + load_s, lambda: replace(number + 1))

    replace(0)


def _gateway_lost(world: World, fault: FaultTable) -> None:
    """The streams of `n` gateways are cut and resume elsewhere; replies go on. For a moment,
    whoever asks there has to ask again."""
    share = min(1.0, fault.n / world.scenario.fleet.gateways)
    n_cut = sum(round(share * cell.n_busy) for cell in world.cells)
    world.outcome.figures["streams_cut"] = world.outcome.figures.get("streams_cut", 0) + n_cut
    world.gateways_lost = share

    def over() -> None:
        world.gateways_lost = 0.0

    world.clock.at(world.clock.now + (fault.for_s or GATEWAY_S), over)


def _counter_store_lost(world: World, fault: FaultTable) -> None:
    """Every process keeps to the rung it heard of last, each gateway makes its own promises."""
    cell = world.cells[fault.region]
    cell.is_store_lost = True

    def over() -> None:
        cell.is_store_lost = False

    world.clock.at(world.clock.now + (fault.for_s or 60.0), over)


def _region_lost(world: World, fault: FaultTable) -> None:
    cell = world.cells[fault.region]
    size = cell.size
    world.leave(cell)
    if fault.for_s:
        # It comes back empty: nobody's prefix is there any more.
        def back() -> None:
            cell.warmth.lose(world.clock.now, 0.0, 1.0)
            cell.resize(size)

        world.clock.at(world.clock.now + fault.for_s, back)


def _caches_lost(world: World, fault: FaultTable) -> None:
    world.cells[fault.region].warmth.lose(world.clock.now, 0.0, 1.0)


def _prompt_changed(world: World, fault: FaultTable) -> None:
    """Another system prompt, for everybody at once or, over `for_s`, for one part after another."""
    clock = world.clock
    if not fault.for_s:
        for cell in world.cells:
            cell.warmth.lose(clock.now, 0.0, 1.0)
        return
    for part in range(_PARTS):

        def change(part: int = part) -> None:
            for cell in world.cells:
                cell.warmth.lose(clock.now, part / _PARTS, (part + 1) / _PARTS)

        clock.at(clock.now + fault.for_s * part / _PARTS, change)


def _forget_part(world: World, cell: Cell, share: float) -> None:
    """Whose caches go with a replica: some part of all people."""
    begin = world.dice(f"lost at {world.clock.now}").random() * (1.0 - share)
    cell.warmth.lose(world.clock.now, begin, begin + share)


_KINDS: Final[Mapping[str, Callable[[World, FaultTable], None]]] = {
    "replica_lost": _replica_lost,
    "replicas_replaced": _replicas_replaced,
    "gateway_lost": _gateway_lost,
    "counter_store_lost": _counter_store_lost,
    "region_lost": _region_lost,
    "caches_lost": _caches_lost,
    "prompt_changed": _prompt_changed,
}
