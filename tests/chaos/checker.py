"""C1 to C19, and I10: linear scans over the evidence of a run. A contradiction is a violation.

The checks are in three modules: of turns (rows and money), of readers (what was seen), of machines
(engines, leases, time). None of them changes anything or asks anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.chaos import check_machines, check_readers, check_turns
from tests.chaos.evidence import Evidence

Found = Iterator[str]
Check = Callable[[Evidence], Found]

CHECKS: Final[dict[str, Check]] = {
    "C1": check_turns.no_acknowledged_message_is_lost,
    "C2": check_turns.one_key_one_reply,
    "C3": check_readers.ids_have_no_gap,
    "C4": check_readers.an_id_means_the_same_bytes,
    "C5": check_readers.what_was_seen_is_what_is_stored,
    "C6": check_readers.one_end_for_all,
    "C7": check_turns.the_ledger_balances,
    "C8": check_turns.every_charge_is_for_accepted_tokens,
    "C9": check_machines.one_writer,
    "C10": check_machines.no_more_replies_than_allowed,
    "I10": check_readers.nothing_flagged_is_shown,
    "C11": check_machines.nothing_is_left_in_an_engine,
    "C12": check_turns.every_turn_ends,
    "C13": check_readers.nobody_sees_anothers_bytes,
    "C14": check_machines.paid_before_free,
    "C15": check_readers.nothing_after_a_stop,
    "C16": check_readers.nothing_after_a_delete,
    "C17": check_machines.failures_are_few_and_typed,
    "C18": check_machines.pauses_are_short,
    "C19": check_machines.no_process_ends_or_swells_by_itself,
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One contradiction: the check's name and what contradicts what."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check} {self.text}"


def check(evidence: Evidence) -> list[Violation]:
    """All contradictions, in the order of the checks."""
    return [Violation(name, text) for name, look in CHECKS.items() for text in look(evidence)]
