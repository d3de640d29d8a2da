"""Ways to place conversations on four real engines: what they find in the cache, who waits.

Every policy plays the same script to the same engines, with names and a system prompt of its own:
none finds what another has left. It must count what it sends with the service's own ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from bench.engine.chats import percentile
from bench.engine.contestants import Ask, Engine, running
from bench.engine.parts import ours
from bench.engine.run import MODELS
from bench.engine.streams import Answer
from bench.engine.words import Words, words_of
from bench.policies import POLICIES, Policy
from tertulia.core.fleet import Home, Wanted
from tertulia.core.ledger import DispatchLedger
from tertulia.core.placement import Candidate

N_REPLICAS: Final = 4
SLOTS: Final = 8
MODEL: Final = "small"
N_SYSTEM: Final = 60  # tokens that every conversation begins with
MESSAGE_TOKENS: Final = (30, 70)
REPLY_TOKENS: Final = (8, 16)


@dataclass(frozen=True)
class Turn:
    """One message, and the length of its reply."""

    think_s: float
    message: tuple[int, ...]
    n_reply: int


@dataclass
class Fleet:
    """The engines, what was sent to each, and where each conversation is at home."""

    engines: dict[str, Engine]
    name: str  # of the policy
    policy: Policy
    dice: random.Random
    ledgers: dict[str, DispatchLedger] = field(default_factory=dict)
    homes: dict[str, Home] = field(default_factory=dict)
    placed: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def __post_init__(self) -> None:
        self.ledgers = {name: DispatchLedger() for name in self.engines}

    async def answer(self, conversation: str, prompt: Sequence[int], n_reply: int) -> Answer:
        """One turn, on the replica that the policy names."""
        request_id = f"q{next(self._numbers)}"
        home = self.homes.get(conversation)
        wanted = Wanted(request_id, MODEL, conversation, len(prompt), n_reply)
        name = self.policy(wanted, home, self._candidates(), self.dice.random())
        cached = home.tokens if home is not None and home.replica == name else 0
        ledger = self.ledgers[name]
        ledger.dispatch(request_id, max(0, len(prompt) - cached), time.monotonic())
        ledger.sent(request_id, time.monotonic())
        self.placed[name] += 1
        try:
            stream = await self.engines[name].begin(
                Ask(tuple(prompt), n_reply, conversation, N_SYSTEM)
            )
            try:
                await stream.reached(1)
                ledger.began(request_id, time.monotonic())
                await stream.closed
            finally:
                stream.close()
        finally:
            ledger.ended(request_id)
        for gap_s in stream.answer.gaps_s:
            ledger.said(gap_s)
        self.homes[conversation] = Home(name, len(prompt) + n_reply)
        return stream.answer

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(
                name,
                SLOTS,
                running=ledger.running,
                owed_tokens=ledger.owed_tokens,
                prefill_per_s=ledger.prefill_per_s,
                gap_s=ledger.gap_s,
            )
            for name, ledger in self.ledgers.items()
        ]


def main(arguments: Sequence[str] = ()) -> None:
    """Prints a row for each policy."""
    parser = argparse.ArgumentParser(prog="python -m bench routing", description=__doc__)
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--think", type=float, default=15.0, help="seconds between two turns")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    options = parser.parse_args(arguments)
    words = words_of(MODELS / MODEL).seeded(options.seed)
    script = [_conversation(words, options.turns, options.think) for _ in range(options.chats)]
    with ExitStack() as started:
        engines = _start(started)
        print("policy        cached  TTFT p50  TTFT p95  tokens/s  turns on each", flush=True)
        for name in options.policies:
            fleet = Fleet(engines, name, POLICIES[name], random.Random(options.seed))
            began_s = time.monotonic()
            answers = asyncio.run(_play(fleet, script, words.draw(N_SYSTEM)))
            _print_row(fleet, answers, time.monotonic() - began_s)


def _print_row(fleet: Fleet, answers: Sequence[Answer], took_s: float) -> None:
    ttfts = [answer.ttft_s for answer in answers]
    cached = sum(a.n_cached for a in answers) / sum(a.n_prompt for a in answers)
    said = sum(len(answer.token_s) for answer in answers)
    print(
        f"{fleet.name:12}  {cached:5.1%}  {percentile(ttfts, 50):6.2f} s  "
        f"{percentile(ttfts, 95):6.2f} s  {said / took_s:8.1f}  "
        f"{' '.join(str(fleet.placed[n]) for n in sorted(fleet.engines))}",
        flush=True,
    )


def _start(started: ExitStack) -> dict[str, Engine]:
    """All at once: most of a start is measuring how fast a step is."""
    # An engine ends with the thread that started it: these stay until all have ended.
    starters = started.enter_context(ThreadPoolExecutor(N_REPLICAS))
    contexts = [running(ours(n_slots=SLOTS), MODELS / MODEL, threads=1) for _ in range(N_REPLICAS)]
    starting = [starters.submit(started.enter_context, context) for context in contexts]
    return {f"r{number}": engine.result() for number, engine in enumerate(starting)}


async def _play(
    fleet: Fleet, script: Sequence[Sequence[Turn]], system: Sequence[int]
) -> list[Answer]:
    talks = (_talk(fleet, f"{fleet.name}-{n}", turns, system) for n, turns in enumerate(script))
    return [answer for answers in await asyncio.gather(*talks) for answer in answers]


async def _talk(
    fleet: Fleet, name: str, turns: Sequence[Turn], system: Sequence[int]
) -> list[Answer]:
    prompt, answers = list(system), []
    for turn in turns:
        await asyncio.sleep(turn.think_s)
        prompt += turn.message
        answer = await fleet.answer(name, prompt, turn.n_reply)
        prompt += answer.ids
        answers.append(answer)
    return answers


def _conversation(words: Words, n_turns: int, think_s: float) -> list[Turn]:
    chance = words.chance
    return [
        Turn(
            chance.expovariate(1 / think_s),
            tuple(words.draw(chance.randint(*MESSAGE_TOKENS))),
            chance.randint(*REPLY_TOKENS),
        )
        for _ in range(n_turns)
    ]
