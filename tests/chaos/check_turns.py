"""Checks of rows: what was acknowledged is there, once, ended, and paid for exactly once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.evidence import TASK, Evidence, StoredTurn
from tests.chaos.histories import Asked, Call

# How a worker tries whether a replica hears an abort.
_TRIAL = "trial-"
# Titles and summaries, which nobody is charged for.
_NO_TURNS = (_TRIAL, TASK)
FINAL = frozenset(("completed", "stopped", "failed", "refused"))
# Of all tokens, so many may be generated and thrown away where nothing is disturbed.
_WASTE = 0.02
# What one disturbance may throw away: a sentence that was not whole, as long as sentences may be,
# and what an engine says until it hears of it.
_WASTED_TOKENS = 64
# An engine that is killed has not told its journal of its last tokens.
_UNTOLD_TOKENS = 12
# After the last fault has ended every turn ends within this.
_END_S = 10.0


def no_acknowledged_message_is_lost(evidence: Evidence) -> Iterator[str]:
    """C1: every turn that a client was told of is stored with its message, once and unchanged."""
    by_content: Counter[tuple[str, str]] = Counter(
        (m.owner, m.content) for m in evidence.messages.values() if m.role == "user"
    )
    for asked, calls in _acknowledged(evidence):
        if asked.conv in evidence.deleted:
            continue
        for reply in sorted({call.reply for call in calls if call.reply}):
            turn = evidence.turns.get(reply)
            if turn is None:
                yield f"{asked.key}: the acknowledged {reply} is not stored"
                continue
            message = evidence.messages.get(turn.message or "")
            if message is None or message.owner != asked.user:
                yield f"{asked.key}: the message of {reply} is not stored"
            elif message.content != asked.content:
                yield f"{asked.key}: the message of {reply} is not what was sent"
        rows = by_content[asked.user, asked.content]
        if rows > 1:
            yield f"{asked.key}: its message is stored {rows} times"


def one_key_one_reply(evidence: Evidence) -> Iterator[str]:
    """C2: all answers to one key name one reply, and a later post begins nothing."""
    stored: dict[tuple[str, str], list[str]] = defaultdict(list)
    for turn in evidence.turns.values():
        stored[turn.owner, turn.key].append(turn.reply)
    for (owner, key), replies in stored.items():
        if len(replies) > 1:
            yield f"{owner} {key}: stored replies {sorted(replies)}"
    for (owner, key), calls in evidence.calls_of_turn.items():
        named = {call.reply for call in calls if call.reply and call.op in _POSTS}
        known = set(stored.get((owner, key), []))
        deleted = evidence.asked_by_key[owner, key].conv in evidence.deleted
        if len(named) > 1 or (known and named and named != known):
            yield f"{owner} {key}: named {sorted(named)}, stored {sorted(known)}"
        for call in calls:
            if call.op == "repost" and not deleted:
                yield from _reposted(evidence, call, known)


_POSTS = frozenset(("post", "again", "repost"))


def _reposted(evidence: Evidence, call: Call, known: set[str]) -> Iterator[str]:
    was_taken = any(c.is_acknowledged for c in evidence.calls_of_turn[call.user, call.key])
    may_wait = call.http in (429, 503) and not evidence.is_calm(call.t0, call.t1)
    if was_taken and call.outcome == "fail" and not may_wait:
        yield f"{call.key}: posted again and answered {call.http} {call.code}"
    for reply in known:
        turn = evidence.turns[reply]
        if turn.failure or turn.finished_at is None or turn.finished_at > call.t0:
            continue  # a turn that failed may run again; this one may have been its first post
        later = [g for g in evidence.generations_of.get(reply, ()) if g.began_at > call.t0]
        if later:
            yield f"{call.key}: {later[0].request} began after the turn was only posted again"


def the_ledger_balances(evidence: Evidence) -> Iterator[str]:
    """C7: each run is settled once, what is charged adds up, nothing stays reserved."""
    of_reply: Counter[str] = Counter(s.reply for s in evidence.settlements)
    runs: Counter[tuple[str, int]] = Counter((s.reply, s.epoch) for s in evidence.settlements)
    for (reply, epoch), count in runs.items():
        if count > 1:
            yield f"{reply}: epoch {epoch} was settled {count} times"
    for turn in evidence.turns.values():
        most = evidence.most_runs_of(turn)
        if turn.status in FINAL and not 1 <= of_reply[turn.reply] <= most:
            yield f"{turn.reply}: settled {of_reply[turn.reply]} times in {most} runs"
        if turn.input + turn.output > turn.reserved:
            yield f"{turn.reply}: {turn.input} + {turn.output} charged, {turn.reserved} reserved"
    for balance in evidence.balances:
        if balance.drift:
            yield f"{balance.owner}: drift {balance.drift}"
        if balance.reserved or balance.running:
            yield f"{balance.owner}: {balance.reserved} reserved for {balance.running} at rest"


def every_charge_is_for_accepted_tokens(evidence: Evidence) -> Iterator[str]:
    """C8 (and I4): output charged is what is stored, input is the prompt that engines got."""
    last: dict[str, int] = {}
    for settlement in sorted(evidence.settlements, key=lambda s: s.epoch):
        last[settlement.reply] = settlement.charged
    for turn in evidence.turns.values():
        if turn.status not in FINAL:
            continue
        yield from _charged(evidence, turn, last.get(turn.reply))
        if evidence.journalled:
            yield from _generated(evidence, turn)
    known = evidence.turns.keys() | {call.reply for call in evidence.calls if call.reply}
    for generation in evidence.generations:
        if generation.reply not in known and not generation.request.startswith(_NO_TURNS):
            yield f"{generation.request}: generated for nobody's turn"
    if evidence.journalled:
        yield from _wasted(evidence)


def _charged(evidence: Evidence, turn: StoredTurn, settled: int | None) -> Iterator[str]:
    message = evidence.messages.get(turn.reply)
    if message is not None:
        if message.content != turn.text:
            yield f"{turn.reply}: turn and message have different texts"
        if turn.output != message.n_ids:
            yield f"{turn.reply}: {turn.output} tokens charged, {message.n_ids} stored"
        if message.spelled != turn.text:
            yield f"{turn.reply}: its tokens spell {message.spelled!r}, not {turn.text!r}"
    # Written down once more: a new token of a prompt, a cached one, one of the answer.
    price = 1000 * (turn.input - turn.cached) + 100 * turn.cached + 4000 * turn.output
    if turn.charged != price:
        yield f"{turn.reply}: {turn.charged} charged for {turn.input} + {turn.output}"
    if settled is not None and settled != turn.charged:
        yield f"{turn.reply}: the row says {turn.charged}, the ledger {settled}"


def _generated(evidence: Evidence, turn: StoredTurn) -> Iterator[str]:
    generations = evidence.generations_of.get(turn.reply, [])
    if not generations:
        if turn.text:
            yield f"{turn.reply}: a text that no engine said"
        return
    questions = {g.question for g in generations}
    if len(questions) > 1:
        yield f"{turn.reply}: {len(questions)} prompts for one turn"
        return
    prompts = {g.prompt_tokens for g in generations}
    if turn.input and turn.input not in prompts:
        yield f"{turn.reply}: {turn.input} tokens of prompt charged, engines got {sorted(prompts)}"
    if turn.text and not turn.input:
        yield f"{turn.reply}: answered, but its prompt was free"
    unknown = sum(_UNTOLD_TOKENS for g in generations if g.reason == "killed")
    if sum(g.tokens for g in generations) + unknown < turn.output:
        yield f"{turn.reply}: {turn.output} tokens stored, fewer were generated"
    answers = evidence.answers.get(generations[0].question)
    if answers is None:
        return
    is_whole = turn.status == "completed" and turn.finish != "length"
    if not any(
        turn.text == whole if is_whole else whole.startswith(turn.text) for whole in answers
    ):
        closest = max(answers, key=lambda whole: _parting(turn.text, whole))
        yield f"{turn.reply} {turn.status}: {_difference(turn.text, closest)}"


def _wasted(evidence: Evidence) -> Iterator[str]:
    generated = sum(g.tokens for g in evidence.generations)
    accepted = sum(turn.output for turn in evidence.turns.values())
    excused = sum(
        _WASTED_TOKENS
        for generations in evidence.generations_of.values()
        for g in generations
        if g.reason not in ("stop", "length")
    )
    # Of a deleted turn nothing is stored, and an engine that does not hear is no fault of ours.
    excused += sum(
        g.tokens
        for g in evidence.generations
        if g.reason.startswith("deaf") or g.reply not in evidence.turns
    )
    if generated - accepted - excused > _WASTE * generated:
        yield f"waste: {generated} tokens generated, {accepted} accepted, {excused} explained"


def every_turn_ends(evidence: Evidence) -> Iterator[str]:
    """C12: every acknowledged turn is final soon after the last heal."""
    for turn in evidence.turns.values():
        if turn.status not in FINAL:
            yield f"{turn.reply} is still {turn.status} under epoch {turn.epoch}"
    slow_s = evidence.quiet_at - evidence.heal_at
    if slow_s > _END_S:
        yield f"turns were open for {slow_s:.1f} s after the last fault had ended"
    for call in evidence.calls:
        if call.op == "gave_up" and call.conv not in evidence.deleted:
            yield f"{call.user}: the end of {call.reply} never came ({call.view})"


def _acknowledged(evidence: Evidence) -> Iterator[tuple[Asked, list[Call]]]:
    for asked in evidence.asked:
        calls = evidence.calls_of_turn.get((asked.user, asked.key), [])
        if any(call.is_acknowledged for call in calls):
            yield asked, calls


def _difference(text: str, whole: str) -> str:
    """Where two texts part."""
    at = _parting(text, whole)
    return f"differs at {at}: {text[at : at + 30]!r} for {whole[at : at + 30]!r}"


def _parting(text: str, whole: str) -> int:
    """How many letters two texts have in common from their beginning."""
    parted = (n for n, (a, b) in enumerate(zip(text, whole, strict=False)) if a != b)
    return next(parted, min(len(text), len(whole)))
