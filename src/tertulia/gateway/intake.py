"""Takes request bodies in, bounded in bytes and time, before anything looks at them.

It must never hold more of a body than is allowed, nor wait for one longer than `_BODY_S`.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tertulia.gateway.problems import Problem, problem_response

# A body that takes longer than this is not being sent, it is being held open.
_BODY_S = 10.0
# A refused body is read on for a moment, or the client's own sending hides the answer from it.
_LINGER_S = 3.0
_LINGER_BYTES = 128_000_000


class Intake:
    """ASGI middleware: refuses a body by its announced or its counted size."""

    def __init__(self, app: ASGIApp, body_bytes: int):
        self._app = app
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self._body_bytes:
            await self._refuse(self._too_large(), scope, receive, send)
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
            async with asyncio.timeout(_BODY_S):
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
            sentence = f"The body did not arrive within {_BODY_S:.0f} s."
            slow = Problem("invalid_request", sentence, status=408, headers={"Connection": "close"})
            await problem_response(slow, scope["path"])(scope, receive, send)
            return None
        await self._refuse(self._too_large(), scope, receive, send)
        return None

    def _too_large(self) -> Problem:
        sentence = f"A request body may have {self._body_bytes} bytes."
        return Problem(
            "body_too_large",
            sentence,
            more={"limit": self._body_bytes},
            headers={"Connection": "close"},
        )

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
        await _drain(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
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
