"""The step loop: many sequences in one forward pass, joining and leaving between two steps.

It must never wait for a client: what a step produced is handed on, and the next step begins.
"""

import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass

from tertulia.core.costs import StepCost, Work
from tertulia.core.prefix import CacheLimits, Forgotten, PrefixCache
from tertulia.core.steps import Sequence, Step, StepBounds, StepScheduler
from tertulia.replica.cells import Cells
from tertulia.replica.generation import Emission, EngineCounts, Finish, Generation, Request
from tertulia.replica.inbox import EngineDead, Inbox, QueueBounds
from tertulia.replica.model import Cancelled, Entry, Model, Stuck
from tertulia.replica.repetition import LOOPS
from tertulia.replica.spill import Spill
from tertulia.replica.text import TextCutter
from tertulia.replica.thread import ComputeThread

IDLE_S = 1.0  # how long the thread sleeps without work before it looks whether it should stop
# What steps say is handed on at most so often, but for beginnings and ends: handing on wakes two
# other threads, which at 150 tokens a second takes a fifth of a small machine's arithmetic. Nobody
# sees the difference: the worker reads every 100 ms.
HAND_ON_S = 0.02
STUCK_S = 60.0  # a step that lasts longer will not end; a long prompt is read in many short ones
TAIL_TOKENS = 8  # more than enough to hold the bytes of one unfinished character


@dataclass(frozen=True)
class EngineSettings:
    """The bounds of the engine."""

    steps: StepBounds
    cache: CacheLimits
    n_anchors: int  # sequences of the model that may keep what ended requests left
    queue: QueueBounds


class TooLong(ValueError):
    """Prompt and reply do not fit the window."""


class Engine:
    """Runs a model in the compute thread. Everything but `step` may be called from any thread.

    `deliver` is called in the step thread with what one step produced, and must not block.
    """

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        cost: StepCost,
        spill: Spill,
        deliver: Callable[[list[Emission]], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        n_slots, limits = settings.steps.n_slots, settings.cache
        assert settings.steps.n_batch <= model.limits.n_batch
        assert n_slots <= settings.steps.n_mixed <= model.limits.n_mixed
        assert limits.n_blocks * limits.block_tokens <= model.limits.n_cache
        # Within one step all running sequences may be preempted and others admitted.
        assert model.limits.n_sequences >= 2 * n_slots + settings.n_anchors
        self._model = model
        self._settings = settings
        self._deliver = deliver
        self._clock = clock
        self._keys = itertools.count()
        self._inbox = Inbox(settings.queue)
        self._stopping = False
        self._death: BaseException | None = None
        # Used by the step thread only, but for being counted:
        self._requests: dict[int, Request] = {}
        self._scheduler = StepScheduler(PrefixCache(limits), cost, settings.steps)
        self._cells = Cells(model, limits.block_tokens, settings.n_anchors, spill)
        self._n_prompt = self._n_generated = self._n_hits = 0
        self._n_preempted = self._n_steps = self._n_computed = 0
        self._said: list[Emission] = []
        self._handed_on_s = 0.0
        self._step_began_s: float | None = None
        self._ended: Future[None] | None = None
        self._on_death: Callable[[BaseException], None] = lambda _error: None

    @property
    def alive(self) -> bool:
        """False when the step thread has ended, or is stuck."""
        is_running = self._ended is not None and not self._ended.done()
        return is_running and self._death is None and not self.is_stuck

    @property
    def is_stuck(self) -> bool:
        """Whether the step thread is in a step that does not end."""
        began_s = self._step_began_s
        return began_s is not None and self._clock() - began_s > STUCK_S

    def start(self, thread: ComputeThread, on_death: Callable[[BaseException], None]) -> None:
        """Steps from now on; `on_death` is told what ended it, if it was not `stop`."""
        self._on_death = on_death
        self._ended = thread.do(self._run)

    def submit(self, generation: Generation) -> int:
        """Queues a request and returns the key its emissions carry."""
        limits = self._model.limits
        n_limit = len(generation.prompt) + generation.max_tokens
        assert generation.prompt
        assert generation.max_tokens > 0
        # An id that does not exist would end the process inside the library.
        assert all(0 <= token < limits.n_vocabulary for token in generation.prompt)
        if n_limit > limits.window_tokens:
            raise TooLong(f"{n_limit} tokens, the window has {limits.window_tokens}")
        tail = b"".join(self._model.piece(token) for token in generation.prompt[-TAIL_TOKENS:])
        sequence = Sequence(
            next(self._keys),
            generation.priority,
            list(generation.prompt),
            n_limit,
            generation.owner,
        )
        now_s = self._clock()
        request = Request(generation, sequence, TextCutter(generation.stop, tail), now_s, now_s)
        # Those who will take a free slot at the next step are not a queue yet.
        n_free = max(0, self._settings.steps.n_slots - len(self._scheduler.running))
        self._inbox.put(request, len(self._scheduler.waiting), n_free)
        return sequence.key

    def abort(self, wanted: Callable[[Generation], bool], left: Callable[[int], None]) -> None:
        """Ends every request, waiting or running, that is wanted, before the next step.

        `left` is called in the step thread with their number, once their blocks are free; at once
        if the engine has ended.
        """

        self._inbox.ask(lambda: left(self._end_wanted(wanted)), lambda: left(0))

    def forget(
        self, salt: str | None, session: str | None, forgotten: Callable[[Forgotten], None]
    ) -> None:
        """Ends what runs for an owner, or in one conversation, and drops what the cache kept of it.

        `forgotten` is called in the step thread when no tier holds any of it; at once if the engine
        has ended.
        """

        def is_theirs(asked: Generation) -> bool:
            return asked.owner.salt == salt and session in (None, asked.owner.session)

        def act() -> None:
            self._end_wanted(is_theirs)
            reached = self._scheduler.cache.forget(salt, session)
            self._cells.apply(self._scheduler.cache.moves())
            forgotten(reached)

        self._inbox.ask(act, lambda: forgotten(Forgotten()))

    def counts(self) -> EngineCounts:
        cache, cost = self._scheduler.cache, self._scheduler.cost
        return EngineCounts(
            n_running=len(self._scheduler.running),
            n_waiting=self._inbox.n_requests + len(self._scheduler.waiting),
            n_open=self._inbox.n_requests + len(self._requests),
            n_blocks=cache.limits.n_blocks,
            block_tokens=cache.limits.block_tokens,
            n_blocks_free=cache.n_free,
            n_blocks_idle=cache.n_idle,
            n_blocks_host=cache.n_host,
            n_blocks_disk=cache.n_disk,
            n_prompt_tokens=self._n_prompt,
            n_generated_tokens=self._n_generated,
            n_prefix_hits=self._n_hits,
            n_preempted=self._n_preempted,
            n_steps=self._n_steps,
            n_computed_tokens=self._n_computed,
            n_owed_tokens=self._inbox.n_tokens + self._n_unread(),
            prefill_per_s=cost.tokens_within(1.0, 0, 0),
            step_tokens=cost.tokens_within(
                self._settings.steps.target_s - cost.seconds(Work()), 0, 0
            ),
        )

    def _n_unread(self) -> int:
        # A copy: the step thread goes on meanwhile.
        left = [sequence.n_left for sequence in list(self._scheduler.running.values())]
        return sum(n_left for n_left in left if n_left > 1)

    def stop(self, wait_s: float) -> bool:
        """Ends stepping, in the middle of a decode if need be; true when it has ended."""
        self._stopping = True
        left = self._inbox.close()
        self._deliver([self._emission(request, (), "", "abort") for request in left])
        self._model.cancel()
        return self._ended is None or not wait([self._ended], wait_s).not_done

    def step(self) -> bool:
        """One step; false when there was nothing to do. Only the step thread calls it."""
        self._heed()
        step = self._scheduler.next_step()
        for key in step.preempted:
            self._cells.end(key)
        for key in step.admitted:
            self._begin(key)
        self._cells.apply(step.moves)
        self._keep_few_anchors()
        if step.batch:
            self._compute(step)
            self._choose_all(step)
        self._hand_on()
        self._n_preempted += len(step.preempted)
        return bool(step.batch or step.moves)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._step_began_s = self._clock()
                if not self.step():
                    self._step_began_s = None
                    self._inbox.wait(IDLE_S)
        except Cancelled as error:
            self._end_all(error if not self._stopping else None)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the process must end with it
            self._end_all(error)
        else:
            self._end_all(None)

    def _end_all(self, error: BaseException | None) -> None:
        self._death = error or EngineDead("the engine was stopped")
        left = [*self._requests.values(), *self._inbox.close()]
        finish: Finish = "error" if error else "abort"
        ends = [self._emission(request, (), "", finish) for request in left]
        self._deliver([*self._said, *ends])
        if error is not None:
            self._on_death(error)

    def _heed(self) -> None:
        """Takes in who has arrived and does what was asked, in the order in which they came."""
        while (one := self._inbox.take()) is not None:
            if isinstance(one, Request):
                self._requests[one.sequence.key] = one
                self._scheduler.add(one.sequence)
            else:
                one.act()

    def _end_wanted(self, wanted: Callable[[Generation], bool]) -> int:
        gone = [one for one in self._requests.values() if wanted(one.generation)]
        for request in gone:
            self._say(request, (), "", "abort")
        return len(gone)

    def _begin(self, key: int) -> None:
        request = self._requests[key]
        self._cells.begin(key)
        if not request.sequence.n_preempted:
            self._n_prompt += len(request.generation.prompt)
            self._inbox.begun(request)
            request.queued_s = self._clock() - request.arrived_s

    def _leave(self, request: Request) -> None:
        """Its place is free at once; what it computed is kept while there is room."""
        key = request.sequence.key
        is_running = key in self._scheduler.running
        self._scheduler.end(key)
        if is_running:
            self._cells.end(key)
        elif not request.sequence.n_preempted:
            self._inbox.begun(request)
        self._cells.apply(self._scheduler.cache.moves())
        self._keep_few_anchors()

    def _keep_few_anchors(self) -> None:
        cache = self._scheduler.cache
        while self._cells.is_crowded() and cache.evict():
            self._cells.apply(cache.moves())

    def _compute(self, step: Step) -> None:
        entries: list[Entry] = []
        for chunk in step.batch:
            sequence = self._requests[chunk.key].sequence
            number = self._cells.sequence(chunk.key, sequence.table)
            last = len(sequence.tokens) - 1
            entries += [
                Entry(sequence.tokens[place], place, number, place == last)
                for place in range(sequence.n_done, sequence.n_done + chunk.n_tokens)
            ]
        began_s = self._clock()
        self._model.decode(entries)
        self._scheduler.computed(step, self._clock() - began_s)
        self._n_steps += 1
        self._n_computed += len(entries)

    def _choose_all(self, step: Step) -> None:
        row = -1
        for chunk in step.batch:
            row += chunk.n_tokens
            request = self._requests[chunk.key]
            if request.sequence.n_left == 0:
                self._choose(request, row)

    def _choose(self, request: Request, row: int) -> None:
        generation, sequence = request.generation, request.sequence
        if not request.is_prefilled:
            request.is_prefilled = True
            self._n_hits += sequence.n_cached
        n_prompt = len(generation.prompt)
        try:
            token = self._model.choose(row, generation.choice, sequence.tokens, n_prompt)
        except Stuck:
            self._say(request, (), request.cutter.rest(), "error")
            return
        sequence.tokens.append(token)
        self._n_generated += 1
        finish: Finish | None = None
        stop_string = None
        if self._model.is_end(token) and not generation.ignore_end:
            text, finish = request.cutter.rest(), "stop"
        else:
            shown = request.cutter.feed(self._model.piece(token))
            text, stop_string = shown.text, shown.stop
            if stop_string is not None:
                finish = "stop"
            elif request.n_output >= generation.max_tokens:
                text, finish = text + request.cutter.rest(), "length"
            elif generation.repetition and generation.repetition.ends(sequence.tokens, n_prompt):
                text, finish = text + request.cutter.rest(), "repetition"
                stop_string = LOOPS
        self._say(request, (token,), text, finish, stop_string)

    def _say(
        self,
        request: Request,
        tokens: tuple[int, ...],
        text: str,
        finish: Finish | None,
        stop_string: str | None = None,
    ) -> None:
        """Notes it before anything else can fail; whoever has finished leaves."""
        self._said.append(self._emission(request, tokens, text, finish, stop_string))
        if finish is not None:
            del self._requests[request.sequence.key]  # from here on `_end_all` ends it no more
            self._leave(request)

    def _hand_on(self) -> None:
        now_s = self._clock()
        is_urgent = any(one.is_first or one.finish is not None for one in self._said)
        if self._said and (is_urgent or now_s - self._handed_on_s >= HAND_ON_S):
            said, self._said = self._said, []
            self._handed_on_s = now_s
            self._deliver(said)

    def _emission(
        self,
        request: Request,
        tokens: tuple[int, ...],
        text: str,
        finish: Finish | None,
        stop_string: str | None = None,
    ) -> Emission:
        now_s = self._clock()
        since_last_s = now_s - request.last_s
        request.last_s = now_s
        return Emission(
            key=request.sequence.key,
            tokens=tokens,
            text=text,
            finish=finish,
            stop_string=stop_string,
            n_cached=request.sequence.n_cached,
            since_arrival_s=now_s - request.arrived_s,
            since_last_s=since_last_s,
            is_first=bool(tokens) and request.n_output == 1,
            queued_s=request.queued_s,
        )
