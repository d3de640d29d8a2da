"""A prompt keeps whole exchanges in order and is cut rarely, at the same place everywhere."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.prompt import (
    Context,
    Exchange,
    choose_context,
    exchanges_of,
    prompt_messages,
    splice_ids,
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
    assert grouped(*branch) == (Exchange(("u1",), "a1", 18), Exchange(("u2",), None, 5))


@pytest.mark.parametrize(
    ("status", "tokens"),
    [(Status.FAILED, 9), (Status.FAILED, 0), (Status.STOPPED, 0), (Status.COMPLETED, 0)],
)
def test_a_question_without_an_answer_joins_the_next(status: Status, tokens: int) -> None:
    branch = [message("u1", "user", 5), message("a1", "assistant", tokens, status)]
    branch.append(message("u2", "user", 2))
    assert grouped(*branch) == (Exchange(("u1", "u2"), None, 13),)


def test_a_stopped_answer_with_text_is_an_answer() -> None:
    branch = [message("u1", "user", 5), message("a1", "assistant", 1, Status.STOPPED)]
    assert grouped(*branch, message("u2", "user", 2))[0] == Exchange(("u1",), "a1", 12)


@pytest.mark.parametrize("tokens", [0, 9])
def test_a_refused_exchange_is_left_out_whole(tokens: int) -> None:
    branch = [message("u1", "user", 5), message("a1", "assistant", tokens, Status.REFUSED)]
    assert grouped(*branch, message("u2", "user", 2)) == (Exchange(("u2",), None, 5),)


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
    kept = Context(exchanges, shortened=False, tokens=0).message_ids
    by_id = {m.id: m for m in branch}
    assert [m.id for m in branch if m.id in kept] == list(kept)
    assert sum(e.tokens for e in exchanges) == sum(by_id[i].tokens + MADE_OF for i in kept)


SIZES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=40)


def history(sizes: Sequence[tuple[int, int]], *, turns: int) -> list[Exchange]:
    """What the prompt of turn `turns` chooses from: earlier ones answered, the newest not yet."""
    done = [Exchange((f"u{i}",), f"a{i}", u + a) for i, (u, a) in enumerate(sizes[:turns])]
    return [*done, Exchange((f"u{turns}",), None, sizes[turns][0])]


@given(sizes=SIZES, room=st.integers(-10, 300))
def test_a_prompt_fits_unless_the_new_message_alone_does_not(
    sizes: list[tuple[int, int]], room: int
) -> None:
    for turns in range(len(sizes)):
        exchanges = history(sizes, turns=turns)
        context = choose_context(exchanges, room_tokens=room)
        assert context.exchanges == tuple(exchanges[-len(context.exchanges) :])
        assert context.tokens == sum(e.tokens for e in context.exchanges)
        assert context.tokens <= room or len(context.exchanges) == 1
        assert context.shortened == (len(context.exchanges) < len(exchanges))


@given(sizes=SIZES, room=st.integers(1, 300))
def test_between_two_cuts_a_prompt_and_its_reply_begin_the_next_prompt(
    sizes: list[tuple[int, int]], room: int
) -> None:
    before: Context | None = None
    for turns in range(len(sizes)):
        exchanges = history(sizes, turns=turns)
        context = choose_context(exchanges, room_tokens=room)
        if before is not None:
            kept, said = before.message_ids, context.message_ids
            went_on = said[: len(kept) + 1] == (*kept, f"a{turns - 1}")
            # It is cut only because keeping all would not fit.
            all_of_it = sum(e.tokens for e in exchanges[-len(before.exchanges) - 1 :])
            assert went_on or all_of_it > room
        before = context


@given(sizes=SIZES, room=st.integers(1, 300))
def test_a_cut_leaves_half_the_room_or_less_before_the_new_message(
    sizes: list[tuple[int, int]], room: int
) -> None:
    before: tuple[Exchange, ...] = ()
    for turns in range(len(sizes)):
        exchanges = history(sizes, turns=turns)
        context = choose_context(exchanges, room_tokens=room)
        older = context.exchanges[:-1]
        was_cut = len(context.exchanges) <= len(before)
        if was_cut:
            # The cut was made at this message, or at the one before it when its reply came in.
            assert sum(e.tokens for e in older[:-1]) <= room // 2
        before = context.exchanges


def test_in_a_long_talk_nine_turns_of_ten_reuse_what_came_before() -> None:
    sizes, room = [(30, 70)] * 200, 4000
    reused = []
    before: tuple[str, ...] = ()
    for turns in range(len(sizes)):
        ids = choose_context(history(sizes, turns=turns), room_tokens=room).message_ids
        reused.append(ids[: len(before)] == before)
        before = ids
    assert sum(reused) / len(reused) >= 0.9


def test_the_cut_does_not_depend_on_the_reply_that_follows() -> None:
    sizes = [(10, 30)] * 30
    for turns in range(1, len(sizes)):
        asked = choose_context(history(sizes, turns=turns), room_tokens=200)
        first = asked.exchanges[0].user_ids
        done = [*history(sizes, turns=turns)[:-1], Exchange((f"u{turns}",), f"a{turns}", 40)]
        if asked.shortened and sum(e.tokens for e in asked.exchanges[:-1]) + 40 <= 200:
            assert choose_context(done, room_tokens=200).exchanges[0].user_ids == first


def test_nothing_is_kept_of_nothing() -> None:
    assert choose_context([], room_tokens=10) == Context((), shortened=False, tokens=0)


def texts(*ids: str) -> dict[str, PromptMessage]:
    return {i: PromptMessage("user" if i[0] == "u" else "assistant", f"text of {i}") for i in ids}


def test_a_prompt_is_the_system_prompt_and_the_exchanges_in_order() -> None:
    kept = (Exchange(("u1",), "a1", 1), Exchange(("u2", "u3"), None, 1))
    messages = prompt_messages("Be kind.", Context(kept, False, 2), texts("u1", "a1", "u2", "u3"))
    assert messages == (
        PromptMessage("system", "Be kind."),
        PromptMessage("user", "text of u1"),
        PromptMessage("assistant", "text of a1"),
        PromptMessage("user", "text of u2\n\ntext of u3"),
    )


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
