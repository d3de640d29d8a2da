"""The table of a turn is whole, and its events are the same bytes whoever writes them."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tertulia.core.turn import (
    EVENT_OF_END,
    TRANSITIONS,
    delta_entry,
    delta_text,
    frame,
    ids_so_far,
    is_terminal,
    meta_entry,
    next_status,
    pack_ids,
    pause_entry,
    refusal_entry,
    stored_entries,
    terminal_entry,
    text_so_far,
    thread_of,
    to_json,
    unpack_ids,
)
from tertulia.core.types import (
    Entry,
    Failure,
    Finish,
    Held,
    Lane,
    PromptMessage,
    Reason,
    Refusal,
    Role,
    Sampling,
    Status,
    Turn,
    Usage,
)

EVENTS = sorted({event for steps in TRANSITIONS.values() for event in steps})
ENDS = [status for status in Status if status.is_final]

TURN = Turn(
    owner="u",
    key="k",
    body_sha="b",
    kind="message",
    reply_id="m_2",
    plan="free",
    lane=Lane.FREE,
    requested="auto",
    answer_tokens=100,
    reserved=200,
    sampling=Sampling(),
    status=Status.COMPLETED,
    epoch=3,
    attempt=2,
    created_at=1.0,
    conversation_id="c_1",
    user_message_id="m_1",
    notices=("answer_capped",),
    model="small",
    reason=Reason.AUTO,
    finish=Finish.STOP,
    text="Hi.",
    usage=Usage(12, 8, 3),
    charged=15_200,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def test_every_status_has_its_row() -> None:
    assert set(TRANSITIONS) == set(Status)


def test_every_step_leads_to_a_status_of_the_table() -> None:
    assert {after for steps in TRANSITIONS.values() for after in steps.values()} <= set(Status)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("status", list(Status))
def test_a_step_is_in_the_table_or_an_error(status: Status, event: str) -> None:
    if event in TRANSITIONS[status]:
        assert next_status(status, event) is TRANSITIONS[status][event]
    else:
        with pytest.raises(ValueError, match=f"a {status} turn can't {event}"):
            next_status(status, event)


def test_an_unknown_event_is_an_error() -> None:
    with pytest.raises(ValueError, match="a queued turn can't explode"):
        next_status(Status.QUEUED, "explode")


def test_a_final_turn_never_changes_but_a_failed_one_may_be_run_again() -> None:
    again = {status: dict(TRANSITIONS[status]) for status in ENDS if TRANSITIONS[status]}
    assert again == {Status.FAILED: {"rerun": Status.QUEUED}}


def test_from_every_open_status_every_way_to_end_is_reachable() -> None:
    for start in (Status.QUEUED, Status.RUNNING):
        reached, todo = {start}, [start]
        while todo:
            for after in TRANSITIONS[todo.pop()].values():
                if after not in reached:
                    reached.add(after)
                    todo.append(after)
        assert reached >= set(ENDS)


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("end", ENDS)
def test_an_end_is_reached_by_its_own_event_and_no_other(status: Status, end: Status) -> None:
    leading = [event for event, after in TRANSITIONS[status].items() if after is end]
    leading = [event for event in leading if event != "can"]  # a ready reply, at the door
    assert leading in ([], [EVENT_OF_END[end]])


@given(ids=st.lists(st.integers(0, 2**32 - 1)))
def test_ids_come_back_as_they_were_packed(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)) == tuple(ids)


def test_ids_are_packed_in_little_endian_order_on_every_machine() -> None:
    assert pack_ids([1, 0x01020304]) == b"\x01\0\0\0\x04\x03\x02\x01"


@pytest.mark.parametrize("number", [-1, 2**32])
def test_an_id_beyond_32_bits_is_an_error(number: int) -> None:
    with pytest.raises(OverflowError):
        pack_ids([number])


@given(text=TEXTS)
@example("\r\n\0\u2028\u2029\x85\x0b\x0c\x1c")
@example("\ndata: x\n\nevent: done\n\n")
def test_any_text_is_one_event_and_comes_back(text: str) -> None:
    entry = delta_entry(7, text, b"")
    framed = frame(entry)
    assert framed.endswith(b"\n\n")
    lines = framed[:-2].split(b"\n")
    assert [line.partition(b": ")[0] for line in lines] == [b"id", b"event", b"data"]
    assert b"\r" not in framed
    assert b"\0" not in framed
    assert json.loads(lines[2].removeprefix(b"data: ")) == {"text": text}
    assert delta_text(entry) == text


def test_a_frame_is_these_bytes() -> None:
    assert frame(delta_entry(1, "Hé\n", b"")) == (
        b'id: 1\nevent: delta\ndata: {"text":"H\xc3\xa9\\n"}\n\n'
    )
    assert frame(pause_entry(2)) == b'id: 2\nevent: pause\ndata: {"reason":"replica_lost"}\n\n'


@given(value=st.dictionaries(TEXTS, TEXTS | st.integers() | st.none()))
def test_json_is_one_line_and_comes_back(value: dict[str, str | int | None]) -> None:
    data = to_json(value)
    assert b"\n" not in data
    assert b"\r" not in data
    assert json.loads(data) == value


def test_the_first_event_says_who_answers_and_why() -> None:
    assert meta_entry(1, TURN) == Entry(
        1,
        "meta",
        b'{"messageId":"m_2","userMessageId":"m_1","conversationId":"c_1","model":"small",'
        b'"requested":"auto","reason":"auto","notices":["answer_capped"],"attempt":2}',
    )


REFUSED = TURN._replace(
    status=Status.REFUSED,
    finish=Finish.REFUSED,
    refusal=Refusal("output", "malware", "I can't."),
)
FAILED = TURN._replace(
    status=Status.FAILED, finish=None, failure=Failure("replica_lost", "Broke.", True)
)


@pytest.mark.parametrize(
    ("turn", "kind", "data"),
    [
        (
            TURN,
            "done",
            b'{"finish":"stop","usage":{"input":12,"cached":8,"output":3},"charged":15.2}',
        ),
        (
            TURN._replace(finish=None),
            "done",
            b'{"finish":"stop","usage":{"input":12,"cached":8,"output":3},"charged":15.2}',
        ),
        (
            TURN._replace(status=Status.STOPPED, finish=Finish.ABANDONED, usage=Usage(), charged=0),
            "done",
            b'{"finish":"abandoned","usage":{"input":0,"cached":0,"output":0},"charged":0}',
        ),
        (
            REFUSED,
            "done",
            b'{"finish":"refused","usage":{"input":12,"cached":8,"output":3},"charged":15.2}',
        ),
        (FAILED, "fail", b'{"code":"replica_lost","message":"Broke.","retryable":true}'),
        (
            FAILED._replace(failure=Failure("busy", "Later.", True, 5)),
            "fail",
            b'{"code":"busy","message":"Later.","retryable":true,"retryAfterSeconds":5}',
        ),
    ],
)
def test_the_last_event_is_these_bytes(turn: Turn, kind: str, data: bytes) -> None:
    assert terminal_entry(9, turn) == Entry(9, "done" if kind == "done" else "fail", data)


@given(epoch=st.integers(1, 9), lease=st.none() | st.floats(0, 9), text=TEXTS, at=st.floats(0, 9))
def test_the_last_event_depends_on_nothing_that_differs_between_writers(
    epoch: int, lease: float | None, text: str, at: float
) -> None:
    other = TURN._replace(epoch=epoch, lease_until=lease, text=text, finished_at=at, replica="r")
    assert terminal_entry(4, other) == terminal_entry(4, TURN)


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING])
def test_an_open_turn_has_no_last_event(status: Status) -> None:
    with pytest.raises(AssertionError):
        terminal_entry(1, TURN._replace(status=status))


def test_a_turn_that_was_not_refused_has_no_refusal_event() -> None:
    with pytest.raises(AssertionError):
        refusal_entry(1, TURN)


@pytest.mark.parametrize(
    ("turn", "kinds"),
    [
        (TURN, ["meta", "delta", "done"]),
        (TURN._replace(text=""), ["meta", "done"]),
        (REFUSED, ["meta", "delta", "refusal", "done"]),
        (REFUSED._replace(text=""), ["meta", "refusal", "done"]),
        (FAILED, ["meta", "delta", "fail"]),
    ],
)
def test_a_finished_turn_tells_its_story_from_its_row_alone(turn: Turn, kinds: list[str]) -> None:
    entries = stored_entries(turn)
    assert [entry.kind for entry in entries] == kinds
    assert [entry.seq for entry in entries] == list(range(1, len(kinds) + 1))
    assert text_so_far(entries) == turn.text
    assert [is_terminal(entry.kind) for entry in entries] == [False] * (len(kinds) - 1) + [True]


def test_a_refusal_shows_its_stage_category_and_text() -> None:
    assert refusal_entry(3, REFUSED).data == (
        b'{"stage":"output","category":"malware","text":"I can\'t."}'
    )


@given(parts=st.lists(st.tuples(TEXTS, st.lists(st.integers(0, 2**32 - 1)))))
def test_what_was_released_adds_up(parts: list[tuple[str, list[int]]]) -> None:
    entries = [meta_entry(1, TURN), pause_entry(2)]
    entries += [delta_entry(3 + i, text, pack_ids(ids)) for i, (text, ids) in enumerate(parts)]
    assert text_so_far(entries) == "".join(text for text, _ in parts)
    assert ids_so_far(entries) == tuple(i for _, ids in parts for i in ids)


def test_a_turn_names_its_claim() -> None:
    assert TURN._replace(epoch=7).held == Held(TURN.owner, TURN.reply_id, 7)


def test_a_thread_is_the_conversation_or_whose_it_is_and_what_was_said_first() -> None:
    def call(owner: str, *said: tuple[Role, str]) -> str:
        prompt = tuple(PromptMessage(role, text) for role, text in said)
        return thread_of(TURN._replace(owner=owner, conversation_id=None, prompt=prompt))

    assert thread_of(TURN._replace(conversation_id="c_9")) == "c_9"
    first = call("ana", ("system", "Be kind."), ("user", "Hi"))
    assert first == call("ana", ("user", "Hi"), ("assistant", "Hello"), ("user", "And?"))
    assert len({first, call("ben", ("user", "Hi")), call("ana", ("user", "Ho")), call("ana")}) == 4
