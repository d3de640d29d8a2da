"""The terminal as a chat writes to it: replies on one stream, quiet lines about them on the other.

Into a pipe goes finished text alone; to a terminal nothing that could move its cursor or title.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TextIO

# All control characters but tab and line end, and the marks that turn the direction of a line.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


@dataclass(slots=True)
class Screen:
    """Where replies and remarks go.

    On a terminal text appears as it comes; elsewhere it is held until the reply has ended, because
    what went into a pipe can't be taken back.
    """

    replies: TextIO
    remarks: TextIO
    _held: list[str] = field(default_factory=list)
    _mid_line: bool = False

    @property
    def is_live(self) -> bool:
        return self.replies.isatty()

    def text(self, text: str) -> None:
        """More of the reply."""
        if not self.is_live:
            self._held.append(text)
            return
        shown = _CONTROLS.sub("", text)
        self.replies.write(shown)
        self.replies.flush()
        if shown:
            self._mid_line = not shown.endswith("\n")

    def void(self) -> None:
        """The text so far does not count: another follows."""
        self._held.clear()
        if self._mid_line:
            self.quiet("(the reply begins again)")

    def end(self) -> None:
        """The reply is over."""
        text = "".join(self._held)
        self._held.clear()
        if text:
            self.replies.write(text if text.endswith("\n") else text + "\n")
        elif self._mid_line:
            self.replies.write("\n")
        self._mid_line = False
        self.replies.flush()

    def quiet(self, line: str) -> None:
        """A remark that is no part of the reply."""
        line = _CONTROLS.sub("", line)
        if self._mid_line:
            self.replies.write("\n")
            self.replies.flush()
            self._mid_line = False
        styled = f"{_DIM}{line}{_PLAIN}" if self.remarks.isatty() else line
        self.remarks.write(styled + "\n")
        self.remarks.flush()
