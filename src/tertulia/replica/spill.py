"""Where blocks go that leave the model's cache: ordinary memory, and from there a file if wanted.

It must never outlive its process, nor keep a block that was taken out or discarded.
"""

import os
import tempfile
from pathlib import Path


class Spill:
    """Blocks by name; each takes `block_bytes`. Limits are the scheduler's business, not ours.

    The file is made whole at once and has no name: a full disk is found at the start, and whatever
    ends the process deletes it.
    """

    def __init__(self, block_bytes: int, n_disk: int = 0, folder: Path | None = None) -> None:
        self._block_bytes = block_bytes
        self._memory: dict[bytes, bytes] = {}
        self._slots: dict[bytes, int] = {}
        n_slots = n_disk and n_disk + 1  # a block that is brought back frees its place only then
        self._free = list(range(n_slots))
        self._file = -1
        if n_slots:
            self._file, path = tempfile.mkstemp(prefix="tertulia-kv-", dir=folder)
            os.unlink(path)
            try:
                os.posix_fallocate(self._file, 0, n_slots * block_bytes)
            except OSError:
                self.close()
                raise

    def keep(self, name: bytes, state: bytes) -> None:
        """Takes a block into memory."""
        assert len(state) == self._block_bytes
        self._memory[name] = state

    def sink(self, name: bytes) -> None:
        """Moves a block from memory to the file."""
        slot = self._free.pop()
        os.pwrite(self._file, self._memory.pop(name), slot * self._block_bytes)
        self._slots[name] = slot

    def take(self, name: bytes) -> bytes:
        """Gives a block out; it is kept no longer."""
        if name in self._memory:
            return self._memory.pop(name)
        state = os.pread(self._file, self._block_bytes, self._slots[name] * self._block_bytes)
        assert len(state) == self._block_bytes, "the file of cache blocks was cut"
        self._overwrite(name)
        return state

    def discard(self, name: bytes) -> None:
        """Drops a block."""
        if self._memory.pop(name, None) is None:
            self._overwrite(name)

    def _overwrite(self, name: bytes) -> None:
        slot = self._slots.pop(name)
        # Or what an owner has deleted later, when it was elsewhere, could still be read here.
        os.pwrite(self._file, bytes(self._block_bytes), slot * self._block_bytes)
        self._free.append(slot)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
