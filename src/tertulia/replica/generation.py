"""What the engine is asked and what it says back, token by token.

Plain values: nothing here knows HTTP, threads or the model.
"""

from dataclasses import dataclass, field
from typing import Literal

from tertulia.core.blocks import Owner
from tertulia.core.steps import Sequence
from tertulia.replica.model import Choice
from tertulia.replica.repetition import RepetitionRule
from tertulia.replica.text import TextCutter

Finish = Literal["stop", "length", "repetition", "abort", "error"]


@dataclass(frozen=True)
class Generation:
    """One request, checked: prompt and `max_tokens` together fit the window."""

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    choice: Choice
    stop: tuple[str, ...] = ()
    repetition: RepetitionRule | None = None  # ends a reply that runs in a loop
    ignore_end: bool = False
    priority: int = 0  # lower runs first
    owner: Owner = field(default_factory=Owner)  # who may find its blocks again


@dataclass(frozen=True, slots=True)
class Emission:
    """What one step produced for one sequence; the last one carries `finish`."""

    key: int
    tokens: tuple[int, ...]
    text: str
    finish: Finish | None
    stop_string: str | None
    n_cached: int  # prompt tokens that were not computed again
    since_arrival_s: float
    since_last_s: float  # since the previous token, or since arrival for the first
    is_first: bool = False
    queued_s: float = 0.0  # of the time since arrival, before it was admitted


@dataclass(frozen=True)
class EngineCounts:
    """The engine at one moment; totals only grow."""

    n_running: int
    n_waiting: int
    n_open: int  # neither ended nor aborted
    n_blocks: int  # of the cache
    block_tokens: int
    n_blocks_free: int
    n_blocks_idle: int  # kept of replies that have ended
    n_blocks_host: int  # those that were moved to ordinary memory
    n_blocks_disk: int
    n_prompt_tokens: int
    n_generated_tokens: int
    n_prefix_hits: int  # prompt tokens found
    n_preempted: int
    n_steps: int
    n_computed_tokens: int  # of prompts and replies, those computed again included
    n_owed_tokens: int  # of prompts that were taken and are not read yet
    prefill_per_s: float  # tokens of a prompt that stands alone
    step_tokens: int  # prompt tokens that a step of the target's length has time for


@dataclass(eq=False)
class Request:
    """One generation inside the engine: what the shell keeps beside the scheduler's sequence."""

    generation: Generation
    sequence: Sequence
    cutter: TextCutter
    arrived_s: float
    last_s: float
    queued_s: float = 0.0
    is_prefilled: bool = False

    @property
    def n_output(self) -> int:
        return len(self.sequence.tokens) - len(self.generation.prompt)
