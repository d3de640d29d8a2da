"""What a turn's text comes to in tokens, at the door. Nothing is stored or decided here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tertulia.core.choice import AUTO
from tertulia.core.plans import Plan
from tertulia.core.prompt import Course, context_of, course_of, exchange_room, summary_room
from tertulia.core.types import Branch, BranchMessage
from tertulia.gateway.desk import Desk
from tertulia.gateway.footing import Place, fixed_tokens_at_cut
from tertulia.ports import Vocabulary


@dataclass(frozen=True, slots=True)
class TooLong:
    """The message does not fit: `count` of `unit` where `limit` are allowed."""

    limit: int
    count: int
    unit: str


def vocabulary_for(desk: Desk, model: str, branch: Branch | None) -> Vocabulary:
    """The vocabulary that will most likely answer; the worker counts again with the real one."""
    pinned = branch.model if branch is not None else None
    return desk.vocabulary(pinned if model == AUTO and pinned else model)


def count_text(
    desk: Desk, plan: Plan, vocabulary: Vocabulary, content: str, fixed: int
) -> int | TooLong:
    """The message's tokens. Sizes are refused by bytes first: counting 50 MB would be an attack."""
    size = len(content.encode())
    if size > desk.rules.message_bytes:
        return TooLong(desk.rules.message_bytes, size, "bytes")
    tokens = len(vocabulary.encode(content))
    limit = longest_message(plan, vocabulary, fixed)
    return tokens if tokens <= limit else TooLong(limit, tokens, "tokens")


def longest_message(plan: Plan, vocabulary: Vocabulary, fixed: int) -> int:
    """The most tokens of a message where a prompt holds `fixed` ones beside it. The summary of what
    was said before has its room in every prompt."""
    beside = fixed + summary_room(plan.window_on(vocabulary.window))
    return plan.room_for_text(vocabulary.window, fixed_tokens=beside)


async def prompt_tokens_of(
    desk: Desk,
    plan: Plan,
    place: Place,
    vocabulary: Vocabulary,
    path: Sequence[BranchMessage],
    fixed: int,
) -> int:
    """The worst case to reserve for the prompt of this path, wherever its conversation stands when
    it is built."""
    course = course_of(path, per_message_tokens=vocabulary.cost[1])
    tokens, is_moved = _tokens_of_course(plan, vocabulary, course, fixed)
    if not all(message.status.is_final for message in path):
        # A reply that ends before this turn is stored is in its prompt, as long as it became.
        window = plan.window_on(vocabulary.window)
        return min(tokens + plan.answer_tokens + vocabulary.cost[1], window)
    if not is_moved:
        return tokens
    moved = await fixed_tokens_at_cut(desk, place, vocabulary)
    if moved == fixed:
        return tokens
    return max(tokens, _tokens_of_course(plan, vocabulary, course, moved)[0])


def _tokens_of_course(
    plan: Plan, vocabulary: Vocabulary, course: Course, fixed: int
) -> tuple[int, bool]:
    """What its prompt comes to, and whether its cut is another than the turn before had."""
    window = plan.window_on(vocabulary.window)
    context = context_of(course, room_tokens=_room_of_path(plan, vocabulary, fixed))
    summary = summary_room(window) if context.first else 0
    return min(fixed + summary + context.tokens, window), context.moved


def _room_of_path(plan: Plan, vocabulary: Vocabulary, fixed: int) -> int:
    """The same room as the worker's, or it would cut at another place."""
    _, per_message = vocabulary.cost
    return exchange_room(
        plan.window_on(vocabulary.window),
        answer_tokens=plan.answer_tokens,
        begins_with_tokens=fixed - per_message,
    )
