"""One replica that reads prompts in chunks beside the replies it writes, every step accounted for.

Steps in which nobody joins or leaves are reckoned together by the sum of their durations: that is
exact, and is what makes the simulation quick. It decides nothing about where turns go.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass
from typing import Final

from tertulia.simulator.caching.caches import Cache
from tertulia.simulator.caching.timing import EngineTiming
from tertulia.simulator.caching.turns import Turn

NEVER: Final = math.inf


@dataclass(frozen=True, slots=True)
class EngineBounds:
    """What one replica does at once: sequences, and prompt tokens in a step."""

    slots: int = 256
    chunk_tokens: int = 512


@dataclass(slots=True)
class _Stretch:
    """Steps alike: so many from `began_at`, the first of `first_s`, each `more_s` longer."""

    began_at: float
    n_steps: int
    first_s: float
    more_s: float = 0.0

    @property
    def ends_at(self) -> float:
        return self.began_at + self.lasting_s(self.n_steps)

    def lasting_s(self, n_steps: int) -> float:
        return n_steps * self.first_s + self.more_s * n_steps * (n_steps - 1) / 2

    def cut(self, now: float) -> None:
        """No further than the step that runs now."""
        passed_s, half = now - self.began_at, self.more_s / 2
        if half > 0.0:
            linear = self.first_s - half
            root = math.sqrt(linear * linear + 4 * half * passed_s)
            n_steps = math.ceil((root - linear) / (2 * half))
        else:
            n_steps = math.ceil(passed_s / self.first_s)
        n_steps = max(1, n_steps)
        while self.began_at + self.lasting_s(n_steps) < now:  # the root is rounded
            n_steps += 1
        self.n_steps = min(self.n_steps, n_steps)


class Engine:
    """First come, first served. Call `happen` at `next_at`.

    Invariants: a waiting turn holds nothing of the cache. `_context` is the sum of what the
    decoding sequences have in it when the stretch begins.
    """

    def __init__(
        self, timing: EngineTiming, cache: Cache, bounds: EngineBounds, *, slowness: float = 1.0
    ) -> None:
        self.cache = cache
        self._timing = timing
        self._bounds = bounds
        self._slowness = slowness  # times as long each step lasts
        self._waiting: deque[Turn] = deque()
        self._reading: deque[Turn] = deque()
        self._decoding: list[tuple[int, int, Turn]] = []  # by the number of their last step
        self._chunks: list[tuple[Turn, int]] = []
        self._context = 0
        self._n_steps = 0
        self._stretch: _Stretch | None = None
        self.gap_s: float | None = None  # of its last steps with decodes

    @property
    def next_at(self) -> float:
        """When something will be noticed."""
        return NEVER if self._stretch is None else self._stretch.ends_at

    @property
    def n_running(self) -> int:
        """Sequences that it has, waiting ones included."""
        return len(self._waiting) + len(self._reading) + len(self._decoding)

    @property
    def owed_tokens(self) -> int:
        """Prompt tokens that it has taken and not read, as far as it knows."""
        return sum(turn.unread for turn in self._reading) + sum(
            turn.prompt for turn in self._waiting
        )

    @property
    def n_steps(self) -> int:
        """Steps that have ended."""
        return self._n_steps

    def add(self, turn: Turn, now: float) -> None:
        """A turn arrives. `next_at` may change."""
        self._waiting.append(turn)
        if self._stretch is None:
            self._begin(now)
        elif self._stretch.n_steps > 1 and self._has_slot:
            self._stretch.cut(now)

    def happen(self) -> tuple[list[Turn], list[Turn]]:
        """The stretch ends: whose first token came, and whose last."""
        stretch = self._stretch
        assert stretch is not None, "nothing was to happen"
        now = stretch.ends_at
        if self._decoding:
            self._n_steps += stretch.n_steps
            self._context += stretch.n_steps * len(self._decoding)
            self.gap_s = (now - stretch.began_at) / stretch.n_steps
        else:
            self._n_steps += 1
        ended = self._end(now)
        begun = self._read(now)
        ended += [turn for turn in begun if turn.reply == 1]
        self._begin(now)
        return begun, ended

    @property
    def _has_slot(self) -> bool:
        return len(self._reading) + len(self._decoding) < self._bounds.slots

    def _end(self, now: float) -> list[Turn]:
        ended = []
        while self._decoding and self._decoding[0][0] <= self._n_steps:
            turn = heapq.heappop(self._decoding)[2]
            self._context -= turn.prompt + turn.reply - 1
            self._leave(turn, now)
            ended.append(turn)
        return ended

    def _read(self, now: float) -> list[Turn]:
        begun = []
        for turn, n_tokens in self._chunks:
            turn.unread -= n_tokens
            if turn.unread:
                continue
            popped = self._reading.popleft()
            assert popped is turn, "prompts are read in their order"
            turn.first_at = now
            begun.append(turn)
            if turn.reply == 1:
                self._leave(turn, now)
                continue
            heapq.heappush(self._decoding, (self._n_steps + turn.reply - 1, turn.key, turn))
            self._context += turn.prompt
        return begun

    def _leave(self, turn: Turn, now: float) -> None:
        turn.ended_at = now
        self.cache.close(turn)

    def _begin(self, now: float) -> None:
        self._admit()
        self._chunks = self._next_chunks()
        batch = len(self._decoding)
        if not self._chunks and not batch:
            self._stretch = None
            return
        timing, slowness = self._timing, self._slowness
        step_s = timing.step_s(batch, self._context) if batch else timing.read_fixed_s
        if self._chunks:
            step_s += sum(timing.prefill.chunk_s(n, t.prompt - t.unread) for t, n in self._chunks)
            self._stretch = _Stretch(now, 1, slowness * step_s)
            return
        more_s = timing.context_token_s * batch
        n_steps = self._decoding[0][0] - self._n_steps
        self._stretch = _Stretch(now, n_steps, slowness * step_s, slowness * more_s)

    def _admit(self) -> None:
        while self._waiting and self._has_slot:
            turn = self._waiting[0]
            found = self.cache.open(turn)
            if found is None:
                assert self._reading or self._decoding, "a prompt that never fits was sent"
                return  # never past the head of the queue
            self._waiting.popleft()
            turn.cached, turn.unread = found, turn.prompt - found
            self._reading.append(turn)

    def _next_chunks(self) -> list[tuple[Turn, int]]:
        left, chunks = self._bounds.chunk_tokens, []
        for turn in self._reading:
            if left == 0:
                break
            n_tokens = min(left, turn.unread)
            left -= n_tokens
            chunks.append((turn, n_tokens))
        return chunks
