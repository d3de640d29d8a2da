"""What was sent counts at once and once, whatever becomes of it, and reports correct the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.ledger import FRESH_S, UNSENT_S, DispatchLedger


def ledger_with(*tokens: int, sent: bool = True) -> DispatchLedger:
    ledger = DispatchLedger()
    for number, count in enumerate(tokens):
        ledger.dispatch(f"q{number}", count, 0.0)
        if sent:
            ledger.sent(f"q{number}", 0.0)
    return ledger


def report(
    ledger: DispatchLedger, running: int, owed: int | None, *, at: float, now: float | None = None
) -> None:
    ledger.reported(
        running=running,
        owed_tokens=owed,
        prefill_per_s=None,
        at=at,
        now=at if now is None else now,
    )


def test_a_dispatch_counts_at_dispatch() -> None:
    ledger = ledger_with(100, 50, sent=False)
    assert (ledger.running, ledger.owed_tokens) == (2, 150)


def test_its_first_token_pays_and_its_end_leaves() -> None:
    ledger = ledger_with(100, 50)
    ledger.began("q0", 1.0)
    ledger.began("q0", 2.0)
    assert (ledger.running, ledger.owed_tokens) == (2, 50)
    ledger.ended("q0")
    ledger.ended("q0")
    assert (ledger.running, ledger.owed_tokens) == (1, 50)


def test_what_was_decided_and_never_sent_is_forgotten() -> None:
    ledger = ledger_with(100, sent=False)
    ledger.forget_unsent(UNSENT_S)
    assert ledger.running == 1
    ledger.dispatch("q9", 10, UNSENT_S + 0.1)
    assert (ledger.running, ledger.owed_tokens) == (1, 10)


def test_what_was_lost_elsewhere_is_a_retry_until_it_says_something() -> None:
    ledger = ledger_with(100)
    for name in ("q8", "q9"):
        ledger.dispatch(name, 10, 0.0, losses=1)
    assert ledger.retrying == 2
    ledger.began("q8", 1.0)
    assert ledger.retrying == 1
    ledger.forget_unsent(UNSENT_S + 0.1)
    assert ledger.retrying == 0


def test_what_was_sent_without_a_decision_counts_too() -> None:
    ledger = DispatchLedger()
    ledger.sent("q0", 1.0)
    ledger.forget_unsent(100.0)
    assert ledger.running == 1


def test_others_are_known_by_reports_alone() -> None:
    ledger = ledger_with(100)
    report(ledger, 5, 700, at=1.0)
    assert (ledger.running, ledger.owed_tokens) == (5, 700)
    ledger.dispatch("q9", 30, 1.1)
    assert (ledger.running, ledger.owed_tokens) == (6, 730)


def test_a_report_knows_better_how_much_of_ours_is_read() -> None:
    ledger = ledger_with(1_000)
    report(ledger, 1, 250, at=1.0)
    assert ledger.owed_tokens == 250
    ledger.began("q0", 2.0)
    assert ledger.owed_tokens == 0


def test_a_report_without_what_is_owed_leaves_our_own_account() -> None:
    ledger = ledger_with(1_000)
    report(ledger, 3, None, at=1.0)
    assert (ledger.running, ledger.owed_tokens) == (3, 1_000)


def test_what_was_dispatched_after_a_report_is_not_in_it() -> None:
    ledger = ledger_with(100)
    ledger.dispatch("late", 40, 0.9)
    ledger.sent("late", 1.1)
    report(ledger, 4, 400, at=1.0)
    assert (ledger.running, ledger.owed_tokens) == (5, 440)


def test_an_old_report_corrects_nothing() -> None:
    ledger = ledger_with(100)
    report(ledger, 9, 900, at=1.0, now=1.0 + FRESH_S + 0.01)
    assert ledger.running == 1
    report(ledger, 5, 500, at=2.0)
    report(ledger, 9, 900, at=2.0)
    assert ledger.running == 5, "the same report is no news"


def test_how_fast_it_reads_is_learned_from_what_lay_ahead() -> None:
    ledger = ledger_with(200, 300)
    speeds = []
    for name, at in (("q1", 2.0), ("q0", 4.0)):
        ledger.began(name, at)
        speeds.append(ledger.prefill_per_s or 0.0)
    assert speeds[0] == 250.0
    assert 50.0 < speeds[1] < 250.0
    ledger.reported(running=0, owed_tokens=0, prefill_per_s=999.0, at=5.0, now=5.0)
    assert ledger.prefill_per_s == 999.0


def test_a_short_prompt_tells_nothing_of_the_speed() -> None:
    ledger = ledger_with(20)
    ledger.began("q0", 1.0)
    assert ledger.prefill_per_s is None


def test_the_usual_gap_follows_what_is_said() -> None:
    ledger = DispatchLedger()
    ledger.said(0.02)
    for _ in range(50):
        ledger.said(0.1)
    assert ledger.gap_s is not None
    assert 0.09 < ledger.gap_s < 0.1
    ledger.forget_gap()
    ledger.said(0.02)
    assert ledger.gap_s == 0.02


def test_another_process_starts_with_what_is_ours_alone() -> None:
    ledger = ledger_with(100)
    ledger.said(0.1)
    report(ledger, 9, 900, at=1.0)
    ledger.restarted()
    assert (ledger.running, ledger.owed_tokens) == (1, 100)
    assert (ledger.gap_s, ledger.prefill_per_s) == (None, None)


@given(st.lists(st.sampled_from(["dispatch", "sent", "began", "ended", "report", "forget"])))
def test_every_path_counts_up_and_down(events: list[str]) -> None:
    """F-33: after all have ended nothing of ours is left, and nothing is ever below zero."""
    ledger, now, names = DispatchLedger(), 0.0, 0
    open_: list[str] = []
    for event in events:
        now += 0.2
        if event == "dispatch":
            names += 1
            ledger.dispatch(f"q{names}", names, now)
            open_.append(f"q{names}")
        elif event == "sent" and open_:
            ledger.sent(open_[-1], now)
        elif event == "began" and open_:
            ledger.sent(open_[0], now)
            ledger.began(open_[0], now)
        elif event == "ended" and open_:
            ledger.ended(open_.pop(0))
        elif event == "report":
            report(ledger, 0, 0, at=now)
        else:
            ledger.forget_unsent(now)
        assert ledger.running >= 0
        assert ledger.owed_tokens >= 0
    for name in open_:
        ledger.ended(name)
    assert (ledger.running, ledger.owed_tokens) == (0, 0)
