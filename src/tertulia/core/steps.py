"""Decides every step of the engine: who decodes, who is admitted, who prefills, who must give way.

It must never let a request pass an earlier one of its lane, nor plan what the cache can't hold.
"""

from dataclasses import dataclass, field

from tertulia.core.blocks import Move, Owner, block_name
from tertulia.core.costs import NOTHING, StepCost, Work
from tertulia.core.prefix import PrefixCache

SMALLEST_CHUNK = 2  # tokens: what is left of a step for prefill is never less, or it would not end
DISTURBANCE = (
    1.4  # times as long as its decodes alone a step with prefill may last; 1.5 with errors
)
# Lanes behind the first get so much of the time that is spent on it: on a processor each sequence
# makes a step longer, and where the first lane is nearly all that an engine can do, a little more
# makes a line of it.
LENT = 0.05
TILE = 64  # tokens that attention is computed for at once: a prompt alone is read in whole ones
ALONE_S = 0.5  # a step without decodes: nobody waits for a token, but somebody may arrive or leave
FOUND = 64  # blocks of one sequence taken over in a step: bringing back so many takes 6 ms of it
TRIMMED = 8  # blocks moved down in one step: a few milliseconds of copying, unseen beside the step


@dataclass(frozen=True)
class StepBounds:
    """What the engine may do at once."""

    n_slots: int  # sequences that run at a time
    target_s: float  # between two tokens of a stream
    growth_tokens: int = 64  # of each reply, for which room is kept when it is admitted
    n_batch: int = 256  # tokens in one pass over a single sequence
    n_mixed: int = 256  # tokens in one pass over several


@dataclass(eq=False)
class Sequence:
    """One request inside the engine. Everything that matters to go on is in `tokens`."""

    key: int  # in order of arrival
    lane: int  # the lower goes first
    tokens: list[int]  # prompt and reply
    n_limit: int  # tokens it may come to
    owner: Owner = field(default_factory=Owner)
    table: list[int] = field(default_factory=list)  # its blocks
    names: list[bytes] = field(default_factory=list)  # of its full blocks, as far as needed
    n_done: int = 0  # tokens in the cache
    n_cached: int = 0  # tokens found there instead of computed, before it was ever preempted
    n_preempted: int = 0

    @property
    def n_left(self) -> int:
        """Tokens to compute before the next one can be chosen; 1 while it decodes."""
        return len(self.tokens) - self.n_done


@dataclass(frozen=True)
class Chunk:
    """The next tokens of one sequence in one batch."""

    key: int
    n_tokens: int


@dataclass(frozen=True)
class Step:
    """What to do next: the cache's moves in their order, then one pass over the batch."""

    admitted: tuple[int, ...]
    preempted: tuple[int, ...]
    moves: tuple[Move, ...]
    batch: tuple[Chunk, ...]
    decodes: Work
    prefill: Work


class StepScheduler:
    """Waiting and running sequences over one cache. Call in turn `next_step` and `computed`.

    Invariants: a waiting sequence holds no block. The blocks that running ones lack for the tokens
    they have are available when a step begins.
    """

    def __init__(self, cache: PrefixCache, cost: StepCost, bounds: StepBounds) -> None:
        self.cache = cache
        self.cost = cost
        self.bounds = bounds
        self.waiting: dict[int, Sequence] = {}
        self.running: dict[int, Sequence] = {}
        self._lent_s = 0.0  # what lanes behind the first may take of the next steps

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence; one that could not run even alone is the caller's mistake."""
        assert 0 < len(sequence.tokens) < sequence.n_limit
        assert self._n_blocks(sequence.n_limit) <= self.cache.limits.n_blocks
        self.waiting[sequence.key] = sequence

    def end(self, key: int) -> None:
        """The sequence has ended, however; its blocks can be used from now on."""
        if self.waiting.pop(key, None) is None:
            self.cache.let_go(self.running.pop(key).table)

    def next_step(self) -> Step:
        """Room for what grows, then admissions, then the batch: decodes first, prefill after."""
        self.cache.trim(TRIMMED)
        preempted = self._make_room()
        admitted: list[int] = []
        # After a preemption nobody is admitted at once, or two would trade places for ever.
        if not preempted:
            admitted, preempted = self._admit()
        batch = self._batch()
        return Step(tuple(admitted), tuple(preempted), self.cache.moves(), *batch)

    def computed(self, step: Step, took_s: float) -> None:
        """The batch has been computed; its full blocks can be found from now on."""
        n_block = self.cache.limits.block_tokens
        for chunk in step.batch:
            sequence = self.running[chunk.key]
            first = sequence.n_done // n_block
            sequence.n_done += chunk.n_tokens
            for number in range(first, sequence.n_done // n_block):
                name = self._name(sequence, number)
                self.cache.publish(sequence.table[number], name, sequence.owner, number)
        self.cost = self.cost.observed(step.decodes, step.prefill, took_s)

    def _make_room(self) -> list[int]:
        """Preempts the newest of the lowest lane until the others can hold the tokens they have."""
        preempted = []
        while len(self.running) > 1 and self._n_owed(0) > self.cache.n_available:
            preempted.append(self._preempt(max(self.running.values(), key=_order)))
        return preempted

    def _admit(self) -> tuple[list[int], list[int]]:
        admitted: list[int] = []
        preempted: list[int] = []
        for candidate in sorted(self.waiting.values(), key=_order):
            # Past a preemption nobody else is admitted: it might pass whoever has just gone back.
            if preempted:
                break
            if not self._fits(candidate):
                victims = self._victims(candidate)
                if not victims:
                    break  # never past the head of the queue
                preempted += [self._preempt(victim) for victim in victims]
            self.running[candidate.key] = self.waiting.pop(candidate.key)
            self._find(candidate)
            admitted.append(candidate.key)
        return admitted, preempted

    def _fits(self, candidate: Sequence) -> bool:
        """Whether it can run beside the others, each with its margin to grow."""
        # The last token is never looked for: somebody has to compute what follows it.
        n_findable = (len(candidate.tokens) - 1) // self.cache.limits.block_tokens
        n_held = self.cache.n_held([self._name(candidate, n) for n in range(n_findable)])
        n_needed = self._n_lacking(candidate, self.bounds.growth_tokens) - n_held
        n_room = self.cache.n_available - self._n_owed(self.bounds.growth_tokens)
        return len(self.running) < self.bounds.n_slots and n_needed <= n_room

    def _victims(self, candidate: Sequence) -> list[Sequence]:
        """Those of lower lanes that must go so that it can run; none if even that is not enough."""
        growth = self.bounds.growth_tokens
        n_slots = self.bounds.n_slots - len(self.running)
        n_room = self.cache.n_available - self._n_owed(growth)
        n_room -= self._n_lacking(candidate, growth)
        victims: list[Sequence] = []
        lower = [one for one in self.running.values() if one.lane > candidate.lane]
        for victim in sorted(lower, key=_order, reverse=True):
            victims.append(victim)
            n_slots += 1
            n_room += self.cache.n_alone(victim.table) + self._n_lacking(victim, growth)
            if n_slots > 0 and n_room >= 0:
                return victims
        return []

    def _preempt(self, sequence: Sequence) -> int:
        """Back to its place in the queue; its full blocks stay in the cache as long as they can."""
        self.end(sequence.key)
        sequence.table, sequence.n_done = [], 0
        sequence.n_preempted += 1
        self.waiting[sequence.key] = sequence
        return sequence.key

    def _batch(self) -> tuple[tuple[Chunk, ...], Work, Work]:
        """The first lane's decodes, then as much prefill of the first in order as the step has time
        for. Lanes behind it take part with what they are lent; alone, a lane is the first."""
        first = min((one.lane for one in self.running.values()), default=0)
        decodes = [one for one in self.running.values() if one.n_left == 1]
        of_first = [one for one in decodes if one.lane == first]
        decoded = self._decoding(of_first)
        lent_s, step_s = self._lent_s, self.cost.seconds(decoded)
        taking = of_first
        if len(decodes) > len(of_first):
            all_s = self.cost.seconds(self._decoding(decodes))
            if all_s - step_s <= lent_s:
                lent_s -= all_s - step_s
                taking, decoded = decodes, self._decoding(decodes)
        chunks = [self._chunk(one, 1) for one in taking]
        read, most, least = NOTHING, self.bounds.n_batch, TILE
        end_s = ALONE_S
        if chunks:
            end_s = max(self.bounds.target_s, DISTURBANCE * self.cost.seconds(decoded))
            most, least = self.bounds.n_mixed - len(chunks), SMALLEST_CHUNK
        for one in sorted((one for one in self.running.values() if one.n_left > 1), key=_order):
            if not self._find(one):
                continue  # the rest comes with the next step: nothing of it is computed again
            before_s = self.cost.seconds(decoded, read)
            room_s = end_s - before_s
            if one.lane > first:
                room_s, least = min(room_s, lent_s), 0
            n_fitting = self.cost.tokens_within(room_s, one.n_done, self._n_used)
            n_fitting -= n_fitting % TILE if n_fitting > TILE else 0
            n_tokens = min(one.n_left, most, max(n_fitting, least))
            if n_tokens < 1:
                break
            read += self._work(one, n_tokens)
            chunks.append(self._chunk(one, n_tokens))
            least, most = 0, min(most, self.bounds.n_mixed) - n_tokens
            took_s = self.cost.seconds(decoded, read) - before_s
            if one.lane > first:
                lent_s -= took_s
            else:
                step_s += took_s
        is_shared = any(one.lane > first for one in self.running.values())
        self._lent_s = lent_s + LENT * step_s if is_shared else 0.0
        return tuple(chunks), decoded, read

    def _decoding(self, decodes: list[Sequence]) -> Work:
        return sum((self._work(one, 1) for one in decodes), NOTHING)

    def _find(self, sequence: Sequence) -> bool:
        """Takes over the blocks that come next and are known; false if there may be more."""
        n_block = self.cache.limits.block_tokens
        for _ in range(FOUND):
            number = len(sequence.table)
            if not sequence.n_done == number * n_block < len(sequence.tokens) - n_block:
                return True
            name = self._name(sequence, number)
            block = self.cache.hold(name, sequence.owner, sequence.key, number)
            if block is None:
                return True
            sequence.table.append(block)
            sequence.n_done += n_block
            sequence.n_cached += 0 if sequence.n_preempted else n_block
        return False

    def _chunk(self, sequence: Sequence, n_tokens: int) -> Chunk:
        while len(sequence.table) < self._n_blocks(sequence.n_done + n_tokens):
            sequence.table.append(self.cache.take())
        return Chunk(sequence.key, n_tokens)

    def _work(self, sequence: Sequence, n_tokens: int) -> Work:
        n_attended = n_tokens * sequence.n_done + n_tokens * (n_tokens + 1) // 2
        return Work(n_tokens, n_attended, n_tokens * self._n_used)

    @property
    def _n_used(self) -> int:
        limits = self.cache.limits
        return (limits.n_blocks - self.cache.n_free) * limits.block_tokens

    def _n_blocks(self, n_tokens: int) -> int:
        return -(-n_tokens // self.cache.limits.block_tokens)

    def _n_lacking(self, sequence: Sequence, n_growth: int) -> int:
        """Blocks it does not have yet for the tokens it has and the next few it will produce."""
        n_tokens = min(len(sequence.tokens) + n_growth, sequence.n_limit)
        return self._n_blocks(n_tokens) - len(sequence.table)

    def _n_owed(self, n_growth: int) -> int:
        return sum(self._n_lacking(one, n_growth) for one in self.running.values())

    def _name(self, sequence: Sequence, number: int) -> bytes:
        names, n_block = sequence.names, self.cache.limits.block_tokens
        while len(names) <= number:
            first = len(names) * n_block
            tokens = sequence.tokens[first : first + n_block]
            before = names[-1] if names else b""
            names.append(block_name(before, tokens, sequence.owner, len(names)))
        return names[number]


def _order(sequence: Sequence) -> tuple[int, int]:
    return (sequence.lane, sequence.key)
