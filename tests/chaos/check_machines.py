"""Checks of engines, leases, refusals and time: what people do not see, but feel."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise, zip_longest

from tests.chaos.check_readers import view_of
from tests.chaos.evidence import Evidence, Generation, Incident, Write
from tests.chaos.histories import Call

# A holder that lost its lease notices within a third of it; its abort takes a step and a call.
_ABORT_S = 1.5
# Refusals that are a plan's own, or the person's own doing.
_OWN_CODES = frozenset(("too_many_running", "conversation_busy", "not_found", "too_many_requests"))
# A failure that says to come back.
_PASSING = frozenset((429, 503))
_SUCCESS = 0.999
# Paid people may do so much worse than free ones before it is no chance.
_CHANCE = 0.02
# What a victim had sent may arrive so long after its death.
_ON_THE_WAY_S = 0.2
# The engine answers an abort within the step in which it takes effect; a busy machine adds to that.
_LATE_S = 0.1
_PAUSE_P95_S = 3.0
_PAUSE_MOST_S = 10.0
# Growth at rest that is no leak: pools that fill as far as they may (sixteen connections to the
# database, as many to each engine), an allocator's slack.
_GROWTH = 1.05
_POOL = 16
_FEW_FDS = 4
_FEW_TASKS = 8
_SLACK_KB = 16_384


def one_writer(evidence: Evidence) -> Iterator[str]:
    """C9: no accepted append under an older epoch than a fence before it; generations of one turn
    overlap no longer than a lease."""
    for reply, writes in evidence.writes_of.items():
        fenced: list[tuple[int, float]] = []
        for write in writes:
            if write.op == "fence" and write.verdict == "done":
                fenced.append((write.epoch, write.t1))
            if write.op not in ("append", "reseed") or write.verdict != "done":
                continue
            for epoch, at in fenced:
                lost = evidence.losses_between(at, write.t1)
                if epoch > write.epoch and at < write.t0 and not lost:
                    yield (
                        f"{reply}: epoch {write.epoch} of {write.proc} wrote {write.first}"
                        f"-{write.last} after epoch {epoch} had fenced"
                    )
        yield from _written_once(reply, writes)
    for reply, generations in evidence.generations_of.items():
        for earlier, later in pairwise(generations):
            yield from _overlap(evidence, reply, earlier, later)


def _written_once(reply: str, writes: list[Write]) -> Iterator[str]:
    """An id of an attempt is written by one epoch: an heir goes on where the log ends."""
    writers: dict[tuple[int, int], int] = {}
    for write in writes:
        if write.op == "append" and write.verdict == "done":
            for number in range(write.first, write.last + 1):
                epoch = writers.setdefault((write.attempt, number), write.epoch)
                if number and epoch != write.epoch:
                    yield f"{reply}: {write.attempt}/{number} by epochs {epoch} and {write.epoch}"


def _overlap(
    evidence: Evidence, reply: str, earlier: Generation, later: Generation
) -> Iterator[str]:
    if earlier.ended_at is None or earlier.reason.startswith("deaf"):
        return
    beside_s = earlier.ended_at - later.began_at
    blocked_s = _disturbed_s(evidence, earlier.engine, later.began_at, earlier.ended_at)
    if beside_s - blocked_s > evidence.lease_s + _ABORT_S:
        yield f"{reply}: {earlier.request} ran {beside_s:.1f} s beside {later.request}"


def _disturbed_s(evidence: Evidence, place: str, t0: float, t1: float) -> float:
    """How long within a time a process could not act or not be reached."""
    return sum(
        max(0.0, min(t1, i.t1) - max(t0, i.t0))
        for i in evidence.incidents
        if place in i.victim or i.fault in ("F4", "F5", "F6")
    )


def no_more_replies_than_allowed(evidence: Evidence) -> Iterator[str]:
    """C10: at no moment do more replies of one owner generate than the plan allows."""
    moments: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for reply, generations in evidence.generations_of.items():
        turn = evidence.turns.get(reply)
        if turn is None:
            continue
        for generation, later in zip_longest(generations, generations[1:]):
            # A generation counts until the next one of its turn, or the turn's end, makes it old.
            ends = [generation.ended_at, later and later.began_at, turn.finished_at]
            ended_at = min((at for at in ends if at), default=evidence.quiet_at)
            if ended_at > generation.began_at and not generation.reason.startswith("deaf"):
                moments[turn.owner].append((generation.began_at, 1, reply))
                moments[turn.owner].append((ended_at, -1, reply))
    plans = {turn.owner: turn.plan for turn in evidence.turns.values()}
    for owner, changes in moments.items():
        limit, running, most = evidence.limits[plans[owner]], 0, 0
        # At the same moment ends come first.
        for _, change, _ in sorted(changes):
            running += change
            most = max(most, running)
        if most > limit:
            yield f"{owner}: {most} replies at once, {limit} allowed"


def nothing_is_left_in_an_engine(evidence: Evidence) -> Iterator[str]:
    """C11: at rest no engine runs anything, and a stop is answered after its sequence has left."""
    for engine, running in evidence.running.items():
        if running:
            yield f"{engine} still runs {running} sequences"
    for engine, blocks in evidence.leaked.items():
        if blocks:
            yield f"{engine}: {blocks} blocks of the cache are lost"
    for generation in evidence.generations:
        if generation.ended_at is None:
            yield f"{generation.request} at {generation.engine} has no end"
    for call in evidence.calls:
        if call.op != "stop" or call.http != 200 or not evidence.is_calm(call.t0, call.t1):
            continue
        for generation in evidence.generations_of.get(call.reply, ()):
            late_s = (generation.ended_at or evidence.quiet_at) - call.t1
            if generation.began_at < call.t1 and late_s > evidence.step_s + _LATE_S:
                yield f"{generation.request} left {late_s:.3f} s after its stop was answered"


def paid_before_free(evidence: Evidence) -> Iterator[str]:
    """C14: nobody who pays is refused for want of room while somebody free is let in."""
    plans = {asked.user: asked.plan for asked in evidence.asked}
    let_in = sorted(
        call.t1
        for call in evidence.calls
        if call.op == "post" and call.http in (200, 202) and plans[call.user] == "free"
    )
    for call in evidence.calls:
        if call.op != "post" or call.code != "busy" or plans[call.user] == "free":
            continue
        if any(call.t1 - 1.0 < at <= call.t1 for at in let_in):
            yield f"{call.key} of {call.user} was refused for room while free turns were let in"


def failures_are_few_and_typed(evidence: Evidence) -> Iterator[str]:
    """C17: no 500, no unknown refusal, no hanging call; outside faults all goes well."""
    for call in evidence.calls:
        if call.http >= 500 and call.http not in _PASSING:
            yield f"{call.op} of {call.key or call.conv} at {call.proc}: {call.http} {call.code}"
        elif call.http in _PASSING and not call.code:
            yield f"{call.op} at {call.proc}: a bare {call.http}"
        elif call.http in (400, 401, 403) or call.http == 422:
            yield f"{call.op} of {call.key or call.conv}: {call.http} {call.code}"
        if call.op != "stream" and not call.view and call.t1 - call.t0 > 2 * evidence.call_s + 1:
            yield f"{call.op} at {call.proc} took {call.t1 - call.t0:.1f} s"
        if call.end == "timeout" and evidence.is_calm(call.t0, call.t1):
            yield f"{call.op} of {call.reply} at {call.proc}: silence with no fault about"
        if call.op == "me" and call.outcome != "ok" and evidence.is_calm(call.t0, call.t1):
            yield f"who I am at {call.proc}: {call.http or call.end}"
    if any(status != 200 for status in evidence.quiet_auths):
        yield f"signing in depends on Valkey: {sorted(set(evidence.quiet_auths))}"
    yield from _success(evidence)


def _success(evidence: Evidence) -> Iterator[str]:
    calm: list[bool] = []
    of_plan: dict[str, list[bool]] = defaultdict(list)
    for asked in evidence.asked:
        calls = evidence.calls_of_turn.get((asked.user, asked.key), [])
        if not calls or asked.conv in evidence.deleted:
            continue
        outcome = _went_well(calls)
        if outcome is None:
            continue
        of_plan[asked.plan].append(outcome)
        if evidence.is_calm(asked.at, calls[-1].t1):
            calm.append(outcome)
            if not outcome:
                codes = sorted({call.code or call.end for call in calls if not call.events})
                yield f"{asked.key} did not succeed though nothing was broken: {codes}"
    if calm and sum(calm) / len(calm) < _SUCCESS:
        yield f"{sum(calm)} of {len(calm)} turns succeeded where nothing was broken"
    shares = {plan: sum(all_) / len(all_) for plan, all_ in of_plan.items()}
    free = shares.get("free", 0.0)
    for plan, share in shares.items():
        if plan != "free" and share < free - _CHANCE:
            yield f"{plan}: {share:.1%} of turns succeeded, free {free:.1%}"


def _went_well(calls: list[Call]) -> bool | None:
    """Whether a turn came to a good end for its person; None if it was refused as it should be, or
    its person left before."""
    if any(call.op == "again" for call in calls):
        return False
    kinds = {event.kind for call in calls for event in call.events}
    if "done" in kinds or any(call.http == 204 for call in calls):
        return True
    if "fail" in kinds or any(call.op == "gave_up" for call in calls):
        return False
    if any(call.code in _OWN_CODES for call in calls) or not any(call.view for call in calls):
        return None
    return None


def pauses_are_short(evidence: Evidence) -> Iterator[str]:
    """C18: over the loss of a gateway, a worker or an engine a reader's events pause for 3 s."""
    for fault, pauses in pauses_by_fault(evidence).items():
        if not pauses:
            continue
        most = pauses[-1]
        lasted_s = max((i.t1 - i.t0 for i in evidence.incidents if i.fault == fault), default=0.0)
        if fault in ("F1", "F2", "F3"):
            p95 = pauses[math.ceil(0.95 * len(pauses)) - 1]
            if p95 > _PAUSE_P95_S:
                yield f"{fault}: p95 of {len(pauses)} pauses is {p95:.2f} s"
        if most > _PAUSE_MOST_S + lasted_s:
            yield f"{fault}: a reader's events paused for {most:.2f} s"


def pauses_by_fault(evidence: Evidence) -> dict[str, list[float]]:
    """For each fault, the longest gap between two events of each reader that met one, sorted.

    A gap in which one writer after the other was lost is as many pauses as there were claims.
    """
    pauses: dict[str, list[float]] = defaultdict(list)
    for calls in evidence.calls_of_view.values():
        times = [event.at for call in calls for event in call.events]
        if len(times) < 2 or view_of(calls).end is None:
            continue
        gaps = [(second - first, first, second) for first, second in pairwise(times)]
        longest, begun_at, ended_at = max(gaps)
        met = [i for i in evidence.incidents if _meets(i, begun_at - _ON_THE_WAY_S, ended_at)]
        claims = _claims_between(evidence, calls[-1].reply, begun_at, ended_at)
        for fault in {i.fault for i in met}:
            pauses[fault].append(longest / max(1, claims))
    return {fault: sorted(found) for fault, found in sorted(pauses.items())}


def _claims_between(evidence: Evidence, reply: str, t0: float, t1: float) -> int:
    writes = evidence.writes_of.get(reply, ())
    return sum(w.op == "claim" and w.verdict == "done" and t0 < w.t1 <= t1 for w in writes)


def _meets(incident: Incident, t0: float, t1: float) -> bool:
    return incident.t0 <= t1 and incident.t1 >= t0


def no_process_ends_or_swells_by_itself(evidence: Evidence) -> Iterator[str]:
    """C19: every exit was the nemesis's; descriptors, tasks and memory are back where they were."""
    for end in evidence.exits:
        yield f"{end.name} ended by itself with {end.status}: {end.said!r}"
    for name, now in evidence.at_rest.items():
        before = evidence.baseline.get(name)
        if before is None:
            continue
        if now.fds > before.fds * _GROWTH + _FEW_FDS:
            yield f"{name}: {now.fds} descriptors at rest, {before.fds} before"
        if now.most_to_one > _POOL:
            yield f"{name}: {now.most_to_one} connections to one port at rest"
        if now.tasks > before.tasks * _GROWTH + _FEW_TASKS:
            yield f"{name}: {now.tasks} tasks at rest, {before.tasks} before"
        if now.rss_kb > before.rss_kb * _GROWTH + _SLACK_KB:
            yield f"{name}: {now.rss_kb} kB at rest, {before.rss_kb} kB before"
