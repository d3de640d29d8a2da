"""What stands between clients and the mock: our lanes over either kind of stores."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bench.tokens.load import (
    CONVERSATIONS,
    LOAD_CORE,
    OWN_CORE,
    ROOT,
    Call,
    Target,
    Tools,
    running,
    wait_until_ready,
)
from tertulia.backends.clock import SystemClock
from tertulia.config import load_settings
from tertulia.core.types import ApiKey, User
from tertulia.gateway.auth import secret_hash
from tertulia.listening import free_port
from tertulia.wiring.stores import opened_stores

Stores = Literal["sqlite", "fleet"]

_VOCABULARY: Final = ROOT / ".tertulia" / "models" / "small"
# A person for each stream: one alone who has hundreds of replies at once is nobody, and each of
# those makes the next one dearer to admit.
_KEY: Final = "tk_bench_{{slot}}"


@dataclass(frozen=True)
class Pace:
    """How text is released: read every `pace_ms`, forced out after `sentence_tokens`."""

    name: str
    pace_ms: int
    sentence_tokens: int
    says: str


SENTENCES: Final = Pace("sentences", 100, 48, "read every 100 ms, released by sentences of 15")
BATCHES: Final = Pace("batches", 100, 1, "read and released every 100 ms")
EACH: Final = Pace("tokens", 0, 1, "every token an event")
PACES: Final = {pace.name: pace for pace in (SENTENCES, BATCHES, EACH)}
# Of the mock's text.
MOCK_SENTENCE: Final = 15


@contextmanager
def ours(tools: Tools, stores: Stores, pace: Pace, call: Call) -> Iterator[Target]:
    """Gateway and worker in one process on a core of their own, everything on."""
    folder = tools.new_folder(f"{stores}-{pace.name}")
    port = free_port()
    with ExitStack() as stack:
        fleet = stack.enter_context(_fleet(folder)) if stores == "fleet" else ""
        config = _configure(folder, tools, port, pace, fleet)
        asyncio.run(_prepare(config))
        command = [sys.executable, "-m", "tertulia", "lanes", "--config", config]
        process = stack.enter_context(running(OWN_CORE, command, folder / "lanes.log"))
        wait_until_ready(port, "/readyz")
        yield Target(port, (process.pid,), call, _KEY)


@contextmanager
def _fleet(folder: Path) -> Iterator[str]:
    """The settings of a throw-away Postgres and Valkey, which run with the load."""
    from tertulia.drills.postgres_server import PostgresServer
    from tertulia.drills.valkey_server import ValkeyServer

    with ExitStack() as stack:
        valkey = ValkeyServer(folder / "valkey")
        postgres = PostgresServer(folder / "postgres")
        stack.callback(valkey.stop)
        stack.callback(postgres.stop)
        with _pinned(LOAD_CORE):
            valkey.start()
            postgres.start()
        yield f'[fleet]\ndatabase = "{postgres.url}"\nvalkey = ["{valkey.url}"]\n'


@contextmanager
def _pinned(core: str) -> Iterator[None]:
    """What is started in this block runs on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {int(core)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _configure(folder: Path, tools: Tools, port: int, pace: Pace, fleet: str) -> Path:
    """A service with the mock as its only replica and plans that never say no."""
    path = folder / "tertulia.toml"
    path.write_text(f"""
data_dir = "{folder}"
log_format = "json"
[server]
port = {port}
[models]
embedded = false
large = "off"
{fleet}
[worker]
replies = 4000
pace_ms = {pace.pace_ms}
sentence_tokens = {pace.sentence_tokens}
[plans.plus]
answer_tokens = {tools.tokens}
budgets = []
replies_running = 100000
open_streams = 100000
[[replicas]]
name = "mock"
pool = "large"
model = "mock"
url = "http://127.0.0.1:{tools.mock_port}"
slots = 4000
vocabulary = "{_VOCABULARY}"
trusted = true
""")
    return path


async def _prepare(config: Path) -> None:
    """A person, a key and a conversation for each stream, made through the stores."""
    settings = load_settings(config)
    clock = SystemClock()
    async with opened_stores(settings, clock) as stores:
        version = settings.prompt_version
        await stores.conversations.prompt_text(version, store=settings.prompt.system)

        async def settle_in(slot: int) -> None:
            owner, now = f"u_bench_{slot}", clock.now()
            await stores.accounts.add(User(owner, owner, "user", "plus", None, now))
            secret = _KEY.replace("{{slot}}", str(slot))
            key = ApiKey(f"key_bench_{slot}", owner, "bench", "tk_", secret_hash(secret), now)
            await stores.api_keys.add(key)
            made_id = f"c_bench_{slot}"
            await stores.conversations.create(owner, made_id, key=None, prompt_version=version)

        for first in range(0, CONVERSATIONS, 100):
            await asyncio.gather(*(settle_in(slot) for slot in range(first, first + 100)))
