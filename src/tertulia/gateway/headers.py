"""The headers of every answer: what a browser may do with it, and that it may not keep it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The page has nothing inline, loads nothing from elsewhere and is framed by nobody. Reply text
# reaches the document only as what the sanitizer made of it (trusted types).
_PAGE_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)

_ALWAYS: Final = (
    (b"content-security-policy", _PAGE_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=()"),
)
_NO_STORE: Final = (b"cache-control", b"no-store")

_SERVERS_SEND: Final = "tertulia.send"


class SafeHeaders:
    """ASGI middleware: adds the headers when an answer starts and is out of the way afterwards."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        def send_safely(message: Message) -> Awaitable[None]:
            # Not a coroutine of its own: on the token path each one costs.
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [header for header in _ALWAYS if header[0] not in present]
                if b"cache-control" not in present:
                    added.append(_NO_STORE)
                message["headers"] = [*message["headers"], *added]
            return send(message)

        scope[_SERVERS_SEND] = send
        await self._app(scope, receive, send_safely)


def body_send(scope: Scope, send: Send) -> Send:
    """What sends the body of an answer whose start went through `send`, without the wrappers on
    the way: they look only at starts, and on the token path each costs."""
    servers: Send = scope.get(_SERVERS_SEND, send)
    return servers
