"""How a turn's prompt begins, and the one moment at which its conversation may begin anew."""

from __future__ import annotations

from collections.abc import Callable

from tertulia.beginning import footing_now
from tertulia.core.opening import NO_INSTRUCTIONS, Footing, Opening, opening
from tertulia.core.prompt import Context
from tertulia.core.types import Branch, Turn
from tertulia.ports import Vocabulary
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.pen import Superseded


async def opening_of(
    desk: WorkerDesk,
    turn: Turn,
    branch: Branch,
    vocabulary: Vocabulary,
    context_beside: Callable[[int], Context],
) -> tuple[Opening, Context]:
    """As the conversation's prompts have begun so far; where its context has just been cut, as
    prompts begin now. `context_beside` says what is kept of the turn's branch beside an opening of
    so many tokens: that comes along, as it takes its time."""
    kept = Footing(branch.prompt_version, branch.instructions)
    so_far = await opening_on(desk, turn.owner, kept, vocabulary)
    context = context_beside(len(so_far.ids))
    # One that was begun before stays as it is: whoever goes on sends the same prompt.
    if turn.model is not None or not context.moved:
        return so_far, context
    assert turn.conversation_id is not None
    to = await footing_now(desk, turn.owner, turn.conversation_id, kept=kept)
    if to == kept:
        return so_far, context
    begins = await opening_on(desk, turn.owner, to, vocabulary)
    anew = context_beside(len(begins.ids))
    if not anew.shortened:
        return so_far, context  # shorter by a few tokens, it would not be cut: another time
    holds = await desk.prompts.move(turn.owner, turn.conversation_id, seen=kept, to=to)
    if holds is None:
        raise Superseded  # it was deleted meanwhile and needs no answer
    if holds != to:  # another branch was cut at the same moment
        begins = await opening_on(desk, turn.owner, holds, vocabulary)
        return begins, context_beside(len(begins.ids))
    desk.figures.moved.labels(to.prompt_version).inc()
    return begins, anew


async def opening_on(
    desk: WorkerDesk, owner: str, footing: Footing, vocabulary: Vocabulary
) -> Opening:
    """How prompts begin in a conversation that stands on this."""
    system = await desk.conversations.prompt_text(footing.prompt_version) or ""
    told = None
    if footing.instructions != NO_INSTRUCTIONS:
        told = await desk.instructions.find(owner, footing.instructions)
    return opening(vocabulary.encode, system, "" if told is None else told.text)
