"""The published designs that a plan can begin from, by name."""

from __future__ import annotations

from typing import Final

from tertulia.planner.preset import Preset
from tertulia.planner.preset_000 import PRESET_000
from tertulia.planner.preset_002 import PRESET_002
from tertulia.planner.preset_003 import PRESET_003

PRESETS: Final[dict[str, Preset]] = {one.name: one for one in (PRESET_000, PRESET_002, PRESET_003)}
