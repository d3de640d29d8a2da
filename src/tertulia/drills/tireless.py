"""A replica that never ends a reply, whatever it was asked for: it says the same words for ever.

It is for one drill, and computes nothing. It knows as much of vLLM's dialect as that needs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tertulia.replica.lifeline import die_with_parent

_STEP_S: Final = 0.01
# What gateways and workers send to learn what it can do: no reply of anybody's.
_TRIALS: Final = "trial-"


class Tireless:
    """Says `words`, pairs of a text and its token id, over and over to whoever listens."""

    def __init__(self, model: str, words: list[tuple[str, int]]) -> None:
        self._model = model
        self._words = words
        self.running = 0

    def app(self) -> Starlette:
        """The part of the dialect that a worker uses."""
        return Starlette(
            routes=[
                Route("/health", _well),
                Route("/metrics", self._metrics),
                Route("/v1/completions", self._complete, methods=["POST"]),
                Route("/inference/v1/abort_requests", _well, methods=["POST"]),
            ]
        )

    async def _metrics(self, _request: Request) -> Response:
        return PlainTextResponse(f"vllm:num_requests_running {self.running}\n")

    async def _complete(self, request: Request) -> Response:
        number = request.headers.get("x-request-id", "unnamed")
        if number.startswith(_TRIALS):
            return StreamingResponse(self._say(number), media_type="text/event-stream")
        return _Counted(self, self._say(number))

    async def _say(self, number: str) -> AsyncIterator[str]:
        said = 0
        while True:
            text, token = self._words[said % len(self._words)]
            yield f"data: {json.dumps(self._chunk(number, text, token))}\n\n"
            said += 1
            await asyncio.sleep(_STEP_S)

    def _chunk(self, number: str, text: str, token: int) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "finish_reason": None, "token_ids": [token]}
        return {"id": f"cmpl-{number}", "model": self._model, "choices": [choice]}


class _Counted(StreamingResponse):
    """A reply. It runs until its listener hangs up: nothing else ends it."""

    def __init__(self, tireless: Tireless, words: AsyncIterator[str]) -> None:
        super().__init__(words, media_type="text/event-stream")
        self._tireless = tireless

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._tireless.running += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Not in the generator, which is closed when it is collected, and that is any time.
            self._tireless.running -= 1


async def _well(_request: Request) -> Response:
    return JSONResponse({})


def main() -> None:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--words", required=True, help="a JSON list of pairs: text, token id")
    parser.add_argument("--die-with-parent", type=int, required=True)
    given = parser.parse_args()
    die_with_parent(given.die_with_parent)
    words = [(str(text), int(token)) for text, token in json.loads(given.words)]
    config = uvicorn.Config(
        Tireless(given.model, words).app(), port=given.port, log_config=None, lifespan="off"
    )
    uvloop.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
