"""Every check is silent on a peaceful run and reports the violation planted for it.

A peaceful run is one turn of a paying person, read by two, and one of a free person.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.checker import CHECKS, check
from tests.chaos.evidence import (
    Balance,
    Evidence,
    Exit,
    Generation,
    Incident,
    Phase,
    Rest,
    Settlement,
    StoredMessage,
    StoredTurn,
    Text,
    Write,
)
from tests.chaos.histories import Asked, Call, Event

TEXT = "The sea is never quite still. Wait, is that so?"
MARKS = {"ann": "a" * 12, "bob": "b" * 12}


def events_of(owner: str, begun_at: float) -> list[Event]:
    used = {"input": 30, "cached": 0, "output": 11}
    told = [
        ("meta", {"attempt": 1, "messageId": f"m_{owner}"}),
        ("delta", {"text": TEXT[:30]}),
        ("delta", {"text": TEXT[30:]}),
        ("done", {"finish": "stop", "usage": used, "charged": 74}),
    ]
    return [
        Event(n, kind, json.dumps(data), begun_at + n / 10)
        for n, (kind, data) in enumerate(told, 1)
    ]


def turn_of(owner: str, plan: str, at: float) -> Evidence:
    """One turn that nothing happened to."""
    conv, key, reply = f"c_{owner}", f"k-{MARKS[owner]}", f"m_{owner}"
    content = f"Why? mark-{MARKS[owner]}"
    made = Evidence(asked=[Asked(owner, plan, conv, key, content, MARKS[owner], at)])
    post = Call("post", owner, "g1", at, at + 0.05, conv=conv, key=key, reply=reply)
    post.http, post.outcome, post.end = 202, "ok", "closed"
    first = Call("stream", owner, "g2", at + 0.1, at + 0.6, conv=conv, key=key, reply=reply)
    first.view, first.http, first.outcome, first.end = f"{key}/1", 200, "ok", "left"
    first.events = events_of(owner, at)
    first.marks = [MARKS[owner]]
    second = replace(first, view=f"{key}/2", proc="g3", t0=at + 0.2, events=events_of(owner, at))
    again = replace(post, op="repost", t0=at + 50, t1=at + 50.1)
    made.calls = [post, first, second, again]
    made.turns[reply] = StoredTurn(
        owner, key, reply, conv, f"u_{owner}", plan, "completed", 1, 1, TEXT, 30, 11, 74_000, 900,
        4, at, at + 0.5, "stop",
    )  # fmt: skip
    made.messages = {
        f"u_{owner}": StoredMessage(owner, f"u_{owner}", conv, "user", "completed", content),
        reply: StoredMessage(owner, reply, conv, "assistant", "completed", TEXT, 11, TEXT),
    }
    made.settlements = [Settlement(owner, reply, 1, 74_000)]
    made.balances = [Balance(owner, 0, 0, 0)]
    made.generations = [
        Generation("r1", f"{reply}-1-1", owner, 7, 30, 0, 800, at + 0.1, 11, at + 0.4, "stop")
    ]
    made.writes = [
        Write("w1", "fence", reply, 1, 1, 0, 0, "done", at + 0.05, at + 0.06),
        Write("w1", "append", reply, 1, 1, 1, 1, "done", at + 0.06, at + 0.07),
    ]
    return made


def peace() -> Evidence:
    """What a run without any fault leaves."""
    made = Evidence(answers={7: {TEXT}}, limits={"free": 2, "plus": 3}, heal_at=20, quiet_at=21)
    for other in (turn_of("ann", "plus", 10.0), turn_of("bob", "free", 12.0)):
        made.asked += other.asked
        made.calls += other.calls
        made.turns |= other.turns
        made.messages |= other.messages
        made.settlements += other.settlements
        made.balances += other.balances
        made.generations += other.generations
        made.writes += other.writes
    made.phases = [Phase("", 9.0, 15.0), Phase("F1", 100.0, 110.0)]
    made.baseline = {"g1": Rest("g1", 20, 10, 90_000)}
    made.at_rest = {"g1": Rest("g1", 21, 10, 91_000)}
    made.running = {"r1": 0}
    return made


def test_a_peaceful_run_has_no_violation() -> None:
    assert check(peace()) == []


def post(evidence: Evidence) -> Call:
    return evidence.calls[0]


def stream(evidence: Evidence) -> Call:
    return evidence.calls[1]


def alter_turn(evidence: Evidence, **changes: object) -> None:
    evidence.turns["m_ann"] = replace(evidence.turns["m_ann"], **changes)  # type: ignore[arg-type]  # the planter knows the fields


def alter_generation(evidence: Evidence, **changes: object) -> None:
    first, *others = evidence.generations
    evidence.generations = [replace(first, **changes), *others]  # type: ignore[arg-type]  # strings where enums are wanted, as above


def another_call(evidence: Evidence, **changes: object) -> Call:
    call = replace(stream(evidence), **changes)  # type: ignore[arg-type]  # strings where enums are wanted, as above
    evidence.calls.append(call)
    return call


def delete(evidence: Evidence) -> None:
    """Ann's conversation is deleted, and nothing of it is left."""
    call = another_call(evidence, op="delete", t0=70.0, t1=70.1, http=204, view="", events=[])
    call.key = call.reply = ""
    del evidence.turns["m_ann"]
    for message in ("m_ann", "u_ann"):
        del evidence.messages[message]


def stop(evidence: Evidence, **told: object) -> Call:
    """Ann stopped her reply, which had ended."""
    answer = {"status": "completed", "content": TEXT, "lastEventId": 4, "finish": "stop", **told}
    return another_call(
        evidence, op="stop", t0=10.6, t1=10.7, view="", events=[], body=json.dumps(answer)
    )


def test_a_deleted_conversation_leaves_no_violation() -> None:
    evidence = peace()
    delete(evidence)
    assert check(evidence) == []


def test_a_stop_after_the_end_is_none() -> None:
    evidence = peace()
    stop(evidence)
    assert check(evidence) == []


# --- one planted violation after the other -------------------------------------------------------


def lose_the_turn(e: Evidence) -> None:
    del e.turns["m_ann"]


def lose_the_message(e: Evidence) -> None:
    del e.messages["u_ann"]


def change_the_message(e: Evidence) -> None:
    e.messages["u_ann"] = replace(e.messages["u_ann"], content="Why not?")


def store_the_message_twice(e: Evidence) -> None:
    e.messages["u_2"] = replace(e.messages["u_ann"], id="u_2")


def name_two_replies(e: Evidence) -> None:
    e.calls.append(replace(post(e), reply="m_other"))


def store_two_replies(e: Evidence) -> None:
    e.turns["m_other"] = replace(e.turns["m_ann"], reply="m_other")


def begin_again_at_a_repost(e: Evidence) -> None:
    e.generations.append(replace(e.generations[0], request="m_ann-2-1", began_at=61, ended_at=61.2))


def forget_the_key(e: Evidence) -> None:
    e.calls[3] = replace(e.calls[3], http=404, outcome="fail", code="not_found", reply="")


def refuse_the_key_in_peace(e: Evidence) -> None:
    e.calls[3] = replace(e.calls[3], http=503, outcome="fail", code="store_unavailable", reply="")


def leave_a_gap(e: Evidence) -> None:
    del stream(e).events[1]


def repeat_an_id(e: Evidence) -> None:
    stream(e).events.insert(1, stream(e).events[1])


def begin_without_meta(e: Evidence) -> None:
    stream(e).events[0] = replace(stream(e).events[0], kind="pause")


def change_an_id(e: Evidence) -> None:
    stream(e).events[1] = replace(stream(e).events[1], data=json.dumps({"text": "The lake"}))


def see_less_to_the_end(e: Evidence) -> None:
    for call in e.calls[1:3]:
        call.events[2] = replace(call.events[2], data=json.dumps({"text": ""}))


def see_what_is_not_stored(e: Evidence) -> None:
    for call in e.calls[1:3]:
        call.events = [*call.events[:2], replace(call.events[2], data='{"text": "Never."}')]


def reset_for_nothing(e: Evidence) -> None:
    stream(e).events = [
        *stream(e).events[:2],
        Event(None, "reset", "{}", 10.2),
        *events_of("ann", 11),
    ]


def tell_by_the_row_for_nothing(e: Evidence) -> None:
    told = events_of("ann", 11)
    told[0] = replace(told[0], data=json.dumps({"attempt": 2, "messageId": "m_ann"}))
    stream(e).events = [*stream(e).events[:2], Event(None, "reset", "{}", 10.2), *told]


def raise_the_attempt_for_nothing(e: Evidence) -> None:
    e.writes.append(Write("w1", "append", "m_ann", 1, 1, 2, 2, "done", 10.2, 10.21))
    alter_turn(e, attempt=2)


def end_twice(e: Evidence) -> None:
    stream(e).events.append(replace(stream(e).events[3], id=5))


def end_otherwise_than_stored(e: Evidence) -> None:
    alter_turn(e, finish="length")


def end_differently_for_two(e: Evidence) -> None:
    last = stream(e).events[3]
    stream(e).events[3] = replace(last, data=last.data.replace("stop", "length"))


def settle_twice(e: Evidence) -> None:
    e.settlements.append(replace(e.settlements[0], epoch=2))


def settle_never(e: Evidence) -> None:
    e.settlements.pop(0)


def drift(e: Evidence) -> None:
    e.balances[0] = replace(e.balances[0], drift=1)


def keep_a_reservation(e: Evidence) -> None:
    e.balances[0] = replace(e.balances[0], reserved=900, running=1)


def charge_more_than_was_said(e: Evidence) -> None:
    alter_turn(e, output=12, charged=78_000)


def free_without_charge(e: Evidence) -> None:
    alter_turn(e, input=0, charged=44_000)


def store_other_tokens(e: Evidence) -> None:
    e.messages["m_ann"] = replace(e.messages["m_ann"], spelled=TEXT[:-1])


def lose_a_token_of_the_engine(e: Evidence) -> None:
    e.answers[7] = {"The sea is never quite quite still. Wait, is that so?"}


def ask_with_two_prompts(e: Evidence) -> None:
    e.generations.append(replace(e.generations[0], request="m_ann-1-2", question=8, began_at=10.5))


def generate_for_nobody(e: Evidence) -> None:
    e.generations.append(replace(e.generations[0], request="m_ghost-1-1"))


def waste_much(e: Evidence) -> None:
    alter_generation(e, tokens=50)


def append_after_a_fence(e: Evidence) -> None:
    e.writes += [
        Write("w2", "fence", "m_ann", 2, 1, 0, 1, "done", 10.2, 10.21),
        Write("w1", "append", "m_ann", 1, 1, 2, 2, "done", 10.3, 10.31),
    ]


def write_an_id_twice(e: Evidence) -> None:
    e.writes.append(Write("w2", "append", "m_ann", 2, 1, 1, 1, "done", 10.3, 10.31))


def show_what_was_flagged(e: Evidence) -> None:
    said = json.dumps({"text": f"You said mark-{'a' * 11}f."})
    stream(e).events[2] = replace(stream(e).events[2], data=said)


def store_what_was_flagged(e: Evidence) -> None:
    alter_turn(e, text=f"You said mark-{'a' * 11}f.")


def go_on_after_a_refusal(e: Evidence) -> None:
    stream(e).events[1] = replace(stream(e).events[1], kind="refusal")


def run_side_by_side(e: Evidence) -> None:
    alter_generation(e, ended_at=16.0)
    e.generations.append(
        replace(e.generations[0], request="m_ann-2-1", began_at=10.2, ended_at=10.4)
    )
    alter_turn(e, finished_at=16.0)


def run_more_than_allowed(e: Evidence) -> None:
    for n in range(3):
        reply = f"m_more{n}"
        e.turns[reply] = replace(e.turns["m_ann"], reply=reply, key=f"k{n}")
        e.generations.append(replace(e.generations[0], request=f"{reply}-1-1"))


def run_at_rest(e: Evidence) -> None:
    e.running["r1"] = 1


def lose_blocks(e: Evidence) -> None:
    e.leaked["r1"] = 3


def never_end_a_generation(e: Evidence) -> None:
    alter_generation(e, ended_at=None)


def leave_after_the_stop(e: Evidence) -> None:
    stop(e)
    alter_generation(e, ended_at=10.9)


def stay_open(e: Evidence) -> None:
    alter_turn(e, status="running", finished_at=None)


def end_late(e: Evidence) -> None:
    e.quiet_at = e.heal_at + 11


def give_up(e: Evidence) -> None:
    another_call(e, op="gave_up", events=[], http=0, after=4, attempt=1)


def show_another_mark(e: Evidence) -> None:
    stream(e).marks.append(MARKS["bob"])


def answer_a_probe(e: Evidence) -> None:
    another_call(e, op="probe", user="bob", key="", view="", marks=[], events=[], body="{}")


def log_a_mark(e: Evidence) -> None:
    e.papers.append(Text("g1.log", frozenset((MARKS["ann"],))))


def share_a_cache_key(e: Evidence) -> None:
    alter_generation(e, salt="bob")


def refuse_the_paid(e: Evidence) -> None:
    another_call(e, op="post", t1=12.5, http=503, code="busy", view="", events=[], reply="")


def say_more_after_a_stop(e: Evidence) -> None:
    stop(e, lastEventId=3)


def store_more_than_was_stopped(e: Evidence) -> None:
    stop(e, status="stopped", content=TEXT[:30])


def stop_without_stopping(e: Evidence) -> None:
    stop(e, status="running")


def read_what_was_deleted(e: Evidence) -> None:
    delete(e)
    another_call(e, op="read", t0=71.0, t1=71.1, view="", events=[], key="")


def keep_a_deleted_text(e: Evidence) -> None:
    delete(e)
    e.stores.append(Text("messages", frozenset((MARKS["ann"],))))


def write_after_a_delete(e: Evidence) -> None:
    turn = e.turns["m_ann"]
    delete(e)
    e.turns["m_ann"] = turn


def break_with_500(e: Evidence) -> None:
    another_call(e, op="post", http=500, code="internal", view="", events=[])


def refuse_without_a_word(e: Evidence) -> None:
    another_call(e, op="post", http=503, view="", events=[])


def hang(e: Evidence) -> None:
    another_call(e, op="stop", t1=60.0, view="", events=[])


def fall_silent(e: Evidence) -> None:
    another_call(e, view="ann/3", events=[], end="timeout")


def know_nobody_without_valkey(e: Evidence) -> None:
    e.quiet_auths = [200, 503]


def fail_in_peace(e: Evidence) -> None:
    for call in e.calls[1:3]:
        call.events = [*call.events[:3], Event(4, "fail", '{"code": "internal"}', 10.4)]
    alter_turn(e, status="failed", failure="internal")


def pause_long(e: Evidence) -> None:
    e.incidents.append(Incident("F1", "kill", "g2", 10.35, 10.35))
    stream(e).events[3] = replace(stream(e).events[3], at=14.0)


def pause_very_long(e: Evidence) -> None:
    e.incidents.append(Incident("F5", "freeze", "postgres", 10.2, 12.2))
    stream(e).events[3] = replace(stream(e).events[3], at=24.0)


def end_by_itself(e: Evidence) -> None:
    e.exits.append(Exit("w1", 1, 11.0))


def leak_descriptors(e: Evidence) -> None:
    e.at_rest["g1"] = replace(e.at_rest["g1"], fds=60)


def leak_tasks(e: Evidence) -> None:
    e.at_rest["g1"] = replace(e.at_rest["g1"], tasks=60)


def swell(e: Evidence) -> None:
    e.at_rest["g1"] = replace(e.at_rest["g1"], rss_kb=150_000)


def keep_connections(e: Evidence) -> None:
    e.at_rest["g1"] = replace(e.at_rest["g1"], most_to_one=40)


PLANTED: dict[str, list[Callable[[Evidence], None]]] = {
    "C1": [lose_the_turn, lose_the_message, change_the_message, store_the_message_twice],
    "C2": [
        name_two_replies,
        store_two_replies,
        begin_again_at_a_repost,
        forget_the_key,
        refuse_the_key_in_peace,
    ],
    "C3": [leave_a_gap, repeat_an_id, begin_without_meta],
    "C4": [change_an_id],
    "C5": [
        see_less_to_the_end,
        see_what_is_not_stored,
        reset_for_nothing,
        tell_by_the_row_for_nothing,
        raise_the_attempt_for_nothing,
    ],
    "C6": [end_twice, end_otherwise_than_stored, end_differently_for_two],
    "C7": [settle_twice, settle_never, drift, keep_a_reservation],
    "C8": [
        charge_more_than_was_said,
        free_without_charge,
        store_other_tokens,
        lose_a_token_of_the_engine,
        ask_with_two_prompts,
        generate_for_nobody,
        waste_much,
    ],
    "C9": [append_after_a_fence, write_an_id_twice, run_side_by_side],
    "I10": [show_what_was_flagged, store_what_was_flagged, go_on_after_a_refusal],
    "C10": [run_more_than_allowed],
    "C11": [run_at_rest, lose_blocks, never_end_a_generation, leave_after_the_stop],
    "C12": [stay_open, end_late, give_up],
    "C13": [show_another_mark, answer_a_probe, log_a_mark, share_a_cache_key],
    "C14": [refuse_the_paid],
    "C15": [say_more_after_a_stop, store_more_than_was_stopped, stop_without_stopping],
    "C16": [read_what_was_deleted, keep_a_deleted_text, write_after_a_delete],
    "C17": [
        break_with_500,
        refuse_without_a_word,
        hang,
        fall_silent,
        know_nobody_without_valkey,
        fail_in_peace,
    ],
    "C18": [pause_long, pause_very_long],
    "C19": [end_by_itself, leak_descriptors, leak_tasks, swell, keep_connections],
}


@pytest.mark.parametrize(
    ("name", "plant"), [(name, plant) for name, plants in PLANTED.items() for plant in plants]
)
def test_the_check_reports(name: str, plant: Callable[[Evidence], None]) -> None:
    evidence = peace()
    plant(evidence)
    found = check(evidence)
    assert name in {one.check for one in found}, found


def test_every_check_has_a_planted_violation() -> None:
    assert PLANTED.keys() == CHECKS.keys()
