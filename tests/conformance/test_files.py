"""The promises of `Files`, on every back end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tertulia.core.files import (
    PART_BYTES,
    UNFINISHED_S,
    WITH_DELETED,
    FilePart,
    FileRoom,
    NewFile,
    StoredFile,
    Written,
    parts_of,
)
from tests.conformance.world import START, Backend, ManualClock

pytestmark = pytest.mark.anyio

ROOM = FileRoom(files=10, size=10 * PART_BYTES)
KEPT_S = 1_000.0


def new_file(n: int, *, owner: str = "ana", **more: object) -> NewFile:
    file = NewFile(owner, f"file_{n}", f"{n}.jsonl", "batch", KEPT_S)
    return replace(file, **more)  # type: ignore[arg-type]  # a test's own words


async def written(
    backend: Backend, file: NewFile, data: bytes = b"one\ntwo\n", room: FileRoom = ROOM
) -> None:
    for part in parts_of(0, data, last="last"):
        assert await backend.files.write(file, part, room) is Written.DONE


async def ids(backend: Backend, **more: object) -> list[str]:
    wanted = {"purpose": None, "after": None, "limit": 10, "order": "desc", **more}
    page = await backend.files.list("ana", **wanted)  # type: ignore[arg-type]  # a test's own words
    return [file.id for file in page.items]


async def test_a_whole_file_is_found_and_read(backend: Backend) -> None:
    await written(backend, new_file(1), b"one\ntwo\n")
    assert await backend.files.find("ana", "file_1") == StoredFile(
        "ana", "file_1", "1.jsonl", "batch", START, START + KEPT_S, 8
    )
    assert await backend.files.read("ana", "file_1", at=0, size=100) == b"one\ntwo\n"


async def test_any_bytes_between_two_places_can_be_read(backend: Backend) -> None:
    data = bytes(n % 251 for n in range(2 * PART_BYTES + 100))
    await written(backend, new_file(1), data)
    for at, size in (
        (0, 10),
        (PART_BYTES - 1, 2),
        (PART_BYTES, 1),
        (5, 2 * PART_BYTES),
        (2 * PART_BYTES + 90, 50),
        (len(data), 5),
        (len(data) + 9, 5),
    ):
        assert await backend.files.read("ana", "file_1", at=at, size=size) == data[at : at + size]


async def test_a_file_may_be_empty(backend: Backend) -> None:
    await written(backend, new_file(1), b"")
    assert await backend.files.read("ana", "file_1", at=0, size=9) == b""


async def test_nobody_sees_a_file_before_its_last_part(backend: Backend) -> None:
    files = backend.files
    assert await files.write(new_file(1), FilePart(0, b"ab", is_last=False), ROOM) is Written.DONE
    assert await files.find("ana", "file_1") is None
    assert await files.read("ana", "file_1", at=0, size=9) is None
    assert await ids(backend) == []
    assert await files.write(new_file(1), FilePart(2, b"c", is_last=True), ROOM) is Written.DONE
    assert await files.read("ana", "file_1", at=0, size=9) == b"abc"


async def test_a_part_is_written_only_where_its_file_ends(backend: Backend) -> None:
    files = backend.files
    assert await files.write(new_file(1), FilePart(1, b"b", is_last=False), ROOM) is Written.GONE
    await files.write(new_file(1), FilePart(0, b"ab", is_last=False), ROOM)
    for at in (0, 1, 3):
        part = FilePart(at, b"x", is_last=False)
        assert await files.write(new_file(1), part, ROOM) is Written.GONE
    await files.write(new_file(1), FilePart(2, b"", is_last=True), ROOM)
    assert await files.write(new_file(1), FilePart(2, b"x", is_last=True), ROOM) is Written.GONE
    assert await files.read("ana", "file_1", at=0, size=9) == b"ab"


async def test_how_long_a_file_is_kept_is_what_came_last(backend: Backend) -> None:
    files = backend.files
    await files.write(new_file(1), FilePart(0, b"a", is_last=False), ROOM)
    await files.write(new_file(1, kept_s=7.0), FilePart(1, b"", is_last=True), ROOM)
    found = await files.find("ana", "file_1")
    assert found is not None
    assert found.expires_at == START + 7.0


async def test_deleted_files_take_room_until_they_are_overwritten(backend: Backend) -> None:
    room = FileRoom(files=2, size=10)
    for n in range(1, WITH_DELETED + 1):
        await written(backend, new_file(n), b"123456789", room)
        assert await backend.files.delete("ana", f"file_{n}")
    small = FilePart(0, b"12345", is_last=True)
    assert await backend.files.write(new_file(8), small, room) is Written.FULL
    assert await backend.files.write(new_file(9, owner="ben"), small, room) is Written.DONE
    await backend.files.sweep(parts=WITH_DELETED)
    assert await backend.files.write(new_file(8), small, room) is Written.DONE


async def test_one_owner_makes_no_more_files_than_are_swept(backend: Backend) -> None:
    room = FileRoom(files=2, size=10)
    for n in range(1, WITH_DELETED * room.files + 1):
        await written(backend, new_file(n), b"1", room)
        assert await backend.files.delete("ana", f"file_{n}")
    part = FilePart(0, b"1", is_last=True)
    assert await backend.files.write(new_file(8), part, room) is Written.FULL
    await backend.files.sweep(parts=2)
    assert await backend.files.write(new_file(8), part, room) is Written.DONE


async def test_one_owners_files_take_no_more_than_their_room(backend: Backend) -> None:
    room = FileRoom(files=2, size=10)
    await written(backend, new_file(1), b"12345", room)
    begun = FilePart(0, b"123", is_last=False)
    assert await backend.files.write(new_file(2), begun, room) is Written.DONE
    more = FilePart(3, b"456", is_last=True)
    assert await backend.files.write(new_file(2), more, room) is Written.FULL
    third = FilePart(0, b"", is_last=True)
    assert await backend.files.write(new_file(3), third, room) is Written.FULL
    assert await backend.files.write(new_file(4, owner="ben"), third, room) is Written.DONE
    assert await backend.files.delete("ana", "file_1")
    assert await backend.files.write(new_file(2), more, room) is Written.DONE


async def test_another_owners_file_is_not_there(backend: Backend) -> None:
    await written(backend, new_file(1))
    assert await backend.files.find("ben", "file_1") is None
    assert await backend.files.read("ben", "file_1", at=0, size=9) is None
    assert not await backend.files.delete("ben", "file_1")
    assert await backend.files.find("ana", "file_1") is not None


async def test_files_are_listed_by_id_in_pages(backend: Backend) -> None:
    for n in range(1, 6):
        await written(backend, new_file(n))
    await written(backend, new_file(6, purpose="batch_output"))
    assert await ids(backend) == [f"file_{n}" for n in (6, 5, 4, 3, 2, 1)]
    assert await ids(backend, order="asc", limit=2) == ["file_1", "file_2"]
    assert await ids(backend, order="asc", after="file_2", limit=2) == ["file_3", "file_4"]
    assert await ids(backend, after="file_2") == ["file_1"]
    assert await ids(backend, purpose="batch_output") == ["file_6"]
    assert await ids(backend, purpose="other") == []
    page = await backend.files.list("ana", purpose=None, after=None, limit=6, order="desc")
    assert page.next_cursor is None
    page = await backend.files.list("ana", purpose=None, after=None, limit=5, order="desc")
    assert page.next_cursor == "file_2"


async def test_what_was_deleted_is_not_there(backend: Backend) -> None:
    await written(backend, new_file(1))
    await backend.files.write(new_file(2), FilePart(0, b"a", is_last=False), ROOM)
    assert await backend.files.delete("ana", "file_1")
    assert not await backend.files.delete("ana", "file_1")
    assert await backend.files.delete("ana", "file_2")
    assert await backend.files.find("ana", "file_1") is None
    assert await backend.files.read("ana", "file_1", at=0, size=9) is None
    late = FilePart(1, b"b", is_last=True)
    assert await backend.files.write(new_file(2), late, ROOM) is Written.GONE


async def test_all_of_an_owner_is_deleted_at_once(backend: Backend) -> None:
    await written(backend, new_file(1))
    await written(backend, new_file(2))
    await written(backend, new_file(3, owner="ben"))
    assert await backend.files.delete("ana", None)
    assert not await backend.files.delete("ana", None)
    assert await ids(backend) == []
    assert await backend.files.find("ben", "file_3") is not None


async def test_a_file_expires_by_the_stores_clock(backend: Backend, clock: ManualClock) -> None:
    await written(backend, new_file(1))
    clock.pass_(KEPT_S - 1)
    assert await ids(backend) == ["file_1"]
    clock.pass_(1)
    assert await ids(backend) == []
    assert await backend.files.find("ana", "file_1") is None
    assert await backend.files.read("ana", "file_1", at=0, size=9) is None
    assert not await backend.files.delete("ana", "file_1")


async def test_sweeping_removes_the_parts_of_what_nobody_sees(
    backend: Backend, clock: ManualClock
) -> None:
    data = b"x" * (2 * PART_BYTES + 1)
    await written(backend, new_file(1), data)
    await written(backend, new_file(2), data)
    await written(backend, new_file(3, kept_s=10 * UNFINISHED_S), data)
    await backend.files.write(new_file(4, kept_s=1e6), FilePart(0, b"a", is_last=False), ROOM)
    result = new_file(5, kept_s=1e6, purpose="batch_output")
    await backend.files.write(result, FilePart(0, b"a", is_last=False), ROOM)
    assert await backend.files.sweep(parts=2) == 0
    await backend.files.delete("ana", "file_1")
    assert [await backend.files.sweep(parts=2) for _ in range(3)] == [2, 1, 0]
    clock.pass_(UNFINISHED_S)  # the second has expired, the fourth will never be finished
    assert [await backend.files.sweep(parts=3) for _ in range(3)] == [3, 1, 0]
    assert await backend.files.read("ana", "file_3", at=0, size=3) == b"xxx"
    end = FilePart(1, b"b", is_last=True)
    assert await backend.files.write(new_file(4), end, ROOM) is Written.GONE
    assert await backend.files.write(result, end, ROOM) is Written.DONE
