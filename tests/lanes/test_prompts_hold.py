"""I3 and I19 over random histories: whatever people do to a tree, its prompts stay what they were.

People append, edit, ask again, stop, switch and delete; workers answer, fail and refuse. A prompt
is built by the worker's own code when its turn is claimed, and again at any time after that.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tertulia.backends.bell import LocalBell
from tertulia.backends.checks import RulesChecks
from tertulia.backends.memory import MemoryBackend
from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.backends.migrations.sqlite import migrate
from tertulia.backends.splitting import split_sentences
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.plans import Plan
from tertulia.core.types import (
    HEAD,
    Admitted,
    Failure,
    Finish,
    Message,
    NewTurn,
    Status,
    Turn,
)
from tertulia.lookout import Lookout
from tertulia.worker.context import Prompt, build_prompt, read_branch
from tertulia.worker.desk import WorkerDesk, WorkerRules
from tests.conformance.world import PLENTY, Backend, ManualClock, completed, message, regenerate
from tests.lanes.gateway_rig import Letters, ScriptedReplicas

SYSTEM = "Be kind to everyone."
# So narrow that a handful of messages overflow it, and wide enough for the longest of them.
PLAN = Plan(name="free", window_tokens=160, answer_tokens=40, budgets=PLENTY.budgets)
VOCABULARY = Letters()
ENDS = (Status.COMPLETED, Status.COMPLETED, Status.COMPLETED, Status.FAILED, Status.REFUSED)

# The template's own marks among them: as text they must stay text.
said = st.text(alphabet="ab<>é🙂 ", min_size=1, max_size=24)
picks = st.integers(0, 1_000)


@dataclass(frozen=True)
class Built:
    """A prompt as it was when its turn was claimed."""

    turn: Turn
    prompt: Prompt


class PromptsHold(RuleBasedStateMachine):
    """One owner's conversations in one store. `built` has the prompt of each reply that was ever
    claimed; a rule that changes what prompts hold (a summary, an import) adds to `expected`."""

    store: Any

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.built: dict[str, Built] = {}
        self.deleted: set[str] = set()
        self.heads: dict[str, str] = {}  # the last head whose branch led through a message
        self.number = 0
        self.open()
        self.begin()

    def open(self) -> None:
        """Opens the store: a machine for each."""
        raise NotImplementedError

    def begin(self) -> None:
        store = self.store.conversations
        self.run(store.prompt_text("v1", store=SYSTEM))
        self.number += 1
        self.place = f"c_{self.number}"
        self.run(store.create("ana", self.place, key=None, prompt_version="v1"))

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()

    def run(self, call: Any) -> Any:
        return self.runner.run(_awaited(call))

    @property
    def desk(self) -> WorkerDesk:
        store: Backend = self.store
        return WorkerDesk(
            turns=store.turns,
            queue=store.queue,
            line=store.line,
            log=store.log,
            bell=LocalBell(),
            conversations=store.conversations,
            messages=store.messages,
            tasks=store.tasks,
            summaries=store.summaries,
            loose=store.loose,
            accounts=store.accounts,
            prompts=store.prompts,
            instructions=store.instructions,
            files=store.files,
            imports=store.imports,
            batches=store.batches,
            deletions=store.deletions,
            erasure=store.erasure,
            replicas=ScriptedReplicas(),
            checks=RulesChecks(),
            vocabulary=lambda _: VOCABULARY,
            split=split_sentences,
            clock=self.clock,
            lookout=Lookout(MemoryRungs(self.clock), self.clock, name="here"),
            plans={"free": PLAN},
            rules=WorkerRules(),
        )

    # What people do.

    @rule(text=said, pick=picks)
    def append(self, text: str, pick: int) -> None:
        """A message below what is shown, or now and then below any reply."""
        replies = [one.id for one in self.messages() if one.role == "assistant"]
        parent = self.head() if pick % 3 else self.one_of(replies, pick)
        self.ask(text, parent)

    @rule(text=said, pick=picks)
    def edit(self, text: str, pick: int) -> None:
        """A message beside one that is there."""
        asked = [one for one in self.messages() if one.role == "user"]
        if asked:
            self.ask(text, asked[pick % len(asked)].parent_id)

    @rule(pick=picks)
    def ask_again(self, pick: int) -> None:
        asked = self.one_of([one.id for one in self.messages() if one.role == "user"], pick)
        if asked is not None:
            self.number += 1
            self.admit(regenerate(self.number, asked))

    @rule(pick=picks)
    def stop(self, pick: int) -> None:
        """Ends a reply from outside, whoever has it."""
        open_ids = self.run(self.store.accounts.spent("ana")).running
        reply_id = self.one_of(open_ids, pick)
        if reply_id is not None:
            turn = self.run(self.store.turns.seize("ana", reply_id, "stopped"))
            self.end(turn, Status.STOPPED, "half" if pick % 2 else "")

    @rule(pick=picks)
    def switch(self, pick: int) -> None:
        target = self.one_of([one.id for one in self.messages()], pick)
        if target is None:
            return
        shown = self.run(self.store.branches.switch("ana", self.place, target))
        assert target in self.path(shown.head_message_id)
        last = self.heads.get(target)
        if last in {one.id for one in self.messages()} and not self.below(last):
            assert shown.head_message_id == last, "a branch remembers its own leaf (S-24)"
        self.note_head()

    @rule(pick=picks)
    def delete_message(self, pick: int) -> None:
        target = self.one_of([one.id for one in self.messages()], pick)
        if target is None or pick % 2:  # not all that grows
            return
        before, head = {one.id for one in self.messages()}, self.head()
        self.run(self.store.branches.delete("ana", target))
        gone = before - {one.id for one in self.messages()}
        assert target in gone
        self.deleted |= gone
        if head not in gone:
            assert self.head() == head
        self.note_head()

    @rule(pick=picks)
    def delete_conversation(self, pick: int) -> None:
        if pick % 7 == 0:
            self.deleted |= {one.id for one in self.messages()}
            self.run(self.store.conversations.delete("ana", self.place))
            self.begin()

    # What workers do.

    @rule(end=st.sampled_from(ENDS), text=said)
    def answer(self, end: Status, text: str) -> None:
        turn = self.run(self.store.queue.claim(lease_s=2))
        if turn is not None:
            self.check_new(turn, self.build(turn))
            self.end(turn, end, text)

    @rule()
    def leave_half_done(self) -> None:
        """A worker that dies with the turn in its hands."""
        turn = self.run(self.store.queue.claim(lease_s=2))
        if turn is not None:
            self.check_new(turn, self.build(turn))
            self.clock.pass_(3)

    # What has to hold.

    @invariant()
    def what_is_shown_is_a_whole_branch(self) -> None:
        head = self.head()
        page = self.run(
            self.store.branches.page("ana", self.place, through=HEAD, before=None, limit=999)
        )
        assert [one.id for one in page.items] == (self.path(head) if head is not None else [])
        assert head is None or not self.below(head)
        assert (head is None) == (not self.messages())

    @rule(pick=picks)
    def every_prompt_is_built_again(self, pick: int) -> None:
        """I3: the same bytes at any time, as long as the turn is there."""
        for reply_id, built in self.built.items():
            turn = self.run(self.store.turns.find("ana", reply_id))
            assert (turn is None) == (reply_id in self.deleted)
            if turn is not None:
                again = built.turn._replace(answer_tokens=turn.answer_tokens)
                assert self.build(again).ids == built.prompt.ids

    def check_new(self, turn: Turn, prompt: Prompt) -> None:
        """I19, and how a prompt goes on from the one before."""
        assert len(prompt.ids) + prompt.answer_tokens <= PLAN.window_tokens
        assert prompt.answer_tokens > 0
        parts = _parts(prompt)
        expected = self.expected(turn)
        assert parts[0] == SYSTEM
        assert parts[1:] == expected[len(expected) - len(parts) + 1 :], "no holes, nothing else"
        assert ("context_shortened" in prompt.notices) == (len(parts) - 1 < len(expected))
        known = self.built.get(turn.reply_id)
        assert known is None or known.prompt.ids == prompt.ids
        self.built[turn.reply_id] = Built(turn, prompt)
        before = self.prompt_before(turn)
        if before is not None and prompt.ids[: len(before.ids)] != before.ids:
            assert "context_shortened" in prompt.notices
            self.check_cut(before, parts, expected)

    def check_cut(self, before: Prompt, parts: list[str], expected: list[str]) -> None:
        """It had to be, and the next one is far away."""
        fixed, per_message = VOCABULARY.cost
        room = PLAN.window_tokens - PLAN.answer_tokens - fixed - len(SYSTEM)
        earlier = [*_parts(before)[1:], *expected[-2:]]
        assert sum(len(part) + per_message for part in earlier) > room
        assert sum(len(part) + per_message for part in parts[1:-1]) <= room // 2

    def expected(self, turn: Turn) -> list[str]:
        """All that was said on the turn's branch, question by question: what a prompt may hold."""
        said_there: list[str] = []
        asked: list[str] = []
        by_id = {one.id: one for one in self.messages()}
        for one in map(by_id.__getitem__, self.path(turn.user_message_id)):
            if one.role == "user":
                asked.append(one.content)
            elif one.status is Status.REFUSED:
                asked = []
            elif one.status is not Status.FAILED and one.content:
                said_there += ["\n\n".join(asked), one.content] if asked else []
                asked = []
        return [*said_there, "\n\n".join(asked)]

    def prompt_before(self, turn: Turn) -> Prompt | None:
        """The prompt of the turn before this one on its branch, if its reply entered this one."""
        *_, asked = [one for one in self.messages() if one.id == turn.user_message_id]
        parents = [one for one in self.messages() if one.id == asked.parent_id]
        if not parents or parents[0].role == "user" or not parents[0].content:
            return None
        if parents[0].status in (Status.FAILED, Status.REFUSED):
            return None
        built = self.built.get(parents[0].id)
        return built.prompt if built is not None else None

    # How it is asked.

    def ask(self, text: str, parent: str | None) -> None:
        self.number += 1
        tokens = len(VOCABULARY.encode(text))
        new = message(self.number, parent_id=parent, content=text, content_tokens=tokens)
        self.admit(new._replace(tokenizer=VOCABULARY.name))

    def admit(self, new: NewTurn) -> None:
        self.clock.pass_(1)
        new = new._replace(conversation_id=self.place, answer_tokens=PLAN.answer_tokens)
        limits = replace(PLENTY, min_answer_tokens=1)
        answer = self.run(self.store.turns.admit(new, limits))
        if isinstance(answer, Admitted):
            assert self.head() == new.reply_id
            self.note_head()

    def build(self, turn: Turn) -> Prompt:
        async def built() -> Prompt:
            branch = await read_branch(self.desk, turn)
            return await build_prompt(self.desk, turn, branch, VOCABULARY)

        prompt: Prompt = self.run(built())
        return prompt

    def end(self, turn: Turn, status: Status, text: str) -> None:
        outcome = completed(
            status=status,
            finish=Finish.STOP if status is Status.COMPLETED else None,
            text=text,
            ids=VOCABULARY.encode(text),
            tokenizer=VOCABULARY.name,
            usage=turn.worst_case,
            failure=Failure("x", "y", retryable=True) if status is Status.FAILED else None,
        )
        assert self.run(self.store.turns.finish(turn.held, outcome))

    def head(self) -> str | None:
        head: str | None = self.run(self.store.conversations.get("ana", self.place)).head_message_id
        return head

    def note_head(self) -> None:
        head = self.head()
        if head is not None:
            self.heads.update(dict.fromkeys(self.path(head), head))

    def messages(self) -> tuple[Message, ...]:
        page = self.run(self.store.messages.page("ana", self.place, before=None, limit=999))
        items: tuple[Message, ...] = page.items
        return items

    def path(self, leaf: str | None) -> list[str]:
        by_id = {one.id: one for one in self.messages()}
        found: list[str] = []
        while leaf is not None:
            found.append(leaf)
            leaf = by_id[leaf].parent_id
        return found[::-1]

    def below(self, message_id: str | None) -> list[str]:
        return [one.id for one in self.messages() if one.parent_id == message_id]

    def one_of(self, ids: Any, pick: int) -> Any:
        return ids[pick % len(ids)] if ids else None


class PromptsHoldInMemory(PromptsHold):
    def open(self) -> None:
        self.store = MemoryBackend(self.clock)


class PromptsHoldInSqlite(PromptsHold):
    """Now and then the process is another one."""

    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="prompts-hold-"))
        (self.folder / "tertulia.db").write_bytes(_empty_file())
        self.store = SqliteBackend(self.folder / "tertulia.db", self.clock)

    @rule()
    def the_process_restarts(self) -> None:
        self.run(self.store.close())
        self.store = SqliteBackend(self.folder / "tertulia.db", self.clock)
        self.run(self.store.queue.restarted())

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


def _parts(prompt: Prompt) -> list[str]:
    """The texts of a prompt: its control tokens are the template's alone."""
    parts: list[list[int]] = [[]]
    begin, end = VOCABULARY.encode_control("<"), VOCABULARY.encode_control(">")
    assert prompt.ids[:1] == begin
    assert begin[0] not in prompt.ids[1:]
    assert prompt.ids[-1:] == end
    for token in prompt.ids[1:-1]:
        if token == end[0]:
            parts.append([])
        else:
            parts[-1].append(token)
    return [VOCABULARY.decode(part) for part in parts]


async def _awaited(call: Any) -> Any:
    return await call


@cache
def _empty_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        migrate(path)
        return path.read_bytes()


TestPromptsHoldInMemory = PromptsHoldInMemory.TestCase
TestPromptsHoldInMemory.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestPromptsHoldInSqlite = PromptsHoldInSqlite.TestCase
TestPromptsHoldInSqlite.settings = settings(
    max_examples=15,  # every look at the tree is a round trip to a thread
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
