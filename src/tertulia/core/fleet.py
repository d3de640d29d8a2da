"""What is known of a fleet's replicas: what they say of themselves, and whose home they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from tertulia.core.engines import EngineName

# What a replica that is about to go answers to new work: the type of its error.
DRAINING: Final = "draining"
# A replica that has said nothing for so long is not only lost, it is gone: nobody waits for it.
FORGOTTEN_S: Final = 60.0
# A conversation's home is remembered for so long: replicas forget a prefix sooner.
HOME_KEPT_S: Final = 3600.0
# So many replicas may be set aside at once: no fleet of ours has more.
MOST_HELD: Final = 1000
# What no replica needs: more slots, longer names, counts that a float does not hold exactly.
_MOST_SLOTS: Final = 4096
_LONGEST_WORD: Final = 200
_MOST: Final = 2**53


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a replica says of itself every few hundred milliseconds.

    `incarnation` differs after every start. `tokens_done`, read and generated, only grows within
    one: while `running` is above 0 its growth is the sign of life. `owed_tokens` are prompt tokens
    taken but not yet read, `generated_tokens` only grow, `cache_hit_share` is of the prompt tokens
    that were found in the cache since it started. `engine` is a kind of `core.engines`, `pool` what
    users pick its model as. None is unknown, never 0. `age_s` is filled in by the registry, by its
    own clock.
    """

    name: str
    incarnation: str
    url: str
    model: str
    slots: int
    state: Literal["ready", "draining"] = "ready"
    running: int = 0
    waiting: int = 0
    owed_tokens: int = 0
    tokens_done: int = 0
    prefill_per_s: float | None = None
    cache_used_share: float | None = None
    engine: EngineName = "tertulia"
    pool: str = "large"
    window: int | None = None
    age_s: float = 0.0
    generated_tokens: int | None = None
    cache_hit_share: float | None = None


SightState = Literal["ready", "held", "draining", "resting", "starting", "refused", "lost"]


@dataclass(frozen=True, slots=True)
class ReplicaSight:
    """A replica as one process sees it. None is unknown, never 0. `gap_s` is between two tokens of
    a reply as this process hears them, `message` says why it is refused."""

    name: str
    model: str
    engine: EngineName
    state: SightState
    slots: int
    running: int
    owed_tokens: int
    prefill_per_s: float | None = None
    gap_s: float | None = None
    cache_used_share: float | None = None
    cache_hit_share: float | None = None
    generated_tokens: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A generation that looks for a replica of `model`.

    `conversation` is what stays the same from turn to turn, so that each finds the prefix of the
    one before. `avoid` names replicas that it has just been lost on: they are taken only where no
    other is left.
    """

    request_id: str
    model: str
    conversation: str
    prompt_tokens: int
    answer_tokens: int = 0
    avoid: frozenset[str] = frozenset()

    @property
    def tokens(self) -> int:
        """The window that it needs."""
        return self.prompt_tokens + self.answer_tokens


@dataclass(frozen=True, slots=True)
class Home:
    """The replica that last answered a conversation, and how many of its tokens it has read."""

    replica: str
    tokens: int


def is_sound(report: ReplicaReport) -> bool:
    """Whether a report of the right types can be reckoned with: it comes from outside, and one with
    no slots must not end whoever reads it."""
    counts = (report.running, report.waiting, report.owed_tokens, report.tokens_done)
    figures = (
        report.prefill_per_s,
        report.cache_used_share,
        report.cache_hit_share,
        report.generated_tokens,
    )
    words = (report.name, report.incarnation, report.url, report.model, report.pool)
    return (
        0 < report.slots <= _MOST_SLOTS
        and (report.window is None or 0 < report.window < _MOST)
        and all(0 <= count < _MOST for count in counts)
        and all(figure is None or 0 <= figure < math.inf for figure in figures)
        and all(0 < len(word) <= _LONGEST_WORD and word.isprintable() for word in words)
    )
