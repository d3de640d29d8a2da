"""How simulated processes reach the store and the log: calls with delays, repeats and outages.

A call's effect is one step at its arrival, whatever has become of the caller by then; so an
effect may happen and its answer be lost, as on a real network.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Final

from tertulia.ports import StoreUnavailable
from tests.sim.process import Process
from tests.sim.virtual import VirtualLoop

# Methods that sleep until something happens: they run in the caller, not in one step.
_WAITS: Final = frozenset(("wait",))

Watch = Callable[[str, str, tuple[Any, ...], dict[str, Any], Any], None]


@dataclass(slots=True)
class Weather:
    """How one system (the store, the log) behaves at the moment."""

    rng: random.Random
    # Calls that hang in the network longer than a lease lasts, and then take effect.
    stuck_share: float
    slow_share: float = 0.3
    slow_s: float = 0.02
    # A client library that lost a connection sends an append again.
    repeat_share: float = 0.01
    down_until: float = -1.0
    calls: int = 0

    def delay_s(self) -> float:
        draw = self.rng.random()
        if draw < self.stuck_share:
            return self.rng.uniform(0.5, 5.0)
        if draw >= self.slow_share:
            return 0.0
        return self.rng.expovariate(1 / self.slow_s)


@dataclass(slots=True)
class Trace:
    """A digest of every effect in order: two runs of one seed have the same."""

    digest: Any = field(default_factory=hashlib.sha256)

    def note(self, text: str) -> None:
        self.digest.update(text.encode())

    @property
    def value(self) -> str:
        return str(self.digest.hexdigest()[:16])


class Remote:
    """A port as one process sees it over the wire. It has whatever methods `target` has."""

    def __init__(
        self,
        process: Process,
        loop: VirtualLoop,
        weather: Weather,
        target: Any,
        *,
        name: str,
        watch: Watch,
        trace: Trace,
    ) -> None:
        self._process = process
        self._loop = loop
        self._weather = weather
        self._target = target
        self._name = name
        self._watch = watch
        self._trace = trace

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        call = self._waiting(method) if method in _WAITS else self._calling(method)
        self.__dict__[method] = call
        return call

    def _waiting(self, method: str) -> Any:
        async def wait(*args: Any, **kwargs: Any) -> Any:
            await self._process.gate()
            self._refuse_if_down()
            await getattr(self._target, method)(*args, **kwargs)
            await self._process.gate()

        return wait

    def _calling(self, method: str) -> Any:
        weather, process = self._weather, self._process

        async def call(*args: Any, **kwargs: Any) -> Any:
            await process.gate()
            there, back = weather.delay_s(), weather.delay_s()
            if there == 0.0:
                # One turn of the loop: a caller that never waits is then seen to spin.
                await _turn()
                await process.gate()
            if there == 0.0 and back == 0.0:
                answer, error = self._effect(method, args, kwargs)
            else:
                answer, error = await self._over_the_wire(there, back, method, args, kwargs)
                await process.gate()
            if error is not None:
                raise error
            return answer

        return call

    async def _over_the_wire(
        self, there: float, back: float, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        answered = self._loop.create_future()

        def arrive() -> None:
            outcome = self._effect(method, args, kwargs)
            if back:
                self._loop.call_later(back, answer, outcome)
            else:
                answer(outcome)

        def answer(outcome: tuple[Any, BaseException | None]) -> None:
            if not answered.done():
                answered.set_result(outcome)

        if there:
            self._loop.call_later(there, arrive)
        else:
            arrive()
        if method == "append" and self._weather.rng.random() < self._weather.repeat_share:
            self._loop.call_later(there + self._weather.rng.random() * 0.05, self._repeat, args)
        return await answered

    def _repeat(self, args: tuple[Any, ...]) -> None:
        """The same append once more; nobody waits for this answer."""
        self._effect("append", args, {})

    def _effect(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, BaseException | None]:
        weather = self._weather
        weather.calls += 1
        down = self._loop.time() < weather.down_until
        if down and weather.rng.random() < 0.7:
            return None, StoreUnavailable("simulated outage")
        try:
            answer = in_one_step(getattr(self._target, method)(*args, **kwargs))
        except StoreUnavailable as error:
            return None, error
        self._trace.note(f"{self._loop.time():.6f} {self._process.name} {self._name}.{method}")
        self._watch(self._name, method, args, kwargs, answer)
        if down:
            # In doubt: it took effect, and its caller will never know.
            return None, StoreUnavailable("simulated outage, in doubt")
        return answer, None

    def _refuse_if_down(self) -> None:
        if self._loop.time() < self._weather.down_until:
            raise StoreUnavailable("simulated outage")


def in_one_step(coro: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine that never waits, as every call of the memory back end must."""
    try:
        coro.send(None)
    except StopIteration as done:
        return done.value
    coro.close()
    raise AssertionError("a call of the memory back end waited: it is not one atomic step")


@types.coroutine
def _turn() -> Generator[None, None, None]:
    yield


class FleetBell:
    """One bell for all processes; rings are lost now and then, as the port allows."""

    def __init__(self, process: Process, bell: Any, rng: random.Random) -> None:
        self._process = process
        self._bell = bell
        self._rng = rng

    def ring(self, topic: str) -> None:
        if self._process.alive and self._rng.random() > 0.1:
            self._bell.ring(topic)

    async def wait(self, topic: str, *, timeout_s: float) -> None:
        await self._process.gate()
        await self._bell.wait(topic, timeout_s=timeout_s)
        await self._process.gate()


class ProcessClock:
    """The clock as a process sees it: a frozen one oversleeps."""

    def __init__(self, process: Process, clock: Any) -> None:
        self._process = process
        self._clock = clock

    def now(self) -> float:
        now: float = self._clock.now()
        return now

    async def sleep(self, seconds: float) -> None:
        await self._process.gate()
        await asyncio.sleep(max(0.0, seconds))
        await self._process.gate()
