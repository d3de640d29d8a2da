"""Which fields of a stored value may change, and how often: the same for every store.

Whatever is not named here is fixed for good, whoever asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

USER_FIELDS: Final = frozenset({"role", "plan", "password_hash", "disabled"})
CONVERSATION_FIELDS: Final = frozenset({"title", "pinned", "archived"})

# A key's last use is written at most this often: a write for each request would be waste.
LAST_USED_STEP_S: Final = 60.0


def demand_changeable(changes: Mapping[str, Any], fields: Collection[str]) -> None:
    """ValueError that names what can't be changed."""
    fixed = sorted(changes.keys() - set(fields))
    if fixed:
        raise ValueError(f"{', '.join(fixed)} can't be changed")
