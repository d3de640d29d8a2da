"""The fake replica with a journal that a `kill -9` can't take back: begins, tokens, ends.

Asked again from the beginning it says something else, as a model that is sampled: so a reader who
was shown parts of two attempts can tell. Each incarnation is named by its process, so that two
lives of one replica are told apart.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tertulia.core.types import TokenIds, Unit
from tests.chaos.histories import appending
from tests.fake_answers import split_prompt
from tests.fake_replica import FakeReplica, Generated, _Request

# The number of tokens of a killed generation is known to within this.
_NOTE_S: Final = 0.05
# So many answers a question has.
_MOODS: Final = 3


@dataclass
class JournalledReplica(FakeReplica):
    """A fake replica; `name` and `journal` are of the run."""

    name: str = ""
    journal: Path | None = None
    _file: int = -1
    _told: set[tuple[int, str]] = field(default_factory=set)
    _noted: dict[str, int] = field(default_factory=dict)

    async def keep_journal(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(_NOTE_S)
            now = {
                one.request_id: one.tokens
                for one in self._running.values()
                if self._noted.get(one.request_id) != one.tokens
            }
            if now:
                self._noted.update(now)
                self._write({"tokens": now})

    def _begin(
        self, request: _Request, body: dict[str, Any]
    ) -> tuple[tuple[Unit, ...], str, Generated]:
        units, finish, generated = super()._begin(request, body)
        question, before = split_prompt(self.vocabulary, tuple(body["prompt"]))
        text = "".join(unit.text for unit in self._whole(generated.request_id, question, before))
        if (generated.question, text) not in self._told:
            self._told.add((generated.question, text))
            self._write({"question": generated.question, "answer": text})
        self._write(
            {
                "began": generated.request_id,
                "at": time.monotonic(),
                "salt": str(body.get("cache_salt", "")),
                "question": generated.question,
                "prompt_tokens": len(question),
                "said_before": len(before),
                "max_tokens": generated.max_tokens,
            }
        )
        return units, finish, generated

    def _whole(self, request_id: str, question: TokenIds, before: TokenIds) -> tuple[Unit, ...]:
        moods = [zlib.crc32(request_id.encode()) % _MOODS] if not before else range(_MOODS)
        for mood in moods:
            whole = self._answer_in(mood, question)
            if tuple(unit.ids[0] for unit in whole[: len(before)]) == before:
                return whole
        return ()

    def ended(self, generated: Generated, reason: str) -> None:
        """As its parent; the first end of a generation is in the journal before anybody hears."""
        if generated.ended_at is None:
            self._noted.pop(generated.request_id, None)
            self._write(
                {
                    "ended": generated.request_id,
                    "at": time.monotonic(),
                    "count": generated.tokens,
                    "reason": reason,
                }
            )
        super().ended(generated, reason)

    def _write(self, line: dict[str, Any]) -> None:
        if self._file < 0:
            assert self.journal is not None
            self._file = appending(self.journal)
        line = {"engine": self.name, "life": os.getpid(), **line}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
