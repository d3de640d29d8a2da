"""A tiny HTTP server that plays a script: what a chat must bear, at exactly the bytes we choose."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_S = 20.0
KEY = "tk_of_a_test"

# One piece of a stream: bytes, or something that happens between two of them.
Piece = bytes | Callable[["Scripted"], None]
# A whole answer to a request for a reply: a stream, or (status, problem).
Answer = Sequence[Piece] | tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """A request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Scripted:
    """Answers calls for a reply in order from `replies`; the rest as a quiet server would."""

    replies: list[Answer]
    calls: list[Call] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def of(self, method: str, pattern: str) -> list[Call]:
        return [c for c in self.calls if c.method == method and re.search(pattern, c.path)]


def event(number: int, kind: str, **data: Any) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def meta(number: int = 1, *, attempt: int = 1, **more: Any) -> bytes:
    told = {"messageId": "m_1", "model": "tiny", "reason": "auto", "notices": [], **more}
    return event(number, "meta", attempt=attempt, **told)


def delta(number: int, text: str) -> bytes:
    return event(number, "delta", text=text)


def done(number: int, finish: str = "stop") -> bytes:
    return event(number, "done", finish=finish, usage={}, charged=1)


RESET = b'event: reset\ndata: {"reason":"buffer_lost"}\n\n'


def interrupt(_: Scripted) -> None:
    """Ctrl-C at the client, which is this process's main thread."""
    os.kill(os.getpid(), signal.SIGINT)


def until_stopped(server: Scripted) -> None:
    assert server.stopped.wait(PATIENCE_S), "the client never asked to stop"


def torn(_: Scripted) -> None:
    """The connection is reset."""
    raise ConnectionAbortedError


class _Handler(BaseHTTPRequestHandler):
    script: Scripted

    def log_message(self, *args: object) -> None:
        """Nothing: the calls are kept."""

    def do_GET(self) -> None:
        self._take()
        if self.path == "/v1/me":
            self._json(200, {"id": "u_1", "name": "ada"})
        elif self.path == "/v1/models":
            self._json(200, {"data": [{"id": "auto", "status": {"state": "ready"}}]})
        elif "/stream" in self.path:
            self._reply()
        else:
            self._json(404, {"code": "not_found", "detail": "There is nothing here."})

    def do_POST(self) -> None:
        self._take()
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self._json(401, {"code": "unauthenticated", "detail": "Sign in first."})
        elif self.path == "/v1/conversations":
            self._json(201, {"id": f"c_{len(self.script.of('POST', 'conversations$'))}"})
        elif self.path.endswith("/stop"):
            self._json(200, {"id": "m_1"})
            self.script.stopped.set()
        elif self.headers["Accept"] == "text/event-stream":
            self._reply()
        else:
            self._json(202, {"messageId": "m_1"})

    def _take(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        call = Call(self.command, self.path, dict(self.headers.items()), body)
        self.script.calls.append(call)

    def _json(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _reply(self) -> None:
        answer = self.script.replies.pop(0)
        if isinstance(answer, tuple):
            self._json(*answer)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Location", "/v1/messages/m_1/stream")
        self.end_headers()
        try:
            for piece in answer:
                if isinstance(piece, bytes):
                    self.wfile.write(piece)
                    self.wfile.flush()
                else:
                    piece(self.script)
        except ConnectionAbortedError:
            linger = struct.pack("ii", 1, 0)  # close with a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


@contextmanager
def playing(*replies: Answer) -> Iterator[Scripted]:
    script = Scripted(list(replies))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"script": script}))
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
