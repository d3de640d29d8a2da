"""What one gateway may let in by itself while the store in which all of them count is away."""

from __future__ import annotations

from typing import Final

# Four gateways stay within twice a limit: as much as before the store went, and once more.
_SHARES: Final = 4


def slice_of(limit: int) -> int:
    """A quarter of a limit, and at least one: nobody is shut out because a store is away."""
    assert limit > 0, limit
    return max(1, limit // _SHARES)
