"""How much may be tried again at once: a failing fleet must not be asked more than a well one."""

from __future__ import annotations

from typing import Final

# Of the generations under way; what proxies of the largest fleets use.
SHARE: Final = 0.2
# Always, or a quiet fleet could not continue a single reply.
LEAST: Final = 3


def may_retry(*, retrying: int, active: int) -> bool:
    """Whether one more of `active` generations may be one that was lost before.

    `retrying` are those under way that have not said anything yet: from their first token on they
    are like any other.
    """
    return retrying < LEAST + int(SHARE * active)
