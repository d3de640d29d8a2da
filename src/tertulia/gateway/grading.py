"""Asks how hard a question is, and never waits long for the answer."""

from __future__ import annotations

import asyncio

import structlog

from tertulia.core.difficulty import HARDEST, Question, crude_difficulty
from tertulia.gateway.desk import Desk

_log = structlog.get_logger(__name__)

# A person notices a tenth of a second before the first word; a grade must not take half of it.
_GRADE_S = 0.03


async def graded(desk: Desk, question: Question) -> int:
    """The grader's answer, or the crude rule's where that fails, is late or makes no sense."""
    try:
        async with asyncio.timeout(_GRADE_S):
            grade: object = await desk.grader.difficulty(question)
    except TimeoutError:
        desk.figures.graded("rule_slow")
    except Exception as error:  # noqa: BLE001  # a grader is anybody's code; no turn may fail of it
        _log.warning("grader_failed", cause=type(error).__name__)
        desk.figures.graded("rule_failed")
    else:
        if isinstance(grade, int) and 0 <= grade <= HARDEST:  # the port's word is not proof
            desk.figures.graded("score")
            return grade
        desk.figures.graded("rule_failed")
    return crude_difficulty(question, easy_tokens=desk.rules.easy_tokens)
