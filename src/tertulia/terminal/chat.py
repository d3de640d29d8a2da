"""`tertulia chat`: a conversation with a running server, line by line, in a terminal or a pipe.

It shows each word of a reply once, whatever breaks on the way, and never decides anything about it.
"""

from __future__ import annotations

import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final
from urllib.parse import quote

from tertulia.terminal.client import Ask, NobodyThere, Refused, Server
from tertulia.terminal.following import Event, Following, Lost
from tertulia.terminal.screen import Screen

HELP: Final = """\
/new           begin a new conversation
/model NAME    ask this model from now on (auto, small, large); alone: show what there is
/regenerate    another reply to the last question
/stop          stop the last reply if it still runs, as after a broken connection
/quit          leave (so does Ctrl-D)
/help          this list
Ctrl-C stops a running reply and keeps what was said; pressed again, it leaves."""

_REASONS: Final[Mapping[str, str]] = {
    "overflow": "the model you would have had is full",
    "ladder": "many people are asking just now",
    "unavailable": "the model that should have answered is not there yet",
}
_NOTICES: Final[Mapping[str, str]] = {
    "context_shortened": "older parts of this conversation were left out",
    "canned": "a ready reply: there is too much to do to answer anew",
    "answer_capped": "the answer was made shorter to fit your budget",
    "ladder_small": "the smaller model answers until it is quieter",
    "ladder_short": "answers are kept short until it is quieter",
}
_ENDS: Final[Mapping[str, str]] = {
    "length": "(cut off at the longest answer allowed)",
    "stopped": "(stopped)",
    "abandoned": "(ended because nobody was following)",
}
# Ctrl-C, as shells count it.
INTERRUPTED: Final = 130


def _wait(seconds: float) -> object:
    return threading.Event().wait(seconds)


@dataclass(slots=True)
class Chat:
    """One person's chat: where they are, and whom they ask."""

    server: Server
    screen: Screen
    model: str = "auto"
    conversation: str | None = None
    wait: Callable[[float], object] = _wait
    dice: Callable[[], float] = field(default_factory=lambda: secrets.SystemRandom().random)
    new_key: Callable[[], str] = lambda: f"cli_{secrets.token_hex(16)}"
    _answered_by: str | None = None
    _last_reply: str | None = None

    def talk(self, lines: Iterator[str]) -> int:
        """Answers line after line until /quit or the end of the lines; the exit status."""
        user = self.server.me()
        self.screen.quiet(f"{self.server.url} as {user['name']}; /help for help")
        for line in lines:
            words = line.split()
            if not words:
                continue
            if words[0] == "/quit":
                break
            try:
                self._obey(words) if words[0].startswith("/") else self.ask(line.rstrip("\n"))
            except (Refused, NobodyThere, Lost) as error:
                self.screen.end()
                self.screen.quiet(f"! {error}")
        return 0

    def ask(self, text: str) -> bool:
        """Sends a message and shows the reply; whether it was answered in full."""
        if self.conversation is None:
            self.conversation = self.server.new_conversation(self.new_key())
        path = f"/v1/conversations/{quote(self.conversation, safe='')}/messages"
        return self._reply(Ask(path, {"content": text, "model": self.model}, self.new_key()))

    def _obey(self, words: list[str]) -> None:
        command, *rest = words
        if command == "/new":
            self.conversation = self._last_reply = None
            self.screen.quiet("(a new conversation)")
        elif command == "/model" and rest:
            self.model = rest[0]
            self.screen.quiet(f"(asking {self.model} from now on)")
        elif command == "/model":
            self._show_models()
        elif command == "/regenerate" and self._last_reply is not None:
            path = f"/v1/messages/{quote(self._last_reply, safe='')}/regenerate"
            self._reply(Ask(path, {"model": self.model}, self.new_key()))
        elif command == "/regenerate":
            self.screen.quiet("(there is no reply yet)")
        elif command == "/stop" and self._last_reply is not None:
            self.server.stop(self._last_reply)
            self.screen.quiet("(stopped; what was said is kept)")
        elif command == "/stop":
            self.screen.quiet("(there is no reply yet)")
        elif command == "/help":
            self.screen.quiet(HELP)
        else:
            self.screen.quiet(f"! there is no command {command}; /help lists them")

    def _show_models(self) -> None:
        for model in self.server.models():
            state = model.get("status", {}).get("state", "")
            chosen = "*" if model["id"] == self.model else " "
            self.screen.quiet(f"{chosen} {model['id']}  {state}")

    def _reply(self, ask: Ask) -> bool:
        following = Following(self.server, ask, self.wait, self.dice)
        complete = False
        with self._stopping(following):
            for event in following.events():
                complete = self._show(event) or complete
        self._last_reply = following.reply_id or self._last_reply
        self.screen.end()
        return complete

    def _show(self, event: Event) -> bool:
        """Shows one event; True for the end of a whole answer."""
        screen, data = self.screen, event.data
        match event.kind:
            case "meta":
                self._introduce(data)
            case "delta":
                screen.text(str(data.get("text", "")))
            case "queue":
                position, seconds = data.get("position"), data.get("estimatedWaitSeconds")
                screen.quiet(f"(number {position} in the queue, about {seconds} s)")
            case "pause":
                screen.quiet("(its engine was lost; it goes on elsewhere)")
            case "broken":
                screen.quiet("(the connection broke; connecting again)")
            case "reset":
                screen.void()
            case "refusal":
                screen.text(str(data.get("text", "")))
            case "fail":
                self._lament(data)
            case "done":
                return self._close(str(data.get("finish")))
        return False

    def _introduce(self, meta: Mapping[str, Any]) -> None:
        model, reason = meta.get("model"), meta.get("reason")
        because = _REASONS.get(str(reason))
        if model is not None and (model != self._answered_by or because is not None):
            self._answered_by = str(model)
            self.screen.quiet(f"({model} answers{f': {because}' if because else ''})")
        for notice in meta.get("notices") or ():
            self.screen.quiet(f"({_NOTICES.get(notice, notice)})")

    def _lament(self, failure: Mapping[str, Any]) -> None:
        again = "; try again with /regenerate" if failure.get("retryable") else ""
        self.screen.quiet(f"! {failure.get('message') or failure.get('code')}{again}")

    def _close(self, finish: str) -> bool:
        if finish in _ENDS:
            self.screen.quiet(_ENDS[finish])
        return finish in ("stop", "length")

    @contextmanager
    def _stopping(self, following: Following) -> Iterator[None]:
        """While a reply runs, the first Ctrl-C stops it and the stream shows its end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)
        stopper = threading.Thread(target=self._stop, args=(following,), daemon=True)

        def interrupted(_number: int, _frame: FrameType | None) -> None:
            if stopper.ident is not None:
                raise KeyboardInterrupt
            stopper.start()

        signal.signal(signal.SIGINT, interrupted)
        try:
            yield
            if stopper.ident is not None:
                stopper.join()  # its call has a time-out; the stream's end may come first
        finally:
            signal.signal(signal.SIGINT, before)

    def _stop(self, following: Following) -> None:
        try:
            self.server.stop(following.reply_id or self.server.reply_of(following.ask))
        except (Refused, NobodyThere) as error:
            self.screen.quiet(f"! it could not be stopped: {error}; Ctrl-C again leaves")


def typed_lines() -> Iterator[str]:
    """What a person types, with editing and history; or the lines of a pipe."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield from sys.stdin
        return
    import readline  # noqa: F401  # importing it gives `input` its editing and history

    while True:
        try:
            yield input("> ")
        except EOFError:
            sys.stdout.write("\n")
            return
