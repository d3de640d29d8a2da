"""The fast engine's inner loop: all that happens between two looks at the line.

One source for two engines: plain Python with lists, or compiled with arrays. What the service's
policies have decided comes in as numbers; here they are only carried out, message by message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

PLANS: Final = 2
# Of replies. From the highest bit: lowered by the ladder or not, plan, easy or not, short or not.
KINDS: Final = 16
LOWERED: Final = 8
# Waits are counted in hundredths of a second, up to 100 s.
BINS: Final = 10_001
BINS_PER_S: Final = 100.0
# An id holds its order of coming above, its place or kind below. Powers of two: a remainder is then
# one operation.
_PLACES: Final = 1 << 21
_KINDS: Final = 32
# Above this a limit is none.
_FOR_EVER: Final = 1e300

# Where each count stands in `State.n`; of all messages, those that do not count among them.
BUSY, COME, FREE, REFUSED, TIMED_OUT, IS_FULL = range(6)
# And in `State.waits`.
TOGETHER, LONGEST = range(2)


@dataclass(slots=True)
class Rules:
    """What holds all the time: of each plan its lane; of each kind of reply its lane, and for how
    long it holds an accelerator, without a token (`base`) and for one (`write`)."""

    lane_of: tuple[int, int]
    lane_of_kind: Any
    base: Any
    write: Any
    count_from: float
    count_until: float
    patience_s: float
    prompt_cost: float
    token_cost: float
    is_fair: bool
    drops_dead: bool


@dataclass(slots=True)
class Beat:
    """What the policies have decided until they are looked at again.

    Of each plan: how long it may wait, its longest answer now (`cap`) and without the ladder, and
    whether it goes to the small model (1). Of each lane: how many slots it has, corrected by what
    was seen, and how long its replies last.
    """

    begins: float
    until: float
    size: int
    limit_s: tuple[float, float]
    cap: tuple[float, float]
    longest: tuple[float, float]
    lowered: tuple[int, int]
    slots: tuple[float, float]
    reply_s: tuple[float, float]


@dataclass(slots=True)
class State:
    """All that changes. `ends` is a heap of the replies that run, `lines` one for each lane.

    A message that waits has a place in `asked_at`, `kind`, `answer` and `counts`, of those that are
    `free`. `line` and `running` say how many of each lane wait and run, `tags` what each owner's
    messages of a lane have come to. `refused`, `timed_out` and `bins` (waits of those that did
    wait) are of each plan, and of those that count. The last five say what each kind of reply did:
    begun, ended, seconds held in this beat, seconds of those that began, and how many count.
    """

    n: Any
    waits: Any
    ends: Any
    lines: tuple[Any, Any]
    asked_at: Any
    kind: Any
    answer: Any
    counts: Any
    free: Any
    line: Any
    running: Any
    tags: tuple[Any, Any]
    highest_tag: Any
    refused: Any
    timed_out: Any
    bins: tuple[Any, Any]
    begun: Any
    ended: Any
    held_s: Any
    seconds: Any
    counted: Any


Jit = Callable[[Any], Any]


def build(jit: Jit, push: Any, pop: Any) -> Any:
    """The loop over these heaps: `play(rules, beat, came, state)`.

    `came` has the moment, plan, easy (0 or 1), owner and answer of each message of the beat.
    """
    begin = jit(_beginning(push))
    begin_next = jit(_beginning_next(pop, begin, jit(_is_dead)))
    end = jit(_ending(pop, begin_next))
    stand = jit(_standing(push))
    return jit(_playing(begin, begin_next, end, stand, jit(_waits_too_long), jit(_rank)))


def _playing(
    begin: Any, begin_next: Any, end: Any, stand: Any, waits_too_long: Any, rank_of: Any
) -> Any:
    def play(rules: Rules, beat: Beat, came: Any, state: State) -> None:
        at, plans, easy, owners, answers = came
        n, ends, size = state.n, state.ends, beat.size
        # Looked up once: in plain Python each look-up of an attribute is some of the loop's time.
        lane_of, cap, longest, lowered = rules.lane_of, beat.cap, beat.longest, beat.lowered
        count_from, count_until, is_fair = rules.count_from, rules.count_until, rules.is_fair
        # There may be more accelerators than before.
        busy = begin_next(rules, beat, state, beat.begins, n[BUSY])
        for j in range(len(at)):
            now, plan, answer = at[j], plans[j], answers[j]
            if busy > 0 and ends[0][0] <= now:
                busy = end(rules, beat, state, now, busy)
            lane = lane_of[plan]
            counts = 1 if count_from <= now < count_until else 0
            is_full = busy >= size
            if is_full and waits_too_long(beat, state, plan, lane):
                n[REFUSED] += 1
                state.refused[plan] += counts
                continue
            kind = plan * 4 + easy[j] * 2
            if answer > longest[plan]:
                answer = longest[plan]
            if answer > cap[plan]:
                answer = cap[plan]
                kind += 1  # it is short
            rank = rank_of(rules, state, lane, owners[j], answer) if is_fair else 0.0
            if not is_full:
                begin(rules, beat, state, now, kind + LOWERED * lowered[plan], answer, counts)
                busy += 1
            elif n[FREE] > 0:
                stand(state, lane, rank, now, kind, answer, counts)
            else:
                n[IS_FULL] = 1
                break
        n[BUSY] = end(rules, beat, state, beat.until, busy)

    return play


def _beginning(push: Any) -> Any:
    def begin(
        rules: Rules, beat: Beat, state: State, at: float, kind: int, answer: float, counts: int
    ) -> None:
        """A reply of this kind runs from now on."""
        n, seconds = state.n, rules.base[kind] + rules.write[kind] * answer
        number = n[COME] + 1
        n[COME] = number
        push(state.ends, (at + seconds, number * _KINDS + kind))
        state.running[rules.lane_of_kind[kind]] += 1
        state.begun[kind] += 1
        state.counted[kind] += counts
        state.held_s[kind] -= at - beat.begins
        state.seconds[kind] += seconds

    return begin


def _ending(pop: Any, begin_next: Any) -> Any:
    def end(rules: Rules, beat: Beat, state: State, until: float, busy: int) -> int:
        """Whatever ends until then has ended, and those that could have begun; how many work."""
        ends, line, running, begins = state.ends, state.line, state.running, beat.begins
        lane_of_kind, ended, held_s = rules.lane_of_kind, state.ended, state.held_s
        while busy > 0 and ends[0][0] <= until:
            at, packed = pop(ends)
            kind = packed & (_KINDS - 1)
            running[lane_of_kind[kind]] -= 1
            ended[kind] += 1
            held_s[kind] += at - begins
            busy -= 1
            if line[0] > 0 or line[1] > 0:
                busy = begin_next(rules, beat, state, at, busy)
        return busy

    return end


def _beginning_next(pop: Any, begin: Any, is_dead: Any) -> Any:
    def begin_next(rules: Rules, beat: Beat, state: State, at: float, busy: int) -> int:
        """As many of those that wait have begun as there is room for; how many work then."""
        line, n = state.line, state.n
        while busy < beat.size and (line[0] > 0 or line[1] > 0):
            lane = 0 if line[0] > 0 else 1
            _, packed = pop(state.lines[lane])
            place = packed & (_PLACES - 1)
            line[lane] -= 1
            state.free[n[FREE]] = place
            n[FREE] += 1
            kind, counts = state.kind[place], state.counts[place]
            if is_dead(rules, state, kind // 4, at - state.asked_at[place], counts):
                if rules.drops_dead:
                    continue
                counts = 0  # it was counted as what it is; now it only takes time
            kind += LOWERED * beat.lowered[kind // 4]
            begin(rules, beat, state, at, kind, state.answer[place], counts)
            busy += 1
        return busy

    return begin_next


def _is_dead(rules: Rules, state: State, plan: int, waited_s: float, counts: int) -> bool:
    """Whether its owner has left; how long it has waited is noted, or that it timed out."""
    if waited_s > rules.patience_s:
        state.n[TIMED_OUT] += 1
        state.timed_out[plan] += counts
        return True
    state.waits[TOGETHER] += waited_s
    if counts > 0:
        state.bins[plan][min(BINS - 1, int(waited_s * BINS_PER_S) + 1)] += 1
        state.waits[LONGEST] = max(state.waits[LONGEST], waited_s)
    return False


def _waits_too_long(beat: Beat, state: State, plan: int, lane: int) -> bool:
    """Whether a newcomer would wait for longer than he may: what `core.waiting` says of one."""
    if beat.limit_s[plan] > _FOR_EVER:
        return False
    line, running, reply_s = state.line, state.running, beat.reply_s
    spare = beat.size - running[0] - running[1]
    ahead = line[lane] + 1 - spare
    if lane == 1 and spare > 0:
        ahead += min(line[0], spare)
    if ahead <= 0:
        return False
    ends_in_s = reply_s[lane]
    if lane == 0 and running[0] + running[1] > 0:
        per_s = running[0] / reply_s[0] + running[1] / reply_s[1]
        ends_in_s = (running[0] + running[1]) / per_s
    return bool(ahead * ends_in_s / beat.slots[lane] > beat.limit_s[plan])


def _rank(rules: Rules, state: State, lane: int, owner: int, answer: float) -> float:
    """Where a message stands in its lane: fair between owners, as `core.waiting` ranks them."""
    tags, highest = state.tags[lane], state.highest_tag
    floor = state.lines[lane][0][0] if state.line[lane] > 0 else highest[lane]
    rank = tags[owner]
    if rank < floor:
        rank = floor
    tag = rank + rules.prompt_cost + rules.token_cost * answer
    tags[owner] = tag
    if highest[lane] < tag:
        highest[lane] = tag
    return float(rank)


def _standing(push: Any) -> Any:
    def stand(
        state: State, lane: int, rank: float, at: float, kind: int, answer: float, counts: int
    ) -> None:
        """A message waits from now on."""
        n = state.n
        n[FREE] -= 1
        n[COME] += 1
        place = state.free[n[FREE]]
        state.asked_at[place], state.kind[place] = at, kind
        state.answer[place], state.counts[place] = answer, counts
        push(state.lines[lane], (rank, n[COME] * _PLACES + place))
        state.line[lane] += 1

    return stand
