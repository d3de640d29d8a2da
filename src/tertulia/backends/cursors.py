"""Where the next page of a list begins, as an opaque word. It is a place, never a permission."""

from __future__ import annotations

import base64
import binascii
import json

# Longer search words than this find nothing more precisely and only cost time.
QUERY_CHARS = 200


def write_cursor(pinned: bool, updated_at: float, conversation_id: str) -> str:
    """The place after this conversation."""
    place = json.dumps([int(pinned), updated_at, conversation_id], separators=(",", ":"))
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[bool, float, str]:
    """The inverse of `write_cursor`; ValueError for anything that it did not write."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        pinned, updated_at, conversation_id = json.loads(
            base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        )
    except (binascii.Error, UnicodeError, ValueError, TypeError, RecursionError):
        raise ValueError("this cursor was not made here") from None
    if (
        pinned not in (0, 1)
        or type(updated_at) not in (int, float)
        or not isinstance(conversation_id, str)
    ):
        raise ValueError("this cursor was not made here")
    return bool(pinned), float(updated_at), conversation_id


def searched(query: str) -> str:
    """A search word as it is compared: any case, bounded."""
    return query[:QUERY_CHARS].casefold()
