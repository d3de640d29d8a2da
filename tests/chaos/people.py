"""People with a browser each, as tasks of one process: they ask, follow, leave, come back, stop,
delete, press twice. They use only what the contract gives them and write down all that they see.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.chaos.caller import Broken, ask, events, note_answer, note_end, small
from tests.chaos.histories import MARK_LETTERS, Asked, Call, Event, Writer

# A person waits so long for the head of an answer, and so long for a byte of a stream.
PATIENCE_S: Final = 8.0
SILENCE_S: Final = 4.0
# A person gives a turn up after this; every fault is shorter by far.
_GIVE_UP_S: Final = 60.0
_CONVERSATIONS: Final = 4
_TURNS_OF_ONE: Final = 6
_QUESTIONS: Final = (
    "Tell me about the harbour",
    "Explain how bread is made",
    "Why is the sky blue",
    "List ten animals",
    "Wie klingt ein Töpfer bei der Arbeit",
)


@dataclass(frozen=True, slots=True)
class Habits:
    """How often people do what. `rate` is new turns a second, whatever became of those before."""

    rate: float = 5.0
    presses_twice: float = 0.3
    stops: float = 0.1
    reconnects: float = 0.2
    second_reader: float = 0.1
    leaves: float = 0.03
    stops_within_s: float = 1.5
    deletes: float = 0.3  # of conversations that have become long
    deletes_running: float = 0.02
    bursts: float = 0.02
    probes: float = 0.2


@dataclass(frozen=True, slots=True)
class Person:
    """One account and its key."""

    id: str
    plan: str
    secret: str
    replies: int  # at once


@dataclass(slots=True)
class _Talk:
    """One conversation of a person; `busy` while one of its turns runs."""

    owner: Person
    id: str
    turns: int = 0
    busy: bool = False
    replies: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _View:
    """What one reader holds of one reply."""

    name: str
    reply: str
    attempt: int = 0
    last: int = 0
    ended: str = ""

    def take(self, event: Event) -> None:
        if event.id is None:
            if event.kind == "reset":
                self.last, self.attempt, self.ended = 0, 0, ""
            return
        self.last = event.id
        if event.kind == "meta":
            told = json.loads(event.data)
            self.attempt, self.reply = told["attempt"], told["messageId"]
        elif event.kind in ("done", "fail"):
            self.ended = event.kind


class Crowd:
    """All people of a run, one random stream. `run` makes turns until `leave` is set."""

    def __init__(
        self,
        people: Sequence[Person],
        gates: dict[str, int],
        writer: Writer,
        seed: str,
        habits: Habits,
    ) -> None:
        self._people = list(people)
        self._gates = dict(gates)
        self._writer = writer
        self._chance = random.Random(seed)
        self._habits = habits
        self._talks: dict[str, list[_Talk]] = {person.id: [] for person in people}
        self._all: list[Asked] = []
        self._gone: set[tuple[str, str, str]] = set()  # owner, conversation, one of its replies
        self.leave = asyncio.Event()
        self.n_turns = 0
        self.n_done = 0
        self.n_events = 0
        self.n_skipped = 0

    async def run(self) -> None:
        """New turns at random moments; returns when all that were begun have ended."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        async with asyncio.TaskGroup() as tasks:
            while not self.leave.is_set():
                due += self._chance.expovariate(self._habits.rate)
                try:
                    async with asyncio.timeout_at(due):
                        await self.leave.wait()
                except TimeoutError:
                    person = self._chance.choice(self._people)
                    burst = self._chance.random() < self._habits.bursts
                    for _ in range(person.replies + 3 if burst else 1):
                        tasks.create_task(self._one_turn(person))

    async def post_all_again(self, share: float) -> int:
        """Every key once more, or a share of them: each must find its turn (C2)."""
        again = [one for one in self._all if self._chance.random() < share]
        owners = {person.id: person for person in self._people}
        limit = asyncio.Semaphore(8)

        async def post(asked: Asked) -> None:
            async with limit:
                await self._post_once(owners[asked.user], asked, "repost")

        await asyncio.gather(*(post(one) for one in again))
        return len(again)

    async def read_all_deleted(self) -> int:
        """What was deleted is looked for once more (C16)."""
        owners = {person.id: person for person in self._people}
        for owner, conv, reply in sorted(self._gone):
            person = owners[owner]
            await self._get(person, "read", f"/v1/conversations/{conv}/messages", conv=conv)
            if reply:
                path = f"/v1/messages/{reply}/stream"
                await self._get(person, "read", path, conv=conv, reply=reply)
        return len(self._gone)

    async def _one_turn(self, person: Person) -> None:
        habits, chance = self._habits, self._chance
        talk = await self._a_talk(person)
        if talk is None:
            self.n_skipped += 1
            return
        self.n_turns += 1
        try:
            await self._ask_and_follow(person, talk)
        finally:
            talk.busy = False
        is_full = talk.turns >= _TURNS_OF_ONE
        if is_full and talk in self._talks[person.id]:
            self._talks[person.id].remove(talk)
        if is_full and chance.random() < habits.deletes:
            await self._delete(person, talk)
        if talk.replies and chance.random() < habits.probes:
            await self._probe(person, talk)

    async def _ask_and_follow(self, person: Person, talk: _Talk) -> None:
        habits, chance = self._habits, self._chance
        asked = self._new_turn(person, talk)
        view = _View(f"{asked.key}/1", "")
        async with asyncio.TaskGroup() as tasks:
            if chance.random() < habits.presses_twice:
                tasks.create_task(self._press_again(person, asked))
            if not await self._insist(person, asked, view, "post"):
                return
            talk.replies.append(view.reply)
            if chance.random() < habits.leaves:
                return
            if chance.random() < habits.stops:
                tasks.create_task(self._stop_later(person, asked, view.reply))
            if chance.random() < habits.deletes_running:
                self._talks[person.id].remove(talk)
                tasks.create_task(self._delete(person, talk))
            if chance.random() < habits.second_reader:
                other = _View(f"{asked.key}/2", view.reply)
                tasks.create_task(self._follow(person, asked, other))
            await self._follow(person, asked, view)
            if view.ended == "fail" and chance.random() < 0.7:
                again = _View(f"{asked.key}/3", view.reply)
                if await self._insist(person, asked, again, "again"):
                    await self._follow(person, asked, again)

    def _new_turn(self, person: Person, talk: _Talk) -> Asked:
        chance = self._chance
        mark = f"{chance.getrandbits(4 * MARK_LETTERS):0{MARK_LETTERS}x}"
        content = f"{chance.choice(_QUESTIONS)}, mark-{mark}?"
        asked = Asked(person.id, person.plan, talk.id, f"k-{mark}", content, mark, time.monotonic())
        talk.turns += 1
        self._all.append(asked)
        self._writer.asked(asked)
        return asked

    async def _a_talk(self, person: Person) -> _Talk | None:
        """One of the person's conversations that is at rest, or a new one; None if all are busy."""
        talks = self._talks[person.id]
        idle = [talk for talk in talks if not talk.busy]
        if idle and (len(talks) >= _CONVERSATIONS or self._chance.random() < 0.7):
            talk = self._chance.choice(idle)
            talk.busy = True
            return talk
        if len(talks) >= _CONVERSATIONS + person.replies:
            return None
        talk = _Talk(person, "", busy=True)
        talks.append(talk)
        key = f"c-{self._chance.getrandbits(64):016x}"
        until = time.monotonic() + _GIVE_UP_S
        while time.monotonic() < until:
            call = self._call("create", person)
            headers = self._headers(person, {"idempotency-key": key})
            made = await small(
                call, self._gates[call.proc], "POST", "/v1/conversations", headers, {},
                patience_s=PATIENCE_S,
            )  # fmt: skip
            self._writer.call(call)
            if call.http == 201 or call.http == 200:
                talk.id = made["id"]
                return talk
            await self._pause()
        talks.remove(talk)
        return None

    async def _insist(self, person: Person, asked: Asked, view: _View, op: str) -> bool:
        """Posts until a gateway answers; whether the turn was taken. Perhaps follows it at once."""
        until = time.monotonic() + _GIVE_UP_S
        while time.monotonic() < until:
            call = await self._post_once(person, asked, op, view)
            if view.reply:
                return True
            if call.http in (400, 401, 403, 404, 409, 422):
                return False
            # Told to come back later, people wait a little, though less than they are asked to.
            await asyncio.sleep(self._chance.uniform(0.4, 1.2) if call.http == 429 else 0.0)
            await self._pause()
        return False

    async def _post_once(
        self, person: Person, asked: Asked, op: str, view: _View | None = None
    ) -> Call:
        streams = view is not None and self._chance.random() < 0.5
        call = self._call(op, person, conv=asked.conv, key=asked.key)
        call.body_sha = hashlib.sha256(asked.content.encode()).hexdigest()[:16]
        headers = self._headers(person, {"idempotency-key": asked.key})
        path = f"/v1/conversations/{asked.conv}/messages"
        body = {"content": asked.content}
        if streams:
            headers["accept"] = "text/event-stream"
            assert view is not None
            call.view = view.name
            await self._listen(call, "POST", path, headers, view, body)
        else:
            told = await small(
                call, self._gates[call.proc], "POST", path, headers, body, patience_s=PATIENCE_S
            )
            if call.http == 202:
                call.reply = told["messageId"]
        if view is not None and call.reply:
            view.reply = call.reply
        self._writer.call(call)
        return call

    async def _press_again(self, person: Person, asked: Asked) -> None:
        for _ in range(self._chance.choice((1, 1, 2))):
            await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.01, 0.3, 1.5)))
            await self._post_once(person, asked, "post")

    async def _follow(self, person: Person, asked: Asked, view: _View) -> None:
        until = time.monotonic() + _GIVE_UP_S
        while not view.ended:
            if time.monotonic() > until:
                call = self._call("gave_up", person, conv=asked.conv, key=asked.key)
                call.reply, call.view, call.outcome = view.reply, view.name, "fail"
                self._writer.call(call)
                return
            call = self._call("stream", person, conv=asked.conv, key=asked.key)
            call.view, call.reply = view.name, view.reply
            call.after, call.attempt = view.last, view.attempt
            headers = self._headers(person, {"accept": "text/event-stream"})
            path = f"/v1/messages/{view.reply}/stream"
            if view.last:
                headers["last-event-id"] = str(view.last)
                path += f"?attempt={view.attempt}"
            await self._listen(call, "GET", path, headers, view)
            self._writer.call(call)
            if call.http in (204, 404):
                return
            if call.http == 409:
                view.last, view.attempt = 0, 0
            if not view.ended:
                await self._pause()

    async def _listen(
        self,
        call: Call,
        method: str,
        path: str,
        headers: dict[str, str],
        view: _View,
        body: Any = None,
    ) -> None:
        leaves_after = None
        if self._chance.random() < self._habits.reconnects:
            leaves_after = self._chance.randint(1, 6)
        port = self._gates[call.proc]
        try:
            answer = await ask(port, method, path, headers, body, patience_s=PATIENCE_S)
            view.reply = view.reply or _reply_in(answer.headers.get("location", ""))
            if not answer.is_stream:
                data = b"".join([piece async for piece in answer.pieces()])
                note_answer(call, answer, data)
                answer.close()
                return
        except Broken as broken:
            note_end(call, broken)
            return
        finally:
            call.t1 = time.monotonic()
        got = events(call, answer, SILENCE_S)
        try:
            async for event in got:
                view.take(event)
                self.n_events += 1
                if len(call.events) == leaves_after or view.ended:
                    self.n_done += bool(view.ended)
                    break
        finally:
            await got.aclose()
        call.reply = view.reply

    async def _stop_later(self, person: Person, asked: Asked, reply: str) -> None:
        await asyncio.sleep(self._chance.uniform(0.0, self._habits.stops_within_s))
        until = time.monotonic() + _GIVE_UP_S
        while time.monotonic() < until:
            call = self._call("stop", person, conv=asked.conv, key=asked.key)
            call.reply = reply
            told = await small(
                call,
                self._gates[call.proc],
                "POST",
                f"/v1/messages/{reply}/stop",
                self._headers(person),
                patience_s=PATIENCE_S,
            )
            if call.http == 200:
                wanted = ("status", "lastEventId", "content", "finish")
                call.body = json.dumps({name: told[name] for name in wanted})
            self._writer.call(call)
            if call.http in (200, 404):
                return
            await self._pause()

    async def _delete(self, person: Person, talk: _Talk) -> None:
        until = time.monotonic() + _GIVE_UP_S
        while time.monotonic() < until:
            call = self._call("delete", person, conv=talk.id)
            await small(
                call,
                self._gates[call.proc],
                "DELETE",
                f"/v1/conversations/{talk.id}",
                self._headers(person),
                patience_s=PATIENCE_S,
            )
            self._writer.call(call)
            if call.http in (204, 404):
                self._gone.add((person.id, talk.id, talk.replies[-1] if talk.replies else ""))
                return
            await self._pause()

    async def _probe(self, person: Person, talk: _Talk) -> None:
        """Somebody else asks for this: it must not be there for them."""
        others = [one for one in self._people if one.id != person.id]
        other = self._chance.choice(others)
        reply = self._chance.choice(talk.replies)
        path = self._chance.choice(
            (f"/v1/messages/{reply}/stream", f"/v1/conversations/{talk.id}/messages")
        )
        await self._get(other, "probe", path, conv=talk.id, reply=reply)

    def anybody(self) -> Person:
        """One of the people."""
        return self._chance.choice(self._people)

    def figures(self) -> dict[str, int]:
        """What there was so far."""
        return {
            "turns": self.n_turns,
            "ends": self.n_done,
            "events": self.n_events,
            "skipped": self.n_skipped,
        }

    async def me(self, person: Person) -> Call:
        """Who am I: the cheapest call that needs the credential alone."""
        return await self._get(person, "me", "/v1/me")

    async def _get(
        self, person: Person, op: str, path: str, *, conv: str = "", reply: str = ""
    ) -> Call:
        call = self._call(op, person, conv=conv)
        call.reply = reply
        told = await small(
            call,
            self._gates[call.proc],
            "GET",
            path,
            self._headers(person),
            patience_s=PATIENCE_S,
        )
        if told is not None and op == "probe":
            call.body = json.dumps(told)[:200]
        self._writer.call(call)
        return call

    def _call(self, op: str, person: Person, *, conv: str = "", key: str = "") -> Call:
        gate = self._chance.choice(list(self._gates))
        return Call(op, person.id, gate, time.monotonic(), conv=conv, key=key)

    def _headers(self, person: Person, more: dict[str, str] | None = None) -> dict[str, str]:
        return {"authorization": f"Bearer {person.secret}", **(more or {})}

    async def _pause(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.03, 0.3))


def _reply_in(location: str) -> str:
    """The reply's id in `/v1/messages/{id}/stream`."""
    return location.split("/")[3] if location.endswith("/stream") else ""
