"""A worker's desk over the memory back end and a clock that stands still, for prompts and tasks.

Only the replicas, the vocabulary and the checks are stand-ins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from tertulia.backends.bell import LocalBell
from tertulia.backends.memory import MemoryBackend
from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.core.deletions import CacheAnswer
from tertulia.core.fleet import Wanted
from tertulia.core.plans import Plan
from tertulia.core.types import (
    Admitted,
    Finish,
    GenerateRequest,
    ModelState,
    NewTurn,
    Note,
    Outcome,
    Reason,
    Said,
    Sampling,
    Status,
    TokenIds,
    Turn,
    Unit,
    Usage,
)
from tertulia.lookout import Lookout
from tertulia.worker.context import Prompt, build_prompt, read_branch
from tertulia.worker.desk import WorkerDesk, WorkerRules
from tertulia.worker.remember import want_after
from tests.conformance.world import PLENTY, Backend, ManualClock
from tests.lanes.gateway_rig import Letters, WordCheck, _by_points

OWNER, PLACE = "ann", "c_1"
WINDOW = 1_200
PLAN = Plan(name="free", window_tokens=WINDOW, answer_tokens=100)
SERVED = "lab/small-1b"


class StillClock(ManualClock):
    """Who sleeps by it lets the others go on; only a test moves it."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.001)


class ShortLetters(Letters):
    """A model with a small window."""

    window = WINDOW


@dataclass
class Scribe:
    """Replicas that say what `says` makes of a request, and keep every request."""

    says: Callable[[GenerateRequest], str] = lambda _: "They met. They spoke."
    finish: str = "stop"
    room: int = 8
    states: Sequence[str] = ("small",)
    asked: list[GenerateRequest] = field(default_factory=list)

    def models(self) -> Sequence[ModelState]:
        served = {"small": SERVED, "large": "lab/large-8b"}
        return [
            ModelState(name, served[name], "ready", room=self.room, slots=8, window=WINDOW)
            for name in self.states
        ]

    async def place(self, wanted: Wanted) -> str | None:
        return "replica-1" if self.room else None

    async def generate(
        self, replica: str, request: GenerateRequest, **_: object
    ) -> AsyncGenerator[Said, None]:
        self.asked.append(request)
        said = self.says(request)
        ids = ShortLetters().encode(said)
        yield Said((Unit(said, ids),))
        yield Said((), finish=self.finish, usage=Usage(len(request.prompt), 0, len(ids)))

    async def abort(self, replica: str, request_id: str) -> None:
        return

    async def forget(self, owner: str, conversation_id: str | None) -> dict[str, CacheAnswer]:
        return {}

    async def changed(self, *, timeout_s: float) -> None:
        return


def desk_over(
    backend: Backend, clock: StillClock, replicas: Scribe, plan: Plan, vocabulary: Letters
) -> WorkerDesk:
    """A desk over any store."""
    return WorkerDesk(
        turns=backend.turns,
        queue=backend.queue,
        line=backend.line,
        log=backend.log,
        bell=LocalBell(),
        conversations=backend.conversations,
        messages=backend.messages,
        loose=backend.loose,
        accounts=backend.accounts,
        prompts=backend.prompts,
        instructions=backend.instructions,
        files=backend.files,
        imports=backend.imports,
        batches=backend.batches,
        deletions=backend.deletions,
        erasure=backend.erasure,
        tasks=backend.tasks,
        summaries=backend.summaries,
        replicas=replicas,
        checks=WordCheck(),
        vocabulary=lambda _: vocabulary,
        split=_by_points,
        clock=clock,
        lookout=Lookout(MemoryRungs(clock), clock, name="worker"),
        plans={"free": plan},
        rules=WorkerRules(),
    )


class Talk:
    """One conversation whose turns are answered at once with the words that a test gives."""

    def __init__(self, replicas: Scribe | None = None, *, plan: Plan = PLAN) -> None:
        self.clock = StillClock()
        self.backend = MemoryBackend(self.clock)
        self.replicas = replicas or Scribe()
        self.plan = plan
        self.desk = self.new_desk()
        self._numbers = count()

    def new_desk(self, *, tasks: int = 1) -> WorkerDesk:
        """The desk of another worker over the same store."""
        desk = desk_over(self.backend, self.clock, self.replicas, self.plan, ShortLetters())
        return replace(desk, rules=WorkerRules(tasks=tasks))

    async def open(self, *, system: str = "Be kind.") -> None:
        """Makes the conversation."""
        await self.backend.conversations.prompt_text("v1", store=system)
        await self.backend.conversations.create(OWNER, PLACE, key=None, prompt_version="v1")

    async def ask(
        self, content: str, *, parent: str | None = None, again: str | None = None
    ) -> Turn:
        """A new message under `parent`, or a further reply to `again`; claimed."""
        n = next(self._numbers)
        answer = await self.backend.turns.admit(
            NewTurn(
                owner=OWNER,
                key=f"k{n}",
                body_sha="sha",
                kind="message" if again is None else "regenerate",
                reply_id=f"m_r{n}",
                plan="free",
                requested="auto",
                answer_tokens=self.plan.answer_tokens,
                prompt_tokens=self.plan.window_tokens,
                sampling=Sampling(),
                conversation_id=PLACE,
                user_message_id=again or f"m_u{n}",
                parent_id=parent,
                content=content,
                content_tokens=len(content),
                tokenizer=ShortLetters.name,
                title=content[:20],
            ),
            PLENTY,
        )
        assert isinstance(answer, Admitted), answer
        return await self.claim()

    async def claim(self) -> Turn:
        """The open turn, whoever held it."""
        self.clock.pass_(60)
        turn = await self.backend.queue.claim(lease_s=2.0)
        assert turn is not None
        return turn

    async def prompt(self, turn: Turn, desk: WorkerDesk | None = None) -> Prompt:
        """What a replica would be sent for the turn."""
        desk = desk or self.desk
        return await build_prompt(desk, turn, await read_branch(desk, turn), ShortLetters())

    async def begin(self, turn: Turn, prompt: Prompt) -> None:
        """Stores who answers, as a worker does before it asks a replica."""
        summary = prompt.summary
        noted = Note(
            attempt=turn.attempt,
            model=SERVED,
            reason=Reason.AUTO,
            replica="replica-1",
            request_id=turn.reply_id,
            prompt_tokens=len(prompt.ids),
            pin="pin",
            notices=prompt.notices,
            summary_id=summary.id if summary is not None else None,
        )
        assert await self.backend.turns.note(turn.held, noted)

    async def end(
        self, turn: Turn, prompt: Prompt, said: str, status: Status = Status.COMPLETED
    ) -> None:
        """Ends the turn with what was said, and notes what is left to do."""
        ids = ShortLetters().encode(said)
        outcome = Outcome(
            status=status,
            attempt=turn.attempt,
            finish=Finish.STOP if status is Status.COMPLETED else None,
            text=said,
            usage=Usage(len(prompt.ids), 0, len(ids)),
            last_event_id=3,
            ids=ids,
            tokenizer=ShortLetters.name,
        )
        assert await self.backend.turns.finish(turn.held, outcome)
        if status is Status.COMPLETED and ids:
            await want_after(self.desk, turn, prompt, reply_tokens=len(ids) + 2)

    async def turn(self, content: str, said: str, *, parent: str | None = None) -> Prompt:
        """A whole turn at the head, or under `parent`."""
        if parent is None:
            found = await self.backend.conversations.get(OWNER, PLACE)
            parent = found.head_message_id if found is not None else None
        turn = await self.ask(content, parent=parent)
        prompt = await self.prompt(turn)
        await self.begin(turn, prompt)
        await self.end(turn, prompt, said)
        return prompt


def words(ids: TokenIds) -> str:
    """A prompt as people read it: control tokens are gone."""
    return ShortLetters().decode(ids)
