"""Pages of a list: one row more than was asked for says that there is another page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from tertulia.backends.cursors import read_cursor, write_cursor
from tertulia.backends.sql.rows import Row, conversation_of, page_message_of
from tertulia.core.search import snippet
from tertulia.core.types import Conversation, Message, Page

# Where a conversation stands in a list: whether it is pinned, when it was last used, its id.
Place = tuple[bool, float, str]

# `pinned` is 0 or 1: a place of 2 lies before every row, and one of -1 after them.
_BEFORE_ALL: Final = (2, 0.0, "")
_AFTER_ALL: Final = (-1, 0.0, "")


class _Named(Protocol):
    @property
    def id(self) -> str: ...


_Item = TypeVar("_Item", bound=_Named)


def conversations_wanted(
    owner: str, *, cursor: str | None, limit: int, archived: bool
) -> dict[str, Any]:
    """The values of the statements that list conversations."""
    pinned, updated_at, after = read_cursor(cursor) if cursor is not None else _BEFORE_ALL
    return {
        "owner": owner,
        "archived": archived,
        "pinned": int(pinned),
        "updated_at": updated_at,
        "after": after,
        "rows": limit + 1,
    }


def conversations_page(rows: Sequence[Row], limit: int) -> Page[Conversation]:
    """The page of what that statement found."""
    items = tuple(conversation_of(row) for row in rows[:limit])
    if len(rows) <= limit or not items:
        return Page(items, None)
    last = items[-1]
    return Page(items, write_cursor(last.pinned, last.updated_at, last.id))


def last_looked(rows: Sequence[Row]) -> Place | None:
    """The place of the last conversation that a search looks through, unless it comes to the end:
    of the two from there on the first."""
    if len(rows) <= 1:
        return None
    return bool(rows[0]["pinned"]), rows[0]["updated_at"], rows[0]["id"]


def bound(last: Place | None) -> dict[str, Any]:
    """What keeps a search to the conversations down to a place."""
    pinned, updated_at, last_id = last or _AFTER_ALL
    return {"last_pinned": int(pinned), "last_updated_at": updated_at, "last": last_id}


def found_page(
    rows: Sequence[Row], limit: int, word: str, last: Place | None
) -> Page[Conversation]:
    """The page of what a search found, with what was `said` there. One that has not looked through
    all leads on, however little it found."""
    items = tuple(
        replace(conversation_of(row), snippet=snippet(row["said"], word) if row["said"] else None)
        for row in rows[:limit]
    )
    if len(rows) > limit:
        last = (items[-1].pinned, items[-1].updated_at, items[-1].id)
    return Page(items, write_cursor(*last) if last is not None else None)


def messages_page(rows: Sequence[Row], limit: int) -> Page[Message]:
    """The page of messages that were found newest first, up to one more than `limit`."""
    items = tuple(page_message_of(row) for row in reversed(rows[:limit]))
    return Page(items, items[0].id if len(rows) > limit and items else None)


def users_wanted(*, plan: str | None, after: str | None, limit: int) -> dict[str, Any]:
    """The values of the statement that lists users."""
    return {"plan": plan or "", "after": after or "", "rows": limit + 1}


def page_by_id(rows: Sequence[Row], limit: int, item_of: Callable[[Row], _Item]) -> Page[_Item]:
    """The page of what was found in the order of ids, up to one more than `limit`."""
    items = tuple(item_of(row) for row in rows[:limit])
    return Page(items, items[-1].id if len(rows) > limit and items else None)
