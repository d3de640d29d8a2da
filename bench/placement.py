"""Ways to place conversations, on modelled replicas under virtual time: whatever else runs here.

The replicas are simple (prompts first come first served, decodes beside them at a fixed pace); the
ledger and the policy "ours" are the service's own code.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Final

from bench.engine.chats import percentile
from bench.policies import POLICIES, Policy
from tertulia.core.fleet import Home, Wanted
from tertulia.core.ledger import DispatchLedger
from tertulia.core.placement import Candidate

TICK_S: Final = 0.02
SYSTEM_TOKENS: Final = 100
# Beside prompts, decodes get this part of a replica's time.
DECODE_SHARE: Final = 0.6
FASTEST_PER_S: Final = 50.0  # tokens of one reply
SEEDS: Final = (1, 2, 3)


@dataclass(frozen=True)
class Load:
    """A fleet and what is asked of it."""

    title: str
    n_chats: int
    think_s: float
    slots: int = 8
    prefill_per_s: float = 400.0  # of one replica
    decode_per_s: float = 125.0
    message_tokens: tuple[int, int] = (40, 120)
    reply_tokens: tuple[int, int] = (20, 60)
    slow: float = 1.0  # speed of the first replica
    n_replicas: int = 4
    n_turns: int = 6


LARGE: Final = {
    "slots": 32,
    "prefill_per_s": 3_000.0,
    "decode_per_s": 1_000.0,
    "message_tokens": (100, 400),
    "reply_tokens": (50, 200),
}
LOADS: Final = (
    Load("40 chats, half busy", 40, 12.0),
    Load("40 chats, busy", 40, 6.0),
    Load("40 chats, one replica at a third", 40, 15.0, slow=1 / 3),
    Load("300 chats, larger replicas", 300, 20.0, **LARGE),  # type: ignore[arg-type]  # values are looked up by name
    Load("200 chats, one at a third", 200, 20.0, slow=1 / 3, **LARGE),  # type: ignore[arg-type]  # values are looked up by name
)


@dataclass
class Running:
    """One turn on a replica."""

    request_id: str
    chat: int
    prompt: int
    unread: float
    reply: int
    asked_at: float
    said: float = 0.0


@dataclass
class Replica:
    """Reads prompts in their order and decodes what has been read."""

    speed: float
    ledger: DispatchLedger = field(default_factory=DispatchLedger)
    waiting: list[Running] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    cached: dict[int, int] = field(default_factory=dict)

    def hit(self, chat: int, prompt: int) -> int:
        """How much of a prompt it has read before."""
        shared = SYSTEM_TOKENS if self.cached else 0
        return max(shared, min(self.cached.get(chat, 0), prompt - 1))

    def work(self, load: Load, now: float) -> list[Running]:
        """One tick; the turns that ended."""
        free = load.slots - len(self.running)
        self.running += self.waiting[:free]
        del self.waiting[:free]
        reading = [one for one in self.running if one.unread > 0]
        decoding = [one for one in self.running if one.unread <= 0]
        share = (DECODE_SHARE if reading else 1.0) if decoding else 0.0
        time_s = TICK_S * self.speed
        if decoding:
            each = time_s * share * load.decode_per_s / len(decoding)
            self.ledger.said(max(1 / FASTEST_PER_S, TICK_S / each))
            for one in decoding:
                one.said += min(each, TICK_S * FASTEST_PER_S)
        left = time_s * (1 - share) * load.prefill_per_s
        for one in reading:
            read = min(left, one.unread)
            one.unread, left = one.unread - read, left - read
            if one.unread <= 0:
                self.ledger.began(one.request_id, now)
        ended = [one for one in decoding if one.said >= one.reply]
        self.running = [one for one in self.running if one not in ended]
        return ended


@dataclass
class Figures:
    """What one run showed."""

    ttfts: list[float] = field(default_factory=list)
    n_cached: int = 0
    n_prompt: int = 0
    n_moved: int = 0
    n_turns: int = 0


def main() -> None:
    """Prints a table for each load."""
    for load in LOADS:
        print(f"\n{load.title}")
        print("policy        cached  TTFT p50  TTFT p95  moved")
        for name, policy in POLICIES.items():
            runs = [play(policy, load, seed) for seed in SEEDS]
            cached = sum(run.n_cached for run in runs) / sum(run.n_prompt for run in runs)
            moved = sum(run.n_moved for run in runs) / sum(run.n_turns for run in runs)
            p50, p95 = (mean(percentile(run.ttfts, share) for run in runs) for share in (50, 95))
            print(f"{name:12}  {cached:5.1%}  {p50:6.2f} s  {p95:6.2f} s  {moved:5.1%}")


def play(policy: Policy, load: Load, seed: int) -> Figures:
    """All conversations to their end."""
    chance, dice = random.Random(seed), random.Random(seed + 1_000)
    script = [
        [
            (
                chance.expovariate(1 / load.think_s),
                chance.randint(*load.message_tokens),
                chance.randint(*load.reply_tokens),
            )
            for _ in range(load.n_turns)
        ]
        for _ in range(load.n_chats)
    ]
    replicas = {f"r{n}": Replica(load.slow if n == 0 else 1.0) for n in range(load.n_replicas)}
    figures, homes, placed = Figures(), dict[int, Home](), Counter[int]()
    context = [SYSTEM_TOKENS] * load.n_chats
    due = [(turns[0][0], chat) for chat, turns in enumerate(script)]
    heapq.heapify(due)
    now, n_running = 0.0, 0
    while due or n_running:
        now += TICK_S
        while due and due[0][0] <= now:
            chat = heapq.heappop(due)[1]
            _, message, reply = script[chat][placed[chat]]
            placed[chat] += 1
            n_running += 1
            turn = Running(f"q{figures.n_turns}", chat, context[chat] + message, 0, reply, now)
            _place(turn, policy, replicas, homes, load, dice.random(), figures)
        for name, replica in replicas.items():
            was_unread = [one for one in (*replica.waiting, *replica.running) if one.unread > 0]
            for one in replica.work(load, now):
                n_running -= 1
                context[one.chat] = one.prompt + one.reply
                replica.cached[one.chat] = context[one.chat]
                homes[one.chat] = Home(name, context[one.chat])
                replica.ledger.ended(one.request_id)
                if placed[one.chat] < load.n_turns:
                    think_s = script[one.chat][placed[one.chat]][0]
                    heapq.heappush(due, (now + think_s, one.chat))
            figures.ttfts += [now - one.asked_at for one in was_unread if one.unread <= 0]
    return figures


def _place(
    turn: Running,
    policy: Policy,
    replicas: dict[str, Replica],
    homes: dict[int, Home],
    load: Load,
    draw: float,
    figures: Figures,
) -> None:
    home = homes.get(turn.chat)
    wanted = Wanted(turn.request_id, "model", f"c{turn.chat}", turn.prompt, turn.reply)
    name = policy(wanted, home, _candidates(replicas, load), draw)
    replica = replicas[name]
    hit = replica.hit(turn.chat, turn.prompt)
    turn.unread = turn.prompt - hit
    known = home.tokens if home is not None and home.replica == name else 0
    replica.ledger.dispatch(turn.request_id, max(0, turn.prompt - known), turn.asked_at)
    replica.ledger.sent(turn.request_id, turn.asked_at)
    replica.waiting.append(turn)
    figures.n_turns += 1
    figures.n_cached += hit
    figures.n_prompt += turn.prompt
    figures.n_moved += home is not None and home.replica != name


def _candidates(replicas: dict[str, Replica], load: Load) -> Sequence[Candidate]:
    return [
        Candidate(
            name,
            load.slots,
            running=replica.ledger.running,
            owed_tokens=replica.ledger.owed_tokens,
            prefill_per_s=replica.ledger.prefill_per_s,
            gap_s=replica.ledger.gap_s,
        )
        for name, replica in replicas.items()
    ]
