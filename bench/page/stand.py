"""A stand for the page: its committed build, a long conversation, an answer at a chosen speed.

It stores nothing and is no gateway: only the page is measured with it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from bench.page.texts import MESSAGES, answer, long_answer, question
from tertulia.gateway.page import BuiltPage

CONVERSATION: Final = "c_long"
AT: Final = "2026-11-01T10:00:00Z"
# So often the tokens that are due are sent; each is an event of its own.
_SEND_S: Final = 0.01
_MESSAGE: Final = {
    "tokens": 10,
    "requested": "auto",
    "reason": "auto",
    "status": "completed",
    "finish": "stop",
    "notices": [],
    "feedback": None,
    "createdAt": AT,
    "error": None,
    "version": {"number": 1, "count": 1, "previous": None, "following": None},
}


class Stand:
    """The answer takes `seconds`, at `tokens_s` tokens a second."""

    def __init__(self, tokens_s: float, seconds: float) -> None:
        self._tokens_s = tokens_s
        text, count = long_answer(), int(tokens_s * seconds)
        cuts = [len(text) * n // count for n in range(count + 1)]
        self._tokens = [text[a:b] for a, b in pairwise(cuts)]
        self._messages = [_message(n) for n in range(1, MESSAGES + 1)]

    def app(self) -> Starlette:
        calls = {
            "/v1/me": _me,
            "/v1/models": _models,
            "/v1/conversations": _conversations,
            f"/v1/conversations/{CONVERSATION}": _conversation,
        }
        messages = f"/v1/conversations/{CONVERSATION}/messages"
        return Starlette(
            routes=[
                *(Route(path, call) for path, call in calls.items()),
                Route(messages, self._page),
                Route(messages, self._ask, methods=["POST"]),
                Mount("/v1", _nothing),
                Mount("/", BuiltPage()),
            ]
        )

    async def _page(self, request: Request) -> Response:
        before = request.query_params.get("before")
        limit = int(request.query_params["limit"])
        end = MESSAGES if before is None else int(before.removeprefix("m_")) - 1
        items = self._messages[max(0, end - limit) : end]
        return JSONResponse({"items": items, "nextBefore": items[0]["id"] if end > limit else None})

    async def _ask(self, _: Request) -> Response:
        headers = {"Location": "/v1/messages/m_0502/stream", "Cache-Control": "no-store"}
        return StreamingResponse(self._events(), 200, headers, "text/event-stream")

    async def _events(self) -> AsyncGenerator[str]:
        clock = asyncio.get_running_loop()
        meta = {
            "messageId": "m_0502",
            "userMessageId": "m_0501",
            "conversationId": CONVERSATION,
            "model": "small",
            "requested": "auto",
            "reason": "auto",
            "notices": [],
            "attempt": 1,
        }
        yield _event(1, "meta", meta)
        began, sent = clock.time(), 0
        while sent < len(self._tokens):
            await asyncio.sleep(_SEND_S)
            due = min(len(self._tokens), int((clock.time() - began) * self._tokens_s))
            numbered = enumerate(self._tokens[sent:due], sent + 2)
            yield "".join(_event(n, "delta", {"text": token}) for n, token in numbered)
            sent = due
        yield _event(sent + 2, "done", {"finish": "stop"})


@asynccontextmanager
async def standing(stand: Stand) -> AsyncGenerator[str]:
    """Serves it on a port of this machine until the block ends; its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(stand.app(), log_level="warning"))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def _message(n: int) -> dict[str, Any]:
    asked = n % 2 == 1
    return {
        **_MESSAGE,
        "id": f"m_{n:04}",
        "parentId": f"m_{n - 1:04}" if n > 1 else None,
        "seq": n,
        "role": "user" if asked else "assistant",
        "content": question(n // 2) if asked else answer(n // 2),
        "model": None if asked else "small",
    }


def _event(number: int, name: str, data: dict[str, Any]) -> str:
    return f"id: {number}\nevent: {name}\ndata: {json.dumps(data)}\n\n"


def _about() -> dict[str, Any]:
    return {
        "id": CONVERSATION,
        "title": "A long conversation",
        "pinned": False,
        "archived": False,
        "createdAt": AT,
        "updatedAt": AT,
        "activeMessageId": None,
        "headMessageId": f"m_{MESSAGES:04}",
    }


async def _me(_: Request) -> Response:
    return JSONResponse(
        {"id": "u_1", "name": "ada", "role": "user", "plan": "plus", "budgets": [], "running": []}
    )


async def _models(_: Request) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": "small", "object": "model"}]})


async def _conversations(_: Request) -> Response:
    return JSONResponse({"items": [_about()], "nextCursor": None})


async def _conversation(_: Request) -> Response:
    return JSONResponse(_about())


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    """Other calls of the page find nothing here, and it goes on without."""
    await JSONResponse({"code": "not_found"}, 404)(scope, receive, send)
