"""The pools: who is healthy, who has room, and generations on one of them.

Busy is not dead: a replica is lost when it misses two heartbeats, or refuses a connection, and
then every generation on it ends at once as lost. Room counts what is dispatched from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import httpx2
import structlog

from tertulia.backends.replicas.fleet import FleetSource, ReplicaAddress
from tertulia.backends.replicas.stream import Connection, Generation, bearer, connect, request_bytes
from tertulia.core.types import GenerateRequest, ModelState, Said
from tertulia.ports import Clock, ReplicaLost, Vocabulary

_log = structlog.get_logger(__name__)

_HEARTBEAT_S = 1.0
# While one is missed or down, it is asked sooner: it comes back, or is lost, within about 2 s.
_RECHECK_S = 0.25
_HEARTBEAT_TIMEOUT_S = 0.7
_MISSES = 2
# A replica that is healthy but gives a sequence no token for this long has forgotten it.
_SILENCE_S = 120.0
_IDLE_CONNECTIONS = 64
_ABORT_S = 2.0

# Texts on which a replica's tokenizer must agree with ours: spaces, scripts, emoji, markup. None
# holds a control token's text: engines read those as control tokens, and we never send any.
CORPUS = (
    "Hello, world! It's 3.14159 o'clock.\n\n  Tabs\tand   spaces ",
    "def f(x):\n    return x**2  # ünïcödé",
    "你好，世界。こんにちは 안녕하세요 Привет مرحبا",
    "👩‍👩‍👧‍👦 e\u0301 \u200b 1234567890",
    "[INST] <b>&amp;</b> {{7*7}} \\n <s> </s>",
)


@dataclass(slots=True)
class _Replica:
    """One replica as this process sees it. Invariant: `running` are exactly its generations."""

    address: ReplicaAddress
    healthy: bool = False
    verified: bool = False
    seen: bool = False
    refused: str = ""
    misses: int = 0
    dispatched: int = 0
    running: dict[str, tuple[Connection, Generation]] = field(default_factory=dict)
    idle: list[Connection] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        return self.healthy and self.verified

    def doubt(self) -> None:
        """A connection broke: nothing new goes there until it has answered once more."""
        self.healthy = False
        self.verified = False

    @property
    def room(self) -> int:
        return max(0, self.address.slots - self.dispatched)

    def lose(self, why: str) -> None:
        """Ends everything on it: what runs there goes on elsewhere."""
        # It may come back as another program: its vocabulary is compared again.
        self.doubt()
        for connection, _ in self.running.values():
            connection.fail(why)
        for connection in self.idle:
            connection.fail(why)
        self.idle.clear()


class HttpReplicas:
    """Replicas over HTTP. `run` must be running for any of them to become healthy."""

    def __init__(
        self,
        source: FleetSource,
        *,
        vocabulary: Callable[[str], Vocabulary],
        clock: Clock,
        pace_s: float = 0.1,
    ):
        self._source = source
        self._vocabulary = vocabulary
        self._clock = clock
        self._pace_s = pace_s
        self._replicas: dict[str, _Replica] = {}
        self._models: tuple[ModelState, ...] = ()
        self._changed = asyncio.Event()
        self._http = httpx2.AsyncClient(timeout=_HEARTBEAT_TIMEOUT_S, trust_env=False)
        self._refresh()

    # The port.

    def models(self) -> Sequence[ModelState]:
        """Every model with its state and the room on its healthy replicas."""
        states = []
        for model in self._models:
            serving = [r for r in self._replicas.values() if r.address.model == model.served]
            usable = [r for r in serving if r.usable]
            refused = [r.refused for r in serving if r.refused]
            if usable:
                model = replace(model, state="ready", room=sum(r.room for r in usable))
            elif refused:
                model = replace(model, state="failed", message=refused[0])
            elif serving:
                model = replace(model, state="starting")
            states.append(model)
        return states

    def pick(self, model: str) -> str | None:
        """The healthy replica of this model with the most room."""
        usable = [r for r in self._replicas.values() if r.usable and r.address.model == model]
        if not usable:
            return None
        return max(usable, key=lambda r: (r.room, r.address.name)).address.name

    async def generate(self, replica: str, request: GenerateRequest) -> AsyncGenerator[Said, None]:
        """Paced batches until one has a `finish`."""
        found = self._replicas.get(replica)
        if found is None or not found.usable:
            raise ReplicaLost("the replica is gone")
        found.dispatched += 1  # counted at dispatch, or a burst would all see the same idle one
        connection: Connection | None = None
        clean = False
        try:
            connection = await self._connection(found)
            address = found.address
            connection.send(
                request_bytes(
                    urlsplit(address.url),
                    address.key,
                    request,
                    priorities=address.priorities,
                    own_engine=address.own_engine,
                )
            )
            generation = Generation(connection, pace_s=self._pace_s)
            found.running[request.request_id] = (connection, generation)
            while True:
                said = await generation.next()
                if said.finish is not None:
                    clean = connection.complete and connection.reusable
                yield said
                if said.finish is not None:
                    return
        except ReplicaLost:
            # A line that we cut ourselves says nothing about the replica.
            if connection is None or not connection.cut_here:
                found.doubt()
            raise
        finally:
            found.running.pop(request.request_id, None)
            found.dispatched -= 1
            if connection is not None:
                self._put_back(found, connection, clean=clean)
            self._changed.set()

    async def abort(self, replica: str, request_id: str) -> None:
        """Ends the request there, whoever sent it."""
        found = self._replicas.get(replica)
        if found is None:
            return
        running = found.running.get(request_id)
        if found.healthy:
            try:
                await self._http.post(
                    found.address.url + "/inference/v1/abort_requests",
                    json={"request_ids": [f"cmpl-{request_id}"]},
                    headers=bearer(found.address.key),
                    timeout=_ABORT_S,
                )
            except httpx2.HTTPError:
                _log.warning("abort_unconfirmed", replica=replica)
        if running is not None:
            # Where aborting by id is not allowed, the closed connection ends the sequence.
            running[0].cut("aborted")

    async def changed(self, *, timeout_s: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    # Heartbeats.

    async def run(self) -> None:
        """Watches the fleet until cancelled."""
        try:
            while True:
                self._refresh()
                await asyncio.gather(*(self._look_at(r) for r in self._replicas.values()))
                calm = all(r.healthy for r in self._replicas.values())
                await self._clock.sleep(_HEARTBEAT_S if calm else _RECHECK_S)
        finally:
            for found in self._replicas.values():
                found.lose("the worker ends")
            await self._http.aclose()

    def _refresh(self) -> None:
        fleet = self._source.current()
        self._models = fleet.models
        listed = {address.name: address for address in fleet.replicas}
        for name in [n for n, r in self._replicas.items() if listed.get(n) != r.address]:
            self._replicas.pop(name).lose("the replica was taken out of service")
        for name, address in listed.items():
            if name not in self._replicas:
                self._replicas[name] = _Replica(address)

    async def _look_at(self, found: _Replica) -> None:
        alive = await self._beats(found)
        if alive:
            found.misses = 0
            if not found.verified:
                found.refused = await self._disagreement(found)
                found.verified = not found.refused
            if not found.healthy:
                found.healthy = found.seen = True
                self._changed.set()
                _log.info("replica_up", replica=found.address.name, verified=found.verified)
            self._end_silent(found)
            return
        found.misses += 1
        if found.misses == _MISSES and found.seen:
            _log.warning("replica_lost", replica=found.address.name)
            found.lose("the replica missed its heartbeats")
            self._changed.set()

    async def _beats(self, found: _Replica) -> bool:
        try:
            answer = await self._http.get(found.address.url + "/health")
        except httpx2.HTTPError:
            return False
        return answer.status_code == 200

    def _end_silent(self, found: _Replica) -> None:
        now = asyncio.get_running_loop().time()
        for connection, generation in list(found.running.values()):
            if now - generation.progressed_at > _SILENCE_S:
                connection.fail("the replica gave no token for too long")

    async def _disagreement(self, found: _Replica) -> str:
        """Why the replica's tokenizer can't be trusted, or nothing: then it agrees with ours."""
        if found.address.trusted:
            return ""
        vocabulary = self._vocabulary(found.address.model)
        for text in CORPUS:
            try:
                answer = await self._http.post(
                    found.address.url + "/tokenize",
                    json={
                        "model": found.address.model,
                        "prompt": text,
                        "add_special_tokens": False,
                    },
                    headers=bearer(found.address.key),
                )
                theirs = tuple(answer.json()["tokens"])
            except (httpx2.HTTPError, ValueError, KeyError, TypeError):
                return "its /tokenize does not answer"
            if theirs != vocabulary.encode(text):
                return "its tokenizer differs from the model's"
        return ""

    async def _connection(self, found: _Replica) -> Connection:
        while found.idle:
            connection = found.idle.pop()
            if connection.alive:
                return connection
        return await connect(urlsplit(found.address.url))

    def _put_back(self, found: _Replica, connection: Connection, *, clean: bool) -> None:
        """Keeps a connection whose response ended; any other would carry another's tokens."""
        if clean and found.usable and len(found.idle) < _IDLE_CONNECTIONS:
            connection.rest()
            found.idle.append(connection)
        else:
            connection.fail("closed")
