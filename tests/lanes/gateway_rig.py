"""A whole gateway for tests: real app, lanes, worker and memory back end, with invented models.

Only the replicas, the vocabulary and the checks are stand-ins, because tests can't own a model.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from tertulia.backends.bell import LocalBell
from tertulia.backends.clock import SystemClock, SystemIds
from tertulia.backends.grader import FeatureGrader
from tertulia.backends.memory import MemoryBackend
from tertulia.backends.memory.fleet import MemoryHolds
from tertulia.backends.memory.leases import MemoryLeases
from tertulia.backends.memory.promises import MemoryPromises
from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.core.deletions import CacheAnswer
from tertulia.core.fleet import ReplicaSight, Wanted
from tertulia.core.plans import Plan
from tertulia.core.quota import MILLI
from tertulia.core.rollout import ALL, Rollout
from tertulia.core.types import (
    Budget,
    Chunk,
    GenerateRequest,
    Lane,
    ModelState,
    PromptMessage,
    Said,
    TokenIds,
    Unit,
    Usage,
    User,
    Verdict,
)
from tertulia.flagging import Flags
from tertulia.gateway.app import create_app
from tertulia.gateway.counters import Counters
from tertulia.gateway.desk import Desk, GatewayRules
from tertulia.gateway.figures import Figures
from tertulia.gateway.line import LineWatch
from tertulia.gateway.patience import PatientHttp
from tertulia.gateway.porter import carry_imports
from tertulia.gateway.pulse import Pulse
from tertulia.gateway.pump import pump_batches
from tertulia.gateway.refusals import Refusals
from tertulia.gateway.streams import OpenStreams
from tertulia.lookout import Lookout
from tertulia.ports import Leases, Rungs
from tertulia.wiring.planning import ProcessPlanning
from tertulia.worker.desk import WorkerDesk, WorkerRules
from tertulia.worker.loop import Worker

PASSWORD = "a long enough password"
# A sentence is released when the next one begins: the first, once three parts were said.
ANSWER = ("Decode reads every weight ", "for each token. ", "So memory ", "is the limit.")
FIRST = "".join(ANSWER[:2])
FORBIDDEN = "forbiddenword"


class Letters:
    """A vocabulary in which every character is one token; it has two control tokens."""

    name = "letters"
    window = 8_000
    cost = (2, 2)
    control_ids = frozenset({1, 2})

    def encode(self, text: str) -> TokenIds:
        return tuple(ord(letter) + 10 for letter in text)

    def encode_control(self, text: str) -> TokenIds:
        return tuple({"<": 1, ">": 2}[letter] for letter in text)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(number - 10) for number in ids if number >= 10)

    def render(self, messages: Sequence[PromptMessage]) -> Sequence[Chunk]:
        chunks = [Chunk("control", "<")]
        for message in messages:
            chunks += [Chunk("text", message.content), Chunk("control", ">")]
        return chunks


@dataclass
class ScriptedReplicas:
    """Says the script at once; while `hold` is not set it stays silent after `before_hold` units.

    `aborted` lists what was aborted, `forgotten` whose cache was dropped, `asked` every request.
    """

    script: Sequence[str] = ANSWER
    before_hold: int = 10_000
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    states: list[ModelState] = field(
        default_factory=lambda: [
            ModelState("large", "lab/large-8b", "fetching", done_bytes=5, total_bytes=10),
            ModelState("small", "lab/small-1b", "ready", room=64, window=8_000),
        ]
    )
    aborted: list[str] = field(default_factory=list)
    forgotten: list[tuple[str, str | None]] = field(default_factory=list)
    asked: list[GenerateRequest] = field(default_factory=list)
    finish: str = "stop"
    n_cached: int = 3
    seen: list[ReplicaSight] = field(default_factory=list)

    def sights(self) -> Sequence[ReplicaSight]:
        return self.seen

    def models(self) -> Sequence[ModelState]:
        return self.states

    async def place(self, wanted: Wanted) -> str | None:
        return "replica-1"

    async def generate(
        self, replica: str, request: GenerateRequest, **_: object
    ) -> AsyncGenerator[Said, None]:
        self.asked.append(request)
        vocabulary = Letters()
        for number, text in enumerate(self.script):
            if number == self.before_hold:
                await self.hold.wait()
            yield Said((Unit(text, vocabulary.encode(text)),))
        yield Said((), finish=self.finish, usage=Usage(len(request.prompt), self.n_cached, 1))

    async def abort(self, replica: str, request_id: str) -> None:
        self.aborted.append(request_id)

    async def forget(self, owner: str, conversation_id: str | None) -> dict[str, CacheAnswer]:
        self.forgotten.append((owner, conversation_id))
        return {"replica-1": "forgotten"}

    async def changed(self, *, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, 0.01))


class WordCheck:
    """Flags one word, in and out."""

    async def check_input(self, text: str) -> Verdict:
        return self._verdict(text)

    async def check_output(self, before: str, sentence: str) -> Verdict:
        return self._verdict(sentence)

    def _verdict(self, text: str) -> Verdict:
        return Verdict(FORBIDDEN in text, "rules", "I can't help with that.")


def units_in_3_hours(units: int) -> Budget:
    """A budget of so many units."""
    return Budget("units_3h", "units", units * MILLI, 10_800_000)


PLANS = {
    "free": Plan(
        name="free",
        window_tokens=8_000,
        answer_tokens=400,
        budgets=(units_in_3_hours(100_000),),
        models=("small", "large"),
    ),
    "plus": Plan(
        name="plus",
        lane=Lane.PLUS,
        window_tokens=32_000,
        answer_tokens=800,
        budgets=(units_in_3_hours(1_000_000),),
        models=("small", "large"),
    ),
}
RULES = GatewayRules()
SYSTEM_PROMPT = "Be kind."

# Everything is on loopback; loading the system's certificates costs 60 ms a client.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass
class Rig:
    """One gateway, what is behind it, and clients of it."""

    app: ASGIApp
    desk: Desk
    backend: MemoryBackend
    replicas: ScriptedReplicas
    url: str
    worker: Worker
    leases: Leases
    working: asyncio.Task[None]
    clients: list[httpx2.AsyncClient] = field(default_factory=list)

    def client(self, **headers: str) -> httpx2.AsyncClient:
        """A client without a credential."""
        client = httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=20, verify=_NO_TLS, trust_env=False
        )
        self.clients.append(client)
        return client

    async def user(
        self, name: str, *, plan: str = "free", role: str = "user"
    ) -> httpx2.AsyncClient:
        """A new user's client, with an API key."""
        client = self.client()
        made = await client.post("/v1/auth/register", json={"name": name, "password": PASSWORD})
        assert made.status_code == 200, made.text
        client.headers["Origin"] = self.url
        key = await client.post("/v1/api-keys", json={"name": "tests"})
        assert key.status_code == 201, key.text
        await self.backend.accounts.change(made.json()["id"], {"plan": plan, "role": role})
        return self.client(Authorization=f"Bearer {key.json()['secret']}")

    async def browser(self, name: str) -> httpx2.AsyncClient:
        """A new user's client with a session cookie, sending what a browser sends."""
        client = self.client(Origin=self.url)
        made = await client.post("/v1/auth/register", json={"name": name, "password": PASSWORD})
        assert made.status_code == 200, made.text
        return client


@asynccontextmanager
async def rig(
    *,
    rules: GatewayRules = RULES,
    lease_s: float = 2.0,
    plans: dict[str, Plan] | None = None,
    replicas: ScriptedReplicas | None = None,
    rungs: Rungs | None = None,
    change_desk: Callable[[Desk], Desk] = lambda desk: desk,
    page: ASGIApp | None = None,
    leases: Leases | None = None,
    tasks_at_once: int = 0,
) -> AsyncIterator[Rig]:
    """The gateway on a loopback port with a worker beside it, until the block ends."""
    clock = SystemClock()
    backend = MemoryBackend(clock)
    bell = LocalBell()
    replicas = replicas or ScriptedReplicas()
    vocabulary = Letters()
    plans = plans or PLANS
    await backend.conversations.prompt_text("v1", store=SYSTEM_PROMPT)
    await backend.prompts.roll_out(None, Rollout("v1", "v1", ALL, "v1"))
    shared: dict[str, Any] = {
        "turns": backend.turns,
        "loose": backend.loose,
        "log": backend.log,
        "bell": bell,
        "conversations": backend.conversations,
        "messages": backend.messages,
        "accounts": backend.accounts,
        "files": backend.files,
        "batches": backend.batches,
        "deletions": backend.deletions,
        "erasure": backend.erasure,
        "imports": backend.imports,
        "prompts": backend.prompts,
        "instructions": backend.instructions,
        "replicas": replicas,
        "checks": WordCheck(),
        "vocabulary": lambda _name: vocabulary,
        "clock": clock,
        "lookout": Lookout(rungs or MemoryRungs(clock), clock, name="rig"),
        "plans": plans,
    }
    leases = leases or MemoryLeases(clock)
    counters = Counters(leases, MemoryLeases(clock), clock)
    line = LineWatch(backend.line, MemoryPromises(clock), replicas, clock)
    figures, flags = Figures(), Flags()
    desk = change_desk(
        Desk(
            presence=backend.presence,
            branches=backend.branches,
            shares=backend.shares,
            grader=FeatureGrader(),
            sessions=backend.sessions,
            identities=backend.identities,
            api_keys=backend.api_keys,
            batch_work=backend.batch_work,
            transcripts=backend.transcripts,
            import_work=backend.import_work,
            new_id=SystemIds(clock),
            line=line,
            holds=MemoryHolds(),
            planning=ProcessPlanning(),
            pulse=Pulse(replicas, line, shared["lookout"], figures, clock),
            figures=figures,
            flags=flags,
            refusals=Refusals(backend.accounts, clock),
            counters=counters,
            streams=OpenStreams(counters),
            rules=rules,
            **shared,
        )
    )
    worker_desk = WorkerDesk(
        queue=backend.queue,
        line=backend.line,
        tasks=backend.tasks,
        summaries=backend.summaries,
        split=_by_points,
        rules=WorkerRules(lease_s=lease_s, sentence_tokens=400, tasks=tasks_at_once),
        flags=flags,
        **shared,
    )
    app = create_app(desk, page=page or _no_page)
    async with asyncio.TaskGroup() as tasks:
        worker = Worker(worker_desk)
        working = tasks.create_task(worker.run())
        beating = [
            tasks.create_task(desk.streams.beat(desk.presence, desk.clock)),
            tasks.create_task(desk.streams.hold(desk.clock)),
            tasks.create_task(desk.streams.recheck(desk.sessions, desk.api_keys, desk.clock)),
        ]
        pumping = tasks.create_task(pump_batches(desk))
        carrying = tasks.create_task(carry_imports(desk))
        try:
            async with served(app) as url:
                here = Rig(app, desk, backend, replicas, url, worker, leases, working)
                try:
                    yield here
                finally:
                    replicas.hold.set()
                    for client in here.clients:
                        await client.aclose()
        finally:
            working.cancel()
            for beat in beating:
                beat.cancel()
            pumping.cancel()
            carrying.cancel()


async def new_conversation(client: httpx2.AsyncClient) -> str:
    """The id of a fresh conversation."""
    made = await client.post("/v1/conversations", json={})
    assert made.status_code == 201, made.text
    name: str = made.json()["id"]
    return name


async def ask(
    client: httpx2.AsyncClient, conversation: str, content: str = "Why?", **more: Any
) -> httpx2.Response:
    """Posts a message and reads the whole stream."""
    key = more.pop("key", content.replace(" ", "-"))
    return await client.post(
        f"/v1/conversations/{conversation}/messages",
        json={"content": content, **more},
        headers={"Accept": "text/event-stream", "Idempotency-Key": key},
    )


async def ask_later(
    client: httpx2.AsyncClient, conversation: str, content: str = "Why?", **more: Any
) -> httpx2.Response:
    """Posts a message and takes the 202."""
    key = more.pop("key", content.replace(" ", "-"))
    return await client.post(
        f"/v1/conversations/{conversation}/messages",
        json={"content": content, **more},
        headers={"Accept": "application/json", "Idempotency-Key": key},
    )


def events(body: str) -> list[tuple[int | None, str, Any]]:
    """The (id, event, data) of a finished stream; comments and `retry` are left out."""
    found = []
    for block in body.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in fields:
            number = int(fields["id"]) if "id" in fields else None
            found.append((number, fields["event"], json.loads(fields["data"])))
    return found


def text_of(body: str) -> str:
    """The reply that a client shows after this stream."""
    return "".join(data["text"] for _, kind, data in events(body) if kind == "delta")


async def until(condition: Callable[[], Any | Awaitable[Any]]) -> Any:
    """Waits for a condition of this process; a test's time-out bounds it."""
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        await asyncio.sleep(0.005)


def admin_user(backend: MemoryBackend) -> User:
    """An administrator's record, to be added by a test."""
    return User("u_admin", "root", "admin", "plus", None, 0.0)


def with_budget(units: int) -> dict[str, Plan]:
    """The usual plans with another budget for free users."""
    return {**PLANS, "free": replace(PLANS["free"], budgets=(units_in_3_hours(units),))}


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """uvicorn's protocol without uvicorn's main loop, whose ticks would cost each test 0.2 s."""
    config = Config(app, log_level="critical", lifespan="off", access_log=False)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: PatientHttp(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*state.tasks, return_exceptions=True), 5)


async def _no_page(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _by_points(text: str) -> Sequence[str]:
    sentences, rest = [], text
    while (at := rest.find(". ")) >= 0:
        sentences.append(rest[: at + 2])
        rest = rest[at + 2 :]
    return [*sentences, rest] if rest else sentences
