"""Makes titles and summaries: asks a model in the batch lane, cleans and checks its answer.

Nobody waits for it and nobody pays for it. It never touches a turn, a reply's log or a budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from tertulia.core.fleet import Wanted
from tertulia.core.kept_words import KEPT_SHARE, asked_to_keep, carried, parted, with_kept
from tertulia.core.prompt import (
    Context,
    Exchange,
    exchanges_of,
    next_cut,
    prompt_messages,
)
from tertulia.core.remembering import (
    LEAST_SUMMARY_TOKENS,
    PIECE_TOKENS,
    TITLE_TOKENS,
    VERSION,
    Made,
    Summary,
    Task,
    Title,
    asked_tokens,
    clean_summary,
    clean_title,
    covered_ids,
    pieces_of,
    scribe_of,
    shortened_to,
    summary_id,
    summary_request,
    title_request,
)
from tertulia.core.types import (
    HEAD,
    Branch,
    BranchMessage,
    GenerateRequest,
    Lane,
    ModelState,
    PromptMessage,
    Sampling,
    Turn,
    Usage,
)
from tertulia.ports import ReplicaLost, ReplicaRefused, Vocabulary
from tertulia.worker.context import (
    Prompt,
    Talk,
    prompt_ids,
    read_talk,
    summary_cost,
    texts_of_ids,
    tokens_before,
)
from tertulia.worker.desk import WorkerDesk

# What a title is made from: the beginning of a talk says what it is about.
_TITLE_PIECE_TOKENS = 600
# The likeliest words: whoever asks again gets the same.
_SAMPLING = Sampling(temperature=0.0, top_p=1.0)


class NotYet(Exception):
    """No model can do it now, or there is nothing to read yet: another time may do."""


async def want_after(desk: WorkerDesk, turn: Turn, prompt: Prompt, *, reply_tokens: int) -> None:
    """Notes what a finished turn leaves to do: a title, and summaries of what is cut already or
    will be cut next."""
    if not desk.rules.tasks or prompt.talk is None or turn.conversation_id is None:
        return
    place, talk, room = (turn.owner, turn.conversation_id), prompt.talk, prompt.room
    wanted = False
    if talk.titled_by == "words":
        wanted = await desk.tasks.want(*place, "title", "", room_tokens=TITLE_TOKENS)
    if asked_tokens(room.summary) >= LEAST_SUMMARY_TOKENS:
        *before, newest = talk.exchanges
        said = [*before, replace(newest, reply_id=turn.reply_id, reply_tokens=reply_tokens)]
        for upto in _ends(said, prompt.context, room.exchanges):
            if await desk.summaries.latest(*place, [upto]) is None:
                wanted |= await desk.tasks.want(*place, "summary", upto, room_tokens=room.summary)
    if wanted:
        desk.bell.ring("tasks")


def _ends(exchanges: Sequence[Exchange], context: Context, room_tokens: int) -> list[str]:
    """The last messages before the cut that is made, and before the next one once it is fixed."""
    following = next_cut(context, exchanges, room_tokens=room_tokens)
    cuts = [first for first in (context.first, following) if first]
    return [upto for first in cuts if (upto := exchanges[first - 1].reply_id) is not None]


async def make(desk: WorkerDesk, task: Task) -> Made | None:
    """What the task asks for; None if nothing that could be shown can be made. NotYet."""
    leaf = HEAD if task.kind == "title" else task.upto
    branch = await desk.messages.branch(task.owner, task.conversation_id, leaf)
    if branch is None:
        return None
    model = scribe_of(desk.replicas.models(), branch.model)
    if model is None:
        raise NotYet
    scribe = _Scribe(desk, task, model, desk.vocabulary(model.served), branch)
    return await (scribe.title() if task.kind == "title" else scribe.summary())


@dataclass(slots=True)
class _Scribe:
    """One task on one model. `n_asked` numbers what was asked for it."""

    desk: WorkerDesk
    task: Task
    model: ModelState
    vocabulary: Vocabulary
    branch: Branch
    n_asked: int = 0

    async def title(self) -> Title | None:
        """From the first exchange of the branch on which the conversation stands."""
        path = self.branch.messages
        ends = covered_ids(exchanges_of(path, per_message_tokens=0))
        if not ends:
            raise NotYet  # it is being answered anew
        beginning = replace(self.branch, messages=path[: _place(path, ends[0]) + 1])
        talk = await read_talk(self.desk, self.task.owner, beginning, self.vocabulary)
        messages = await self._messages(
            talk.system, talk.exchanges, title_request(), room_tokens=_TITLE_PIECE_TOKENS
        )
        said, is_whole = await self._ask(talk, messages, TITLE_TOKENS)
        title = clean_title(said, is_whole=is_whole)
        return Title(title) if title and await self._may_be_shown(title) else None

    async def summary(self) -> Summary | None:
        """Goes on from the newest summary before, piece by piece."""
        task, path = self.task, self.branch.messages
        ends = covered_ids(exchanges_of(path, per_message_tokens=0))
        if not ends or ends[-1] != task.upto:
            return None  # that reply is none any more
        older = await self.desk.summaries.latest(task.owner, task.conversation_id, ends[:-1])
        covered = _place(path, older.upto) + 1 if older is not None else 0
        rest = replace(self.branch, messages=path[covered:])
        talk = await read_talk(self.desk, task.owner, rest, self.vocabulary)
        answer_tokens = asked_tokens(task.room_tokens)
        room = self._piece_room(talk.system_tokens, answer_tokens)
        text = older.text if older is not None else None
        kept = parted(older.text)[0] if older is not None else ()
        for piece in pieces_of(talk.exchanges, room_tokens=room):
            kept = await self._kept(kept, piece, room_tokens=answer_tokens // KEPT_SHARE)
            left = answer_tokens - self._count(with_kept(kept, ""))
            said = await self._summed_up(talk, piece, text, answer_tokens=left, room_tokens=room)
            if not said:
                return None
            text = with_kept(kept, said)
        assert text is not None
        return Summary(
            id=summary_id(task.upto, text),
            upto=task.upto,
            previous_id=older.id if older is not None else None,
            text=text,
            tokens=self._count(text),
            tokenizer=self.vocabulary.name,
            model=self.model.served,
            version=VERSION,
        )

    def _piece_room(self, system_tokens: int, answer_tokens: int) -> int:
        """What is left for a piece in the model's window, beside all the rest."""
        fixed, per_message = self.vocabulary.cost
        around = fixed + system_tokens + summary_cost(self.vocabulary) + self.task.room_tokens
        request = summary_request(answer_tokens)
        around += self._count(request.content) + per_message + answer_tokens
        return min(PIECE_TOKENS, self.vocabulary.window - around)

    async def _kept(
        self, kept: Sequence[str], piece: Sequence[Exchange], *, room_tokens: int
    ) -> tuple[str, ...]:
        """With what this piece asks to be remembered, as far as any output may say it."""
        ids = [message_id for exchange in piece for message_id in exchange.user_ids]
        said = await texts_of_ids(self.desk, self.task.owner, ids)
        newer = [
            line
            for text in said
            for line in asked_to_keep(text.content, split=self.desk.split)
            if await self._may_be_shown(line)
        ]
        return carried(kept, newer, room_tokens=room_tokens, count=self._count)

    async def _summed_up(
        self,
        talk: Talk,
        piece: Sequence[Exchange],
        before: str | None,
        *,
        answer_tokens: int,
        room_tokens: int,
    ) -> str:
        """What the model makes of this piece and what came before; nothing if none of it may be
        shown."""
        request = summary_request(answer_tokens)
        messages = await self._messages(
            talk.system, piece, request, room_tokens=room_tokens, summary=before
        )
        said, is_whole = await self._ask(talk, messages, answer_tokens)
        _, rest = parted(clean_summary(said, is_whole=is_whole))
        return rest if await self._may_be_shown(rest) else ""

    def _count(self, text: str) -> int:
        return len(self.vocabulary.encode(text))

    async def _messages(
        self,
        system: PromptMessage,
        exchanges: Sequence[Exchange],
        request: PromptMessage,
        *,
        room_tokens: int,
        summary: str | None = None,
    ) -> tuple[PromptMessage, ...]:
        """The same prompt as the conversation's own, so that its cache serves, and the request."""
        context = Context(tuple(exchanges), 0, sum(one.tokens for one in exchanges))
        ids = context.message_ids
        texts = await texts_of_ids(self.desk, self.task.owner, ids)
        if context.tokens > room_tokens:
            share = max(0, room_tokens) // len(ids)
            texts = [self._shortened(text, share) for text in texts]
        named = dict(zip(ids, texts, strict=True))
        return (*prompt_messages(system, context, named, summary=summary), request)

    def _shortened(self, text: PromptMessage, tokens: int) -> PromptMessage:
        _, per_message = self.vocabulary.cost
        content = shortened_to(
            text.content,
            tokens - per_message,
            count=self._count,
        )
        return PromptMessage(text.role, content) if content != text.content else text

    async def _ask(
        self, talk: Talk, messages: Sequence[PromptMessage], answer_tokens: int
    ) -> tuple[str, bool]:
        """What the model says, and whether it came to its end; behind everybody who waits."""
        desk, task, served = self.desk, self.task, self.model.served
        self.n_asked += 1
        # Where the conversation is answered by this very model, its cache is at its home.
        is_at_home = self.branch.model == served
        request = GenerateRequest(
            request_id=(
                f"task-{task.conversation_id}-{task.kind}-{task.upto}-{task.epoch}-{self.n_asked}"
            ),
            model=served,
            prompt=prompt_ids(self.vocabulary, messages),
            max_tokens=answer_tokens,
            sampling=_SAMPLING,
            priority=Lane.BATCH.value,
            cache_salt=task.owner,
            shared_tokens=tokens_before(self.vocabulary, messages) + talk.shared_tokens,
            session_id=task.conversation_id,
            thread=task.conversation_id if is_at_home else f"{task.kind} {task.conversation_id}",
        )
        replica = await desk.replicas.place(
            Wanted(
                request_id=request.request_id,
                model=served,
                conversation=request.thread,
                prompt_tokens=len(request.prompt),
                answer_tokens=answer_tokens,
            )
        )
        if replica is None:
            raise NotYet
        try:
            return await self._heard(replica, request)
        except (ReplicaLost, ReplicaRefused) as error:
            raise NotYet from error

    async def _heard(self, replica: str, request: GenerateRequest) -> tuple[str, bool]:
        said: list[str] = []
        async with aclosing(self.desk.replicas.generate(replica, request)) as batches:
            async for batch in batches:
                said += [unit.text for unit in batch.units]
                if batch.finish is not None:
                    usage = batch.usage or Usage(len(request.prompt))
                    self.desk.figures.remembered(self.task.kind, usage)
                    if batch.finish == "abort":
                        break
                    return "".join(said), batch.finish != "length"
        raise NotYet

    async def _may_be_shown(self, text: str) -> bool:
        """Every sentence passes the check of any output, or nothing of it is kept."""
        before = ""
        for sentence in self.desk.split(text):
            verdict = await self.desk.checks.check_output(before, sentence)
            if verdict.flagged:
                return False
            before += sentence
        return True


def _place(path: Sequence[BranchMessage], message_id: str) -> int:
    return next(n for n, message in enumerate(path) if message.id == message_id)
