"""What a long history costs: 15,000 conversations of one user, and one of 5,000 messages.

Lists, searches and pages, on SQLite and on Postgres. Prints one line a figure; nothing here is a
test. Run it with `python -m bench history`.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate, islice, product
from pathlib import Path
from typing import Any, Final

import asyncpg

from tertulia.backends.clock import SystemClock
from tertulia.backends.cursors import write_cursor
from tertulia.backends.memory import MemoryLog, MemoryStore
from tertulia.backends.migrations.sqlite import migrate
from tertulia.backends.postgres import PostgresBackend
from tertulia.backends.postgres.signature import signature_bits
from tertulia.backends.sql import statements
from tertulia.backends.sql.rows import message_values
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.search import folded
from tertulia.core.turn import pack_ids
from tertulia.core.types import HEAD, Message, Role, Status
from tertulia.drills.postgres_server import PostgresServer

OWNER: Final = "u_01K0000000000000000000BENCH"
CONVERSATIONS: Final = 15_000
LONG: Final = 5_000  # messages of the one long conversation
LONG_ID: Final = f"c_{CONVERSATIONS:026d}"
ROUNDS: Final = 40
SEED: Final = 20_261_130
BEGAN: Final = 1_700_000_000.0
# Texts are drawn from so many: inventing one for each message would take longer than all else.
TEXTS: Final = 4_000
WORDS: Final = 20_000
ROWS_AT_ONCE: Final = 2_000
RARE: Final = "xylophone"  # in a few of all messages
RARE_IN: Final = (37, 7_411, 14_020)
ABSENT: Final = "quetzalcoatl"

Store = SqliteBackend | PostgresBackend


@dataclass
class History:
    """A seeded history: the same texts and trees in every store."""

    chance: random.Random = field(default_factory=lambda: random.Random(SEED))

    @cached_property
    def words(self) -> list[str]:
        """Invented words of some syllables, so that their letters are as uneven as a language's."""
        syllables = ["".join(two) for two in product("bcdfghlmnprstvw", "aeiou")]
        syllables += ["ing", "er", "tion", "st", "ly", "al", "en", "re", "con", "th"]
        lengths = self.chance.choices((1, 2, 3, 4, 5), (20, 35, 25, 15, 5), k=WORDS)
        return ["".join(self.chance.choices(syllables, k=length)) for length in lengths]

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """Questions of some 120 letters and answers of some 1,000, with a long tail."""
        often = list(accumulate(1 / (n + 1) for n in range(WORDS)))

        def text(median: float, spread: float) -> str:
            letters = min(20_000, median * self.chance.lognormvariate(0, spread))
            said = self.chance.choices(self.words, cum_weights=often, k=max(1, int(letters / 6)))
            return " ".join(said).capitalize()

        return {
            "user": [text(120, 0.9) for _ in range(TEXTS)],
            "assistant": [text(1_000, 0.6) for _ in range(TEXTS)],
        }

    def conversations(self) -> Iterator[dict[str, Any]]:
        """Rows of `conversations`: a few are pinned, some archived; the long one is the newest."""
        for n in range(CONVERSATIONS + 1):
            yield {
                "owner": OWNER,
                "id": f"c_{n:026d}",
                "title": " ".join(self.chance.choices(self.words, k=5)).capitalize(),
                "prompt_version": "v1",
                "created_at": BEGAN + n * 1000,
                "updated_at": BEGAN + n * 1000 + 500,
                "pinned": int(n % 1500 == 0),
                "archived": n % 10 == 1,
                "head_message_id": f"m_{n:020d}{self.length(n):06d}",
            }

    def length(self, n: int) -> int:
        """How many messages a conversation has: 2 to 10, or 5,000."""
        return LONG if n == CONVERSATIONS else 2 * (1 + (n * 7919) % 5)

    def messages(self) -> Iterator[Message]:
        """Rows of `messages`, conversation by conversation: each a chain of turns."""
        for n in range(CONVERSATIONS + 1):
            for seq in range(1, self.length(n) + 1):
                role: Role = "user" if seq % 2 else "assistant"
                content = self.chance.choice(self.texts[role])
                if n in RARE_IN and seq == 2:
                    content += f" {RARE}"
                tokens = len(content) // 4
                yield Message(
                    owner=OWNER,
                    conversation_id=f"c_{n:026d}",
                    id=f"m_{n:020d}{seq:06d}",
                    parent_id=f"m_{n:020d}{seq - 1:06d}" if seq > 1 else None,
                    seq=seq,
                    role=role,
                    content=content,
                    tokens=tokens,
                    tokenizer="small",
                    status=Status.COMPLETED,
                    created_at=BEGAN + n * 1000 + seq,
                    ids=tuple(range(tokens)) if role == "assistant" else None,
                )


def fill_sqlite(path: Path, history: History) -> None:
    """Writes the history straight into a file that nobody else has open."""
    migrate(path)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("BEGIN")
    for row in history.conversations():
        names = ", ".join(row)
        holes = ", ".join(f":{name}" for name in row)
        database.execute(f"INSERT INTO conversations ({names}) VALUES ({holes})", row)
    signed: dict[str, dict[str, Any]] = {}
    for message in history.messages():
        bits = signed.get(message.content)
        if bits is None:
            values = message_values(message)
            signed[message.content] = {k: v for k, v in values.items() if k.startswith("bits_")}
        else:
            values = _signed_values(message, bits)
        database.execute(statements("sqlite", "messages")["add"], values)
    database.execute("COMMIT")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def _signed_values(message: Message, bits: Mapping[str, Any]) -> dict[str, Any]:
    """`message_values` for a text whose signature is known already."""
    return {**message_values(message._replace(content="")), "content": message.content, **bits}


async def fill_postgres(url: str, history: History) -> None:
    """Copies the history into a database that is migrated."""
    connection = await asyncpg.connect(url)
    rows = [{**row, "folded": folded(row["title"])} for row in history.conversations()]
    await connection.copy_records_to_table(
        "conversations", columns=list(rows[0]), records=[tuple(row.values()) for row in rows]
    )
    signed: dict[str, asyncpg.BitString] = {}
    columns = (
        *("owner", "conversation_id", "seq", "id", "parent_id", "role", "content", "folded"),
        *("signature", "tokens", "tokenizer", "status", "created_at", "ids"),
    )
    rows_of = history.messages()
    while some := list(islice(rows_of, ROWS_AT_ONCE)):
        for message in some:
            if message.content not in signed:
                signed[message.content] = signature_bits(message.content)
        await connection.copy_records_to_table(
            "messages",
            columns=columns,
            records=[_postgres_row(message, signed[message.content]) for message in some],
        )
    await connection.execute("ANALYZE conversations, messages")
    await connection.close()


def _postgres_row(message: Message, bits: asyncpg.BitString) -> tuple[Any, ...]:
    return (
        *(message.owner, message.conversation_id, message.seq, message.id, message.parent_id),
        *(message.role, message.content, folded(message.content), bits, message.tokens),
        *(message.tokenizer, message.status.value, message.created_at),
        pack_ids(message.ids) if message.ids is not None else None,
    )


async def measure(store: Store, name: str, history: History) -> None:
    """Every figure of one store."""

    async def listed(*, query: str = "", cursor: str | None = None, archived: bool = False) -> str:
        page = await store.conversations.list(
            OWNER, cursor=cursor, limit=30, query=query, archived=archived
        )
        return f"{len(page.items)} found"

    deep = write_cursor(False, BEGAN + 2_000_500.0, "c_")
    middle = history.words[WORDS // 4]
    await _told(f"{name}, list, first page", listed)
    await _told(f"{name}, list, page 400", lambda: listed(cursor=deep))
    await _told(f"{name}, list, archived", lambda: listed(archived=True))
    for kind, word in {
        "a common word": history.words[1],
        "a rarer word": middle,
        "a word of three messages": RARE,
        "an absent word": ABSENT,
        "an absent phrase": f"{history.words[1]} {ABSENT[:4]}",
        "two letters that nobody wrote": "qz",
    }.items():
        await _told(f"{name}, search for {kind}", partial(listed, query=word))

    async def opened(before: str | None = None) -> str:
        page = await store.branches.page(OWNER, LONG_ID, through=HEAD, before=before, limit=50)
        assert page is not None
        return page.next_cursor or ""

    async def read_upwards() -> str:
        n_pages, before = 0, await opened()
        while before:
            n_pages, before = n_pages + 1, await opened(before)
        return f"{n_pages + 1} pages"

    async def switched() -> str:
        shown = await store.branches.switch(OWNER, LONG_ID, f"m_{CONVERSATIONS:020d}{1:06d}")
        assert shown is not None
        return "to its leaf"

    await _told(f"{name}, newest 50 of {LONG:,}", opened, shown="")
    await _told(f"{name}, all of them, page by page", read_upwards, rounds=3)
    await _told(f"{name}, switch at its root", switched)
    print(f"{name}: {_resident_mb():.0f} MB resident", flush=True)


async def _told(
    what: str, call: Callable[[], Awaitable[str]], *, rounds: int = ROUNDS, shown: str | None = None
) -> None:
    took = []
    answer = await call()  # the first one connects and plans
    for _ in range(rounds):
        begun = time.perf_counter()
        await call()
        took.append(time.perf_counter() - begun)
    took.sort()
    middle, slow = took[len(took) // 2], took[len(took) * 95 // 100]
    found = answer if shown is None else shown
    print(f"{what}: p50 {middle * 1e3:.1f} ms, p95 {slow * 1e3:.1f} ms {found}", flush=True)


def _resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


async def _on_sqlite() -> None:
    with tempfile.TemporaryDirectory() as made:
        path, history = Path(made) / "bench.db", History()
        begun = time.perf_counter()
        fill_sqlite(path, history)
        _filled("SQLite", time.perf_counter() - begun, path.stat().st_size)
        store = SqliteBackend(path, SystemClock())
        await measure(store, "SQLite", history)
        await store.close()


async def _on_postgres() -> None:
    folder, history = Path(tempfile.mkdtemp(prefix="tertulia-bench-")), History()
    try:
        with PostgresServer(folder) as server:
            log = MemoryLog(MemoryStore(SystemClock()))
            store = await PostgresBackend.open(server.url, log)
            begun = time.perf_counter()
            await fill_postgres(server.url, history)
            size = await _size(server.url)
            _filled("Postgres", time.perf_counter() - begun, size)
            await measure(store, "Postgres", history)
            await store.close()
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


async def _size(url: str) -> int:
    connection = await asyncpg.connect(url)
    size: int = await connection.fetchval("SELECT pg_database_size(current_database())")
    await connection.close()
    return size


def _filled(name: str, took_s: float, size: int) -> None:
    print(
        f"{name}: {CONVERSATIONS:,} conversations and one of {LONG:,} messages written in "
        f"{took_s:.0f} s, {size / 1e6:.0f} MB; {_resident_mb():.0f} MB resident",
        flush=True,
    )


def main() -> None:
    """Both stores, one after the other."""
    asyncio.run(_on_sqlite())
    asyncio.run(_on_postgres())


if __name__ == "__main__":
    main()
