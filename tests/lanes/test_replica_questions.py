"""What replicas are asked about themselves, and that no answer is an answer too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from unittest.mock import patch

import httpx2
import pytest

from tertulia.backends.replicas.fleet import ReplicaAddress
from tertulia.backends.replicas.questions import (
    Load,
    abort,
    asker,
    disagreement,
    load_of,
    read_load,
    sign_of_life,
)
from tertulia.core.engines import ENGINES
from tests.sim.language import FakeVocabulary

ADDRESS = ReplicaAddress("r", "model", "http://127.0.0.1:9", 8)


@pytest.mark.anyio
async def test_a_connection_that_is_reset_while_it_is_made_ends_nobody() -> None:
    """On uvloop such a connection has no socket; httpx looks at it and fails on None."""

    async def without_socket(*_: object) -> httpx2.Response:
        raise AttributeError("'NoneType' object has no attribute 'getpeername'")

    with patch.object(httpx2.AsyncHTTPTransport, "handle_async_request", without_socket):
        async with asker(1.0) as http:
            assert await sign_of_life(http, ADDRESS) == "refused"
            assert (await load_of(http, ADDRESS)).running is None


class Endless(httpx2.AsyncByteStream):
    """A body that counts what is read of it."""

    def __init__(self) -> None:
        self.n_read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in repeat(b"x" * 50_000, 1000):
            self.n_read += len(piece)
            yield piece


@contextmanager
def answering(answer: Callable[[], httpx2.Response]) -> Iterator[None]:
    async def handled(_: object, request: httpx2.Request) -> httpx2.Response:
        response = answer()
        response.request = request
        return response

    with patch.object(httpx2.AsyncHTTPTransport, "handle_async_request", handled):
        yield


@pytest.mark.anyio
async def test_an_answer_without_end_is_none_and_fills_no_memory() -> None:
    bodies: list[Endless] = []

    def endless() -> httpx2.Response:
        bodies.append(Endless())
        return httpx2.Response(200, stream=bodies[-1])

    with answering(endless):
        async with asker(1.0) as http:
            assert await sign_of_life(http, ADDRESS) == "refused"
            assert await disagreement(http, ADDRESS, FakeVocabulary())
            assert not await abort(http, ADDRESS, "m_1-1-1", timeout_s=1.0)
            assert await load_of(http, ADDRESS) == Load()
    assert max(body.n_read for body in bodies) < 3_000_000


@pytest.mark.anyio
async def test_an_answer_too_deep_to_read_ends_nobody() -> None:
    deep = b'{"tokens": ' + b"[" * 90_000
    with answering(lambda: httpx2.Response(200, content=deep)):
        async with asker(1.0) as http:
            assert await disagreement(http, ADDRESS, FakeVocabulary())


@pytest.mark.parametrize("figure", ["NaN", "+Inf", "-Inf", "1e999"])
def test_a_figure_that_is_no_number_is_unknown(figure: str) -> None:
    names = ENGINES["vllm"].metrics
    assert names is not None
    text = "".join(f"{name}{{}} {figure}\n" for name in (names.running, *names.done_tokens))
    assert read_load(text, names) == Load()
