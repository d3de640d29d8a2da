"""The ports `Replicas` and `Fleet` over HTTP: places generations on replicas and runs them there.

Who is there and alive is watched elsewhere (`watch.py`); what was sent is counted here, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

import structlog

from tertulia.backends.replicas import questions
from tertulia.backends.replicas.fleet import FleetSource
from tertulia.backends.replicas.homes import HomeTable
from tertulia.backends.replicas.pacer import Pacer
from tertulia.backends.replicas.replica import Replica, Running
from tertulia.backends.replicas.request import request_bytes
from tertulia.backends.replicas.stream import Connection, Generation, connect
from tertulia.backends.replicas.watch import Watch
from tertulia.core.deletions import CacheAnswer
from tertulia.core.fleet import DRAINING, Home, ReplicaSight, Wanted
from tertulia.core.placement import place
from tertulia.core.retries import may_retry
from tertulia.core.sizing import Supply
from tertulia.core.types import GenerateRequest, ModelState, Said, Unit
from tertulia.ports import Clock, Homes, Registry, ReplicaLost, ReplicaRefused, Vocabulary
from tertulia.ports_of_operations import Holds

_log = structlog.get_logger(__name__)

# As many as a large replica has slots: each then has its connection when the next turn comes.
_IDLE_CONNECTIONS = 64
# A stop waits for this answer: a replica that lives gives it within a step.
_ABORT_S = 2.0
# What a replica answers when it can't now; any other error from 500 on is a fault of its own.
_BUSY = frozenset((429, 503))


class HttpReplicas:
    """Replicas over HTTP. `run` must be running for any of them to become healthy."""

    def __init__(
        self,
        source: FleetSource,
        *,
        vocabulary: Callable[[str], Vocabulary],
        clock: Clock,
        homes: Homes,
        registry: Registry | None = None,
        registry_key: str | None = None,
        holds: Holds | None = None,
        pace_s: float = 0.1,
    ):
        self._clock = clock
        self._pacer = Pacer(pace_s) if pace_s else None
        self._homes = HomeTable(homes)
        self._changed = asyncio.Event()
        self._watch = Watch(
            source,
            vocabulary=vocabulary,
            clock=clock,
            registry=registry,
            registry_key=registry_key,
            holds=holds,
            changed=self._changed.set,
        )

    async def run(self) -> None:
        """Watches the fleet until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._homes.run())
            tasks.create_task(self._watch.run())

    # The port.

    def models(self) -> Sequence[ModelState]:
        """Every model with its state and the room on its healthy replicas."""
        replicas = self._watch.replicas.values()
        return [
            _with_state(model, [r for r in replicas if r.address.model == model.served])
            for model in self._watch.models
        ]

    def supplies(self) -> list[Supply]:
        """What the usable replicas of each model have and hold, for whoever scales them."""
        replicas = self._watch.replicas.values()
        return [
            _supply(model.name, [r for r in replicas if r.address.model == model.served])
            for model in self._watch.models
        ]

    def sights(self) -> Sequence[ReplicaSight]:
        """Every replica that is known here, by name (the port `Fleet`)."""
        now = self._clock.now()
        return [self._watch.replicas[name].sight(now) for name in sorted(self._watch.replicas)]

    async def place(self, wanted: Wanted) -> str | None:
        """The replica where the generation costs least to wait for, by all that is known here."""
        home = await self._homes.find(wanted.conversation)
        now = self._clock.now()
        if wanted.avoid and not self._may_retry():
            return None
        serving = [r for r in self._watch.replicas.values() if r.address.model == wanted.model]
        placement = place(wanted, home, [r.candidate(now) for r in serving])
        if placement is None:
            return None
        # From here to the end nothing waits: the next one must see this one.
        found = self._watch.replicas[placement.replica]
        found.breaker = found.breaker.sending(now)
        unread = wanted.prompt_tokens - placement.cached_tokens
        found.ledger.dispatch(wanted.request_id, unread, now, losses=len(wanted.avoid))
        self._homes.move(wanted.conversation, Home(placement.replica, wanted.prompt_tokens))
        return placement.replica

    async def generate(
        self,
        replica: str,
        request: GenerateRequest,
        *,
        ripens: Callable[[Sequence[Unit]], bool] | None = None,
    ) -> AsyncGenerator[Said, None]:
        """Paced batches until one has a `finish`."""
        found = self._watch.replicas.get(replica)
        if found is None or not found.usable:
            if found is not None:
                _ended(found, request.request_id)
            raise ReplicaLost("the replica is gone")
        found.ledger.sent(request.request_id, self._clock.now())
        connection: Connection | None = None
        clean, n_said = False, 0
        try:
            connection = await self._connection(found)
            address = found.address
            connection.send(
                request_bytes(
                    urlsplit(address.url),
                    address.key,
                    request,
                    found.engine,
                    priorities=found.priorities,
                )
            )
            running = Running(connection, self._clock.now())
            found.running[request.request_id] = running
            heard = partial(self._heard, found, request.request_id, running)
            generation = Generation(connection, self._pacer, ripens=ripens, heard=heard)
            while True:
                said = await generation.next()
                n_said += sum([len(unit.ids) for unit in said.units])
                if said.finish is not None and running.said_at is None:
                    heard(0)  # it had nothing to say
                if said.finish is not None:
                    clean = connection.complete and connection.reusable
                    self._keep_home(found, request, n_said)
                yield said
                if said.finish is not None:
                    return
        except ReplicaLost:
            # A line that we cut ourselves says nothing about the replica.
            if connection is None or not connection.cut_here:
                self._failed(found)
            raise
        except ReplicaRefused as refused:
            found.draining = found.draining or refused.code == DRAINING
            if refused.status >= 500 and refused.status not in _BUSY:
                found.breaker = found.breaker.failed(self._clock.now())
            raise
        finally:
            _ended(found, request.request_id)
            if connection is not None:
                self._put_back(found, connection, clean=clean)
            self._changed.set()

    async def abort(self, replica: str, request_id: str) -> None:
        """Ends the request there, whoever sent it."""
        found = self._watch.replicas.get(replica)
        if found is None:
            return
        running = found.running.get(request_id)
        # Where aborting by id is not allowed, the closed connection ends the sequence.
        if found.healthy and found.aborts is not False:
            confirmed = await questions.abort(
                self._watch.http, found.address, request_id, timeout_s=_ABORT_S
            )
            if not confirmed:
                _log.warning("abort_unconfirmed", replica=replica)
        if running is not None:
            running.connection.cut("aborted")

    async def forget(self, owner: str, conversation_id: str | None) -> Mapping[str, CacheAnswer]:
        """What each replica answers, alive or in doubt."""
        asked = dict(self._watch.replicas)
        answers = await asyncio.gather(
            *(
                questions.forget(self._watch.http, found.address, owner, conversation_id)
                for found in asked.values()
            )
        )
        return dict(zip(asked, answers, strict=True))

    async def changed(self, *, timeout_s: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    # What was sent and came back.

    def _heard(self, found: Replica, request_id: str, running: Running, n_tokens: int) -> None:
        now = self._clock.now()
        if running.said_at is None:
            retrying = found.ledger.retrying
            found.ledger.began(request_id, now)
            found.breaker = found.breaker.succeeded()
            if found.ledger.retrying < retrying:
                self._changed.set()  # there is room for another retry
        found.said(running, n_tokens, now)

    def _keep_home(self, found: Replica, request: GenerateRequest, n_said: int) -> None:
        if request.thread:
            home = Home(found.address.name, len(request.prompt) + n_said)
            self._homes.move(request.thread, home)

    def _failed(self, found: Replica) -> None:
        now = self._clock.now()
        if not found.draining:  # it said that it would go
            found.breaker = found.breaker.failed(now)
        found.doubt(now)

    def _may_retry(self) -> bool:
        ledgers = [found.ledger for found in self._watch.replicas.values()]
        return may_retry(
            retrying=sum(ledger.retrying for ledger in ledgers),
            active=sum(ledger.running for ledger in ledgers),
        )

    async def _connection(self, found: Replica) -> Connection:
        while found.idle:
            connection = found.idle.pop()
            if connection.alive:
                return connection
        return await connect(urlsplit(found.address.url))

    def _put_back(self, found: Replica, connection: Connection, *, clean: bool) -> None:
        """Keeps a connection whose response ended; any other would carry another's tokens."""
        if clean and found.usable and len(found.idle) < _IDLE_CONNECTIONS:
            connection.rest()
            found.idle.append(connection)
        else:
            connection.fail("closed")


def _ended(found: Replica, request_id: str) -> None:
    found.running.pop(request_id, None)
    found.ledger.ended(request_id)


def _usable(serving: Sequence[Replica]) -> list[Replica]:
    """Those that take something new."""
    return [r for r in serving if r.usable and not r.draining and not r.held]


def _supply(name: str, serving: Sequence[Replica]) -> Supply:
    usable = _usable(serving)
    speeds = [r.ledger.prefill_per_s for r in usable if r.ledger.prefill_per_s]
    return Supply(
        model=name,
        replicas=len(usable),
        slots=sum(r.address.slots for r in usable),
        running=sum(r.ledger.running for r in usable),
        owed_tokens=sum(r.ledger.owed_tokens for r in usable),
        # One that has not been measured yet is taken to be like the others.
        prefill_per_s=len(usable) * sum(speeds) / len(speeds) if speeds else None,
    )


def _with_state(model: ModelState, serving: Sequence[Replica]) -> ModelState:
    usable = _usable(serving)
    refused = [r.refused for r in serving if r.refused]
    if usable:
        return replace(
            model,
            state="ready",
            room=sum(r.room for r in usable),
            slots=sum(r.address.slots for r in usable),
            ranked_slots=sum(r.address.slots for r in usable if r.priorities),
        )
    if refused:
        return replace(model, state="failed", message=refused[0])
    return replace(model, state="starting") if serving else model
