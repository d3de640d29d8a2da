"""Reads what a run has left - rows, keys, journals, notebooks, logs - into the checker's values.

It reads only, and only after everything came to rest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import asyncpg

from tertulia.core.turn import unpack_ids
from tertulia.ports import Vocabulary
from tests.chaos.evidence import (
    Evidence,
    Generation,
    Rest,
    Settlement,
    StoredMessage,
    StoredTurn,
    Text,
    Write,
)
from tests.chaos.histories import MARK_LETTERS, lines_of, read
from tests.chaos.nursery import Child

_MARK: Final = re.compile(f"mark-([0-9a-f]{{{MARK_LETTERS}}})")
_TABLES: Final = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
_TURNS: Final = "SELECT * FROM whole_turns WHERE owner = ANY ($1)"
_MESSAGES: Final = "SELECT * FROM messages WHERE owner = ANY ($1)"
_UNBURIED: Final = "SELECT reply_id FROM log_removals"
_SETTLED: Final = "SELECT * FROM settlements WHERE owner = ANY ($1)"


async def rows_of(url: str, owners: Sequence[str], vocabulary: Vocabulary, into: Evidence) -> None:
    """Turns, messages and settlements of these people, and every mark in any table."""
    wall = time.time() - time.monotonic()
    database = await asyncpg.connect(url)
    try:
        for row in await database.fetch(_TURNS, owners):
            turn = _turn(row, wall)
            into.turns[turn.reply] = turn
        for row in await database.fetch(_MESSAGES, owners):
            into.messages[row["id"]] = _message(row, vocabulary)
        for row in await database.fetch(_SETTLED, owners):
            into.settlements.append(
                Settlement(
                    row["owner"],
                    row["reply_id"],
                    row["epoch"],
                    row["charged"],
                    row["settled_ms"] / 1000 - wall,
                )
            )
        into.unburied = {row["reply_id"] for row in await database.fetch(_UNBURIED)}
        for table in await database.fetch(_TABLES):
            name = table["relname"]
            for row in await database.fetch(f'SELECT t::text AS row FROM "{name}" t'):
                note_marks(into.stores, f"table {name}", row["row"])
    finally:
        await database.close()


def _turn(row: Any, wall: float) -> StoredTurn:
    finished = row["finished_at"]
    return StoredTurn(
        owner=row["owner"],
        key=row["key"],
        reply=row["reply_id"],
        conv=row["conversation_id"],
        message=row["user_message_id"],
        plan=row["plan"],
        status=row["status"],
        epoch=row["epoch"],
        attempt=row["attempt"],
        text=row["reply_text"],
        input=row["input_tokens"],
        output=row["output_tokens"],
        charged=row["charged"],
        reserved=row["reserved"],
        last_id=row["last_event_id"],
        created_at=row["created_at"] - wall,
        finished_at=None if finished is None else finished - wall,
        finish=row["finish"] or "",
        failure=row["failure"] or "",
        stop_reason=row["stop_reason"] or "",
        cached=row["cached_tokens"],
    )


def _message(row: Any, vocabulary: Vocabulary) -> StoredMessage:
    ids = unpack_ids(row["ids"] or b"")
    return StoredMessage(
        owner=row["owner"],
        id=row["id"],
        conv=row["conversation_id"],
        role=row["role"],
        status=row["status"],
        content=row["content"],
        n_ids=len(ids),
        spelled=vocabulary.decode(ids),
    )


def journals(paths: Iterable[Path], ended: Sequence[Child], into: Evidence) -> None:
    """Every generation of every life of every engine. One whose engine died ended with it."""
    died_at = {child.pid: child.ended_at for child in ended}
    for path in paths:
        begun: dict[tuple[int, str], dict[str, Any]] = {}
        for line in lines_of(path):
            life = line["life"]
            if "answer" in line:
                into.answers.setdefault(line["question"], set()).add(line["answer"])
            elif "began" in line:
                begun[life, line["began"]] = {**line, "count": 0, "ended_at": None, "reason": ""}
            elif "tokens" in line:
                for request, count in line["tokens"].items():
                    begun[life, request]["count"] = count
            else:
                told = begun[life, line["ended"]]
                told.update(count=line["count"], ended_at=line["at"], reason=line["reason"])
        for (life, request), told in begun.items():
            ended_at = told["ended_at"] or died_at.get(life)
            into.generations.append(
                Generation(
                    engine=told["engine"],
                    request=request,
                    salt=told["salt"],
                    question=told["question"],
                    prompt_tokens=told["prompt_tokens"],
                    said_before=told["said_before"],
                    max_tokens=told["max_tokens"],
                    began_at=told["at"],
                    tokens=told["count"],
                    ended_at=ended_at,
                    reason=told["reason"] or ("killed" if ended_at else ""),
                )
            )


def books(paths: Iterable[Path], into: Evidence) -> None:
    """Every call on a store that a witness saw return."""
    for path in paths:
        for line in lines_of(path):
            if "rest" not in line:
                into.writes.append(Write(**line))


def rests(paths: Iterable[Path], after: float) -> dict[str, Rest]:
    """The newest figures that each process told of itself."""
    found: dict[str, Rest] = {}
    for path in paths:
        for line in lines_of(path):
            if "rest" in line and line["at"] >= after:
                found[line["rest"]] = _rest(line)
    return found


def _rest(line: dict[str, Any]) -> Rest:
    ports = [count for kind, count in line["kinds"].items() if kind.startswith("port ")]
    fds = line["fds"] - sum(ports)
    return Rest(line["rest"], fds, line["tasks"], line["rss_kb"], max(ports, default=0))


def histories(path: Path, into: Evidence) -> None:
    """What people saw."""
    into.asked, into.calls = read(path)


def papers(paths: Iterable[Path], into: Evidence) -> None:
    """Logs of our processes: no text of anybody may be there."""
    for path in paths:
        if path.exists():
            note_marks(into.papers, path.name, path.read_text(errors="replace"))


def keys(texts: Mapping[str, bytes], into: Evidence) -> None:
    """What Valkey holds, but for logs whose removal is still on the database's list."""
    for key, text in texts.items():
        if not any(reply in key for reply in into.unburied):
            note_marks(into.stores, f"Valkey's {key}", text.decode("utf-8", "replace"))


def note_marks(into: list[Text], place: str, text: str) -> None:
    """Keeps the place if there is a mark in its text."""
    marks = frozenset(_MARK.findall(text))
    if marks:
        into.append(Text(place, marks))
