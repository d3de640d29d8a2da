"""Blocks below the cache: what is no longer kept there can't be read there."""

import os
from pathlib import Path

import pytest

from tertulia.replica.spill import Spill

BLOCK = b"a secret of Ada!"


def on_disk(spill: Spill) -> bytes:
    return os.pread(spill._file, 1000, 0)


@pytest.mark.parametrize("way", ["take", "discard"])
def test_the_file_holds_nothing_of_a_block_that_has_left_it(tmp_path: Path, way: str) -> None:
    spill = Spill(len(BLOCK), n_disk=2, folder=tmp_path)
    spill.keep(b"name", BLOCK)
    spill.sink(b"name")
    assert BLOCK in on_disk(spill)
    getattr(spill, way)(b"name")
    assert BLOCK not in on_disk(spill)
    spill.close()
