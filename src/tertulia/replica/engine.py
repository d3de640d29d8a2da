"""The step loop: many sequences in one forward pass, joining and leaving between two steps.

It must never wait for a client: what a step produced is handed on, and the next step begins.
"""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tertulia.core.steps import Room, Running, StepPlan, Waiting, plan_step
from tertulia.replica.cells import Cells
from tertulia.replica.generation import Emission, EngineCounts, Finish, Generation, Sequence
from tertulia.replica.model import Cancelled, Entry, Model, NoRoom, Stuck
from tertulia.replica.parking import Parking, ParkingBounds
from tertulia.replica.repetition import LOOPS
from tertulia.replica.text import TextCutter
from tertulia.replica.tuning import retuned

IDLE_S = 1.0  # how long the thread sleeps without work before it looks whether it should stop
TAIL_TOKENS = 8  # more than enough to hold the bytes of one unfinished character


@dataclass(frozen=True)
class EngineSettings:
    """The bounds of the engine."""

    n_slots: int  # sequences in one batch
    n_queue: int  # sequences waiting for a slot
    step_tokens: int  # tokens in one batch
    step_target_s: float | None = None  # `step_tokens` is then only where it begins
    # Of the cache, for finished sequences. Eight streams need 24 ms a step with none of them, 27 ms
    # over 2,048 parked tokens, 40 ms over 8,192: beyond this share they move to ordinary memory.
    parked_share: float = 0.125
    host_bytes: int = 512_000_000  # of ordinary memory; a token of the small model takes 23 KB
    growth_tokens: int = 64  # room kept free for each newcomer's reply
    n_queue_tokens: int = 2**63  # of prompts not read yet; more of them are refused


class QueueFull(RuntimeError):
    """As many sequences, or tokens of prompts, wait as are allowed to; vLLM's word for which."""


class TooLong(ValueError):
    """Prompt and reply do not fit the window."""


class EngineDead(RuntimeError):
    """The step thread has ended; the process must be started again."""


class Engine:
    """Runs a model in a thread of its own. `submit`, `abort` and `counts` may come from any thread.

    `deliver` is called in the step thread with what one step produced, and must not block.
    """

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        deliver: Callable[[list[Emission]], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert settings.step_tokens >= settings.n_slots, "every stream moves in every step"
        assert settings.step_tokens <= model.limits.n_batch
        assert model.limits.n_sequences > settings.n_slots
        self._model = model
        self._settings = settings
        self._deliver = deliver
        self._clock = clock
        self._cells = Cells(model.limits.n_cache)
        n_parked = int(model.limits.n_cache * settings.parked_share)
        bounds = ParkingBounds(n_parked, settings.host_bytes)
        self._parking = Parking(model, self._cells, bounds)
        self._keys = itertools.count()
        self._wake = threading.Condition()
        # Guarded by _wake:
        self._waiting: dict[int, Sequence] = {}
        self._aborts: list[tuple[Callable[[Generation], bool], Callable[[int], None]]] = []
        self._stopping = False
        self._death: BaseException | None = None
        # Used by the step thread only:
        self._running: dict[int, Sequence] = {}
        self._n_prompt = self._n_generated = self._n_queries = self._n_hits = 0
        self._n_put_back = self._n_steps = 0
        self._step_tokens = settings.step_tokens
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)
        self._on_death: Callable[[BaseException], None] = lambda _error: None

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self._death is None

    def start(self, on_death: Callable[[BaseException], None]) -> None:
        self._on_death = on_death
        self._thread.start()

    def submit(self, generation: Generation) -> int:
        """Queues a request and returns the key its emissions carry."""
        limits = self._model.limits
        n_tokens = len(generation.prompt) + generation.max_tokens
        assert generation.prompt
        assert generation.max_tokens > 0
        # An id that does not exist would end the process inside the library.
        assert all(0 <= token < limits.n_vocabulary for token in generation.prompt)
        if n_tokens > limits.window_tokens:
            raise TooLong(f"{n_tokens} tokens, the window has {limits.window_tokens}")
        tail = b"".join(self._model.piece(token) for token in generation.prompt[-TAIL_TOKENS:])
        sequence = Sequence(
            key=next(self._keys),
            generation=generation,
            cutter=TextCutter(generation.stop, tail),
            arrived_s=self._clock(),
            tokens=list(generation.prompt),
        )
        sequence.last_s = sequence.arrived_s
        with self._wake:
            if self._death is not None or self._stopping:
                raise EngineDead("the engine has stopped")
            # Those who will take a free slot at the next step are not a queue yet.
            n_free = max(0, self._settings.n_slots - len(self._running))
            if len(self._waiting) >= self._settings.n_queue + n_free:
                raise QueueFull("max_num_queued_reqs")
            if self._n_unread() >= self._settings.n_queue_tokens:
                raise QueueFull("max_num_queued_tokens")
            self._waiting[sequence.key] = sequence
            self._wake.notify()
        return sequence.key

    def _n_unread(self) -> int:
        """Prompt tokens of those without a reply, whole prompts as vLLM counts them."""
        known = [*self._waiting.values(), *self._running.values()]
        return sum(len(one.generation.prompt) for one in known if not one.n_output)

    def abort(self, wanted: Callable[[Generation], bool], left: Callable[[int], None]) -> None:
        """Ends every sequence, waiting or running, whose request is wanted.

        `left` is called in the step thread with their number, once they have left the batch.
        """
        with self._wake:
            dead = self._death is not None
            if not dead:
                self._aborts.append((wanted, left))
                self._wake.notify()
        if dead:
            left(0)

    def counts(self) -> EngineCounts:
        n_cells = self._cells.n_cells
        n_available = self._cells.n_available
        return EngineCounts(
            n_running=len(self._running),
            n_waiting=len(self._waiting),
            cache_share=(n_cells - n_available) / n_cells,
            parked_share=self._cells.n_parked / n_cells,
            n_host_bytes=self._parking.n_host_bytes,
            n_prompt_tokens=self._n_prompt,
            n_generated_tokens=self._n_generated,
            n_prefix_queries=self._n_queries,
            n_prefix_hits=self._n_hits,
            n_put_back=self._n_put_back,
            n_steps=self._n_steps,
            step_tokens=self._step_tokens,
        )

    def stop(self, wait_s: float) -> bool:
        """Ends the thread, in the middle of a decode if need be; true when it has ended."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._model.cancel()
        if self._thread.ident is not None:
            self._thread.join(wait_s)
        return not self._thread.is_alive()

    def step(self) -> bool:
        """One step; false when there was nothing to compute. Only the step thread calls it."""
        emissions = self._abort_asked()
        plan = self._plan()
        for key in plan.put_back:
            self._put_back(self._running[key])
        for key in plan.admit:
            self._admit(key)
        if plan.admit:
            plan = self._plan()  # the newcomers' prefill starts in this very step
        batch = self._batch(plan)
        computed = bool(batch) and self._compute(batch)
        if computed:
            emissions += self._chosen(batch)
        if emissions:
            self._deliver(emissions)
        return computed

    def _run(self) -> None:
        try:
            while not self._stopping:
                if not self.step():
                    with self._wake:
                        if not (self._waiting or self._aborts or self._stopping):
                            self._wake.wait(IDLE_S)
        except Cancelled as error:
            self._end(error if not self._stopping else None)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the process must end with it
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        with self._wake:
            self._death = error or EngineDead("the engine was stopped")
            left_waiting = [*self._running.values(), *self._waiting.values()]
            aborts, self._aborts = self._aborts, []
            self._waiting.clear()
        self._running.clear()
        finish: Finish = "error" if error else "abort"
        self._deliver([self._emission(sequence, (), "", finish) for sequence in left_waiting])
        for _, left in aborts:
            left(0)
        if error is not None:
            self._on_death(error)

    def _abort_asked(self) -> list[Emission]:
        if not self._aborts:
            return []
        emissions = []
        with self._wake:
            aborts, self._aborts = self._aborts, []
        for wanted, left in aborts:
            with self._wake:
                gone = [s for s in self._waiting.values() if wanted(s.generation)]
                for sequence in gone:
                    del self._waiting[sequence.key]
            for sequence in [s for s in self._running.values() if wanted(s.generation)]:
                self._leave(sequence)
                gone.append(sequence)
            emissions += [self._emission(sequence, (), "", "abort") for sequence in gone]
            left(len(gone))
        return emissions

    def _plan(self) -> StepPlan:
        n_slots = self._settings.n_slots - len(self._running)
        room = Room(n_slots, self._cells.n_available, self._step_tokens)
        n_owed = sum(sequence.n_left for sequence in self._running.values())
        is_short = n_owed > room.n_cache  # only then does anybody need to know what it would free
        running = tuple(
            Running(
                sequence.key,
                sequence.generation.priority,
                sequence.key,
                sequence.n_left,
                self._cells.n_busy_alone(sequence.slot) if is_short else 0,
            )
            for sequence in self._running.values()
        )
        with self._wake:
            waiting = tuple(self._as_waiting(sequence) for sequence in self._waiting.values())
        return plan_step(running, waiting, room)

    def _as_waiting(self, sequence: Sequence) -> Waiting:
        generation = sequence.generation
        n_growth = min(self._settings.growth_tokens, generation.max_tokens - sequence.n_output)
        return Waiting(
            sequence.key, generation.priority, sequence.key, len(sequence.tokens), n_growth
        )

    def _admit(self, key: int) -> None:
        with self._wake:
            sequence = self._waiting.pop(key, None)
        if sequence is None:
            return
        sequence.slot, sequence.n_done = self._parking.take(
            sequence.generation.salt, sequence.tokens
        )
        if sequence.n_cached is None:
            n_prompt = len(sequence.generation.prompt)
            sequence.n_cached = sequence.n_done
            self._n_prompt += n_prompt
            self._n_queries += n_prompt
            self._n_hits += sequence.n_done
        self._running[key] = sequence

    def _put_back(self, sequence: Sequence) -> None:
        self._leave(sequence)
        self._n_put_back += 1
        with self._wake:
            # Beside the bound of the queue: it was let in once and is not refused now.
            self._waiting[sequence.key] = sequence

    def _leave(self, sequence: Sequence) -> None:
        del self._running[sequence.key]
        self._parking.park(
            sequence.slot, sequence.generation.salt, sequence.tokens[: sequence.n_done]
        )
        sequence.slot, sequence.n_done = -1, 0

    def _batch(self, plan: StepPlan) -> list[tuple[Sequence, int]]:
        """The sequences of this step with the number of their tokens in it."""
        return [(self._running[key], 1) for key in plan.decode] + [
            (self._running[key], n_tokens) for key, n_tokens in plan.prefill
        ]

    def _compute(self, batch: list[tuple[Sequence, int]]) -> bool:
        entries: list[Entry] = []
        for sequence, n_tokens in batch:
            last = len(sequence.tokens) - 1
            entries += [
                Entry(sequence.tokens[place], place, sequence.slot, place == last)
                for place in range(sequence.n_done, sequence.n_done + n_tokens)
            ]
        assert len(entries) <= self._step_tokens
        self._parking.make_room(len(entries))
        began_s = self._clock()
        try:
            self._model.decode(entries)
        except NoRoom:
            self._lose_newest(batch)
            return False
        self._n_steps += 1
        target_s = self._settings.step_target_s
        if target_s is not None:
            took_s = self._clock() - began_s
            tuned = retuned(self._step_tokens, len(entries), took_s, target_s)
            self._step_tokens = max(min(tuned, self._model.limits.n_batch), self._settings.n_slots)
        for sequence, n_tokens in batch:
            self._cells.extend(sequence.slot, n_tokens)
            sequence.n_done += n_tokens
        return True

    def _lose_newest(self, batch: list[tuple[Sequence, int]]) -> None:
        """The cache was fuller than we knew: gives up what is parked, then the newest sequence."""
        for sequence, _ in batch:
            self._model.cut(sequence.slot, sequence.n_done)
        if self._parking.drop_all():
            return
        newest = max(self._running.values(), key=lambda s: (s.generation.priority, s.key))
        if len(self._running) == 1:
            raise RuntimeError("the cache has no room for a single sequence")
        self._put_back(newest)
        self._parking.drop_all()

    def _chosen(self, batch: list[tuple[Sequence, int]]) -> list[Emission]:
        emissions = []
        row = -1
        for sequence, n_tokens in batch:
            row += n_tokens
            if sequence.n_left == 0:
                emissions.append(self._choose(sequence, row))
        return emissions

    def _choose(self, sequence: Sequence, row: int) -> Emission:
        generation = sequence.generation
        n_prompt = len(generation.prompt)
        try:
            token = self._model.choose(row, generation.choice, sequence.tokens, n_prompt)
        except Stuck:
            self._leave(sequence)
            return self._emission(sequence, (), sequence.cutter.rest(), "error")
        sequence.tokens.append(token)
        self._n_generated += 1
        finish: Finish | None = None
        stop_string = None
        if self._model.is_end(token) and not generation.ignore_end:
            text, finish = sequence.cutter.rest(), "stop"
        else:
            shown = sequence.cutter.feed(self._model.piece(token))
            text, stop_string = shown.text, shown.stop
            if stop_string is not None:
                finish = "stop"
            elif sequence.n_output >= generation.max_tokens:
                text, finish = text + sequence.cutter.rest(), "length"
            elif generation.repetition and generation.repetition.ends(sequence.tokens, n_prompt):
                text, finish = text + sequence.cutter.rest(), "repetition"
                stop_string = LOOPS
        if finish is not None:
            self._leave(sequence)
        return self._emission(sequence, (token,), text, finish, stop_string)

    def _emission(
        self,
        sequence: Sequence,
        tokens: tuple[int, ...],
        text: str,
        finish: Finish | None,
        stop_string: str | None = None,
    ) -> Emission:
        now = self._clock()
        since_last_s = now - sequence.last_s
        sequence.last_s = now
        return Emission(
            key=sequence.key,
            tokens=tokens,
            text=text,
            finish=finish,
            stop_string=stop_string,
            n_cached=sequence.n_cached or 0,
            since_arrival_s=now - sequence.arrived_s,
            since_last_s=since_last_s,
        )
