"""What an order to delete comes to, whatever its looks find."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.deletions import (
    DAY_S,
    FOREVER_S,
    GIVEN_UP_S,
    GONE_S,
    LATE_S,
    CacheAnswer,
    Deletion,
    DeletionKind,
    Look,
    Place,
    Reach,
    Scrubbed,
    key_mark,
    kind_of,
    looked,
    name_mark,
    ordered,
    pause_s,
    retention_s,
)

NOW = 1_000.0
ANSWERS: tuple[CacheAnswer, ...] = ("forgotten", "unsupported", "unanswered")
DISKS: tuple[Scrubbed | None, ...] = (None, "overwritten", "vacuumed")

looks = st.builds(
    Look,
    left=st.frozensets(st.sampled_from(Place), max_size=3),
    disk=st.sampled_from(DISKS),
    caches=st.dictionaries(st.sampled_from("abc"), st.sampled_from(ANSWERS)),
)
CLEAN = Look(frozenset(), "overwritten", {"a": "forgotten"})


def order(kind: DeletionKind = DeletionKind.CONVERSATION) -> Deletion:
    return ordered("ana", "c_1", kind, NOW)


def test_rows_are_gone_when_the_order_is_given_but_for_an_accounts() -> None:
    assert order().reached == {"rows": Reach("deleted", NOW)}
    assert order(DeletionKind.ACCOUNT).reached == {"rows": Reach("pending", NOW)}


def test_an_order_is_over_only_after_those_who_were_still_writing() -> None:
    early = looked(order(), CLEAN, NOW + LATE_S - 1)
    assert early.done_at is None
    assert pause_s(early, NOW + LATE_S - 1) == 1
    late = looked(early, CLEAN, NOW + LATE_S)
    assert late.done_at == NOW + LATE_S
    assert late.reached == {
        "rows": Reach("deleted", NOW + LATE_S),
        "logs": Reach("deleted", NOW + LATE_S),
        "disk": Reach("overwritten", NOW + LATE_S),
        "cache:a": Reach("forgotten", NOW + LATE_S),
    }
    assert not late.is_late


@pytest.mark.parametrize(
    ("look", "place"),
    [
        (replace(CLEAN, left=frozenset({Place.LOGS})), "logs"),
        (replace(CLEAN, left=frozenset({Place.ROWS})), "rows"),
        (replace(CLEAN, disk=None), "disk"),
        (replace(CLEAN, caches={"a": "unanswered"}), "cache:a"),
    ],
)
def test_whatever_holds_something_keeps_an_order_open(look: Look, place: str) -> None:
    after = looked(order(), look, NOW + LATE_S)
    assert after.done_at is None
    assert after.reached[place].how == "pending"
    assert looked(after, CLEAN, NOW + 2 * LATE_S).done_at is not None


def test_files_and_batches_count_for_an_account_alone() -> None:
    look = replace(CLEAN, left=frozenset({Place.FILES, Place.BATCHES}))
    assert looked(order(), look, NOW + LATE_S).done_at is not None
    of_account = looked(order(DeletionKind.ACCOUNT), look, NOW + LATE_S)
    assert of_account.done_at is None
    assert {of_account.reached[name].how for name in ("files", "batches")} == {"pending"}


def test_an_engine_that_can_not_forget_is_named_and_not_waited_for() -> None:
    after = looked(order(), replace(CLEAN, caches={"v": "unsupported"}), NOW + LATE_S)
    assert after.done_at is not None
    assert after.reached["cache:v"].how == "unsupported"


def test_a_replica_that_is_nowhere_to_be_seen_is_gone_after_a_while() -> None:
    silent = looked(order(), replace(CLEAN, caches={"a": "unanswered"}), NOW)
    away = replace(CLEAN, caches={})
    waiting = looked(silent, away, NOW + GONE_S - 1)
    assert waiting.done_at is None
    over = looked(waiting, away, NOW + GONE_S)
    assert over.done_at is not None
    assert over.reached["cache:a"].how == "gone"
    assert not over.is_late


def test_one_that_comes_back_before_that_must_answer() -> None:
    silent = looked(order(), replace(CLEAN, caches={"a": "unanswered"}), NOW)
    back = replace(CLEAN, caches={"a": "unanswered"})
    assert looked(silent, back, NOW + GONE_S).done_at is None
    assert looked(silent, CLEAN, NOW + GONE_S).reached["cache:a"].how == "forgotten"


def test_an_order_is_given_up_and_says_of_what() -> None:
    look = replace(CLEAN, caches={"a": "unanswered"})
    over = looked(order(), look, NOW + GIVEN_UP_S)
    assert over.done_at is not None
    assert over.is_late
    assert over.reached["cache:a"].how == "unreached"


@given(st.lists(st.tuples(st.floats(0, 3_600), looks), max_size=20), st.sampled_from(DeletionKind))
def test_every_order_ends_and_none_before_everything_was_reached(
    found: list[tuple[float, Look]], kind: DeletionKind
) -> None:
    deletion, now = order(kind), NOW
    for later_s, look in found:
        now += later_s
        deletion = looked(deletion, look, now)
        assert (deletion.done_at is None) == (
            now - NOW < LATE_S or any(r.how == "pending" for r in deletion.reached.values())
        )
        if deletion.done_at is not None:
            assert set(look.caches.values()) <= {"forgotten", "unsupported"} or deletion.is_late
            return
        assert 0 < pause_s(deletion, now) <= max(LATE_S, 300)
    assert looked(deletion, found[-1][1] if found else CLEAN, NOW + GIVEN_UP_S).done_at is not None


def test_looks_come_further_and_further_apart() -> None:
    pauses = [pause_s(replace(order(), looks=n), NOW + LATE_S) for n in range(1, 40)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (4, 300)


def test_what_is_kept_for_ever_is_kept_longer_than_anything() -> None:
    assert retention_s(30) == 30 * DAY_S
    assert retention_s(0) == FOREVER_S > retention_s(36_500)


def test_a_kind_says_what_went_and_why() -> None:
    assert kind_of("c_1", None) is DeletionKind.CONVERSATION
    assert kind_of(None, None) is DeletionKind.CALLS
    assert kind_of("c_1", 1.0) is DeletionKind.RETENTION


def test_a_mark_of_a_key_tells_keys_apart_and_does_not_tell_them() -> None:
    marks = {key_mark(key) for key in ("key-1", "Key-1", "key-2")}
    assert len(marks) == 3
    assert not any("key" in mark.lower() for mark in marks)


def test_a_mark_is_the_same_for_a_name_in_any_case_and_does_not_tell_it() -> None:
    assert name_mark("Straße") == name_mark("STRASSE") != name_mark("Strasse2")
    assert "stra" not in name_mark("Straße")
