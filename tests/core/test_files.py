"""What one owner's files may take, deleted ones among them until they are overwritten."""

from __future__ import annotations

import pytest

from tertulia.core.files import WITH_DELETED, FileRoom, Taken

ROOM = FileRoom(files=3, size=100)


@pytest.mark.parametrize(
    ("taken", "is_full"),
    [
        (Taken(2, 90, 2, 90), False),
        (Taken(3, 10, 3, 10), True),
        (Taken(2, 91, 2, 91), True),
        (Taken(0, 0, WITH_DELETED * 3 - 1, WITH_DELETED * 100 - 10), False),
        (Taken(0, 0, WITH_DELETED * 3, 0), True),
        (Taken(0, 0, 1, WITH_DELETED * 100 - 9), True),
    ],
)
def test_a_part_needs_room_beside_what_is_there(taken: Taken, is_full: object) -> None:
    assert ROOM.is_full(taken, more=10) is is_full
