"""How much of all prompts replicas find in their caches, counted in tokens alone.

No time passes on a replica, nobody waits and nothing is uneven: what a fleet really finds is less.
When people speak and where a turn goes are arguments.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Talk:
    """What all conversations are like: so many turns, and the tokens of the system prompt, which
    every replica has, and of each message and reply."""

    turns: float
    system_tokens: float
    message_tokens: float
    reply_tokens: float


def hit_share(
    talk: Talk,
    caches_tokens: Sequence[float],
    begins_s: Iterable[float],
    pause_s: Callable[[], float],
    replica_of: Callable[[int, float], int],
) -> float:
    """The part of all prompt tokens that is found, 0 to 1.

    `caches_tokens` are the rooms of the replicas' caches, `begins_s` when each conversation says
    its first message; `pause_s` is asked for the time between two of its messages, and `replica_of`
    for the place of each prompt, by the conversation's number and the prompt's tokens.
    """
    caches = [_Cache(room) for room in caches_tokens]
    coming = [(at, one, 0) for one, at in enumerate(begins_s)]
    said = [talk.system_tokens] * len(coming)
    heapq.heapify(coming)
    found = asked = 0.0
    while coming:
        at, one, turn = heapq.heappop(coming)
        prompt = said[one] + talk.message_tokens
        cache = caches[replica_of(one, prompt)]
        found += min(max(cache.known(one), talk.system_tokens), prompt)
        asked += prompt
        said[one] = prompt + talk.reply_tokens
        cache.keep(one, said[one])
        if turn + 1 < talk.turns:
            heapq.heappush(coming, (at + pause_s(), one, turn + 1))
    return found / asked if asked else 0.0


@dataclass(slots=True)
class _Cache:
    """Whole conversations, the longest unused first. Invariant: `used` is what they have together,
    and not more than there is `room` for."""

    room: float
    used: float = 0.0
    kept: OrderedDict[int, float] = field(default_factory=OrderedDict)

    def known(self, conversation: int) -> float:
        return self.kept.get(conversation, 0.0)

    def keep(self, conversation: int, n_tokens: float) -> None:
        self.used += n_tokens - self.kept.pop(conversation, 0.0)
        self.kept[conversation] = n_tokens
        while self.used > self.room and self.kept:  # sums of fractions are rounded
            _, dropped = self.kept.popitem(last=False)
            self.used -= dropped
