"""Replicas are asked to forget, and each one's word is taken for what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import httpx2
import pytest

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory.fleet import MemoryHomes
from tertulia.backends.replicas import HttpReplicas
from tertulia.backends.replicas.fleet import Fleet, FleetSource, ReplicaAddress
from tertulia.backends.replicas.questions import asker, forget
from tertulia.core.deletions import CacheAnswer
from tertulia.core.engines import ENGINES
from tests.sim.language import SERVED, FakeVocabulary

pytestmark = pytest.mark.anyio

OURS = ReplicaAddress("ours", SERVED, "http://ours:9", 8, key="secret", engine="tertulia")
OTHER = ReplicaAddress("other", SERVED, "http://other:9", 8, engine="vllm")


@contextmanager
def answering(status: int | Exception, seen: list[httpx2.Request]) -> Iterator[None]:
    """Whoever is asked answers with this, and what was asked is kept."""

    async def handled(_: object, request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if isinstance(status, Exception):
            raise status
        return httpx2.Response(status, content=b"{}", request=request)

    with patch.object(httpx2.AsyncHTTPTransport, "handle_async_request", handled):
        yield


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, "forgotten"),
        (404, "unanswered"),
        (504, "unanswered"),
        (httpx2.ConnectError("refused"), "unanswered"),
        (httpx2.ReadTimeout("slow"), "unanswered"),
    ],
)
async def test_only_a_yes_is_taken_for_one(status: int | Exception, answer: CacheAnswer) -> None:
    seen: list[httpx2.Request] = []
    with answering(status, seen):
        async with asker(1.0) as http:
            assert await forget(http, OURS, "u_ana", "c_1") == answer
    [request] = seen
    assert str(request.url) == "http://ours:9/inference/v1/forget"
    assert request.headers["authorization"] == "Bearer secret"
    assert json.loads(request.content) == {"cache_salt": "u_ana", "session_id": "c_1"}


async def test_without_a_conversation_all_of_an_owner_s_goes() -> None:
    seen: list[httpx2.Request] = []
    with answering(200, seen):
        async with asker(1.0) as http:
            await forget(http, OURS, "u_ana", None)
    assert json.loads(seen[0].content) == {"cache_salt": "u_ana"}


async def test_an_engine_that_can_not_is_not_asked() -> None:
    seen: list[httpx2.Request] = []
    with answering(200, seen):
        async with asker(1.0) as http:
            assert await forget(http, OTHER, "u_ana", "c_1") == "unsupported"
    assert seen == []


async def test_every_replica_of_every_pool_is_asked_also_one_that_was_never_heard() -> None:
    seen: list[httpx2.Request] = []
    replicas = HttpReplicas(
        FleetSource(Fleet((), (OURS, OTHER))),
        vocabulary=lambda _: FakeVocabulary(),
        clock=SystemClock(),
        homes=MemoryHomes(SystemClock()),
    )
    with answering(httpx2.ConnectError("refused"), seen):
        answers = await replicas.forget("u_ana", "c_1")
    assert answers == {"ours": "unanswered", "other": "unsupported"}


def test_whoever_keeps_a_cache_by_owner_is_told_whose_it_is() -> None:
    """Else blocks of one owner could be another's, and there would be nothing to forget them by."""
    forgetting = [name for name, engine in ENGINES.items() if engine.forget_path]
    assert forgetting == ["tertulia"]
    assert all(engine.has_cache_salt for engine in ENGINES.values() if not engine.refusal)
