"""A hub for model files on this machine, which breaks off or falls silent as it is told.

It must end with its test: `close` waits for its thread.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """A hub that breaks off half-way, a given number of times; `stalls` keeps it silent there."""

    def __init__(
        self,
        data: bytes,
        n_breaks: int = 0,
        knows_ranges: bool = True,
        stalls: threading.Event | None = None,
    ) -> None:
        self.data = data
        self.n_breaks = n_breaks
        self.asked: list[tuple[str, str | None]] = []
        hub = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the library's name
                given = self.headers.get("Range")
                hub.asked.append((self.path, given))
                given = given if knows_ranges else None
                start = int(given.removeprefix("bytes=").rstrip("-")) if given else 0
                rest = hub.data[start:]
                self.send_response(206 if given else 200)
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                breaks = hub.n_breaks > 0
                hub.n_breaks -= 1
                self.wfile.write(rest[: len(rest) // 2] if breaks else rest)
                self.close_connection = True
                if breaks and stalls is not None:
                    self.wfile.flush()
                    stalls.wait(60)

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(hub.data)))
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library named it
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join(10)
        self.server.server_close()
