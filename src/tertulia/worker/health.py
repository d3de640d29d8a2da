"""What a worker says of itself over HTTP: alive, ready, its figures. Never a text, never a user.

It changes nothing and takes nothing; it is for probes and Prometheus alone.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.types import Receive, Scope, Send

from tertulia.worker.loop import Worker


class WorkerHealth:
    """A bare ASGI application over one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        status, kind, body = self._answer(scope["path"] if scope["type"] == "http" else "")
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        if path == "/livez":
            return _json(200, {"status": "alive"})
        if path == "/readyz":
            return self._readiness()
        if path == "/metrics":
            return 200, b"text/plain; version=0.0.4", self._worker.figures.page()
        return _json(404, {"status": "no such address"})

    def _readiness(self) -> tuple[int, bytes, bytes]:
        worker = self._worker
        missing = worker.missing()
        status = "draining" if worker.draining else "waiting" if missing else "ready"
        body = {"status": status, "missing": missing, "running": len(worker.held)}
        return _json(200 if status == "ready" else 503, body)


def _json(status: int, document: dict[str, Any]) -> tuple[int, bytes, bytes]:
    return status, b"application/json", json.dumps(document).encode()
