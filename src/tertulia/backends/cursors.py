"""Where the next page of a list begins, as an opaque word. It is a place, never a permission."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any


def write_cursor(pinned: bool, updated_at: float, conversation_id: str) -> str:
    """The place after this conversation."""
    return _written([int(pinned), updated_at, conversation_id])


def read_cursor(cursor: str) -> tuple[bool, float, str]:
    """The inverse of `write_cursor`; ValueError for anything that it did not write."""
    pinned, updated_at, conversation_id = _read(cursor)
    if (
        pinned not in (0, 1)
        or type(updated_at) not in (int, float)
        or not isinstance(conversation_id, str)
    ):
        raise _foreign()
    return bool(pinned), float(updated_at), conversation_id


def write_deletion_cursor(requested_at: float, owner: str, target: str) -> str:
    """The place after this order to delete."""
    return _written([requested_at, owner, target])


def read_deletion_cursor(cursor: str) -> tuple[float, str, str]:
    """The inverse of `write_deletion_cursor`; ValueError for anything that it did not write."""
    requested_at, owner, target = _read(cursor)
    if (
        type(requested_at) not in (int, float)
        or not isinstance(owner, str)
        or not isinstance(target, str)
    ):
        raise _foreign()
    return float(requested_at), owner, target


def _written(place: list[Any]) -> str:
    words = json.dumps(place, separators=(",", ":"))
    return base64.urlsafe_b64encode(words.encode()).decode().rstrip("=")


def _read(cursor: str) -> tuple[Any, Any, Any]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        first, second, third = json.loads(
            base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        )
    except (binascii.Error, UnicodeError, ValueError, TypeError, RecursionError):
        raise _foreign() from None
    return first, second, third


def _foreign() -> ValueError:
    return ValueError("this cursor was not made here")
