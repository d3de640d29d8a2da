"""Conversations that are talked in, answered, summarised, branched, deleted and imported, by the
worker's own functions over a store, with what a test knows of them beside it.

Each message begins with a letter that no other has: so it shows in a prompt, a summary or a title
whose words are in it. Only the replicas, the vocabulary and the checks are stand-ins.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, Literal

from tertulia.backends.memory import MemoryBackend
from tertulia.core.imports import Found, NewImport, Progress
from tertulia.core.plans import Plan
from tertulia.core.prompt import SUMMARY_OPENING, SUMMARY_READ, exchange_room, next_cut
from tertulia.core.remembering import retry_after_s
from tertulia.core.transcripts import Arrival, Node, Transcript, arranged
from tertulia.core.types import (
    HEAD,
    Admitted,
    Failure,
    Finish,
    GenerateRequest,
    NewTurn,
    Note,
    Outcome,
    Reason,
    Role,
    Sampling,
    Status,
    TokenIds,
    Turn,
    Usage,
)
from tertulia.worker.context import Prompt, build_prompt, read_branch
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.remember import NotYet, make, want_after
from tests.conformance.world import PLENTY, Backend
from tests.lanes.gateway_rig import Letters
from tests.lanes.memory_desk import OWNER, SERVED, Scribe, StillClock, desk_over

SYSTEM: Final = "Be kind."
# So narrow that five exchanges fill it, and as wide as a summary needs that says anything.
PLAN: Final = Plan(name="free", window_tokens=900, answer_tokens=100)
_FIXED, _EACH = Letters.cost
ROOM: Final = exchange_room(
    PLAN.window_tokens,
    answer_tokens=PLAN.answer_tokens,
    begins_with_tokens=_FIXED + len(SYSTEM),
)
_FIRST_MARK: Final = 0x4E00
_LAST_MARK: Final = 0x9FFF

End = Literal["completed", "stopped", "failed", "refused", "empty"]
ENDS: Final[tuple[End, ...]] = ("completed",) * 5 + ("stopped", "failed", "refused", "empty")


class Narrow(Letters):
    """A model that reads no more than the plan allows."""

    window = PLAN.window_tokens


@dataclass
class Said:
    """A message as the test knows it; a reply that is open says nothing yet."""

    id: str
    parent: str | None
    role: Role
    text: str = ""
    status: Status = Status.QUEUED


@dataclass
class Talk:
    """A conversation as the test knows it, its messages in order."""

    place: str
    messages: dict[str, Said] = field(default_factory=dict)

    def path(self, leaf: str | None) -> list[Said]:
        """From the root down to a message."""
        found: list[Said] = []
        while leaf is not None:
            found.append(self.messages[leaf])
            leaf = found[-1].parent
        return found[::-1]

    def below(self, top: str) -> set[str]:
        """A message and all that hangs under it."""
        ids = {top}
        for one in self.messages.values():  # parents come first
            if one.parent in ids:
                ids.add(one.id)
        return ids

    def ids(self, role: Role) -> list[str]:
        """The messages of one side, oldest first."""
        return [one.id for one in self.messages.values() if one.role == role]


@dataclass(frozen=True)
class Round:
    """A question (or several that were never answered) and its reply, as a prompt may hold them."""

    asked: tuple[str, ...]
    reply: Said | None = None

    @property
    def texts(self) -> list[str]:
        """What both sides said."""
        return [*self.asked, *([self.reply.text] if self.reply is not None else [])]

    @property
    def joined(self) -> list[str]:
        """The same as a prompt shows it."""
        return ["\n\n".join(self.asked), *self.texts[len(self.asked) :]]

    @property
    def tokens(self) -> int:
        """What it takes in a prompt."""
        return sum(len(text) + _EACH for text in self.texts)


@dataclass(frozen=True)
class Told:
    """A prompt that was sent; its turn as it was noted; how many summaries there were then."""

    turn: Turn
    prompt: Prompt
    n_made: int


class Talks:
    """One owner's conversations in one store; `talk` is the one that is shown."""

    def __init__(self, backend: Backend, clock: StillClock) -> None:
        self.backend, self.clock = backend, clock
        self.numbers = count(1)
        self.talks: dict[str, Talk] = {}
        self.told: dict[str, Told] = {}  # by reply
        self.said_ids: dict[str, TokenIds] = {}  # by reply
        self.open: dict[str, Talk] = {}  # by reply
        self.asks: dict[str, NewTurn] = {}  # by reply
        self.dead: dict[str, str] = {}  # the texts of what was deleted
        self.summed_up: dict[str, str] = {}  # the summaries by what they cover
        self.remembered: set[str] = set()  # replies after which all that was due was summarised
        self.n_made = 0
        self.n_cuts = 0

    @property
    def desk(self) -> WorkerDesk:
        """That of a worker who begins just now."""
        replicas = Scribe(_marks_in)
        return desk_over(self.backend, self.clock, replicas, PLAN, Narrow())

    async def begin(self) -> None:
        """Makes a conversation."""
        await self.backend.conversations.prompt_text("v1", store=SYSTEM)
        self.talk = Talk(f"c_{next(self.numbers)}")
        self.talks[self.talk.place] = self.talk
        await self.backend.conversations.create(
            OWNER, self.talk.place, key=None, prompt_version="v1"
        )

    # What people do.

    async def ask(self, size: int, parent: str | None) -> None:
        """A new message of so many letters below another."""
        await self._admit(self._new(self._text(size), parent))

    async def ask_again(self, asked_id: str) -> None:
        """A further reply to a message."""
        await self._admit(self._new("", None)._replace(kind="regenerate", user_message_id=asked_id))

    async def run_again(self, reply_id: str) -> None:
        """A message that failed once more under its key, as clients do that try again."""
        answer = await self.backend.turns.admit(self.asks[reply_id], PLENTY)
        if isinstance(answer, Admitted):
            reply, self.open[reply_id] = self.talk.messages[reply_id], self.talk
            reply.text, reply.status = "", Status.QUEUED
            # It is another run, whose prompt may have another summary.
            self.told.pop(reply_id, None)
            self.remembered.discard(reply_id)

    def failed(self) -> list[str]:
        """The replies that may be asked for under their keys once more."""
        return [one.id for one in self.talk.messages.values() if one.status is Status.FAILED]

    async def stop(self, reply_id: str, size: int) -> None:
        """Ends a reply from outside, whoever has it, with what it said so far."""
        turn = await self.backend.turns.seize(OWNER, reply_id, "stopped")
        assert turn is not None
        await self._end(turn, "stopped", size)

    async def switch(self, message_id: str) -> None:
        """Shows another branch."""
        shown = await self.backend.branches.switch(OWNER, self.talk.place, message_id)
        assert shown is not None
        path = self.talk.path(shown.head_message_id)
        assert message_id in {one.id for one in path}

    async def delete(self, message_id: str) -> None:
        """A message with all below it. Nothing that was made of them may stay."""
        gone = self.talk.below(message_id)
        await self.backend.branches.delete(OWNER, message_id)
        for one in gone:
            self._bury(self.talk, one)
        left = await self.backend.summaries.latest(OWNER, self.talk.place, sorted(gone))
        assert left is None, "a summary covers what was deleted"

    async def delete_conversation(self) -> None:
        """All of it; another one begins."""
        await self.backend.conversations.delete(OWNER, self.talk.place)
        del self.talks[self.talk.place]
        for one in list(self.talk.messages):
            self._bury(self.talk, one)
        await self.begin()

    async def bring_in(self, sizes: Sequence[int]) -> None:
        """A conversation from elsewhere, with a reply of each size, which is shown from now on."""
        n = next(self.numbers)
        nodes: list[Node] = []
        for size in sizes:
            above = nodes[-1].id if nodes else None
            asked = Node(f"n{len(nodes)}", above, "user", self._text(size))
            nodes += [asked, Node(f"n{len(nodes) + 1}", asked.id, "assistant", self._text(size))]
        arrival = arranged(
            Transcript("chatgpt", f"t{n}", f"Talk {n}", tuple(nodes)),
            owner=OWNER,
            import_id=f"import_{n}",
            prompt_version="v1",
            now=self.clock.now(),
        )
        assert isinstance(arrival, Arrival)
        counted = [
            one._replace(tokens=len(one.content), tokenizer=Letters.name)
            for one in arrival.messages
        ]
        arrival = replace(arrival, messages=tuple(counted))
        new = NewImport(OWNER, f"import_{n}", f"file_{n}", 1)
        await self.backend.imports.create(new, limit=99)
        job = await self.backend.import_work.claim(lease_s=10)
        assert job is not None
        await self.backend.import_work.save(Progress(job, (Found(1, f"t{n}", arrival),)))
        await self.backend.imports.delete(OWNER, job.id)
        self.talk = Talk(arrival.conversation.id)
        self.talks[self.talk.place] = self.talk
        for one in arrival.messages:
            self.talk.messages[one.id] = Said(
                one.id, one.parent_id, one.role, one.content, one.status
            )

    # What workers do.

    async def answer(self, end: End, size: int) -> None:
        """The next turn, to its end."""
        turn = await self._claim()
        if turn is not None:
            prompt = await self._begun(turn)
            await self._end(turn, end, size, prompt)

    async def crash(self, *, before_it_was_noted: bool) -> None:
        """A worker dies with a turn in its hands."""
        turn = await self._claim()
        if turn is not None:
            await (self.built(turn) if before_it_was_noted else self._begun(turn))
            self.clock.pass_(60)

    async def summarise(self, most: int) -> None:
        """So many tasks that are due. What is made may only hold what it covers."""
        for _ in range(most):
            task = await self.backend.tasks.claim(lease_s=10)
            if task is None:
                self.remembered |= {one for one in self.told if one not in self.open}
                return
            talk = self.talks[task.conversation_id]
            try:
                made = await make(self.desk, task)
            except NotYet:  # the first question is being answered anew
                assert task.kind == "title"
                await self.backend.tasks.fail(task, due_in_s=retry_after_s(task))
                continue
            assert made is not None
            path = talk.path(task.upto) if task.kind == "summary" else talk.messages.values()
            assert marks(made.text) <= {one.text[:1] for one in path}
            assert await self.backend.tasks.finish(task, made)
            self.n_made += 1
            if task.kind == "summary":
                self.summed_up[task.upto] = made.text

    # What has to hold.

    async def check_again(self, reply_id: str) -> None:
        """I3: a prompt is the same at any time, as long as its turn is there."""
        told = self.told[reply_id]
        turn = await self.backend.turns.find(OWNER, reply_id)
        place = told.turn.conversation_id or ""
        is_there = place in self.talks and reply_id in self.talks[place].messages
        assert (turn is not None) == is_there
        if turn is not None and turn.model is not None:
            again = await self.built(turn)
            assert again.ids == told.prompt.ids

    async def check_shown(self) -> None:
        """What is shown is a whole branch; a title says nothing of what was deleted."""
        talk, found = self.talk, await self.backend.conversations.get(OWNER, self.talk.place)
        assert found is not None
        page = await self.backend.branches.page(
            OWNER, talk.place, through=HEAD, before=None, limit=999
        )
        assert page is not None
        head = found.head_message_id
        assert [one.id for one in page.items] == [one.id for one in talk.path(head)]
        assert (head is None) == (not talk.messages)
        assert head is None or talk.below(head) == {head}
        assert marks(found.title) <= {one.text[:1] for one in talk.messages.values()}

    async def check_all(self) -> None:
        """All of that, once more at the end."""
        for reply_id in self.told:
            await self.check_again(reply_id)
        for talk in self.talks.values():
            self.talk = talk
            await self.check_shown()

    def dead_texts(self) -> list[str]:
        """The beginnings of what was deleted, and summaries of that; none as short as chance."""
        alive = [text for upto, text in self.summed_up.items() if upto not in self.dead]
        texts = [f"{text[:1]}abc" for text in self.dead.values() if len(text) > 3]
        sums = [text for upto, text in self.summed_up.items() if upto in self.dead and text[3:]]
        # A summary goes on from the one before, which may be of a branch that is still there.
        return texts + [text for text in sums if not any(text in one for one in alive)]

    def _bury(self, talk: Talk, message_id: str) -> None:
        self.dead[message_id] = talk.messages.pop(message_id).text
        self.open.pop(message_id, None)

    def _check_new(self, turn: Turn, prompt: Prompt) -> None:
        """I19, and how a prompt goes on from the one before."""
        rounds = rounds_of(self.talks[turn.conversation_id or ""].path(turn.user_message_id))
        assert len(prompt.ids) + prompt.answer_tokens <= PLAN.window_tokens
        assert prompt.answer_tokens >= PLAN.min_answer_tokens
        first = self._check_parts(prompt, rounds)
        last = rounds[-2].reply if len(rounds) > 1 else None
        before = self.told.get(last.id) if last is not None else None
        if before is not None and len(rounds[-1].asked) == 1:
            self._check_goes_on(before, prompt, rounds, first)

    def _check_parts(self, prompt: Prompt, rounds: Sequence[Round]) -> int:
        """The system prompt, perhaps a summary, and the newest rounds without a hole, each text as
        it was said; the number of the first that is kept."""
        system, *parts = parts_of(prompt.ids)
        assert system == SYSTEM
        if prompt.summary is not None:
            assert parts[:2] == [SUMMARY_OPENING + prompt.summary.text, SUMMARY_READ]
            parts = parts[2:]
        first = len(rounds) - (len(parts) + 1) // 2
        assert parts[:-1] == [text for one in rounds[first:-1] for text in one.joined]
        asked = rounds[-1].asked
        newest = ["\n\n".join(asked[n:]) for n in range(len(asked))]
        assert parts[-1] in (newest if len(parts) == 1 else newest[:1])
        is_cut = first > 0 or parts[-1] != newest[0]
        assert ("context_shortened" in prompt.notices) == is_cut
        if prompt.summary is not None:
            covered = rounds[:first]
            assert prompt.summary.upto in {one.reply.id for one in covered if one.reply}
            assert marks(prompt.summary.text) <= {text[0] for one in covered for text in one.texts}
        return first

    def _check_goes_on(
        self, before: Told, prompt: Prompt, rounds: Sequence[Round], first: int
    ) -> None:
        """It begins with the last one and its reply, unless it is cut further or a summary came."""
        *_, last, newest = rounds
        assert last.reply is not None
        was, now = before.prompt.summary, prompt.summary
        first_before = before.prompt.context.first
        if (first, now) == (first_before, was):
            beginning = before.prompt.ids + self.said_ids[last.reply.id]
            assert prompt.ids[: len(beginning)] == beginning
            return
        covers = [one.reply.id for one in rounds[:first] if one.reply is not None]
        if first == first_before:
            assert now is not None
            assert self.n_made > before.n_made, "it changes once, for a summary that came late"
            assert was is None or covers.index(now.upto) > covers.index(was.upto)
        else:
            self.n_cuts += 1
            kept = sum(one.tokens for one in rounds[first_before:-1])
            assert kept + newest.tokens > ROOM, "it had to be"
            freed = sum(one.tokens for one in rounds[first_before:first])
            is_far = 2 * freed >= ROOM or len(rounds) - first <= 2
            assert is_far or 4 * rounds[first].tokens > ROOM, "the next cut is far away"
        foreseen = {first_before, next_cut_of(before.prompt, last)}
        if last.reply.id in self.remembered and first in foreseen:
            assert now is not None
            assert now.upto == covers[-1], "every turn that was dropped is covered"

    # How it is done.

    def _text(self, size: int) -> str:
        """So many letters, the first of them its own; the template's marks among the others."""
        mark = chr(_FIRST_MARK + next(self.numbers))
        return (mark + "abc <> é🙂. " * size)[:size]

    def _new(self, content: str, parent: str | None) -> NewTurn:
        n = next(self.numbers)
        return NewTurn(
            owner=OWNER,
            key=f"k{n}",
            body_sha="sha",
            kind="message",
            reply_id=f"m_r{n:05}",
            plan=PLAN.name,
            requested="auto",
            answer_tokens=PLAN.answer_tokens,
            prompt_tokens=PLAN.window_tokens,
            sampling=Sampling(),
            conversation_id=self.talk.place,
            user_message_id=f"m_u{n:05}",
            parent_id=parent,
            content=content,
            content_tokens=len(content),
            tokenizer=Letters.name,
            title=content[:20],
        )

    async def _admit(self, new: NewTurn) -> None:
        self.clock.pass_(1)
        if not isinstance(await self.backend.turns.admit(new, PLENTY), Admitted):
            return  # that branch is busy
        asked_id = new.user_message_id
        assert asked_id is not None
        if new.kind == "message":
            asked = Said(asked_id, new.parent_id, "user", new.content, Status.COMPLETED)
            self.talk.messages[asked_id] = asked
        self.talk.messages[new.reply_id] = Said(new.reply_id, asked_id, "assistant")
        self.asks[new.reply_id] = new
        self.open[new.reply_id] = self.talk

    async def _claim(self) -> Turn | None:
        return await self.backend.queue.claim(lease_s=2)

    async def built(self, turn: Turn) -> Prompt:
        """The turn's prompt, as any worker builds it."""
        desk = self.desk
        return await build_prompt(desk, turn, await read_branch(desk, turn), Narrow())

    async def _begun(self, turn: Turn) -> Prompt:
        """Its prompt, once it is stored who answers."""
        prompt = await self.built(turn)
        known = self.told.get(turn.reply_id)
        if known is not None:
            assert prompt.ids == known.prompt.ids, "who goes on sends the same prompt"
            return prompt
        self._check_new(turn, prompt)
        self.told[turn.reply_id] = Told(turn, prompt, self.n_made)
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
        return prompt

    async def _end(self, turn: Turn, end: End, size: int, prompt: Prompt | None = None) -> None:
        status = Status.COMPLETED if end == "empty" else Status(end)
        text = "" if end == "empty" else self._text(size)
        ids = Letters().encode(text)
        outcome = Outcome(
            status=status,
            attempt=turn.attempt,
            finish=Finish.STOP if status is Status.COMPLETED else None,
            text=text,
            usage=Usage(),
            last_event_id=3,
            ids=ids,
            tokenizer=Letters.name,
            failure=Failure("x", "y", retryable=True) if status is Status.FAILED else None,
        )
        assert await self.backend.turns.finish(turn.held, outcome)
        reply = self.open.pop(turn.reply_id).messages[turn.reply_id]
        reply.text, reply.status = text, status
        self.said_ids[turn.reply_id] = ids
        if prompt is not None and status is Status.COMPLETED and ids:
            await want_after(self.desk, turn, prompt, reply_tokens=len(ids) + _EACH)


def rounds_of(path: Iterable[Said]) -> list[Round]:
    """What a prompt may hold of a path: no refused exchange, no reply without a word. The newest
    question is the last one."""
    found: list[Round] = []
    asked: list[str] = []
    for one in path:
        if one.role == "user":
            asked.append(one.text)
        elif one.status is Status.REFUSED:
            asked = []
        elif one.status is not Status.FAILED and one.text:
            found += [Round(tuple(asked), one)] if asked else []
            asked = []
    return [*found, Round(tuple(asked))]


def parts_of(ids: TokenIds) -> list[str]:
    """The texts of a prompt. Its control tokens are the template's alone."""
    begin, end = Letters().encode_control("<"), Letters().encode_control(">")
    assert (ids[:1], ids[-1:]) == (begin, end)
    assert begin[0] not in ids[1:]
    parts: list[list[int]] = [[]]
    for token in ids[1:-1]:
        if token == end[0]:
            parts.append([])
        else:
            parts[-1].append(token)
    return [Letters().decode(part) for part in parts]


def marks(text: str) -> set[str]:
    """Whose words are in it."""
    return {letter for letter in text if _FIRST_MARK <= ord(letter) <= _LAST_MARK}


def next_cut_of(prompt: Prompt, last: Round) -> int | None:
    """Where the cut after this prompt and its reply was foreseen."""
    assert prompt.talk is not None
    assert last.reply is not None
    *before, newest = prompt.talk.exchanges
    reply_tokens = len(last.reply.text) + _EACH
    said = [*before, replace(newest, reply_id=last.reply.id, reply_tokens=reply_tokens)]
    return next_cut(prompt.context, said, room_tokens=prompt.room.exchanges)


def _marks_in(request: GenerateRequest) -> str:
    """A scribe that says of everything it reads whose words it were, the newest last."""
    read = Letters().decode(request.prompt)
    found = list(dict.fromkeys(letter for letter in read if marks(letter)))
    return "".join(found[1 - request.max_tokens :]) + "."


SEEDS: Final = (1, 2, 3)


async def walk(seed: int, n_steps: int = 60) -> Talks:
    """A long history that follows from a number alone, and how it was."""
    chance, clock = random.Random(seed), StillClock()
    talks = Talks(MemoryBackend(clock), clock)
    await talks.begin()
    for _ in range(n_steps):
        size, act = chance.randint(20, 90), chance.random()
        asked, replies = talks.talk.ids("user"), talks.talk.ids("assistant")
        if act < 0.6 or not asked:
            await talks.ask(size, replies[-1] if replies else None)
            await talks.answer("completed", size)
        elif act < 0.7:
            await talks.summarise(chance.randint(1, 3))
        elif act < 0.8:
            await talks.ask(size, talks.talk.messages[chance.choice(asked[-3:])].parent)
            await talks.answer(chance.choice(ENDS), size)
        elif act < 0.85:
            await talks.ask_again(chance.choice(asked[-3:]))
            await talks.answer("completed", size)
        elif act < 0.9:
            ids = list(talks.talk.messages)
            await talks.delete(chance.choice(ids if chance.random() < 0.3 else ids[-4:]))
        elif act < 0.95:
            await talks.ask(size, replies[-1] if replies else None)
            await talks.crash(before_it_was_noted=chance.random() < 0.5)
        elif chance.random() < 0.3:
            await talks.bring_in([size] * 8)
        else:
            await talks.ask(size, replies[-1] if replies else None)
            await talks.answer("failed", size)
            for failed in talks.failed()[-1:]:
                await talks.ask(size, failed if chance.random() < 0.5 else None)
                await talks.answer("completed", size)
                await talks.run_again(failed)
                await talks.answer("completed", size)
    await talks.check_all()
    return talks


def hash_of(talks: Talks) -> str:
    """Of every prompt that was sent, in order."""
    prompts = [told.prompt.ids for told in talks.told.values()]
    return hashlib.sha256(str(prompts).encode()).hexdigest()
