"""All inputs and figures of a plan, in one book."""

from __future__ import annotations

from typing import Final

from tertulia.planner.fleet_figures import FLEET_FIGURES
from tertulia.planner.inputs import FLEET_INPUTS, POOL_INPUTS
from tertulia.planner.pool_figures import POOL_FIGURES
from tertulia.planner.sheet import Book

BOOK: Final = Book(FLEET_INPUTS, POOL_INPUTS, FLEET_FIGURES, POOL_FIGURES)
