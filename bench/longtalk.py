"""A long talk with a real engine: what the benches of contexts and of remembering have in common.

It runs the real worker over the real client; only the store is in memory. It must send each message
when the last reply has ended, as a person does, and charge its time to nobody.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from pydantic import AnyHttpUrl

from bench.admission import stores_of
from bench.engine.contestants import running
from bench.engine.parts import ours
from bench.engine.run import MODELS
from tertulia.backends.clock import SystemClock
from tertulia.backends.memory import MemoryBackend
from tertulia.config import ModelsTable, Settings
from tertulia.core.plans import Plan, Plans
from tertulia.core.types import Admitted, Lane, Limits, NewTurn, Sampling, Status, Turn
from tertulia.fleet_tables import ReplicaTable
from tertulia.replica.description import read_description
from tertulia.wiring.desks import Parts, worker_desk
from tertulia.worker.loop import Worker

LIMITS: Final = Limits((), replies_running=64, lane=Lane.PLUS)
OWNER: Final = "u_bench"
SYSTEM: Final = "You are a friendly assistant. Answer in one short sentence."
ENGINES_S: Final = 60.0  # until every engine is known to be well
REPLY_S: Final = 1_800.0  # on a busy machine ten replies at once take minutes, and are as good
# Tokens of the engine's cache, for each slot more than its usual eight.
SLOT_TOKENS: Final = 2_048
LOOK_S: Final = 0.05


@dataclass
class Desk:
    """A worker and the store that it works on."""

    backend: MemoryBackend
    plan: Plan
    numbers: count[int] = field(default_factory=count)

    async def open(self, name: str) -> None:
        """Makes a conversation."""
        await self.backend.conversations.create(OWNER, name, key=None, prompt_version="v1")

    async def say(self, name: str, content: str, *, model: str) -> Turn:
        """One message at the head of a conversation, once it is answered."""
        place = await self.backend.conversations.get(OWNER, name)
        assert place is not None
        n = next(self.numbers)
        answer = await self.backend.turns.admit(
            NewTurn(
                owner=OWNER,
                key=f"k{n}",
                body_sha="",
                kind="message",
                reply_id=f"m_r{n:06d}",
                plan=self.plan.name,
                requested=model,
                answer_tokens=self.plan.answer_tokens,
                prompt_tokens=self.plan.window_tokens,
                sampling=Sampling(temperature=0.0),
                conversation_id=name,
                user_message_id=f"m_u{n:06d}",
                parent_id=place.head_message_id,
                content=content,
                content_tokens=1,
                tokenizer="counted by the worker",
                title="bench",
            ),
            LIMITS,
        )
        assert isinstance(answer, Admitted), answer
        return await self._ended(answer.turn.reply_id)

    async def _ended(self, reply_id: str) -> Turn:
        async with asyncio.timeout(REPLY_S):
            while True:
                turn = await self.backend.turns.find(OWNER, reply_id)
                assert turn is not None
                if turn.status.is_final:
                    assert turn.status is Status.COMPLETED, turn.failure
                    return turn
                await asyncio.sleep(LOOK_S)

    async def pause(self, *, at_most_s: float) -> None:
        """A person reads meanwhile; shorter where nothing is left to be made."""
        for _ in range(int(at_most_s / LOOK_S)):
            if not any(one.due_at is not None for one in self.backend.store.tasks.values()):
                return
            await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def desk_with(
    models: Mapping[str, str],
    *,
    window: int,
    answer_tokens: int,
    tasks: int,
    threads: int,
    slots: int = 4,
    **more: Any,
) -> AsyncGenerator[Desk, None]:
    """A worker with an engine for each of the models, named by what it is picked as; `more` is for
    the engines."""
    plan = Plan(
        name="plus",
        lane=Lane.PLUS,
        window_tokens=window,
        answer_tokens=answer_tokens,
        min_answer_tokens=8,
        abandon_s=None,
    )
    clock = SystemClock()
    backend = MemoryBackend(clock)
    await backend.conversations.prompt_text("v1", store=SYSTEM)
    with ExitStack() as started:
        folder = Path(started.enter_context(tempfile.TemporaryDirectory()))
        replicas = []
        for pool, name in models.items():
            engine = started.enter_context(
                running(ours(n_slots=slots, **more), MODELS / name, threads)
            )
            replicas.append(
                ReplicaTable(
                    name=pool,
                    pool="small" if pool == "small" else "large",
                    model=read_description(MODELS / name).served_id,
                    url=AnyHttpUrl(f"http://127.0.0.1:{engine.port}"),
                    slots=slots,
                    engine="tertulia",
                    vocabulary=MODELS / name,
                )
            )
        settings = Settings(
            data_dir=folder, models=ModelsTable(embedded=False), replicas=tuple(replicas)
        )
        parts = Parts(settings, clock, stores_of(backend, clock))
        made = worker_desk(parts)
        made = replace(
            made, plans=Plans({"free": plan, "plus": plan}), rules=replace(made.rules, tasks=tasks)
        )
        async with asyncio.TaskGroup() as group:
            duties = [group.create_task(parts.replicas.run())]
            async with asyncio.timeout(ENGINES_S):
                while any(one.state != "ready" for one in parts.replicas.models()):
                    await parts.replicas.changed(timeout_s=LOOK_S)
            duties.append(group.create_task(Worker(made).run()))
            yield Desk(backend, plan)
            for duty in duties:
                duty.cancel()
