"""Simulated people: they ask, follow, lose the network, come back elsewhere, stop, leave, delete.

An honest client uses only what the contract gives it; what it saw goes into the history.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tertulia.core.types import Admitted, PromptMessage, Repeated, Sampling, Status, Turn, User
from tertulia.gateway.admit import (
    UNSET,
    Answer,
    Ask,
    MessageAsk,
    RegenerateAsk,
    StatelessAsk,
    Unset,
)
from tertulia.ports import StoreUnavailable
from tests.sim.fleet import ABANDON_S, Connection, ConnectionLost, Fleet, Gateway
from tests.sim.histories import Asked, EventParser, History, Stop, View
from tests.sim.language import WORDS

T = TypeVar("T")

# A person gives up after so many tries; with the pauses below that is minutes.
_TRIES: Final = 600
# Stop strings: a word, part of a word, and what spans words and a sentence's end.
_STOPS: Final = (" oak", "ak", "e w", ". ", "ll", "r s")
# Longer than a ping's distance and the longest freeze together.
_SILENCE_S: Final = 25.0


class Client:
    """One device of one user. Another device of the same user may follow the same replies."""

    def __init__(self, fleet: Fleet, history: History, user: User, rng: random.Random) -> None:
        self._fleet = fleet
        self._history = history
        self.user = user
        self._rng = rng
        self._n = 0
        self._conversation: str | None = None
        self._replies: list[str] = []

    async def run(self, until: float) -> None:
        """Asks one thing after the other until `until`, and follows each to its end."""
        async with asyncio.TaskGroup() as tasks:
            while self._fleet.loop.time() < until:
                await asyncio.sleep(self._rng.uniform(0.02, 0.3))
                await self._one_turn(tasks)

    async def _one_turn(self, tasks: asyncio.TaskGroup) -> None:
        rng = self._rng
        conversation_id = await self._a_conversation()
        asked = Asked(self.user.id, self._new_ask(conversation_id), conversation_id)
        self._history.asked[self.user.id, asked.key] = asked
        turn = await self._post(tasks, asked)
        if turn is None:
            return
        if rng.random() < self._fleet.climate.stop_share:
            tasks.create_task(self._stop_later(asked, turn.reply_id))
        if rng.random() < 0.2:
            tasks.create_task(self.follow(asked, turn.reply_id, "second"))
        if rng.random() < 0.08:
            await asyncio.sleep(rng.uniform(0.1, ABANDON_S + 6))  # leaves, and looks in later
        view = await self.follow(asked, turn.reply_id, "first")
        if view.end is not None and view.end.kind == "fail" and rng.random() < 0.7:
            again = await self._post(tasks, asked)
            if again is not None:
                await self.follow(asked, turn.reply_id, "again")
        if not isinstance(asked.ask, StatelessAsk):
            self._replies = [*self._replies[-5:], turn.reply_id]
        if rng.random() < 0.06:
            await self._delete(conversation_id)

    async def _a_conversation(self) -> str:
        if self._conversation is None or self._rng.random() < 0.15:
            self._n += 1
            made = f"c_{self.user.id}_{self._n}_{self._rng.randrange(1 << 30)}"
            await self._insist(lambda gateway: gateway.create(self.user.id, made))
            self._conversation = made
            self._replies = []
        return self._conversation

    def _new_ask(self, conversation_id: str) -> Ask:
        rng = self._rng
        self._n += 1
        key = f"k{self._n}-{rng.randrange(1 << 30)}"
        if self._replies and rng.random() < 0.1:
            return RegenerateAsk(rng.choice(self._replies), "auto", key, key)
        words = [rng.choice(WORDS) for _ in range(rng.randint(1, 8))]
        content = "".join(words).strip() + rng.choice(("?", ".", " é🌲"))
        if rng.random() < 0.03:
            content += " forbidden request"
        sampling = Sampling(stop=(rng.choice(_STOPS),)) if rng.random() < 0.15 else Sampling()
        if rng.random() < 0.1:
            messages = (PromptMessage("user", content),)
            return StatelessAsk(messages, "auto", key, key, sampling)
        parent: str | Unset | None = UNSET
        if self._replies and rng.random() < 0.2:
            parent = rng.choice((*self._replies, None))
        return MessageAsk(conversation_id, content, parent, "auto", key, key, sampling)

    async def _post(self, tasks: asyncio.TaskGroup, asked: Asked) -> Turn | None:
        """The stored turn, or None if it was refused. Impatient people press the button twice."""
        if self._rng.random() < 0.2:
            for _ in range(self._rng.choice((1, 1, 2))):
                tasks.create_task(self._post_once(asked))
        answer = await self._insist(lambda gateway: gateway.post(self.user, asked.ask))
        return self._note(asked, answer)

    async def post_again(self, asked: Asked) -> None:
        """The same key once more: it must find the stored turn (C2)."""
        if any(self._fleet.status_of(reply_id) is Status.FAILED for reply_id in asked.reply_ids):
            return  # such a turn would begin again
        answer = await self._insist(lambda gateway: gateway.post(self.user, asked.ask))
        if not isinstance(answer, Admitted | Repeated):
            self._history.report("C2", f"{asked.key} was posted again: {answer}")
        self._note(asked, answer)

    async def _post_once(self, asked: Asked) -> None:
        await asyncio.sleep(self._rng.choice((0.0, 0.0, 0.01, 0.3, 2.0)))
        try:
            self._note(asked, await self._a_gateway().post(self.user, asked.ask))
        except (ConnectionLost, StoreUnavailable, TimeoutError):
            return  # nobody knows whether it happened

    def _note(self, asked: Asked, answer: Answer) -> Turn | None:
        turn = answer.turn if isinstance(answer, Admitted | Repeated) else None
        if turn is not None:
            asked.reply_ids[turn.reply_id] = None
        return turn

    async def _stop_later(self, asked: Asked, reply_id: str) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, 2.5))
        if self._rng.random() < 0.5:
            turn = await self._insist(lambda gateway: gateway.stop(self.user.id, reply_id))
        else:
            try:
                turn = await self._a_gateway().stop(self.user.id, reply_id)
            except (ConnectionLost, StoreUnavailable, TimeoutError):
                return
        if turn is None:
            self._expect_deleted(asked, "stop")
        elif not turn.status.is_final:
            self._history.report("C15", f"a stop of {reply_id} left it {turn.status}")
        else:
            self._history.stops.append(Stop(turn, self._fleet.loop.time()))

    async def _delete(self, conversation_id: str) -> None:
        for asked in self._history.asked.values():
            if asked.conversation_id == conversation_id and not asked.is_stateless:
                asked.deleted = True
        await self._insist(lambda gateway: gateway.delete(self.user.id, conversation_id))
        self._conversation, self._replies = None, []

    async def follow(self, asked: Asked, reply_id: str, name: str) -> View:
        """Everything of one reply, over as many connections as it takes."""
        is_plain = self._rng.random() < 0.15
        view = self._history.view(reply_id, f"{self.user.id}/{name}", is_plain=is_plain)
        for _ in range(_TRIES):
            status = await self._connect(asked, view)
            if status == 404 or (status == 204 and view.end is None):
                break
            # A plain client can't say which attempt it means, so it leaves at the end for good.
            leaves = view.is_plain or self._rng.random() < 0.7
            if view.end is not None and (view.end.kind == "fail" or leaves):
                return view
            if status == 204:
                return view
            await asyncio.sleep(self._rng.uniform(0.0, 0.2))
        else:
            self._history.report("C12", f"{reply_id}: its end never came ({view.name})")
        return view

    async def _connect(self, asked: Asked, view: View) -> int:
        try:
            got = await self._a_gateway().stream(
                self.user.id, view.reply_id, view.last_id, None if view.is_plain else view.attempt
            )
        except (ConnectionLost, StoreUnavailable, TimeoutError):
            return 503
        self._history.n_connections += 1
        if isinstance(got, Connection):
            await self._listen(got, view)
            return 200
        if got == 404:
            self._expect_deleted(asked, "follow")
        elif got == 409:
            self._history.report(
                "C3", f"{view.reply_id}: told that {view.attempt}/{view.last_id} is ahead"
            )
            view.reset()
        elif view.end is None:
            self._history.report("C6", f"{view.reply_id}: finished, said a 204, before its end")
        return got

    async def _listen(self, connection: Connection, view: View) -> None:
        parser = EventParser()
        try:
            while (data := await self._read(connection, view)) is not None:
                for event in parser.feed(data):
                    self._history.take(view, event)
                if self._rng.random() < 0.08:
                    return
        finally:
            connection.drop()

    async def _read(self, connection: Connection, view: View) -> bytes | None:
        try:
            return await connection.read(_SILENCE_S)
        except TimeoutError:
            self._history.report("ping", f"{view.reply_id}: {_SILENCE_S:.0f}s without a byte")
            return None

    def _expect_deleted(self, asked: Asked, what: str) -> None:
        if not asked.deleted:
            self._history.report("C1", f"{what}: the turn of {asked.key} is not there")

    async def _insist(self, call: Callable[[Gateway], Awaitable[T]]) -> T:
        """Tries one gateway after another until one answers."""
        for _ in range(_TRIES):
            try:
                return await call(self._a_gateway())
            except (ConnectionLost, StoreUnavailable, TimeoutError):
                await asyncio.sleep(self._rng.uniform(0.02, 0.4))
        raise AssertionError("no gateway answered for minutes")

    def _a_gateway(self) -> Gateway:
        return self._rng.choice(self._fleet.gateways)
