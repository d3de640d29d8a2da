"""Turns the bytes of tokens into text to show: whole characters, cut before a stop string.

It must never give out a character that could still become part of a stop string.
"""

import codecs
from dataclasses import dataclass


@dataclass(frozen=True)
class Shown:
    """Text that is safe to give out, and the stop string that ended the reply, if one did."""

    text: str
    stop: str | None = None


class TextCutter:
    """The state between two tokens: bytes of an unfinished character and text held back."""

    def __init__(self, stop: tuple[str, ...], before: bytes = b"") -> None:
        """`before` is what precedes the first token: it may end inside a character."""
        self._stop = stop
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder.decode(unfinished_tail(before))
        self._held = ""

    def feed(self, piece: bytes) -> Shown:
        """Takes the bytes of one token."""
        self._held += self._decoder.decode(piece)
        ended = [(place, stop) for stop in self._stop if (place := self._held.find(stop)) >= 0]
        if ended:
            place, stop = min(ended)
            text, self._held = self._held[:place], ""
            return Shown(text, stop)
        n_kept = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        n_shown = len(self._held) - n_kept
        text, self._held = self._held[:n_shown], self._held[n_shown:]
        return Shown(text)

    def rest(self) -> str:
        """What was held back for a stop string that never came; an unfinished character is lost."""
        text, self._held = self._held, ""
        return text


def unfinished_tail(data: bytes) -> bytes:
    """The first bytes of a UTF-8 character that `data` ends in the middle of."""
    for n_back in range(1, min(4, len(data)) + 1):
        lead = data[-n_back]
        if lead & 0xC0 == 0x80:
            continue  # a continuation byte: the lead is further back
        length = (
            2 if lead >> 5 == 0b110 else 3 if lead >> 4 == 0b1110 else 4 if lead >> 3 == 30 else 1
        )
        return data[-n_back:] if length > n_back else b""
    return b""


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-n:]):
            return n
    return 0
