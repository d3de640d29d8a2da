"""How a turn's prompt begins, and the one moment at which its conversation may begin anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tertulia.core.opening import NO_INSTRUCTIONS, Footing, Opening, has_cut_moved, is_cut, opening
from tertulia.core.rollout import prompt_version_at_cut
from tertulia.core.types import Branch, BranchMessage, Turn
from tertulia.ports import Vocabulary
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.pen import Superseded


async def opening_of(
    desk: WorkerDesk,
    turn: Turn,
    branch: Branch,
    path: Sequence[BranchMessage],
    vocabulary: Vocabulary,
    room_beside: Callable[[int], int],
) -> Opening:
    """As the conversation's prompts have begun so far; where its context has just been cut, as
    prompts begin now. `room_beside` says how many tokens there are for the messages of `path`
    beside an opening of so many."""
    kept = Footing(branch.prompt_version, branch.instructions)
    so_far = await opening_on(desk, turn.owner, kept, vocabulary)
    if turn.model is not None:
        return so_far  # it was begun before: whoever goes on sends the same prompt
    if not _is_cut_anew(path, vocabulary, room_beside(len(so_far.ids))):
        return so_far
    to = await _footing_now(desk, turn, kept)
    if to == kept:
        return so_far
    begins = await opening_on(desk, turn.owner, to, vocabulary)
    if not _is_cut(path, vocabulary, room_beside(len(begins.ids))):
        return so_far  # what is shorter by a few tokens would not have been cut: another time
    assert turn.conversation_id is not None
    holds = await desk.prompts.move(turn.owner, turn.conversation_id, seen=kept, to=to)
    if holds is None:
        raise Superseded  # it was deleted meanwhile and needs no answer
    if holds != to:  # another branch was cut at the same moment
        return await opening_on(desk, turn.owner, holds, vocabulary)
    desk.figures.moved.labels(to.prompt_version).inc()
    return begins


async def opening_on(
    desk: WorkerDesk, owner: str, footing: Footing, vocabulary: Vocabulary
) -> Opening:
    """How prompts begin in a conversation that stands on this."""
    system = await desk.conversations.prompt_text(footing.prompt_version) or ""
    told = None
    if footing.instructions != NO_INSTRUCTIONS:
        told = await desk.instructions.find(owner, footing.instructions)
    return opening(vocabulary.encode, system, "" if told is None else told.text)


def _is_cut_anew(path: Sequence[BranchMessage], vocabulary: Vocabulary, room_tokens: int) -> bool:
    _, per_message = vocabulary.cost
    return has_cut_moved(path, per_message_tokens=per_message, room_tokens=room_tokens)


def _is_cut(path: Sequence[BranchMessage], vocabulary: Vocabulary, room_tokens: int) -> bool:
    _, per_message = vocabulary.cost
    return is_cut(path, per_message_tokens=per_message, room_tokens=room_tokens)


async def _footing_now(desk: WorkerDesk, turn: Turn, kept: Footing) -> Footing:
    """What the conversation would stand on if it began now."""
    assert turn.conversation_id is not None
    version = prompt_version_at_cut(
        turn.conversation_id, kept=kept.prompt_version, rollout=await desk.prompts.rollout()
    )
    current = await desk.instructions.current(turn.owner)
    return Footing(version, NO_INSTRUCTIONS if current is None else current.version)
