"""Everything a worker function may reach, in one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tertulia.core.plans import Plan
from tertulia.core.sentences import Split
from tertulia.ending import Ending
from tertulia.ports import (
    Bell,
    Checks,
    Clock,
    Conversations,
    Log,
    Messages,
    Queue,
    Replicas,
    Turns,
    Vocabulary,
)


@dataclass(frozen=True, slots=True)
class WorkerRules:
    """The worker's numbers. Each bounds a wait, a loop or a buffer."""

    lease_s: float = 2.0
    # Replies answered at once by one worker, whatever room the replicas have.
    replies: int = 256
    # How long a claimed turn may wait for a healthy replica before it is failed.
    replica_wait_s: float = 45.0
    # A reply is continued elsewhere this often, then failed with its text kept.
    continuations: int = 3
    sentence_tokens: int = 48
    chores_s: float = 1.0
    # Nobody has held it for this long: ended as failed, its text kept, within 60 s of the loss.
    stale_s: float = 50.0
    queued_s: float = 300.0
    log_kept_s: float = 600.0


@dataclass(frozen=True, slots=True)
class WorkerDesk:
    """The ports and rules that worker functions work with."""

    turns: Turns
    queue: Queue
    log: Log
    bell: Bell
    conversations: Conversations
    messages: Messages
    replicas: Replicas
    checks: Checks
    vocabulary: Callable[[str], Vocabulary]
    split: Split
    clock: Clock
    plans: Mapping[str, Plan]
    rules: WorkerRules

    @property
    def ending(self) -> Ending:
        """The ports for ending a turn from outside its writer."""
        return Ending(self.turns, self.log, self.replicas, self.bell, self.vocabulary)
