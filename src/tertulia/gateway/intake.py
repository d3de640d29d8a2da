"""Takes request bodies in, bounded in bytes and time, before anything looks at them.

It must never hold more of a body than is allowed, nor wait for one longer than `BODY_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tertulia.gateway.problems import Problem, problem_response

# A body that takes longer than this is not being sent, it is being held open.
BODY_S = 10.0
# A refused body is read on for a moment, or the client's own sending hides the answer from it.
_LINGER_S = 3.0
_LINGER_BYTES = 128_000_000


class Intake:
    """ASGI middleware: refuses a body by its announced or its counted size.

    `uploads` are the paths whose bodies may be larger than a process should hold, and how large.
    """

    def __init__(self, app: ASGIApp, body_bytes: int, uploads: Mapping[str, int]):
        self._app = app
        self._body_bytes = body_bytes
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_upload = scope["method"] == "POST" and scope["path"] in self._uploads
        limit = self._uploads[scope["path"]] if is_upload else self._body_bytes
        headers = dict(scope["headers"])
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > limit:
            await self._refuse(too_large(limit), scope, receive, send)
            return
        if is_upload:  # it is taken piece by piece, by a reader with bounds of its own
            await self._app(scope, receive, send)
            return
        if announced == b"0" and b"transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        body = await self._read(scope, receive, send)
        if body is not None:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> bytes | None:
        """The whole body; None when it was refused or its sender left."""
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    size += len(message.get("body", b""))
                    if size > self._body_bytes:
                        break
                    chunks.append(message.get("body", b""))
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            sentence = f"The body did not arrive within {BODY_S:.0f} s."
            slow = Problem("invalid_request", sentence, status=408, headers={"Connection": "close"})
            await problem_response(slow, scope["path"])(scope, receive, send)
            return None
        await self._refuse(too_large(self._body_bytes), scope, receive, send)
        return None

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers at once, then throws away what is still coming, within bounds, and closes."""
        response = problem_response(problem, scope["path"])
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": response.raw_headers,
            }
        )
        await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
        await drain(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def too_large(limit: int) -> Problem:
    """For a body of more bytes than are allowed."""
    return Problem(
        "body_too_large",
        f"A request body may have {limit} bytes.",
        more={"limit": limit},
        headers={"Connection": "close"},
    )


async def drain(receive: Receive) -> None:
    """Throws away what is still coming, within bounds."""
    size = 0
    try:
        async with asyncio.timeout(_LINGER_S):
            while size < _LINGER_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body once and then whatever comes next: the client's leaving."""
    rest = [body]

    async def replayed() -> Message:
        if rest:
            return {"type": "http.request", "body": rest.pop(), "more_body": False}
        return await receive()

    return replayed
