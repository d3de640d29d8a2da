"""Two kinds of traffic: people who always have a conversation open, and a recorded trace."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tertulia.simulator.caching.caches import BLOCK_TOKENS
from tertulia.simulator.caching.talk import Habits, Talk
from tertulia.simulator.caching.trace import Request
from tertulia.simulator.caching.turns import Turn


@dataclass(slots=True)
class People:
    """`n` of them; who ends a conversation begins another after a pause."""

    n: int
    seed: int
    habits: Habits = field(default_factory=Habits)
    _talks: list[Talk] = field(default_factory=list)
    _n_talks: list[int] = field(default_factory=list)

    def begin(self) -> Iterator[tuple[float, int]]:
        """Each after a first pause: from then on as many ask at any time."""
        self._n_talks = [0] * self.n
        self._talks = [self._next_talk(who) for who in range(self.n)]
        for who, talk in enumerate(self._talks):
            yield talk.thinks_s(), who

    def ask(self, who: int, now: float, key: int, /) -> Turn:
        """Their next message."""
        talk = self._talks[who]
        prompt, reply = talk.ask(BLOCK_TOKENS)
        return Turn(key, talk.name, talk.text, prompt, reply, now)

    def after(self, who: int, now: float, turn: Turn, /) -> tuple[float, int] | None:
        """The same person, once they have read the reply and thought."""
        talk = self._talks[who]
        talk.hear(turn.reply)
        if talk.is_over:
            talk = self._talks[who] = self._next_talk(who)
        return now + talk.thinks_s(), who

    def _next_talk(self, who: int) -> Talk:
        # Named by person and number: what it draws must not depend on when others ended theirs.
        self._n_talks[who] += 1
        name = f"c{who}.{self._n_talks[who]}"
        return Talk(name, self.habits, random.Random(f"{self.seed} {name}"))


@dataclass(slots=True)
class Replay:
    """A trace's requests at their own times, `speed` times as fast."""

    requests: Sequence[Request]
    speed: float = 1.0

    def begin(self) -> Iterator[tuple[float, int]]:
        """All of them, whether others have been answered or not."""
        for number, request in enumerate(self.requests):
            yield request.at_s / self.speed, number

    def ask(self, who: int, now: float, key: int, /) -> Turn:
        """That request."""
        asked = self.requests[who]
        return Turn(key, asked.conversation, asked.text(), asked.prompt, asked.reply, now)

    def after(self, _who: int, _now: float, _turn: Turn, /) -> None:
        """Nobody: they waited for no answer."""
