"""What SQLite's back end knows of keys without looking: never more than the file has."""

from __future__ import annotations

import pytest

from tertulia.backends.sqlite import known
from tertulia.backends.sqlite.known import KnownKeys
from tertulia.core.types import ApiKey
from tests.conformance.world import person

FOUND = (person("ana"), ApiKey("key_1", "u_ana", "laptop", "tt_ab", "hash", 0.0))


def test_a_key_that_was_read_before_a_change_is_not_known_after_it() -> None:
    keys = KnownKeys()
    since = keys.changes
    keys.keep("hash", FOUND, since=since)
    assert keys.find("hash") == FOUND
    keys.forget_all()
    keys.keep("hash", FOUND, since=since)
    assert keys.find("hash") is None


def test_there_is_a_bound_on_known_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "KEYS", 2)
    keys = KnownKeys()
    for name in ("one", "two", "three"):
        keys.keep(name, FOUND, since=0)
    assert [keys.find(name) is not None for name in ("one", "two", "three")] == [False, True, True]
