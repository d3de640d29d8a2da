"""What the engine is asked and what it says back, token by token.

Plain values: nothing here knows HTTP, threads or the model.
"""

from dataclasses import dataclass, field
from typing import Literal

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
    salt: str | None = None  # prefixes are shared only between requests with the same one


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


@dataclass(frozen=True)
class EngineCounts:
    """The engine at one moment; totals only grow."""

    n_running: int
    n_waiting: int
    cache_share: float  # of the cache, held by running sequences
    parked_share: float  # of the cache, held by finished ones for reuse
    n_host_bytes: int  # of ordinary memory, held by those that were moved there
    n_prompt_tokens: int
    n_generated_tokens: int
    n_prefix_queries: int  # prompt tokens looked up
    n_prefix_hits: int  # prompt tokens found
    n_put_back: int
    n_steps: int
    step_tokens: int  # the budget of one step at the moment


@dataclass
class Sequence:
    """One generation inside the engine. Everything that matters to go on is in `tokens`."""

    key: int
    generation: Generation
    cutter: TextCutter
    arrived_s: float
    tokens: list[int] = field(default_factory=list)  # prompt and reply
    slot: int = -1
    n_done: int = 0  # tokens in the cache
    n_cached: int | None = None  # set at the first admission
    last_s: float = 0.0

    @property
    def n_left(self) -> int:
        return len(self.tokens) - self.n_done

    @property
    def n_output(self) -> int:
        return len(self.tokens) - len(self.generation.prompt)
