"""Prefix caches and routing: conversations with pauses, over many replicas that each keep a cache.

The service's own placement, ledger, prefix ownership and prompt rules decide; `load` reads a
scenario, `run` plays it and gives a table.
"""

from __future__ import annotations

from tertulia.simulator.caching.rows import Rows
from tertulia.simulator.caching.runs import run
from tertulia.simulator.caching.scenario import CantUse, Scenario, load, shipped

__all__ = ["CantUse", "Rows", "Scenario", "load", "run", "shipped"]
