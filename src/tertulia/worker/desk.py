"""Everything a worker function may reach, in one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tertulia.core.deletions import DAY_S
from tertulia.core.difficulty import SMALL_BELOW
from tertulia.core.plans import Plan
from tertulia.core.sentences import Split
from tertulia.core.turn import LOG_KEPT_S
from tertulia.ending import Ending
from tertulia.flagging import Flags
from tertulia.lookout import Lookout
from tertulia.ports import (
    Accounts,
    Bell,
    Checks,
    Clock,
    Conversations,
    Line,
    Log,
    LooseTurns,
    Messages,
    Queue,
    Replicas,
    Turns,
    Vocabulary,
)
from tertulia.ports_of_batches import Batches, Files
from tertulia.ports_of_deletions import Deletions, Erasure
from tertulia.ports_of_moving import Imports
from tertulia.ports_of_prompts import Instructions, Prompts
from tertulia.ports_of_remembering import Summaries, Tasks
from tertulia.worker.figures import WorkerFigures
from tertulia.worker.running import RunningReplies


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
    # Titles and summaries made at once. More would only take engines from each other; 0: none are.
    tasks: int = 2
    # Nobody has held it for this long: ended as failed, its text kept, within 60 s of the loss.
    stale_s: float = 50.0
    queued_s: float = 300.0
    # `auto` sends to the small model what is graded below this, of 0 to 999.
    small_below: int = SMALL_BELOW
    log_kept_s: float = LOG_KEPT_S
    # How long it can be shown what a deletion reached.
    deletions_kept_s: float = 365 * DAY_S


@dataclass(frozen=True, slots=True)
class WorkerDesk:
    """The ports and rules that worker functions work with."""

    turns: Turns
    loose: LooseTurns
    queue: Queue
    line: Line
    log: Log
    bell: Bell
    conversations: Conversations
    messages: Messages
    accounts: Accounts
    files: Files
    imports: Imports
    batches: Batches
    deletions: Deletions
    erasure: Erasure
    prompts: Prompts
    instructions: Instructions
    tasks: Tasks
    summaries: Summaries
    replicas: Replicas
    checks: Checks
    vocabulary: Callable[[str], Vocabulary]
    split: Split
    clock: Clock
    lookout: Lookout
    plans: Mapping[str, Plan]
    rules: WorkerRules
    figures: WorkerFigures = field(default_factory=WorkerFigures)
    flags: Flags = field(default_factory=Flags)
    running: RunningReplies = field(default_factory=RunningReplies)

    @property
    def ending(self) -> Ending:
        """The ports for ending a turn from outside its writer."""
        return Ending(self.turns, self.log, self.replicas, self.bell, self.vocabulary)
