"""A prompt keeps whole exchanges in order and is cut rarely, at the same place everywhere."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.prompt import (
    SUMMARY_OPENING,
    Context,
    Exchange,
    choose_context,
    context_of,
    course_of,
    exchange_room,
    exchanges_of,
    next_cut,
    prompt_messages,
    splice_ids,
    summary_messages,
    summary_room,
    system_ids,
)
from tertulia.core.types import BranchMessage, Chunk, PromptMessage, Role, Status, TokenIds

MADE_OF = 3  # tokens of template for each message


def message(
    message_id: str, role: Role, tokens: int, status: Status = Status.COMPLETED
) -> BranchMessage:
    return BranchMessage(message_id, role, status, tokens, "t")


def grouped(*branch: BranchMessage) -> tuple[Exchange, ...]:
    return exchanges_of(branch, per_message_tokens=MADE_OF)


def test_questions_and_answers_make_exchanges_and_the_last_question_stands_alone() -> None:
    branch = [message("u1", "user", 5), message("a1", "assistant", 7), message("u2", "user", 2)]
    assert grouped(*branch) == (Exchange(("u1",), (8,), "a1", 10), Exchange(("u2",), (5,)))
    assert [exchange.tokens for exchange in grouped(*branch)] == [18, 5]


@pytest.mark.parametrize(
    ("status", "tokens"),
    [(Status.FAILED, 9), (Status.FAILED, 0), (Status.STOPPED, 0), (Status.COMPLETED, 0)],
)
def test_a_question_without_an_answer_joins_the_next(status: Status, tokens: int) -> None:
    """S-27: after a failed turn the conversation goes on."""
    branch = [message("u1", "user", 5), message("a1", "assistant", tokens, status)]
    branch.append(message("u2", "user", 2))
    assert grouped(*branch) == (Exchange(("u1", "u2"), (8, 5)),)


def test_a_stopped_answer_with_text_is_an_answer() -> None:
    branch = [message("u1", "user", 5), message("a1", "assistant", 1, Status.STOPPED)]
    assert grouped(*branch, message("u2", "user", 2))[0] == Exchange(("u1",), (8,), "a1", 4)


@pytest.mark.parametrize("tokens", [0, 9])
def test_a_refused_exchange_is_left_out_whole(tokens: int) -> None:
    branch = [message("u1", "user", 5), message("a1", "assistant", tokens, Status.REFUSED)]
    assert grouped(*branch, message("u2", "user", 2)) == (Exchange(("u2",), (5,)),)


def test_an_answer_to_nothing_is_left_out() -> None:
    assert grouped(message("a", "assistant", 4), message("u", "user", 1))[0].user_ids == ("u",)


def test_an_empty_branch_has_no_exchanges() -> None:
    assert grouped() == ()


STATUSES = st.sampled_from(list(Status))


@st.composite
def branches(draw: st.DrawFn) -> list[BranchMessage]:
    """Any tree's path: questions, most of them answered somehow, and a new question."""
    branch: list[BranchMessage] = []
    for i in range(draw(st.integers(0, 12))):
        branch.append(message(f"u{i}", "user", draw(st.integers(1, 50))))
        if draw(st.booleans()):
            reply = message(f"a{i}", "assistant", draw(st.integers(0, 50)), draw(STATUSES))
            branch.append(reply)
    return [*branch, message("new", "user", draw(st.integers(1, 50)))]


@given(branch=branches())
def test_roles_alternate_and_the_new_message_is_last(branch: list[BranchMessage]) -> None:
    exchanges = exchanges_of(branch, per_message_tokens=MADE_OF)
    assert exchanges[-1].reply_id is None
    assert exchanges[-1].user_ids[-1] == "new"
    assert all(exchange.user_ids for exchange in exchanges)
    assert all(exchange.reply_id is not None for exchange in exchanges[:-1])


@given(branch=branches())
def test_exchanges_keep_order_and_count_every_message_once(branch: list[BranchMessage]) -> None:
    exchanges = exchanges_of(branch, per_message_tokens=MADE_OF)
    kept = Context(exchanges, first=0, tokens=0).message_ids
    by_id = {m.id: m for m in branch}
    assert [m.id for m in branch if m.id in kept] == list(kept)
    assert sum(e.tokens for e in exchanges) == sum(by_id[i].tokens + MADE_OF for i in kept)


SIZES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=40)
ROOMS = st.integers(1, 300)

Sizes = Sequence[tuple[int, int]]


def history(sizes: Sizes, *, turns: int) -> list[Exchange]:
    """What the prompt of turn `turns` chooses from: earlier ones answered, the newest not yet."""
    done = [Exchange((f"u{i}",), (u,), f"a{i}", a) for i, (u, a) in enumerate(sizes[:turns])]
    return [*done, Exchange((f"u{turns}",), (sizes[turns][0],))]


def answered(sizes: Sizes, *, turns: int) -> list[Exchange]:
    """The same once that turn has its reply."""
    *done, newest = history(sizes, turns=turns)
    return [*done, replace(newest, reply_id=f"a{turns}", reply_tokens=sizes[turns][1])]


@given(sizes=SIZES, room=st.integers(-10, 300))
def test_a_prompt_fits_unless_the_new_message_alone_does_not(sizes: Sizes, room: int) -> None:
    for turns in range(len(sizes)):
        exchanges = history(sizes, turns=turns)
        context = choose_context(exchanges, room_tokens=room)
        assert context.exchanges == tuple(exchanges[context.first :])
        assert context.exchanges[-1] == exchanges[-1]
        assert context.tokens == sum(e.tokens for e in context.exchanges)
        assert context.tokens <= room or len(context.exchanges) == 1
        assert context.shortened == (context.first > 0)


@given(sizes=SIZES, room=ROOMS)
def test_between_two_cuts_a_prompt_and_its_reply_begin_the_next_prompt(
    sizes: Sizes, room: int
) -> None:
    before: Context | None = None
    for turns in range(len(sizes)):
        exchanges = history(sizes, turns=turns)
        context = choose_context(exchanges, room_tokens=room)
        if before is not None and context.first == before.first:
            kept = before.message_ids
            assert context.message_ids[: len(kept) + 1] == (*kept, f"a{turns - 1}")
        elif before is not None:
            # It is cut only because keeping all would not fit, and never goes back.
            assert context.first > before.first
            assert sum(e.tokens for e in exchanges[before.first :]) > room
        before = context


@given(sizes=SIZES, room=ROOMS)
def test_a_turns_reply_does_not_move_its_cut(sizes: Sizes, room: int) -> None:
    for turns in range(len(sizes)):
        asked = choose_context(history(sizes, turns=turns), room_tokens=room)
        done = choose_context(answered(sizes, turns=turns), room_tokens=room)
        assert done.first == asked.first


@given(sizes=SIZES, room=ROOMS)
def test_a_cut_that_was_fixed_is_made_there_or_where_one_message_demands_more(
    sizes: Sizes, room: int
) -> None:
    for turns in range(1, len(sizes)):
        before = choose_context(answered(sizes, turns=turns - 1), room_tokens=room)
        exchanges = history(sizes, turns=turns)
        now = choose_context(exchanges, room_tokens=room)
        if now.first == before.first:
            # Not full yet: what was fixed stays fixed.
            assert now.next_first == before.next_first
        elif before.next_first is not None and now.first != before.next_first:
            assert now.first > before.next_first
            further = exchanges[now.first - 1 : turns]
            assert sum(e.tokens for e in further) + exchanges[-1].tokens > room


@given(sizes=SIZES, room=ROOMS)
def test_three_quarters_full_the_next_cut_is_fixed_and_frees_half_if_two_are_kept(
    sizes: Sizes, room: int
) -> None:
    before = Context((), first=0, tokens=0)
    for turns in range(len(sizes)):
        exchanges = answered(sizes, turns=turns)
        context = choose_context(exchanges, room_tokens=room)
        assert (context.next_first is not None) or context.tokens <= room * 3 // 4
        newly = (context.first, context.next_first) != (before.first, before.next_first)
        if newly and context.next_first is not None:
            assert context.first < context.next_first <= len(exchanges)
            freed = sum(e.tokens for e in exchanges[context.first : context.next_first])
            assert freed >= room // 2 or context.next_first == len(exchanges) - 1
        before = context


@given(sizes=SIZES, room=ROOMS)
def test_where_the_next_cut_will_be_follows_from_the_prompt_and_its_reply(
    sizes: Sizes, room: int
) -> None:
    for turns in range(len(sizes)):
        asked = choose_context(history(sizes, turns=turns), room_tokens=room)
        exchanges = answered(sizes, turns=turns)
        done = choose_context(exchanges, room_tokens=room)
        assert next_cut(asked, exchanges, room_tokens=room) == done.next_first


@given(branch=branches(), room=ROOMS)
def test_a_cut_has_moved_exactly_where_the_prompt_before_began_elsewhere(
    branch: list[BranchMessage], room: int
) -> None:
    """Whatever became of the turn before: answered, refused, failed or still open."""
    context = context_of(course_of(branch, per_message_tokens=MADE_OF), room_tokens=room)
    assert context.exchanges == choose_context(grouped(*branch), room_tokens=room).exchanges
    before = branch[:-1]
    while before and before[-1].role != "user":
        before.pop()
    earlier = choose_context(grouped(*before), room_tokens=room).message_ids[:1]
    assert context.moved == (context.shortened and context.message_ids[:1] != earlier)


def test_in_a_long_talk_few_turns_may_begin_anew() -> None:
    branch: list[BranchMessage] = []
    n_moved = 0
    for n in range(200):
        branch.append(message(f"u{n}", "user", 30))
        n_moved += context_of(
            course_of(branch, per_message_tokens=MADE_OF), room_tokens=4_000
        ).moved
        branch.append(message(f"a{n}", "assistant", 70))
    assert 4 <= n_moved <= 20


@pytest.mark.parametrize("room", [1, 1_000])
def test_a_first_turn_was_never_cut(room: int) -> None:
    first = course_of([message("u", "user", 50)], per_message_tokens=MADE_OF)
    assert not context_of(first, room_tokens=room).moved


def test_a_message_that_comes_too_suddenly_cuts_to_half_at_once() -> None:
    sizes = [(10, 10)] * 6 + [(90, 5)]
    assert choose_context(answered(sizes, turns=5), room_tokens=200).next_first is None
    # 120 of 200 are kept: half of the room is freed, and what came last stays.
    assert choose_context(history(sizes, turns=6), room_tokens=200).first == 5


def test_in_a_long_talk_nine_turns_of_ten_reuse_what_came_before() -> None:
    sizes, room = [(30, 70)] * 200, 4000
    reused = []
    before: tuple[str, ...] = ()
    for turns in range(len(sizes)):
        ids = choose_context(history(sizes, turns=turns), room_tokens=room).message_ids
        reused.append(ids[: len(before)] == before)
        before = ids
    assert sum(reused) / len(reused) >= 0.9


def test_nothing_is_kept_of_nothing() -> None:
    assert choose_context([], room_tokens=10) == Context((), first=0, tokens=0)


def test_questions_that_were_never_answered_go_before_the_newest() -> None:
    joined = Exchange(("u1", "u2", "u3"), (50, 30, 20))
    kept = choose_context([joined], room_tokens=60)
    assert kept.exchanges == (Exchange(("u2", "u3"), (30, 20)),)
    assert (kept.shortened, kept.tokens) == (True, 50)
    assert choose_context([joined], room_tokens=5).exchanges == (Exchange(("u3",), (20,)),)
    assert choose_context([joined], room_tokens=100).exchanges == (joined,)


@pytest.mark.parametrize(("window", "room"), [(100, 12), (1_600, 200), (3_200, 400), (32_000, 400)])
def test_a_summary_has_a_page_or_an_eighth_of_a_small_window(window: int, room: int) -> None:
    assert summary_room(window) == room


def test_the_room_for_exchanges_is_what_all_others_leave() -> None:
    assert exchange_room(1_600, answer_tokens=500, begins_with_tokens=40) == 1_600 - 500 - 40 - 200


def texts(*ids: str) -> dict[str, PromptMessage]:
    return {i: PromptMessage("user" if i[0] == "u" else "assistant", f"text of {i}") for i in ids}


def test_a_prompt_is_the_system_prompt_and_the_exchanges_in_order() -> None:
    kept = (Exchange(("u1",), (1,), "a1", 1), Exchange(("u2", "u3"), (1, 1)))
    system, said = PromptMessage("system", "Be kind."), texts("u1", "a1", "u2", "u3")
    assert prompt_messages(system, Context(kept, 0, 4), said) == (
        system,
        PromptMessage("user", "text of u1"),
        PromptMessage("assistant", "text of a1"),
        PromptMessage("user", "text of u2\n\ntext of u3"),
    )


def test_a_summary_is_an_exchange_of_its_own_before_the_others() -> None:
    kept, system = (Exchange(("u1",), (1,)),), PromptMessage("system", "Be kind.")
    messages = prompt_messages(system, Context(kept, 3, 1), texts("u1"), summary="Ann likes figs.")
    assert [one.role for one in messages] == ["system", "user", "assistant", "user"]
    assert messages[1].content == SUMMARY_OPENING + "Ann likes figs."
    assert messages[1:3] == summary_messages("Ann likes figs.")


def letters(text: str) -> TokenIds:
    return tuple(map(ord, text))


def spliced(messages: Sequence[PromptMessage]) -> TokenIds:
    chunks = [Chunk("control", "<")]
    for said in messages:
        chunks += [Chunk("text", said.content), Chunk("control", ">")]
    return splice_ids(
        chunks,
        messages,
        tokenizer="t",
        encode=letters,
        encode_control=lambda text: tuple(-ord(c) for c in text),
    )


def test_a_templates_chunks_are_control_and_contents_are_text() -> None:
    assert spliced([PromptMessage("user", "<")]) == (-60, 60, -62)


@pytest.mark.parametrize(
    ("tokenizer", "ids", "expected"),
    [("t", (7, 8), (7, 8)), ("another", (7, 8), (97,)), ("t", None, (97,)), ("t", (), ())],
)
def test_a_reply_keeps_its_own_tokens_if_this_tokenizer_made_them(
    tokenizer: str, ids: TokenIds | None, expected: TokenIds
) -> None:
    reply = PromptMessage("assistant", "a", ids, tokenizer)
    assert spliced([reply]) == (-60, *expected, -62)


def test_contents_in_another_order_than_the_template_shows_are_our_mistake() -> None:
    with pytest.raises(AssertionError, match="in order, verbatim"):
        splice_ids(
            [Chunk("text", "b")],
            [PromptMessage("user", "a")],
            tokenizer="t",
            encode=letters,
            encode_control=letters,
        )


def test_a_system_prompt_is_encoded_once_for_all() -> None:
    encoded: list[str] = []

    def encode(text: str) -> TokenIds:
        encoded.append(text)
        return (len(text),)

    assert [system_ids(encode, text) for text in ("Be brief.", "Be", "Be brief.")] == [
        (9,),
        (2,),
        (9,),
    ]
    assert encoded == ["Be brief.", "Be"]
