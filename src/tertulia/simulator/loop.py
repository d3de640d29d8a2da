"""The fast engine's inner loop: all that happens between two looks at the line.

One source for two engines: plain Python with lists, or compiled with arrays. What the service's
policies have decided comes in as numbers; here they are only carried out, message by message.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final


class N(IntEnum):
    """Where each count stands in the loop's list of integers. `RUNNING` and `BEGUN` have one for
    each of the two lanes, and so have the lines."""

    BUSY = 0
    ENDS = 1
    COME = 2
    FREE = 3
    LINE = 4
    RUNNING = 6
    BEGUN = 8
    SIZE = 10
    FAIR = 11
    DROPS_DEAD = 12
    ASKED_NOW = 13
    BEGUN_NOW = 14
    REFUSED_NOW = 15
    TIMED_OUT_NOW = 16
    FULL = 17


class C(IntEnum):
    """Where each count of a plan stands among its eight."""

    ASKED = 0
    REFUSED = 1
    TIMED_OUT = 2
    BEGUN = 3
    SMALL = 4
    SHORT = 5


class F(IntEnum):
    """Where each number stands in the loop's list of floats; `LEFT` are the slots that a lane has,
    `REPLY_S` how long its replies last, `LIMIT_S` how long a plan may wait, `CAP` its longest answer
    now, `LONGEST` without the ladder."""

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
PER_PLAN: Final = 8
# Of a reply: plan, easy or not, short or not, lowered by the ladder or not.
KINDS: Final = 16
LOWERED: Final = 8
# Waits are counted in hundredths of a second, up to 100 s.
BINS: Final = 10_001
BINS_PER_S: Final = 100.0
# An id holds its order of coming above, its place or kind below.
_PLACES: Final = 1 << 21
_KINDS: Final = 32

# Plain integers: what is compiled knows no enumerations of Python's.
_BUSY, _ENDS, _COME, _FREE, _LINE = map(int, (N.BUSY, N.ENDS, N.COME, N.FREE, N.LINE))
_RUNNING, _BEGUN, _SIZE, _FAIR = map(int, (N.RUNNING, N.BEGUN, N.SIZE, N.FAIR))
_DROPS, _ASKED_NOW, _BEGUN_NOW = map(int, (N.DROPS_DEAD, N.ASKED_NOW, N.BEGUN_NOW))
_REFUSED_NOW, _TIMED_OUT_NOW, _FULL = map(int, (N.REFUSED_NOW, N.TIMED_OUT_NOW, N.FULL))
_C_ASKED, _C_REFUSED, _C_TIMED_OUT = map(int, (C.ASKED, C.REFUSED, C.TIMED_OUT))
_C_BEGUN, _C_SMALL, _C_SHORT = map(int, (C.BEGUN, C.SMALL, C.SHORT))
_F_FROM, _F_UNTIL, _F_PATIENCE = map(int, (F.COUNT_FROM, F.COUNT_UNTIL, F.PATIENCE_S))
_F_PROMPT, _F_TOKEN, _F_WAITED = map(int, (F.PROMPT_COST, F.TOKEN_COST, F.WAITED_S))
_F_LEFT, _F_REPLY, _F_LIMIT = map(int, (F.LEFT, F.REPLY_S, F.LIMIT_S))
_F_CAP, _F_LONGEST, _F_TAG = map(int, (F.CAP, F.LONGEST, F.HIGHEST_TAG))
_F_LONGEST_WAIT = int(F.LONGEST_WAIT_S)

Jit = Callable[[Any], Any]


def build(jit: Jit, push: Any, pop: Any) -> Any:
    """The loop over these heaps. Its arguments are lists, or arrays, of one kind throughout.

    `begins` and `ends` are the beat's; what came has `at`, `plan`, `easy` (0 or 1), `owner` and
    `answer`. `n`, `f`, `counts` and `bins` are described above. `ends` and `lines` are heaps; a
    message that waits has a place in `store`, of those that are `free`. `kinds` are what each kind
    of reply did: begun, ended, seconds held, seconds of those that ended; `base` and `write` are
    its seconds, without and for a token, `small` whether it is the small model's.
    """

    @jit
    def begin(now, begins, kind, answer, base, write, n, lane, ends, kinds):  # type: ignore[no-untyped-def]  # it is compiled
        seconds = base[kind] + write[kind] * answer
        n[_COME] += 1
        push(ends, n[_ENDS], now + seconds, n[_COME] * _KINDS + kind)
        n[_ENDS] += 1
        n[_BUSY] += 1
        n[_RUNNING + lane] += 1
        n[_BEGUN + lane] += 1
        n[_BEGUN_NOW] += 1
        kinds[0][kind] += 1
        kinds[2][kind] -= now - begins
        return seconds

    @jit
    def play(  # type: ignore[no-untyped-def]  # noqa: C901  # compiled; in Python calls would cost more than all they do
        begins, until, came, n, f, counts, bins, lane_of, lowered, ends, lines, store, free, tags,
        kinds, base, write, small,
    ):  # fmt: skip
        at, plans, easy, owners, answers = came
        s_at, s_kind, s_answer, s_counts = store
        n_came = len(at)
        is_first = True
        for j in range(n_came + 1):
            now = at[j] if j < n_came else until
            while is_first or (n[_ENDS] > 0 and ends[0][0] <= now):
                if is_first:  # there may be more accelerators than before
                    is_first = False
                    ended_at = begins
                else:
                    ended_at, packed = pop(ends, n[_ENDS])
                    n[_ENDS] -= 1
                    kind = int(packed) % _KINDS
                    lane = lane_of[(kind % LOWERED) // 4]
                    n[_BUSY] -= 1
                    n[_RUNNING + lane] -= 1
                    kinds[1][kind] += 1
                    kinds[2][kind] += ended_at - begins
                while n[_BUSY] < n[_SIZE] and n[_LINE] + n[_LINE + 1] > 0:
                    lane = 0 if n[_LINE] > 0 else 1
                    _, packed = pop(lines[lane], n[_LINE + lane])
                    n[_LINE + lane] -= 1
                    place = int(packed) % _PLACES
                    free[n[_FREE]] = place
                    n[_FREE] += 1
                    kind = s_kind[place]
                    plan = kind // 4
                    counted = s_counts[place]
                    waited_s = ended_at - s_at[place]
                    if waited_s > f[_F_PATIENCE]:
                        n[_TIMED_OUT_NOW] += 1
                        counts[plan * PER_PLAN + _C_TIMED_OUT] += counted
                        if n[_DROPS]:
                            continue
                    else:
                        f[_F_WAITED] += waited_s
                        if counted:
                            counts[plan * PER_PLAN + _C_BEGUN] += 1
                            bins[plan][min(BINS - 1, int(waited_s * BINS_PER_S + 0.999))] += 1
                            f[_F_LONGEST_WAIT] = max(f[_F_LONGEST_WAIT], waited_s)
                    kind += LOWERED * lowered[plan]
                    if counted:
                        counts[plan * PER_PLAN + _C_SMALL] += small[kind]
                        counts[plan * PER_PLAN + _C_SHORT] += kind % 2
                    answer = s_answer[place]
                    seconds = begin(
                        ended_at, begins, kind, answer, base, write, n, lane, ends, kinds
                    )
                    kinds[3][kind] += seconds
            if j == n_came:
                break
            plan = plans[j]
            lane = lane_of[plan]
            counted = 1 if f[_F_FROM] <= now < f[_F_UNTIL] else 0
            counts[plan * PER_PLAN] += counted
            n[_ASKED_NOW] += 1
            is_full = n[_BUSY] >= n[_SIZE]
            if is_full and f[_F_LIMIT + plan] < 1e300:
                running = n[_RUNNING] + n[_RUNNING + 1]
                queued = n[_LINE] + (n[_LINE + 1] if lane == 1 else 0)
                ahead = queued + 1 - (n[_SIZE] - running)
                own = n[_RUNNING + 1] + (n[_RUNNING] if lane == 0 else 0)
                reply_s = f[_F_REPLY + lane]
                if own > 0:
                    per_s = n[_RUNNING + 1] / f[_F_REPLY + 1]
                    if lane == 0:
                        per_s += n[_RUNNING] / f[_F_REPLY]
                    reply_s = own / per_s
                if ahead > 0 and ahead * reply_s / f[_F_LEFT + lane] > f[_F_LIMIT + plan]:
                    n[_REFUSED_NOW] += 1
                    counts[plan * PER_PLAN + _C_REFUSED] += counted
                    continue
            allowed = min(answers[j], f[_F_LONGEST + plan])
            answer = min(allowed, f[_F_CAP + plan])
            kind = plan * 4 + easy[j] * 2 + (1 if answer < allowed else 0)
            n_waiting = n[_LINE + lane]
            rank = 0.0
            if n[_FAIR]:
                floor = lines[lane][0][0] if n_waiting > 0 else f[_F_TAG + lane]
                owner = owners[j]
                rank = max(floor, tags[lane][owner])
                tag = rank + f[_F_PROMPT] + f[_F_TOKEN] * answer
                tags[lane][owner] = tag
                f[_F_TAG + lane] = max(f[_F_TAG + lane], tag)
            if not is_full:
                if counted:
                    counts[plan * PER_PLAN + _C_BEGUN] += 1
                    bins[plan][0] += 1
                    counts[plan * PER_PLAN + _C_SHORT] += kind % 2
                kind += LOWERED * lowered[plan]
                if counted:
                    counts[plan * PER_PLAN + _C_SMALL] += small[kind]
                seconds = begin(now, begins, kind, answer, base, write, n, lane, ends, kinds)
                kinds[3][kind] += seconds
                continue
            if n[_FREE] == 0:
                n[_FULL] = 1
                return
            n[_FREE] -= 1
            place = free[n[_FREE]]
            s_at[place], s_kind[place], s_answer[place] = now, kind, answer
            s_counts[place] = counted
            n[_COME] += 1
            push(lines[lane], n_waiting, rank, n[_COME] * _PLACES + place)
            n[_LINE + lane] = n_waiting + 1

    return play
