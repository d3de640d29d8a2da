"""The fast engine's inner loop: all that happens between two looks at the line.

One source for two engines: plain Python with lists, or compiled with arrays. What the service's
policies have decided comes in as numbers; here they are only carried out, message by message.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final


class N(IntEnum):
    """Where each count stands in the loop's list of integers. `RUNNING` and `LINE` have one for
    each of the two lanes, `REFUSED` and `TIMED_OUT` one for each plan of those that count, and
    those with `NOW` are of all."""

    BUSY = 0
    COME = 1
    FREE = 2
    SIZE = 3
    LINE = 4
    RUNNING = 6
    REFUSED = 8
    TIMED_OUT = 10
    REFUSED_NOW = 12
    TIMED_OUT_NOW = 13
    FAIR = 14
    DROPS_DEAD = 15
    FULL = 16


class F(IntEnum):
    """Where each number stands in the loop's list of floats; `LEFT` are the slots that a lane has,
    `REPLY_S` how long its replies last, `LIMIT_S` how long a plan may wait, `CAP` its longest
    answer now, `LONGEST` without the ladder."""

    COUNT_FROM = 0
    COUNT_UNTIL = 1
    PATIENCE_S = 2
    PROMPT_COST = 3
    TOKEN_COST = 4
    WAITED_S = 5
    LEFT = 6
    REPLY_S = 8
    LIMIT_S = 10
    CAP = 12
    LONGEST = 14
    HIGHEST_TAG = 16
    LONGEST_WAIT_S = 18


PLANS: Final = 2
# Of a reply: plan, easy or not, short or not, lowered by the ladder or not.
KINDS: Final = 16
LOWERED: Final = 8
# Waits are counted in hundredths of a second, up to 100 s.
BINS: Final = 10_001
BINS_PER_S: Final = 100.0
# An id holds its order of coming above, its place or kind below.
_PLACES: Final = 1 << 21
_KINDS: Final = 32
# Above this a limit is none.
_FOR_EVER: Final = 1e300

# Plain integers: what is compiled knows no enumerations of Python's.
_BUSY, _COME, _FREE, _SIZE = map(int, (N.BUSY, N.COME, N.FREE, N.SIZE))
_LINE, _RUNNING, _REFUSED = map(int, (N.LINE, N.RUNNING, N.REFUSED))
_TIMED_OUT, _REFUSED_NOW, _TIMED_OUT_NOW = map(int, (N.TIMED_OUT, N.REFUSED_NOW, N.TIMED_OUT_NOW))
_FAIR, _DROPS_DEAD, _FULL = map(int, (N.FAIR, N.DROPS_DEAD, N.FULL))
_F_FROM, _F_UNTIL, _F_PATIENCE = map(int, (F.COUNT_FROM, F.COUNT_UNTIL, F.PATIENCE_S))
_F_PROMPT, _F_TOKEN, _F_WAITED = map(int, (F.PROMPT_COST, F.TOKEN_COST, F.WAITED_S))
_F_LEFT, _F_REPLY, _F_LIMIT = map(int, (F.LEFT, F.REPLY_S, F.LIMIT_S))
_F_CAP, _F_LONGEST, _F_TAG = map(int, (F.CAP, F.LONGEST, F.HIGHEST_TAG))
_F_LONGEST_WAIT = int(F.LONGEST_WAIT_S)

Jit = Callable[[Any], Any]


def build(jit: Jit, push: Any, pop: Any) -> Any:  # noqa: C901  # as for what it holds
    """The loop over these heaps. Its arguments are lists, or arrays, of one kind throughout.

    `begins` and `until` are the beat's; what `came` has its moment, plan, easy (0 or 1), owner and
    answer. `n` and `f` are described above. `ends` and `lines` are heaps; a message that waits has
    a place in `store`, of those that are `free`. `kinds` are what each kind of reply did: begun,
    ended, seconds held, seconds of those that began, and how many of them count; `base` and `write`
    are its seconds, without and for a token. `bins` are the waits of those that did wait.
    """

    @jit
    def play(  # type: ignore[no-untyped-def]  # noqa: C901  # calls would cost too much
        begins, until, came, n, f, bins, lane_of, lane_of_kind, lowered, ends, lines, store, free,
        tags, kinds, base, write,
    ):  # fmt: skip
        at, plans, easy, owners, answers = came
        s_at, s_kind, s_answer, s_counts = store
        k_begun, k_ended, k_held_s, k_seconds, k_counted = kinds
        # What is used for every message is quicker by a name of its own; the end writes it back.
        busy, come, size, is_fair = n[_BUSY], n[_COME], n[_SIZE], n[_FAIR]
        count_from, count_until, patience_s = f[_F_FROM], f[_F_UNTIL], f[_F_PATIENCE]
        prompt_cost, token_cost = f[_F_PROMPT], f[_F_TOKEN]
        n_came = len(at)
        is_first = True
        for j in range(n_came + 1):
            now = at[j] if j < n_came else until
            while is_first or (busy > 0 and ends[0][0] <= now):
                if is_first:  # there may be more accelerators than before
                    is_first = False
                    ended_at = begins
                else:
                    ended_at, packed = pop(ends)
                    busy -= 1
                    kind = packed % _KINDS
                    n[_RUNNING + lane_of_kind[kind]] -= 1
                    k_ended[kind] += 1
                    k_held_s[kind] += ended_at - begins
                while busy < size and n[_LINE] + n[_LINE + 1] > 0:
                    lane = 0 if n[_LINE] > 0 else 1
                    _, packed = pop(lines[lane])
                    n[_LINE + lane] -= 1
                    place = packed % _PLACES
                    free[n[_FREE]] = place
                    n[_FREE] += 1
                    kind = s_kind[place]
                    plan = kind // 4
                    counted = s_counts[place]
                    waited_s = ended_at - s_at[place]
                    if waited_s > patience_s:
                        n[_TIMED_OUT_NOW] += 1
                        n[_TIMED_OUT + plan] += counted
                        if n[_DROPS_DEAD]:
                            continue
                        counted = 0
                    f[_F_WAITED] += waited_s
                    if counted:
                        bins[plan][min(BINS - 1, int(waited_s * BINS_PER_S) + 1)] += 1
                        f[_F_LONGEST_WAIT] = max(f[_F_LONGEST_WAIT], waited_s)
                    kind += LOWERED * lowered[plan]
                    seconds = base[kind] + write[kind] * s_answer[place]
                    come += 1
                    push(ends, (ended_at + seconds, come * _KINDS + kind))
                    busy += 1
                    n[_RUNNING + lane] += 1
                    k_begun[kind] += 1
                    k_counted[kind] += counted
                    k_held_s[kind] -= ended_at - begins
                    k_seconds[kind] += seconds
            if j == n_came:
                break
            plan = plans[j]
            lane = lane_of[plan]
            counted = 1 if count_from <= now < count_until else 0
            is_full = busy >= size
            if is_full and f[_F_LIMIT + plan] < _FOR_EVER:
                spare = size - n[_RUNNING] - n[_RUNNING + 1]
                ahead = n[_LINE + lane] + 1 - spare
                if lane == 1 and spare > 0:
                    ahead += min(n[_LINE], spare)
                own = n[_RUNNING + 1] + (n[_RUNNING] if lane == 0 else 0)
                reply_s = f[_F_REPLY + lane]
                if own > 0:
                    per_s = n[_RUNNING + 1] / f[_F_REPLY + 1]
                    if lane == 0:
                        per_s += n[_RUNNING] / f[_F_REPLY]
                    reply_s = own / per_s
                if ahead > 0 and ahead * reply_s / f[_F_LEFT + lane] > f[_F_LIMIT + plan]:
                    n[_REFUSED_NOW] += 1
                    n[_REFUSED + plan] += counted
                    continue
            answer, kind = answers[j], plan * 4 + easy[j] * 2
            if answer > f[_F_LONGEST + plan]:
                answer = f[_F_LONGEST + plan]
            if answer > f[_F_CAP + plan]:
                answer = f[_F_CAP + plan]
                kind += 1  # it is short
            rank = 0.0
            if is_fair:
                owner = owners[j]
                tag = f[_F_TAG + lane]
                floor = lines[lane][0][0] if n[_LINE + lane] > 0 else tag
                rank = tags[lane][owner]
                if rank < floor:
                    rank = floor
                tags[lane][owner] = own_tag = rank + prompt_cost + token_cost * answer
                if own_tag > tag:
                    f[_F_TAG + lane] = own_tag
            come += 1
            if not is_full:
                kind += LOWERED * lowered[plan]
                seconds = base[kind] + write[kind] * answer
                push(ends, (now + seconds, come * _KINDS + kind))
                busy += 1
                n[_RUNNING + lane] += 1
                k_begun[kind] += 1
                k_counted[kind] += counted
                k_held_s[kind] -= now - begins
                k_seconds[kind] += seconds
                continue
            if n[_FREE] == 0:
                n[_FULL] = 1
                break
            n[_FREE] -= 1
            place = free[n[_FREE]]
            s_at[place], s_kind[place], s_answer[place] = now, kind, answer
            s_counts[place] = counted
            push(lines[lane], (rank, come * _PLACES + place))
            n[_LINE + lane] += 1
        n[_BUSY], n[_COME] = busy, come

    return play
