"""How roles find their stores: the order of starting does not matter; no password is ever shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from tertulia.backends.clock import SystemClock
from tertulia.cli import app
from tertulia.config import Settings, load_settings, printed
from tertulia.ports import StoreUnavailable
from tertulia.wiring.stores import CantOpen, opened_stores

pytestmark = pytest.mark.anyio

SECRET = "correct-horse"


@pytest.fixture(autouse=True)
def _no_wait_for_valkey() -> Iterator[None]:
    """It is looked for from then on, and nothing here needs it."""
    with patch("tertulia.backends.valkey.client._OPEN_S", 0.01):
        yield


@dataclass
class Clock:
    """Time that passes only while somebody sleeps."""

    at: float = 0.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


def settings(tmp_path: Path) -> Settings:
    config = tmp_path / "tertulia.toml"
    config.write_text(
        f'data_dir = "{tmp_path}"\n[fleet]\n'
        f'database = "postgresql://tertulia:{SECRET}@127.0.0.1:1/tertulia"\n'
        f'valkey = ["valkey://:{SECRET}@127.0.0.1:1"]\n'
    )
    return load_settings(config)


@dataclass
class Opening:
    """A back end that is not there for the first so many tries."""

    tries: int
    why: str = "connection refused"
    asked: int = 0

    async def __call__(self, *_: object) -> object:
        self.asked += 1
        if self.asked <= self.tries:
            raise StoreUnavailable(self.why)
        raise _Opened


class _Opened(Exception):
    """The test has seen what it wanted."""


async def test_a_database_that_is_not_there_yet_is_waited_for_and_said_once(tmp_path: Path) -> None:
    clock, opening = Clock(), Opening(tries=5)
    with (
        patch("tertulia.backends.postgres.PostgresBackend.open", opening),
        capture_logs() as said,
        pytest.raises(_Opened),
    ):
        async with opened_stores(settings(tmp_path), clock):
            pass
    assert opening.asked == 6
    assert clock.slept == [0.25, 0.5, 1.0, 2.0, 2.0]
    (line,) = [entry for entry in said if entry["event"] == "waiting_for_store"]
    assert (line["at"], line["why"]) == ("127.0.0.1:1/tertulia", "connection refused")


async def test_waiting_has_an_end_which_says_what_was_missing(tmp_path: Path) -> None:
    clock = Clock()
    with (
        patch("tertulia.backends.postgres.PostgresBackend.open", Opening(tries=1_000)),
        pytest.raises(CantOpen) as caught,
    ):
        async with opened_stores(settings(tmp_path), clock):
            pass
    assert "127.0.0.1:1/tertulia could not be used for 60 s: connection refused" in str(
        caught.value
    )
    assert SECRET not in str(caught.value)
    assert clock.at < 65


async def test_a_missing_package_is_said_with_the_extra_that_brings_it(tmp_path: Path) -> None:
    gone = [name for name in sys.modules if name.startswith("tertulia.backends.postgres")]
    with patch.dict(sys.modules, {"asyncpg": None}):
        for name in gone:
            del sys.modules[name]
        opening = opened_stores(settings(tmp_path), SystemClock())
        with pytest.raises(CantOpen, match=r"asyncpg.*tertulia\[fleet\]"):
            await opening.__aenter__()


def test_no_password_is_printed(tmp_path: Path) -> None:
    assert SECRET not in printed(settings(tmp_path))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (f'database = "mysql://a:{SECRET}@b/c"\nvalkey = ["valkey://b"]', "postgresql://"),
        (f'database = "postgresql://b/c"\nvalkey = ["http://:{SECRET}@b"]', "valkey://"),
        (f'database = "postgresql://a:{SECRET}@b:port/c"\nvalkey = ["valkey://b"]', "be read"),
        (f'database = "postgresql://a:{SECRET}@b/c"', "belong together"),
    ],
    ids=["another database", "another store", "no port", "one of two"],
)
def test_an_address_that_is_none_is_refused_without_being_repeated(
    tmp_path: Path, table: str, said: str
) -> None:
    config = tmp_path / "tertulia.toml"
    config.write_text(f"[fleet]\n{table}\n")
    ended = CliRunner().invoke(app, ["config", "--config", str(config)])
    assert ended.exit_code == 1
    assert said in ended.stderr
    assert SECRET not in ended.output


@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_a_role_of_a_fleet_without_one_says_what_to_do(role: str) -> None:
    ended = CliRunner().invoke(app, [role])
    assert ended.exit_code == 1
    assert "[fleet]" in ended.stderr
    assert "tertulia serve" in ended.stderr
