"""Grades questions by the features of their text; it needs no model and knows no other state."""

from __future__ import annotations

from tertulia.core.difficulty import Question, difficulty


class FeatureGrader:
    """The `Grader` of every installation. It answers in this thread, within milliseconds."""

    async def difficulty(self, question: Question) -> int:
        """The score of `core.difficulty`."""
        return difficulty(question)
