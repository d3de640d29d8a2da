"""What every drill works with: a fleet, a person who asks, and a timeline of what was seen.

A drill breaks things and looks from outside; it must never reach into the processes it breaks.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

from tertulia.config import load_settings
from tertulia.drills.fleet import REPLICA_KEY, DrillFleet, FleetFailed
from tertulia.drills.listener import Listener, Seen
from tertulia.drills.loopback import loopback
from tertulia.drills.processes import Role
from tertulia.wiring.door import new_sign_in_token

QUESTION: Final = "Write a long story about a ship and the people who sail on it."
# A reply that was asked for in a drill ends within this, or the drill has failed: some seconds on a
# quiet machine, more than a minute where others compute as well.
REPLY_S: Final = 150.0
_ANSWER_S: Final = 5.0
_LOOK_S: Final = 0.02
# Events with words before something breaks: a reply in its middle, and far from its end.
_WORDS: Final = 3

_RUNNING: Final = {
    "replica": re.compile(r"^vllm:num_requests_running(?:{[^}]*})? ([0-9.e+]+)", re.MULTILINE),
    "worker": re.compile(r"^tertulia_worker_replies_running ([0-9.e+]+)", re.MULTILINE),
}


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing that is promised, whether it was kept, and what was seen of it."""

    text: str
    kept: bool
    seen: str


class Inconclusive(Exception):
    """Nothing was shown: what should have been broken was over already."""


@dataclass(slots=True)
class Stage:
    """A fleet with one person. `say` gets the lines of the timeline."""

    fleet: DrillFleet
    key: str
    say: Callable[[str], None]
    began_at: float = field(default_factory=time.monotonic)
    _asked: int = 0
    _posted: int = 0

    def now(self) -> float:
        """Seconds since the drill began."""
        return time.monotonic() - self.began_at

    def note(self, line: str) -> None:
        """One line of the timeline."""
        self.say(f"{self.now():7.2f} s  {line}")

    async def conversation(self, gateway: int = 0) -> str:
        """A new conversation's id."""
        made = await self.call("POST", "/v1/conversations", {}, gateway=gateway)
        conversation: str = made.json()["id"]
        return conversation

    async def ask(self, seen: Seen, *, gateway: int = 0) -> Seen:
        """Asks at this gateway and follows to the end, wherever that is possible."""
        self._asked += 1
        urls = [role.url for role in self.fleet.gateways]
        number = f"reply {self._asked}" if self._asked > 1 else "the reply"
        listener = Listener(
            self.key, urls, self.now, lambda line: self.note(f"{number}: {line}"), at=gateway
        )
        key = f"drill-{self._asked}"
        seen.conversation = seen.conversation or await self.conversation(gateway)
        self.note(f"{number}: asked at gateway {gateway + 1}")
        await listener.ask(seen, key, until_s=REPLY_S)
        end = f"{seen.end[0]}, {seen.last} events" if seen.end else "no end"
        self.note(f"{number}: {end}, longest silence {seen.longest_gap_s:.2f} s")
        return seen

    async def in_mid_reply(
        self, break_it: Callable[[], Awaitable[object]], *, gateway: int = 0
    ) -> Seen:
        """Asks, breaks something once words have come, and follows to the end."""
        (seen,) = await self.in_mid_replies(1, break_it, gateway=gateway)
        return seen

    async def in_mid_replies(
        self, count: int, break_it: Callable[[], Awaitable[object]], *, gateway: int = 0
    ) -> list[Seen]:
        """The same with several replies at once, each of which has words before anything breaks."""
        replies, failed = [Seen(QUESTION) for _ in range(count)], None
        async with asyncio.TaskGroup() as tasks:
            for seen in replies:
                tasks.create_task(self.ask(seen, gateway=gateway))
            try:
                for seen in replies:
                    await self.words(seen)
                if any(seen.end is not None for seen in replies):
                    raise Inconclusive("a reply was over before anything broke")
                await break_it()
            except (Inconclusive, FleetFailed) as error:
                failed = error
        if failed is not None:
            raise failed
        return replies

    async def words(self, seen: Seen) -> None:
        """Returns once a few words have come; Inconclusive if the reply is over by then."""
        while seen.last <= _WORDS:
            if seen.end is not None or seen.faults:
                raise Inconclusive(f"the reply was over after {seen.last} events")
            await asyncio.sleep(_LOOK_S)

    async def call(
        self, method: str, path: str, body: Any = None, *, gateway: int = 0, key: str | None = None
    ) -> httpx2.Response:
        """One call to a gateway, read whole; an answer takes 5 s at most."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        if method == "POST":
            self._posted += 1
            headers["Idempotency-Key"] = f"drill-call-{self._posted}"
        async with loopback(_ANSWER_S) as http:
            url = self.fleet.gateways[gateway].url + path
            return await http.request(method, url, json=body, headers=headers)

    async def stored(self, seen: Seen, *, gateway: int = 0) -> dict[str, Any]:
        """The reply as the store has it."""
        path = f"/v1/conversations/{seen.conversation}/messages"
        found = await self.call("GET", path, gateway=gateway)
        same = [item for item in found.json()["items"] if item["id"] == seen.reply_id]
        return same[0] if same else {}

    async def busy(self, roles: Sequence[Role], kind: str) -> Role:
        """The one of these replicas or workers that is answering now."""
        for role in roles:
            if await self.running(role, kind):
                return role
        raise Inconclusive(f"no {kind} was answering any more")

    async def running(self, role: Role, kind: str) -> float:
        """How many replies a replica or worker says that it is answering."""
        headers = {"Authorization": f"Bearer {REPLICA_KEY}"}
        async with loopback(_ANSWER_S) as http:
            page = (await http.get(role.url + "/metrics", headers=headers)).text
        found = _RUNNING[kind].search(page)
        return float(found[1]) if found is not None else 0.0

    async def kill(self, role: Role) -> None:
        """`kill -9`, noted."""
        await role.kill()
        self.note(f"killed {role.name} (SIGKILL)")

    async def bring_back(self, role: Role) -> None:
        """Starts it again, as an orchestrator would, and returns when it is ready."""
        await role.start()
        await self.fleet.ready([role])
        self.note(f"{role.name} is back")


async def new_stage(fleet: DrillFleet, say: Callable[[str], None]) -> Stage:
    """A stage whose person is the fleet's administrator, signed in as people are."""
    token = await new_sign_in_token(load_settings(fleet.config))
    url = fleet.gateways[0].url
    async with loopback(_ANSWER_S, base_url=url) as http:
        signed_in = await http.post("/v1/auth/link", json={"token": token})
        signed_in.raise_for_status()
        made = await http.post("/v1/api-keys", json={"name": "drill"}, headers={"Origin": url})
        made.raise_for_status()
    return Stage(fleet, made.json()["secret"], say)


async def whole(stage: Stage, seen: Seen, *, gateway: int = 0) -> list[Promise]:
    """What every reply of every drill keeps, whatever broke; `gateway` is one that is up."""
    stored = await stage.stored(seen, gateway=gateway)
    end = seen.end[0] if seen.end else "none"
    return [
        Promise(
            "events 1, 2, 3 … without gap or repeat",
            not seen.faults,
            "; ".join(seen.faults) or f"{seen.last} events",
        ),
        Promise("it ends, and no error is shown", end == "done", f"the last event was {end}"),
        Promise(
            "what was shown is what is stored",
            seen.text == stored.get("content") and seen.last == stored.get("lastEventId"),
            f"{len(seen.text)} characters shown, {len(stored.get('content', ''))} stored",
        ),
        Promise("no word is taken back", seen.resets == 0, f"{seen.resets} resets"),
    ]


async def all_whole(stage: Stage, replies: Sequence[Seen]) -> list[Promise]:
    """The same of several: one line for each promise, kept if it was kept for every reply."""
    by_text: dict[str, list[Promise]] = {}
    for seen in replies:
        for promise in await whole(stage, seen):
            by_text.setdefault(promise.text, []).append(promise)
    return [
        Promise(
            text,
            all(promise.kept for promise in same),
            next((p.seen for p in same if not p.kept), f"{len(same)} replies, {same[0].seen}"),
        )
        for text, same in by_text.items()
    ]


def silent_at_most(bound_s: float, *replies: Seen, usual_s: float | None = None) -> Promise:
    """How much longer a person waits for the next words than the machine takes for a sentence.

    `usual_s` is what a sentence takes at most; if not given, each reply's own second longest wait.
    """
    waits = [(s.longest_gap_s, s.usual_gap_s if usual_s is None else usual_s) for s in replies]
    longest_s, usual_s = max(waits, key=lambda wait: wait[0] - wait[1])
    return Promise(
        f"no silence is longer than a sentence takes and {bound_s:g} s more",
        longest_s - usual_s <= bound_s,
        f"{longest_s:.2f} s, and a sentence takes {usual_s:.2f} s here",
    )
