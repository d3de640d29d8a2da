"""I3 and I19 over random histories: whatever people do to a tree, its prompts stay what they were.

People append, edit, ask again, try again what failed, stop, switch, delete and import; workers
answer, fail, refuse, die and summarise. `tests/lanes/talks.py` says what has to hold; bugs planted
on purpose show that it sees them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tertulia.backends.memory import MemoryBackend
from tertulia.backends.memory import turns as memory_turns
from tertulia.backends.memory.store import MemoryStore
from tertulia.backends.memory.tasks import MemorySummaries
from tertulia.backends.migrations.sqlite import migrate
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.opening import Opening
from tertulia.core.prompt import Context, Course, context_of
from tertulia.worker import context as worker_context
from tertulia.worker import opening as worker_opening
from tests.lanes.memory_desk import OWNER, StillClock
from tests.lanes.talks import ENDS, SEEDS, End, Talks, walk

R = TypeVar("R")

# A handful of the usual ones fill the window; a long one demands a cut by itself.
sizes = st.integers(20, 90) | st.just(400)
picks = st.integers(0, 1_000)


class PromptsHold(RuleBasedStateMachine):
    """Binds what people and workers do to draws."""

    talks: Talks

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = StillClock()
        self.talks = self.open()

    def open(self) -> Talks:
        """Opens the store: a machine for each."""
        raise NotImplementedError

    def run(self, work: Awaitable[R]) -> R:
        return self.runner.run(_awaited(work))

    def teardown(self) -> None:
        try:
            self.check()
        finally:
            self.run(self.talks.backend.close())
            self.runner.close()

    def check(self) -> None:
        """What has to hold at the end."""
        self.run(self.talks.check_all())

    @initialize(n_rounds=st.integers(6, 14), size=st.integers(50, 90), keeps_up=st.booleans())
    def begin(self, n_rounds: int, size: int, keeps_up: bool) -> None:
        """A talk that fills its window at once, or soon."""
        self.run(self.talks.begin())
        self.go_on(size, n_rounds, keeps_up)

    # What people do.

    @rule(size=sizes, pick=picks)
    def append(self, size: int, pick: int) -> None:
        """A message below what was said last, or now and then below any reply."""
        replies = self.talks.talk.ids("assistant")
        older = pick // 4 % len(replies) if replies and pick % 4 == 1 else 0
        self.run(self.talks.ask(size, replies[-1 - older] if replies else None))

    @rule(size=sizes, pick=picks)
    def edit(self, size: int, pick: int) -> None:
        """A message beside one that is there."""
        asked = self.one("user", pick)
        if asked is not None:
            self.run(self.talks.ask(size, self.talks.talk.messages[asked].parent))

    @rule(pick=picks)
    def ask_again(self, pick: int) -> None:
        asked = self.one("user", pick)
        if asked is not None:
            self.run(self.talks.ask_again(asked))

    @rule(pick=picks)
    @precondition(lambda self: self.talks.failed())
    def run_again(self, pick: int) -> None:
        failed = self.talks.failed()
        self.run(self.talks.run_again(failed[pick % len(failed)]))

    @rule(pick=picks, size=sizes)
    @precondition(lambda self: self.talks.open)
    def stop(self, pick: int, size: int) -> None:
        running = list(self.talks.open)
        self.run(self.talks.stop(running[pick % len(running)], size))

    @rule(pick=picks)
    def switch(self, pick: int) -> None:
        target = self.one("assistant", pick)
        if target is not None:
            self.run(self.talks.switch(target))

    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        """One of the newer messages: not all that grows."""
        ids = list(self.talks.talk.messages)[-6:]
        if ids:
            self.run(self.talks.delete(ids[pick % len(ids)]))

    @rule(pick=picks)
    def delete_conversation(self, pick: int) -> None:
        if pick % 7 == 0:
            self.run(self.talks.delete_conversation())

    @rule(said=st.lists(sizes, min_size=1, max_size=9), pick=picks)
    def bring_in(self, said: list[int], pick: int) -> None:
        if pick % 3 == 0:
            self.run(self.talks.bring_in(said))

    # What workers do.

    @rule(end=st.sampled_from(ENDS), size=sizes)
    def answer(self, end: End, size: int) -> None:
        self.run(self.talks.answer(end, size))

    @rule(size=sizes, n_rounds=st.integers(3, 8), keeps_up=st.booleans())
    def go_on(self, size: int, n_rounds: int, keeps_up: bool) -> None:
        """As most talks do; perhaps a worker has the time to summarise."""
        for n in range(n_rounds):
            self.append(size, 0)
            self.answer("completed", 50 + n % 3 * 20)
            if keeps_up:
                self.summarise(50)

    @rule(noted=st.booleans())
    def crash(self, noted: bool) -> None:
        self.run(self.talks.crash(before_it_was_noted=not noted))

    @rule(most=st.sampled_from((1, 2, 50)))
    def summarise(self, most: int) -> None:
        self.run(self.talks.summarise(most))

    # What has to hold at any time.

    @rule(pick=picks)
    @precondition(lambda self: self.talks.told)
    def a_prompt_is_built_again(self, pick: int) -> None:
        told = list(self.talks.told)
        self.run(self.talks.check_again(told[pick % len(told)]))

    @rule()
    def what_is_shown_is_looked_at(self) -> None:
        self.run(self.talks.check_shown())

    def one(self, role: Any, pick: int) -> str | None:
        ids = self.talks.talk.ids(role)
        return ids[pick % len(ids)] if ids else None


class PromptsHoldInMemory(PromptsHold):
    def open(self) -> Talks:
        return Talks(MemoryBackend(self.clock), self.clock)


class PromptsHoldInSqlite(PromptsHold):
    """Now and then the process is another one."""

    def open(self) -> Talks:
        self.folder = Path(tempfile.mkdtemp(prefix="prompts-hold-"))
        (self.folder / "tertulia.db").write_bytes(_empty_file())
        return Talks(SqliteBackend(self.folder / "tertulia.db", self.clock), self.clock)

    @rule()
    def the_process_restarts(self) -> None:
        self.run(self.talks.backend.close())
        self.talks.backend = SqliteBackend(self.folder / "tertulia.db", self.clock)
        self.run(self.talks.backend.queue.restarted())

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.folder)

    def check(self) -> None:
        """I17: of what was deleted no byte is left, in whatever page or log of the file."""
        super().check()
        dead = self.talks.dead_texts()
        scrub = self.talks.backend.erasure.scrub
        assert self.run(scrub(OWNER, self.clock.now())) == "overwritten"
        kept = b"".join(path.read_bytes() for path in sorted(self.folder.iterdir()))
        assert [text for text in dead if text.encode() in kept] == []


async def _awaited(work: Awaitable[R]) -> R:
    return await work


@cache
def _empty_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        migrate(path)
        return path.read_bytes()


TestPromptsHoldInMemory = PromptsHoldInMemory.TestCase
# So many as are quick; many more where new counterexamples are looked for.
_EXAMPLES = settings().max_examples
# A slow machine is no fault of theirs.
_PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck))
TestPromptsHoldInMemory.settings = settings(
    _PATIENT, max_examples=_EXAMPLES // 2, stateful_step_count=20
)
TestPromptsHoldInSqlite = PromptsHoldInSqlite.TestCase
# Every look is a round trip to a thread.
TestPromptsHoldInSqlite.settings = settings(
    _PATIENT, max_examples=_EXAMPLES // 20, stateful_step_count=15
)


def test_most_of_these_talks_are_cut_again_and_again() -> None:
    cuts = [asyncio.run(walk(seed)).n_cuts for seed in SEEDS]
    assert sum(cuts) >= 4 * len(SEEDS), cuts


_PROGRAM = """
import asyncio
from tests.lanes.talks import SEEDS, hash_of, walk
for seed in SEEDS:
    print(hash_of(asyncio.run(walk(seed))))
"""


def test_prompts_are_the_same_in_every_process() -> None:
    """Whatever the order of its sets, its language and its time."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": zone},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, locale, zone in (
            ("0", "C", "UTC"),
            ("1", "tr_TR.UTF-8", "Asia/Kathmandu"),
            ("77", "de_DE.UTF-8", "America/St_Johns"),
        )
    ]
    told = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert told[0].count("\n") == len(SEEDS)
    assert len(set(told)) == 1


# Bugs planted on purpose.


def _slid(course: Course, *, room_tokens: int) -> Context:
    """What others do: the newest exchanges that fit, chosen anew each turn."""
    exchanges = course.exchanges
    first, total = len(exchanges), 0
    while first > 0 and (not total or total + exchanges[first - 1].tokens <= room_tokens):
        first -= 1
        total += exchanges[first].tokens
    return Context(exchanges[first:], first, total, None, first > 0)


def _forgetful(course: Course, *, room_tokens: int) -> Context:
    """Cut half a turn too late, where the window is overfull."""
    return context_of(course, room_tokens=room_tokens + 200)


_ticks = iter(range(10**6))


def _opening_with_a_clock(encode: Callable[[str], Any], system: str, told: str) -> Opening:
    text = f"{system} It is {next(_ticks)}."
    return Opening(text, encode(text), len(encode(text)))


def _of_any_branch(self: MemorySummaries, owner: str, place: str, upto: Any) -> Awaitable[Any]:
    """The newest summary of the conversation, whoever's branch it is."""

    async def newest() -> Any:
        found = [one for key, one in self._store.summaries.items() if key[:2] == (owner, place)]
        return found[-1] if found else None

    return newest()


def _keeps_summaries(self: MemoryStore, owner: str, place: str, *, upto: Any = None) -> None:
    for task in [key for key in self.tasks if key[:2] == (owner, place)]:
        if upto is None or task[3] in upto:
            del self.tasks[task]


def _takes_no_summary(*_: Any) -> Awaitable[None]:
    async def nothing() -> None:
        return None

    return nothing()


PLANTED: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "the window slides": lambda: patch.object(worker_context, "context_of", _slid),
    "the window is overfull": lambda: patch.object(worker_context, "context_of", _forgetful),
    "a clock at the head": lambda: patch.object(worker_opening, "opening", _opening_with_a_clock),
    "another branch's summary": lambda: patch.object(MemorySummaries, "latest", _of_any_branch),
    "a summary outlives its turns": lambda: patch.object(
        MemoryStore, "drop_tasks", _keeps_summaries
    ),
    "no summary is shown": lambda: patch.object(MemorySummaries, "latest", _takes_no_summary),
    "a crash chooses anew": lambda: patch.object(MemorySummaries, "find", _takes_no_summary),
    "another text above a reply": lambda: patch.object(
        memory_turns._Lookup, "goes_on", lambda _: False
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_seen(bug: str) -> None:
    async def walks() -> None:
        for seed in range(20):
            await walk(seed)

    with PLANTED[bug](), pytest.raises(AssertionError):
        asyncio.run(walks())
