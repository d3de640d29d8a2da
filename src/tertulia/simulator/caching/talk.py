"""Invented people: conversations with pauses to think, whose prompts the service's own rules build.

Each conversation draws from dice of its own, so that every policy meets the same people.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Final

from tertulia.core.blocks import Owner
from tertulia.core.prompt import Exchange, choose_context, exchange_room, summary_room
from tertulia.simulator.caching.turns import Text

# What a chat template puts around a message.
_FRAME_TOKENS: Final = 4


@dataclass(frozen=True, slots=True)
class Habits:
    """What people do, in the mean. Messages and replies are lognormal, pauses and the number of
    turns memoryless; `long_share` of the messages come with a document of `long_tokens`."""

    think_s: float = 60.0
    turns: float = 8.0
    message_tokens: float = 150.0
    reply_tokens: float = 400.0
    spread: float = 0.7  # of the logarithm of a length
    long_share: float = 0.01
    long_tokens: int = 16_000
    system_tokens: int = 1_500
    window_tokens: int = 32_000
    answer_tokens: int = 2_000

    @property
    def room_tokens(self) -> int:
        """What is left of the window for exchanges."""
        return exchange_room(
            self.window_tokens,
            answer_tokens=self.answer_tokens,
            begins_with_tokens=self.system_tokens,
        )


@dataclass(slots=True)
class Talk:
    """One conversation. Call in turn `thinks_s`, `ask` and `hear`."""

    name: str
    habits: Habits
    dice: random.Random
    text: Text = field(init=False)
    _exchanges: list[Exchange] = field(default_factory=list)
    _left: int = 0

    def __post_init__(self) -> None:
        system = self.habits.system_tokens
        self.text = Text(Owner(salt=self.name, n_shared=system, session=self.name))
        self._left = _memoryless(self.dice, self.habits.turns)

    @property
    def is_over(self) -> bool:
        """Nobody will say anything more."""
        return self._left == 0

    def thinks_s(self) -> float:
        """The pause before the next message."""
        return self.dice.expovariate(1.0 / self.habits.think_s)

    def ask(self, block_tokens: int) -> tuple[int, int]:
        """The tokens of the next prompt and of its reply."""
        habits, dice = self.habits, self.dice
        message = _length(dice, habits.message_tokens, habits.spread)
        if dice.random() < habits.long_share:
            message += habits.long_tokens
        reply = min(habits.answer_tokens, _length(dice, habits.reply_tokens, habits.spread))
        self._exchanges.append(Exchange(("m",), (message + _FRAME_TOKENS,)))
        context = choose_context(self._exchanges, room_tokens=habits.room_tokens)
        if context.first != self.text.version:
            self.text.cut(context.first, block_tokens)
        prompt = habits.system_tokens + context.tokens
        if context.first:
            prompt += summary_room(habits.window_tokens)
        self._left -= 1
        return prompt, reply

    def hear(self, reply: int) -> None:
        """The reply has ended."""
        asked = self._exchanges[-1].asked
        self._exchanges[-1] = Exchange(("m",), asked, "r", reply)


def _length(dice: random.Random, mean: float, spread: float) -> int:
    return max(1, round(dice.lognormvariate(math.log(mean) - spread * spread / 2, spread)))


def _memoryless(dice: random.Random, mean: float) -> int:
    """1, 2, 3 … with this mean: each turn is as likely to be the last as any other."""
    if mean <= 1.0:
        return 1
    return 1 + int(math.log(1.0 - dice.random()) / math.log(1.0 - 1.0 / mean))
