"""Who is there and alive: heartbeats to listed replicas, the reports of those that register.

Busy is not dead: a replica is lost that has given no sign of life for two seconds, be it a token, a
report or an answer, and then every generation on it ends at once as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from tertulia.backends.replicas import questions
from tertulia.backends.replicas.fleet import FleetSource, ReplicaAddress
from tertulia.backends.replicas.replica import Replica
from tertulia.core.engines import ENGINES, refusal_of
from tertulia.core.fleet import FORGOTTEN_S, ReplicaReport
from tertulia.core.liveness import REST_S, slow_ones, verdict
from tertulia.core.types import ModelState
from tertulia.ports import Clock, Registry, ReplicaLost, StoreUnavailable, Vocabulary
from tertulia.ports_of_operations import Holds

_log = structlog.get_logger(__name__)

_HEARTBEAT_S = 1.0
# One that is down or in doubt is asked sooner: it comes back, or is lost, within about 2 s.
_RECHECK_S = 0.25
# As often as replicas report: a report is seldom older than 300 ms when it is read.
_REPORTS_S = 0.25
# Nobody sets a replica aside in haste; with what an answer takes it is noticed within two seconds.
_HOLDS_S = 1.0
# A registry that hangs must not hide that replicas are gone.
_REGISTRY_S = 1.0
# Whoever lives answers from its event loop, whatever it computes.
_ANSWER_S = 0.5
# Two heartbeats missed: one may be the network's.
_LOST_S = 2.0
# Often enough that nobody is found silent much later than `core.liveness` means it.
_PULSE_S = 0.1
# So late was this process itself, stopped or blocked: while it heard nobody, nobody was silent. A
# smaller delay is every busy machine's, and forgiving those would hide who is really gone.
_OWN_S = 0.5
# A report that is missed is asked after before it is too late.
_OVERDUE_S = 1.0
# A trial that failed, on an engine that may only have been busy, costs one its tiny reply again.
_TRIAL_AGAIN_S = 30.0


class Watch:
    """Keeps `replicas` and `models` as they are. `changed` is called when a replica came or went.

    Invariant: `_asking` holds what is being asked of whom, so that nobody is asked twice at once.
    """

    def __init__(
        self,
        source: FleetSource,
        *,
        vocabulary: Callable[[str], Vocabulary],
        clock: Clock,
        registry: Registry | None,
        registry_key: str | None,
        holds: Holds | None,
        changed: Callable[[], None],
    ) -> None:
        self.replicas: dict[str, Replica] = {}
        self.models: tuple[ModelState, ...] = ()
        self._registered_models: dict[str, ModelState] = {}
        self._source = source
        self._vocabulary = vocabulary
        self._clock = clock
        self._registry = registry
        self._registry_key = registry_key
        self._holds = holds
        self._held: frozenset[str] = frozenset()
        self._changed = changed
        self._asking: set[tuple[str, str]] = set()
        self._n_trials = 0
        self.http = questions.asker(_ANSWER_S)
        self._refresh()

    async def run(self) -> None:
        """Watches until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_at_listed(tasks))
                tasks.create_task(self._feel_pulses(tasks))
                if self._holds is not None:
                    tasks.create_task(self._read_holds(self._holds))
                if self._registry is not None:
                    tasks.create_task(self._read_reports(self._registry, tasks))
        finally:
            for found in self.replicas.values():
                found.lose("the worker ends", self._clock.now())
            await self.http.aclose()

    # Listed replicas.

    async def _look_at_listed(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._refresh()
            listed = [found for found in self.replicas.values() if not found.address.incarnation]
            for found in listed:
                self._ask(tasks, found, "heartbeat", self._heartbeat(found))
                self._get_to_know(tasks, found)
            calm = all(found.healthy or found.refused for found in listed)
            await self._clock.sleep(_HEARTBEAT_S if calm else _RECHECK_S)

    def _refresh(self) -> None:
        fleet = self._source.current()
        listed = {address.name: address for address in fleet.replicas}
        known = {served.served for served in fleet.models}
        added = [model for served, model in self._registered_models.items() if served not in known]
        self.models = (*fleet.models, *added)
        for name, found in list(self.replicas.items()):
            if not found.address.incarnation and listed.get(name) != found.address:
                self._drop(found, "the replica was taken out of service")
        for name, address in listed.items():
            known_as = self.replicas.get(name)
            if known_as is not None and known_as.address.incarnation:
                self._drop(known_as, "another replica is listed under its name")
            if name not in self.replicas:
                self.replicas[name] = self._new(address)

    async def _heartbeat(self, found: Replica) -> None:
        await self._ask_for_life(found)
        if found.healthy:
            load = await questions.load_of(self.http, found.address)
            now = self._clock.now()
            if load.running is not None:
                running = load.running + (load.waiting or 0)
                found.ledger.reported(
                    running=running, owed_tokens=None, prefill_per_s=None, at=now, now=now
                )
            found.cache_used_share = load.cache_used_share
            found.cache_hit_share = load.cache_hit_share
            found.generated_tokens = load.generated_tokens
            if load.tokens_done is not None:
                found.worked(load.tokens_done, now)

    # Registered replicas.

    async def _read_reports(self, registry: Registry, tasks: asyncio.TaskGroup) -> None:
        while True:
            try:
                async with asyncio.timeout(_REGISTRY_S):
                    reports = await registry.reports()
            except (StoreUnavailable, TimeoutError):
                reports = ()
            for report in reports:
                self._hear(report)
            now = self._clock.now()
            for found in list(self.replicas.values()):
                if not found.address.incarnation:
                    continue
                silent_s = now - found.heard_at
                if silent_s > FORGOTTEN_S:
                    self._drop(found, "the replica is gone")
                elif silent_s > _OVERDUE_S or not found.healthy:
                    # It may be the registry that failed.
                    self._ask(tasks, found, "heartbeat", self._ask_for_life(found))
                self._get_to_know(tasks, found)
            await self._clock.sleep(_REPORTS_S)

    def _hear(self, report: ReplicaReport) -> None:
        now = self._clock.now()
        at = now - report.age_s
        found = self.replicas.get(report.name)
        if found is not None and not found.address.incarnation:
            return  # listed under that name: the settings win
        if report.engine not in ENGINES:
            return
        if found is not None and report.incarnation == found.replaced:
            # Two share a name, or one takes long to end: they would end each other's replies.
            if not found.has_twin:
                _log.error("replica_name_twice", replica=report.name)
            found.has_twin = True
            return
        if found is None or found.address.incarnation != report.incarnation:
            if report.age_s > _LOST_S:
                return
            replaced = ""
            if found is not None:
                replaced = found.address.incarnation
                self._drop(found, "the replica was started again")
            found = self.replicas[report.name] = self._new(self._address(report))
            found.replaced = replaced
            self._registered_models.setdefault(
                report.model,
                ModelState(report.pool, report.model, "starting", window=report.window or 0),
            )
            self._refresh()
        found.draining = report.state == "draining"
        if report.age_s <= _LOST_S:
            self._heard(found, at)
        found.worked(report.tokens_done, at)
        found.cache_used_share = report.cache_used_share
        found.cache_hit_share = report.cache_hit_share
        found.generated_tokens = report.generated_tokens
        found.ledger.reported(
            running=report.running + report.waiting,
            owed_tokens=report.owed_tokens,
            prefill_per_s=report.prefill_per_s,
            at=at,
            now=now,
        )

    def _address(self, report: ReplicaReport) -> ReplicaAddress:
        return ReplicaAddress(
            name=report.name,
            model=report.model,
            url=report.url,
            slots=report.slots,
            key=self._registry_key,
            engine=report.engine,
            window=report.window,
            incarnation=report.incarnation,
        )

    # All of them.

    async def _read_holds(self, holds: Holds) -> None:
        """While nobody can be asked, what was known holds."""
        while True:
            try:
                async with asyncio.timeout(_REGISTRY_S):
                    names = await holds.names()
            except (StoreUnavailable, TimeoutError):
                names = self._held
            if names != self._held:
                self._held = names
                for name, found in self.replicas.items():
                    found.held = name in names
                _log.info("replicas_held", replicas=sorted(names))
                self._changed()
            await self._clock.sleep(_HOLDS_S)

    async def _feel_pulses(self, tasks: asyncio.TaskGroup) -> None:
        felt_at = self._clock.now()
        while True:
            await self._clock.sleep(_PULSE_S)
            now = self._clock.now()
            own_s, felt_at = now - felt_at - _PULSE_S, now
            if own_s > _OWN_S:
                for found in self.replicas.values():
                    found.forgive(own_s, now)
            for found in list(self.replicas.values()):
                found.ledger.forget_unsent(now)
                if n_forgotten := found.end_forgotten(now):
                    name = found.address.name
                    _log.warning("replica_forgot", replica=name, sequences=n_forgotten)
                self._feel_pulse(tasks, found, now)
            self._rest_slow_ones(now)

    def _feel_pulse(self, tasks: asyncio.TaskGroup, found: Replica, now: float) -> None:
        thought = verdict(found.signs(now))
        if thought == "ask":
            self._ask(tasks, found, "heartbeat", self._ask_for_life(found))
        is_lost = found.seen and now - found.heard_at > _LOST_S
        if thought == "stalled" or (is_lost and (found.verified or found.running)):
            _log.warning("replica_lost", replica=found.address.name, stalled=thought == "stalled")
            found.lose("the replica gives no sign of life", now)
            self._changed()

    def _rest_slow_ones(self, now: float) -> None:
        for model in {found.address.model for found in self.replicas.values()}:
            pool = {
                name: found
                for name, found in self.replicas.items()
                if found.address.model == model and found.usable
            }
            gaps = {name: found.gap_s(now) for name, found in pool.items()}
            slow = slow_ones({name: gap for name, gap in gaps.items() if gap is not None})
            for_long = {
                name
                for name, found in pool.items()
                if found.is_slow_for_long(now, is_slow=name in slow)
            }
            resting = {name for name, found in pool.items() if now < found.ejected_until}
            for name in sorted(for_long - resting)[: max(0, len(pool) // 2 - len(resting))]:
                _log.warning("replica_rests", replica=name, gap_s=gaps[name])
                pool[name].rest(now + REST_S)

    async def _ask_for_life(self, found: Replica) -> None:
        asked_at = self._clock.now()
        sign = await questions.sign_of_life(self.http, found.address)
        if sign == "alive":
            self._heard(found, self._clock.now())
        elif sign == "refused" and found.healthy and found.heard_at <= asked_at:
            found.doubt(asked_at)
            self._changed()

    def _heard(self, found: Replica, at: float) -> None:
        if found.hears(at):
            self._changed()
            _log.info("replica_up", replica=found.address.name, verified=found.verified)

    def _get_to_know(self, tasks: asyncio.TaskGroup, found: Replica) -> None:
        """Compares its vocabulary, then tries what it can, each once."""
        if found.healthy and not found.verified:
            self._ask(tasks, found, "vocabulary", self._verify(found))
        elif found.usable and self._clock.now() >= found.trial_at and not found.draining:
            self._n_trials += 1
            self._ask(tasks, found, "trial", self._try(found, f"{self._n_trials}"))

    async def _verify(self, found: Replica) -> None:
        found.refused = refusal_of(found.address.engine)
        if not found.refused:
            try:
                vocabulary = self._vocabulary(found.address.model)
            except ValueError as error:
                found.refused = str(error)
            else:
                found.refused = await questions.disagreement(self.http, found.address, vocabulary)
        found.verified = found.healthy and not found.refused
        self._changed()

    async def _try(self, found: Replica, number: str) -> None:
        found.trial_at = self._clock.now() + _TRIAL_AGAIN_S
        vocabulary = self._vocabulary(found.address.model)
        try:
            shown = await questions.trial(self.http, found.address, vocabulary, number)
        except ReplicaLost as lost:
            _log.warning("replica_trial_failed", replica=found.address.name, cause=str(lost))
            return
        found.trial_at = float("inf")
        found.aborts, found.priorities = shown.aborts, shown.priorities

    def _ask(
        self,
        tasks: asyncio.TaskGroup,
        found: Replica,
        what: str,
        work: Coroutine[Any, Any, None],
    ) -> None:
        """Does it in a task, unless the replica is being asked just that."""
        key = (found.address.name, what)
        if key in self._asking:
            work.close()
            return
        self._asking.add(key)

        async def ask() -> None:
            try:
                await work
            finally:
                self._asking.discard(key)

        tasks.create_task(ask())

    def _new(self, address: ReplicaAddress) -> Replica:
        engine = ENGINES[address.engine]
        known = engine.priority_sign != 0 and not engine.priority_is_asked
        return Replica(address, priorities=known, held=address.name in self._held)

    def _drop(self, found: Replica, why: str) -> None:
        del self.replicas[found.address.name]
        found.lose(why, self._clock.now())
        self._changed()
