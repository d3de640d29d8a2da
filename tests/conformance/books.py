"""Many people ask, workers end, die or come too late, clocks jump: does the ledger balance?

A state machine over the ports of any store, with books of its own that share no line with the
product; `test_ledger` runs it on every store, and on bugs that are planted on purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tertulia.core.types import (
    Admitted,
    Balance,
    Budget,
    Failure,
    Finish,
    Lane,
    Limits,
    Status,
    Turn,
    Usage,
)
from tests.conformance.world import LEASE_S, START, Backend, ManualClock, completed, stateless

MINUTE: Final = Budget("tokens_minute", "tokens", 2_000_000, 60_000)
HOURS: Final = Budget("units_3h", "units", 6_000_000, 10_800_000)
TURNS: Final = Budget("turns_minute", "turns", 7_000, 60_000)
PROMPTS: Final = Budget("batch_prompts", "prompt_tokens", 1_500_000, 3_600_000)
# Everybody has one chat plan, so that a budget means the same for an owner all the time.
LIMITS: Final[Mapping[str, Limits]] = {
    "ana": Limits((MINUTE, HOURS, TURNS), 3, Lane.FREE, abandon_s=30.0),
    "ben": Limits((MINUTE, HOURS), 5, Lane.PLUS, abandon_s=30.0),
    "batch": Limits((PROMPTS,), 4, Lane.BATCH),
}
OWNERS: Final = ("ana", "ben")
STALE_S: Final = 50.0
QUEUED_S: Final = 300.0
# What a token costs, written down once more: new input, cached input, output; and a turn.
PRICES: Final = {
    "units": (1000, 100, 4000, 0),
    "tokens": (1000, 1000, 1000, 0),
    "prompt_tokens": (1000, 1000, 0, 0),
    "turns": (0, 0, 0, 1000),
}
FAILURE: Final = Failure("interrupted", "The reply was interrupted.", retryable=True)


@dataclass(slots=True)
class Run:
    """A turn as the test knows it: its last claim, and whether it is open."""

    turn: Turn
    is_open: bool = True
    claim: Turn | None = None

    @property
    def budgets(self) -> Sequence[Budget]:
        return self.turn.budgets

    @property
    def most(self) -> Usage:
        return Usage(self.turn.reserved - self.turn.answer_tokens, 0, self.turn.answer_tokens)


class Books(RuleBasedStateMachine):
    """`stores` are ways to one store, as gateways and workers have them; the rest is our books."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.stores = self.runner.run(self.open_stores())
        self.n_asked = 0
        self.runs: dict[str, Run] = {}
        self.used: dict[tuple[str, str], tuple[int, int, int, int]] = {}
        self.ledger_ms: dict[str, int] = {}
        self.old_claims: list[Turn] = []

    async def open_stores(self) -> Sequence[Backend]:
        raise NotImplementedError

    def teardown(self) -> None:
        for store in {id(store): store for store in self.stores}.values():
            self.runner.run(store.close())
        self.runner.close()

    def do(self, call: Callable[[Backend], Awaitable[Any]], *, at: int = 0) -> Any:
        async def asked() -> Any:
            return await call(self.stores[at % len(self.stores)])

        return self.runner.run(asked())

    def _of(self, owner: str, call: Callable[[Backend, str], Awaitable[Any]]) -> Any:
        return self.do(lambda store: call(store, owner))

    # What happens.

    @rule(
        owner=st.sampled_from(OWNERS),
        batch=st.booleans(),
        asked=st.lists(
            st.tuples(st.sampled_from([1, 100, 400]), st.sampled_from([10, 200, 500])),
            min_size=1,
            max_size=6,
        ),
    )
    def many_ask_at_once(self, owner: str, batch: bool, asked: list[tuple[int, int]]) -> None:
        limits = LIMITS["batch" if batch else owner]
        news = []
        for prompt, answer in asked:
            self.n_asked += 1
            news.append(
                stateless(self.n_asked, owner=owner, prompt_tokens=prompt, answer_tokens=answer)
            )

        async def ask() -> list[Any]:
            return await asyncio.gather(
                *(
                    self.stores[n % len(self.stores)].turns.admit(new, limits)
                    for n, new in enumerate(news)
                )
            )

        for answer in self.runner.run(ask()):
            if isinstance(answer, Admitted):
                self._begin(answer.turn)

    @rule(at=st.integers(0, 2))
    def a_worker_claims(self, at: int) -> None:
        claim = self.do(lambda store: store.queue.claim(lease_s=LEASE_S), at=at)
        if claim is not None:
            self.runs[claim.reply_id].claim = claim
            self.old_claims.append(claim)

    @rule(
        pick=st.randoms(use_true_random=False),
        status=st.sampled_from([Status.COMPLETED, Status.STOPPED, Status.FAILED]),
        at=st.integers(0, 2),
    )
    def a_worker_ends_a_turn(self, pick: Any, status: Status, at: int) -> None:
        """Or one that died and comes back, or was superseded: it must change nothing."""
        if not self.old_claims:
            return
        claim = pick.choice(self.old_claims)
        run = self.runs.get(claim.reply_id)
        usage = _usage(pick, Usage(claim.reserved - claim.answer_tokens, 0, claim.answer_tokens))
        is_last = run is not None and run.is_open and run.claim == claim
        done = self.do(lambda store: store.turns.finish(claim.held, _end(status, usage)), at=at)
        assert done == is_last
        if is_last:
            assert run is not None
            self._settle(run, usage)
            run.turn = self._stored(run)

    @rule(pick=st.randoms(use_true_random=False), over=st.sampled_from(["input", "output"]))
    def a_usage_beyond_the_reservation_is_refused(self, pick: Any, over: str) -> None:
        claims = [run.claim for run in self.runs.values() if run.is_open and run.claim is not None]
        if not claims:
            return
        claim = pick.choice(claims)
        most = Usage(claim.reserved - claim.answer_tokens, 0, claim.answer_tokens)
        usage = (
            Usage(most.input + 1, 0, most.output)
            if over == "input"
            else Usage(most.input, 0, most.output + 1)
        )
        try:
            self.do(lambda store: store.turns.finish(claim.held, _end(Status.COMPLETED, usage)))
        except ValueError:
            return
        raise AssertionError("more was charged than was reserved")

    @rule(pick=st.randoms(use_true_random=False), at=st.integers(0, 2))
    def somebody_stops_a_turn(self, pick: Any, at: int) -> None:
        open_runs = [run for run in self.runs.values() if run.is_open]
        if open_runs:
            run = pick.choice(open_runs)
            self._end_from_outside(run, Status.STOPPED, _usage(pick, run.most), at)

    @rule(pick=st.randoms(use_true_random=False))
    def the_reaper_ends_what_nobody_holds(self, pick: Any) -> None:
        self.clock.pass_(pick.choice((STALE_S + LEASE_S, QUEUED_S)))
        stale = self.do(lambda store: store.queue.stale(held_age_s=STALE_S, queued_age_s=QUEUED_S))
        for turn in stale:
            run = self.runs[turn.reply_id]
            # What the log says was produced, if anybody ever claimed it.
            usage = _usage(pick, run.most) if run.claim is not None else Usage()
            self._end_from_outside(run, Status.FAILED, usage, 0)

    @rule(pick=st.randoms(use_true_random=False), at=st.integers(0, 2))
    def a_failed_turn_runs_again(self, pick: Any, at: int) -> None:
        failed = [run for run in self.runs.values() if run.turn.status is Status.FAILED]
        if not failed:
            return
        run = pick.choice(failed)
        known = run.turn
        new = stateless(known.key.removeprefix("key-"), owner=known.owner, answer_tokens=50)
        limits = LIMITS["batch" if known.lane is Lane.BATCH else known.owner]
        answer = self.do(lambda store: store.turns.admit(new, limits), at=at)
        if isinstance(answer, Admitted):
            self._begin(answer.turn)

    @rule(owner=st.sampled_from(OWNERS))
    def somebody_deletes_everything(self, owner: str) -> None:
        mine = [run for run in self.runs.values() if run.turn.owner == owner]
        running = sorted(
            (run for run in mine if run.is_open),
            key=lambda run: (run.turn.created_at, run.turn.reply_id),
        )
        epochs = {run.turn.reply_id: self._stored(run).epoch for run in running}
        self.do(lambda store: store.conversations.delete(owner, None))
        for run in running:
            if epochs[run.turn.reply_id] > 0:  # it may have been generated for
                self._settle(run, run.most)
        for run in mine:
            del self.runs[run.turn.reply_id]

    @rule(seconds=st.sampled_from([0.001, 0.5, 3.0, 20.0, 90.0, 7000.0, -0.7, -30.0]))
    def time_passes(self, seconds: float) -> None:
        """A clock may also be put back."""
        self.clock.pass_(max(seconds, START - self.clock.seconds))

    # What must hold at every moment.

    @invariant()
    def nobody_has_more_than_the_limits_give(self) -> None:
        for owner in OWNERS:
            now_ms = self._now_ms(owner)
            held = [run for run in self.runs.values() if run.is_open and run.turn.owner == owner]
            for limits in (LIMITS[owner], LIMITS["batch"]):
                is_chat = limits.lane is not Lane.BATCH
                beside = [run for run in held if (run.turn.lane is not Lane.BATCH) == is_chat]
                assert len(beside) <= limits.replies_running
                for budget in limits.budgets:
                    reserved = sum(_price(budget, run.most) for run in beside)
                    used = self._used(owner, budget.name, now_ms)
                    assert used + reserved <= budget.limit, (owner, budget.name, used, reserved)

    @invariant()
    def the_store_says_what_our_books_say(self) -> None:
        for owner in OWNERS:
            spent = self._of(owner, lambda store, owner: store.accounts.spent(owner))
            kept = {name: Balance(*entry) for (of, name), entry in self.used.items() if of == owner}
            assert spent.balances == kept
            held = sorted(
                reply_id
                for reply_id, run in self.runs.items()
                if run.is_open and run.turn.owner == owner
            )
            assert sorted(spent.running) == held
            assert self._of(owner, lambda store, owner: store.ledger.check(owner)) == {}

    # Our own books.

    def _begin(self, turn: Turn) -> None:
        self.runs[turn.reply_id] = Run(turn)
        self.ledger_ms[turn.owner] = self._now_ms(turn.owner)

    def _end_from_outside(self, run: Run, status: Status, usage: Usage, at: int) -> None:
        name = run.turn.reply_id
        seized = self.do(lambda store: store.turns.seize(run.turn.owner, name, "why"), at=at)
        assert seized is not None
        assert self.do(lambda store: store.turns.finish(seized.held, _end(status, usage)), at=at)
        self._settle(run, usage)
        run.turn = self._stored(run)

    def _now_ms(self, owner: str) -> int:
        """The ledger's time: the clock's, unless it was put back."""
        return max(self.ledger_ms.get(owner, 0), int(self.clock.seconds * 1000))

    def _settle(self, run: Run, usage: Usage) -> None:
        owner, run.is_open = run.turn.owner, False
        self.ledger_ms[owner] = self.ledger_ms.get(owner, 0) + 1
        self.ledger_ms[owner] = at_ms = self._now_ms(owner)
        for budget in run.budgets:
            price = _price(budget, usage)
            if price:
                used = self._used(owner, budget.name, at_ms) + price
                self.used[owner, budget.name] = (used, at_ms, budget.limit, budget.refill_ms)

    def _used(self, owner: str, name: str, now_ms: int) -> int:
        used, at_ms, limit, refill_ms = self.used.get((owner, name), (0, now_ms, 1, 1))
        return max(0, used - limit * max(0, now_ms - at_ms) // refill_ms)

    def _stored(self, run: Run) -> Turn:
        """The turn as it is stored, with the budgets of its run."""
        turn: Turn | None = self.do(
            lambda store: store.turns.find(run.turn.owner, run.turn.reply_id)
        )
        assert turn is not None
        return turn


def _price(budget: Budget, usage: Usage) -> int:
    new, cached, output, turn = PRICES[budget.unit]
    tokens = (usage.input - usage.cached) * new + usage.cached * cached + usage.output * output
    return tokens + turn if usage.input or usage.output else 0


def _usage(pick: Any, most: Usage) -> Usage:
    """Something that may have been produced; often nothing or all."""
    if pick.random() < 0.2:
        return Usage()
    if pick.random() < 0.3:
        return most
    prompt = pick.choice((0, most.input))
    return Usage(prompt, pick.randint(0, prompt), pick.randint(0, most.output))


def _end(status: Status, usage: Usage) -> Any:
    return completed(
        status=status,
        finish=Finish.STOP if status is Status.COMPLETED else None,
        failure=FAILURE if status is Status.FAILED else None,
        usage=usage,
        ids=(),
    )
