"""Runs a chat over this process's own streams and turns every way it can end into a status."""

from __future__ import annotations

import sys

from tertulia.terminal.chat import INTERRUPTED, Chat, typed_lines
from tertulia.terminal.client import NobodyThere, Refused, Server
from tertulia.terminal.following import Lost
from tertulia.terminal.screen import Screen

# A question longer than this is refused by any server of ours.
_QUESTION_CHARS = 2_000_000


def chat(server: Server, model: str, once: str | None) -> int:
    """The exit status: 0 when everything was answered, 1 when not, 130 after Ctrl-C."""
    screen = Screen(sys.stdout, sys.stderr)
    talk = Chat(server, screen, model)
    try:
        if once is None:
            return talk.talk(typed_lines())
        question = sys.stdin.read(_QUESTION_CHARS) if once == "-" else once
        if not question.strip():
            screen.quiet("! there is no question")
            return 1
        return 0 if talk.ask(question) else 1
    except NobodyThere as error:
        screen.quiet(f"! {error}. Is it running? `tertulia serve` starts it on this machine.")
        return 1
    except (Refused, Lost) as error:
        screen.end()
        screen.quiet(f"! {error}")
        return 1
    except KeyboardInterrupt:
        screen.end()
        return INTERRUPTED
