"""Checks of what was seen: every reader, on any gateway at any time, saw the one stored reply."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.chaos.evidence import Evidence, StoredTurn
from tests.chaos.histories import FLAGGED, Call, Event

# Which end readers may be told of a turn that is stored as that.
_ENDS = {"completed": "done", "stopped": "done", "refused": "done", "failed": "fail"}


@dataclass(slots=True)
class View:
    """What one reader had put together at the end, by the rules for clients."""

    reply: str
    text: str = ""
    attempt: int = 0
    last: int = 0
    end: Event | None = None
    attempts: list[int] = field(default_factory=list)
    resets: int = 0
    reset_from: float = 0.0  # when the call that told of the last reset began
    ended_at: float = 0.0

    def take(self, event: Event) -> None:
        if event.id is None:
            if event.kind == "reset":
                self.resets += 1
                self.text, self.attempt, self.last, self.end = "", 0, 0, None
            return
        self.last = event.id
        if event.kind == "meta":
            self.attempt = json.loads(event.data)["attempt"]
            if self.attempts[-1:] != [self.attempt]:
                self.attempts.append(self.attempt)
        elif event.kind == "delta":
            self.text += json.loads(event.data)["text"]
        elif event.kind in ("done", "fail"):
            self.end = event


def view_of(calls: list[Call]) -> View:
    """What the calls of one reader gave it."""
    view = View(next((call.reply for call in calls if call.reply), ""))
    view.ended_at = calls[-1].t1
    for call in calls:
        if call.after == 0 and view.last and call.op != "gave_up":
            # Its client began anew, as an answer told it to.
            view.text, view.attempt, view.last, view.end = "", 0, 0, None
        for event in call.events:
            view.take(event)
            if event.kind == "reset":
                view.reset_from = call.t0
    return view


def ids_have_no_gap(evidence: Evidence) -> Iterator[str]:
    """C3: on each connection ids go on by one from what was asked for; the first is `meta`."""
    for call in evidence.calls:
        last = call.after
        for event in call.events:
            if event.id is None:
                last = 0 if event.kind == "reset" else last
                continue
            if event.id != last + 1:
                yield f"{call.view} at {call.proc}: {event.id} came after {last}"
            if event.id == 1 and event.kind != "meta":
                yield f"{call.view} at {call.proc}: begins with {event.kind}"
            last = event.id


def an_id_means_the_same_bytes(evidence: Evidence) -> Iterator[str]:
    """C4: (reply, attempt, id) is a function to bytes, over all gateways and all time."""
    seen: dict[tuple[str, int, int], tuple[str, str]] = {}
    for calls in evidence.calls_of_view.values():
        attempt = 0
        for call in calls:
            attempt = call.attempt or attempt
            for event in call.events:
                if event.id is None:
                    continue
                if event.kind == "meta":
                    attempt = json.loads(event.data)["attempt"]
                said = f"{event.kind} {event.data}"
                place = (call.reply, attempt, event.id)
                first, where = seen.setdefault(place, (said, call.proc))
                if first != said:
                    yield f"{place}: {first!r} at {where}, {said!r} at {call.proc}"


def what_was_seen_is_what_is_stored(evidence: Evidence) -> Iterator[str]:
    """C5: a reader holds a prefix of the stored reply, all of it once it saw the end; a reset has
    a lost log behind it."""
    for turn in evidence.turns.values():
        reruns = evidence.most_runs_of(turn) - 1
        losses = evidence.losses_between(turn.created_at, turn.finished_at or evidence.quiet_at)
        # An attempt in which nobody wrote is no loss to anybody.
        written = _written(evidence, turn)
        if len(written | {turn.attempt}) - 1 - reruns > losses:
            yield f"{turn.reply}: attempts {sorted(written)}, {losses} losses, {reruns} reruns"
    for name, calls in evidence.calls_of_view.items():
        view = view_of(calls)
        if view.reply in evidence.turns:
            yield from _seen(evidence, name, view, evidence.turns[view.reply])


def _written(evidence: Evidence, turn: StoredTurn, op: str = "append") -> set[int]:
    """The attempts of a reply in which somebody wrote (or which somebody fenced)."""
    writes = evidence.writes_of.get(turn.reply, ())
    return {w.attempt for w in writes if w.op == op and w.verdict == "done"}


def _seen(evidence: Evidence, name: str, view: View, turn: StoredTurn) -> Iterator[str]:
    yield from _explained_resets(evidence, name, view, turn)
    if view.end is not None and view.end.kind == "fail":
        has_run_again = evidence.most_runs_of(turn) > 1 and view.attempt < turn.attempt
        if turn.status != "failed" or has_run_again:
            return  # it saw the end of an earlier run
    if view.end is None:
        if view.attempt == turn.attempt and not turn.text.startswith(view.text):
            yield f"{name} of {view.reply}: saw {view.text!r}, stored {turn.text!r}"
        return
    if view.text != turn.text:
        yield f"{name} of {view.reply}: saw {view.text!r} to the end, stored {turn.text!r}"
    if view.attempt == turn.attempt and view.last != turn.last_id:
        yield f"{name} of {view.reply}: {view.last} events, stored {turn.last_id}"


def _explained_resets(evidence: Evidence, name: str, view: View, turn: StoredTurn) -> Iterator[str]:
    # While the logs can't be reached a finished reply is told by its row, as the next attempt.
    away = evidence.unreachable_between(view.reset_from, view.ended_at)
    if view.attempts != sorted(set(view.attempts)):
        yield f"{name} of {view.reply}: went through the attempts {view.attempts}"
    reruns = evidence.most_runs_of(turn) - 1
    # A writer that was killed before it could note its append had fenced that attempt.
    unnoted = _written(evidence, turn, "fence") & set(view.attempts)
    rises = len(_written(evidence, turn) | unnoted | {turn.attempt}) - 1
    is_by_row = view.resets > 0 and view.attempts[-1:] == [turn.attempt + 1]
    if view.resets - is_by_row > rises + reruns:
        yield f"{name} of {view.reply}: {view.resets} resets, {rises} lost logs, {reruns} reruns"
    # A live owner writes a lost log again: only after the end nobody does.
    ended_at = (turn.finished_at or evidence.quiet_at) - evidence.lease_s
    if is_by_row and not (away or reruns or evidence.losses_between(ended_at, view.ended_at)):
        yield f"{name} of {view.reply}: told by the row though its log was not lost after its end"


def one_end_for_all(evidence: Evidence) -> Iterator[str]:
    """C6: all who saw the end of a reply saw the same, and it is what the row says."""
    ends: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for name, calls in evidence.calls_of_view.items():
        after = ""
        for call in calls:
            for event in call.events:
                if after and event.id is not None:
                    yield f"{name} of {call.reply}: {event.kind} came after {after}"
                if event.kind in ("done", "fail"):
                    after = event.kind
                    ends[call.reply].setdefault((event.kind, event.data), name)
                if event.kind == "reset":
                    after = ""
    for reply, told in ends.items():
        turn = evidence.turns.get(reply)
        if turn is None:
            continue
        last = {end: name for end, name in told.items() if end[0] == "done" or turn.failure}
        if len({end for end in last if end[0] == "done"}) > 1:
            yield f"{reply}: ended differently for {sorted(last.values())}: {sorted(last)}"
        for (kind, data), name in last.items():
            if turn.status in _ENDS and not _is_end_of(turn, kind, data):
                yield f"{reply}: {name} saw {kind} {data}, stored {turn.status} {turn.finish}"


def _is_end_of(turn: StoredTurn, kind: str, data: str) -> bool:
    told = json.loads(data)
    if kind != _ENDS[turn.status]:
        return False
    if kind == "fail":
        return True
    used = told["usage"]
    return bool(
        told["finish"] == turn.finish
        and told["charged"] * 1000 == turn.charged
        and (used["input"], used["output"]) == (turn.input, turn.output)
    )


def nothing_flagged_is_shown(evidence: Evidence) -> Iterator[str]:
    """I10: no sentence that a check flags is stored or reaches a reader, and nothing follows it."""
    for turn in evidence.turns.values():
        if FLAGGED.search(turn.text):
            yield f"{turn.reply}: a flagged sentence is stored"
    for name, calls in evidence.calls_of_view.items():
        view = view_of(calls)
        if FLAGGED.search(view.text):
            yield f"{name} of {view.reply}: a flagged sentence was shown"
        kinds = [event.kind for call in calls for event in call.events]
        after = kinds[kinds.index("refusal") :] if "refusal" in kinds else []
        if "delta" in after and "reset" not in after:
            yield f"{name} of {view.reply}: text after a refusal"


def nobody_sees_anothers_bytes(evidence: Evidence) -> Iterator[str]:
    """C13: a mark comes back to its owner alone, and is in no log; no cache key serves two."""
    owners = evidence.owner_of_mark
    for call in evidence.calls:
        foreign = [m for m in call.marks if m in owners and owners[m].user != call.user]
        if foreign:
            yield f"{call.op} of {call.user} at {call.proc} got the mark {foreign[0]}"
        # In passing trouble a resume is told to come back, with 200 and nothing else.
        is_empty = call.http == 200 and not call.body and not call.marks
        if call.op == "probe" and call.http not in (0, 404, 503) and not is_empty:
            yield f"{call.user} asked for {call.reply or call.conv} of another: {call.http}"
    for paper in evidence.papers:
        if paper.marks:
            yield f"{paper.place} holds the mark {min(paper.marks)}"
    users: dict[str, set[str]] = defaultdict(set)
    for generation in evidence.generations:
        turn = evidence.turns.get(generation.reply)
        if turn is not None:
            users[generation.salt].add(turn.owner)
    for salt, sharing in users.items():
        if len(sharing) > 1:
            named = hashlib.sha256(salt.encode()).hexdigest()[:8]
            yield f"one cache key ({named}) for {sorted(sharing)}"


def nothing_after_a_stop(evidence: Evidence) -> Iterator[str]:
    """C15: what a stop answered is the end: no event after it, the stored text is that text."""
    newest: dict[tuple[str, int], int] = defaultdict(int)
    for calls in evidence.calls_of_view.values():
        attempt = 0
        for call in calls:
            attempt = call.attempt or attempt
            for event in call.events:
                if event.kind == "meta":
                    attempt = json.loads(event.data)["attempt"]
                if event.id is not None:
                    newest[call.reply, attempt] = max(newest[call.reply, attempt], event.id)
    for call in evidence.calls:
        turn = evidence.turns.get(call.reply)
        if call.op != "stop" or not call.body or turn is None or turn.status == "failed":
            continue
        told = json.loads(call.body)
        if told["status"] == "failed":
            continue  # it had failed before, and may have run again since
        if told["status"] not in ("stopped", "completed", "refused"):
            yield f"{call.reply}: a stop was answered while it was {told['status']}"
        if (told["status"], told["content"]) != (turn.status, turn.text):
            yield f"{call.reply}: stopped as {told['content']!r}, stored {turn.text!r}"
        if newest[call.reply, turn.attempt] > told["lastEventId"]:
            seen = newest[call.reply, turn.attempt]
            yield f"{call.reply}: event {seen} after a stop that answered {told['lastEventId']}"


def nothing_after_a_delete(evidence: Evidence) -> Iterator[str]:
    """C16: what was deleted is not found by anybody, and its marks are in no store."""
    for call in evidence.calls:
        _, answered_at = evidence.deleted.get(call.conv, (0.0, None))
        if answered_at is None or call.t0 <= answered_at or call.op == "delete":
            continue
        # A stream that is told to come back, as its store is away, has found nothing.
        is_empty = call.op in ("stream", "probe") and not call.events and not call.body
        if 200 <= call.http < 300 and not is_empty:
            yield f"{call.op} of {call.reply or call.conv} found it after its delete: {call.http}"
    gone = {
        asked.mark
        for asked in evidence.asked
        if evidence.deleted.get(asked.conv, (0.0, None))[1] is not None
    }
    for text in evidence.stores:
        if left := gone & text.marks:
            yield f"{text.place} still holds the deleted mark {min(left)}"
    for turn in evidence.turns.values():
        if evidence.deleted.get(turn.conv or "", (0.0, None))[1] is not None:
            yield f"{turn.reply} is stored after its conversation was deleted"
