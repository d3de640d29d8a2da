"""The sentence gate: holds generated text back until a whole sentence can be checked.

It never releases part of a token, so that what was released is exactly what can be continued:
the rest is simply generated again. Stop strings are found here, whatever the engine can do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tertulia.core.types import TokenIds, Unit

# Text without one of these can't end a sentence, and the splitter need not run.
_ENDING = re.compile("[.!?…。！？؟।\n]")

Split = Callable[[str], Sequence[str]]


class Piece(NamedTuple):
    """Text to check and, once it passed, to release.

    `sentence` reaches past `text` where a token, or what may become a stop string, straddles its
    end; that part comes with the next piece.
    """

    sentence: str
    text: str
    ids: TokenIds


@dataclass(slots=True)
class SentenceGate:
    """Collects units and gives out pieces that end with a sentence.

    `split` cuts a text into sentences, losing nothing. A sentence without an end is forced out
    after `cap_tokens`. After a stop string was met `stopped` is true and nothing more comes out.
    """

    split: Split
    cap_tokens: int = 48
    stop: tuple[str, ...] = ()
    stopped: bool = False
    _units: list[Unit] = field(default_factory=list)
    _chars: int = 0
    _tokens: int = 0
    _may_end: bool = False
    _unfed: int = 0

    def ripens(self, units: Sequence[Unit]) -> bool:
        """Whether feeding these, which come after all before them, could release anything. Units
        for which it could not may wait and be fed together with later ones."""
        self._unfed += sum([len(unit.ids) for unit in units])
        if self.stop or self._may_end or self._tokens + self._unfed >= self.cap_tokens:
            return True
        return any(_ENDING.search(unit.text) for unit in units)

    def feed(self, units: Sequence[Unit]) -> Piece | None:
        """Takes what was generated; gives what can now be checked and released, if anything."""
        self._unfed = 0
        if self.stopped:
            return None
        self._hold(units)
        if self.stop and self._cut_at_stop():
            return self._release(self._chars)
        if not self._may_end and self._tokens < self.cap_tokens:
            return None
        return self._release(self._border(), withheld=self._stop_chars - 1)

    def close(self) -> Piece | None:
        """The generation ended: everything that is left."""
        if self.stopped:
            return None
        return self._release(self._chars)

    def _hold(self, units: Sequence[Unit]) -> None:
        self._units.extend(units)
        for unit in units:
            self._chars += len(unit.text)
            self._tokens += len(unit.ids)
            self._may_end = self._may_end or _ENDING.search(unit.text) is not None

    def _border(self) -> int:
        """How many held characters end with a whole sentence."""
        if self._tokens >= self.cap_tokens:
            return self._chars
        text = "".join(unit.text for unit in self._units)
        # The last sentence may go on, unless a line end closed it.
        border = text.rfind("\n") + 1
        rest = self.split(text[border:])
        return border + sum(len(sentence) for sentence in rest[:-1])

    @property
    def _stop_chars(self) -> int:
        return max((len(s) for s in self.stop), default=1)

    def _release(self, border: int, *, withheld: int = 0) -> Piece | None:
        """The whole units within the first `border` characters, but not the last `withheld` ones:
        what might be the beginning of a stop string waits until it is one or is not."""
        end = min(border, self._chars - withheld)
        count, chars = 0, 0
        for unit in self._units:
            if chars + len(unit.text) > end:
                break
            chars += len(unit.text)
            count += 1
        if not count:
            return None
        out, self._units = self._units[:count], self._units[count:]
        straddling = "".join(unit.text for unit in self._units)[: border - chars]
        ids = tuple(i for unit in out for i in unit.ids)
        text = "".join(unit.text for unit in out)
        self._chars -= chars
        self._tokens -= len(ids)
        self._may_end = any(_ENDING.search(unit.text) for unit in self._units)
        return Piece(text + straddling, text, ids)

    def _cut_at_stop(self) -> bool:
        """Drops the stop string that was complete first, and all after it."""
        text = "".join(unit.text for unit in self._units)
        found = [(at + len(s), at) for s in self.stop if (at := text.find(s)) >= 0]
        if not found:
            return False
        # By its end, or the same reply would be cut elsewhere when it comes in larger batches.
        cut, chars = min(found)[1], 0
        kept: list[Unit] = []
        for unit in self._units:
            if chars >= cut:
                break
            kept.append(Unit(unit.text[: cut - chars], unit.ids))
            chars += len(unit.text)
        self._units, self._chars = kept, cut
        self.stopped = True
        return True
