"""Which fields of a stored value may change, and how often: the same for every store.

Whatever is not named here is fixed for good, whoever asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from tertulia.core.types import TitledBy

USER_FIELDS: Final = frozenset({"role", "plan", "password_hash", "disabled", "evaluation"})
CONVERSATION_FIELDS: Final = frozenset({"title", "pinned", "archived"})

# A key's last use is written at most this often: a write for each request would be waste.
LAST_USED_STEP_S: Final = 60.0


def titled_by(changes: Mapping[str, Any]) -> TitledBy | None:
    """Whose a conversation's title is after these changes; None: they leave it alone. Who takes a
    title away gets the first words of the next message, and then a model's."""
    if "title" not in changes:
        return None
    return "person" if changes["title"] else "words"


def demand_changeable(changes: Mapping[str, Any], fields: Collection[str]) -> None:
    """ValueError that names what can't be changed."""
    fixed = sorted(changes.keys() - set(fields))
    if fixed:
        raise ValueError(f"{', '.join(fixed)} can't be changed")
