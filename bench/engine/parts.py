"""The parts of the comparison: which settings each engine gets, and what is shown of the results.

It must give each engine its best settings for what is measured, and both the same work.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

from bench.engine import chats, limits
from bench.engine.chats import Figures, Load
from bench.engine.contestants import Contestant, Engine, running
from bench.engine.interference import Interference, measure_interference
from bench.engine.second_turns import SecondTurns, measure_second_turns
from bench.engine.speeds import WIDTHS, Speeds, best_of, measure_speeds
from bench.engine.words import Words
from tertulia.replica.card import GRAPH

T = TypeVar("T")
Settings = dict[str, Any]

SEED: Final = 20  # of the chats' script: any will do, and the next run has the same
SLOTS: Final = 8  # of ours, in the chats: what it is shipped with
HOST_BYTES: Final = 4 << 30  # for conversations that leave the cache; more than any script fills
UNCHUNKED_TOKENS: Final = 2048  # of a step that takes in whole prompts, or as much as that

# llama-server's settings. The first of each are the best that `--search` found.
ROOMY: Final = 2048  # tokens for each of its slots: the longest conversation has 1,800
WINDOW: Final = 8192  # of the small model, for the huge prompt
SPEED_PEERS: Final[tuple[Settings, ...]] = (
    {"n_parallel": 32, "kv_unified": False, "n_ctx": 32 * ROOMY},
    {"n_parallel": 32, "kv_unified": True, "n_ctx": 8 * ROOMY},
    {"n_parallel": 32, "kv_unified": False, "n_ctx": 32 * ROOMY, "n_ubatch": 128},
    {"n_parallel": 32, "kv_unified": False, "n_ctx": 32 * ROOMY, "n_ubatch": 2048},
)
CHAT_PEERS: Final[tuple[Settings, ...]] = (
    {"n_parallel": 8, "kv_unified": False, "n_ctx": 8 * ROOMY},
    {"n_parallel": 4, "kv_unified": False, "n_ctx": 4 * ROOMY},
    {"n_parallel": 16, "kv_unified": False, "n_ctx": 16 * ROOMY},
    {"n_parallel": 32, "kv_unified": False, "n_ctx": 32 * ROOMY},
    {"n_parallel": 8, "kv_unified": True, "n_ctx": 8 * ROOMY},
    {"n_parallel": 8, "kv_unified": False, "n_ctx": 8 * ROOMY, "n_cache_reuse": 64},
    {"n_parallel": 8, "kv_unified": False, "n_ctx": 8 * ROOMY, "n_batch": 256, "n_ubatch": 256},
)
HUGE_PEERS: Final[tuple[Settings, ...]] = tuple(
    {"n_parallel": 9, "kv_unified": False, "n_ctx": 9 * WINDOW, "n_batch": n, "n_ubatch": n}
    for n in (64, 32, 512)
)
AGAIN_PEER: Final[Settings] = {"n_parallel": 8, "kv_unified": False, "n_ctx": 8 * ROOMY}
# Two slots, which others take: the first conversation is then in host memory alone.
PUSHED_PEER: Final[Settings] = {"n_parallel": 2, "kv_unified": False, "n_ctx": 2 * ROOMY}

HUGE_HEAD: Final = (
    "",
    "calm p50 ms",
    "p99",
    "disturbed p50 ms",
    "p99",
    "longest",
    "ratio p50",
    "ratio p99",
    "its own TTFT s",
)


@dataclass(frozen=True)
class Effort:
    """How much is done: a slow model has less to do in the same time."""

    is_whole: bool  # not a quick look, which leaves out what only explains
    rounds: int  # of both engines in turns, where only speed counts
    window_s: float  # of decoding, for each number of streams
    chat: Load
    huge_tokens: int
    turn_tokens: int  # of the first of two turns
    repeats: int
    n_others: int  # conversations that push the first one out of a small cache
    small_cache_tokens: int


@dataclass(frozen=True)
class Bench:
    """One model on this machine."""

    folder: Path
    words: Words
    threads: int
    effort: Effort

    def all_ours(self, **settings: Any) -> list[Contestant]:
        """Our engine with each arithmetic that this machine has for the model."""
        found = [ours(**settings)]
        if find_spec("openvino") is not None and (self.folder / GRAPH).exists():
            with_openvino = {"arithmetic": "openvino", **settings}
            found.append(Contestant("ours, OpenVINO", with_openvino))
        return found

    def on(self, contestant: Contestant, measure: Callable[[Engine, Words], Awaitable[T]]) -> T:
        """Starts the engine, measures, and ends it."""

        async def measured(engine: Engine) -> T:
            return await measure(engine, self.words)

        began_s = time.perf_counter()
        with running(contestant, self.folder, self.threads) as engine:
            found = asyncio.run(measured(engine))
        took_s = time.perf_counter() - began_s
        line = f"{contestant.name} {contestant.label} ({took_s:.0f} s): {found}"
        print(line, file=sys.stderr, flush=True)  # the tables come at the end of a part
        return found


@dataclass(frozen=True)
class Report:
    """A table for people, and the same for programs."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str]
    data: dict[str, Any]


def ours(**settings: Any) -> Contestant:
    return Contestant("ours", settings)


def peer(settings: Settings) -> Contestant:
    return Contestant("llama-server", {"cache_ram_mib": HOST_BYTES >> 20, **settings})


def speeds(bench: Bench, peers: Iterable[Settings]) -> Report:
    """Prefill, one stream, many streams; and what share of the machine's limits that is."""

    async def measure(engine: Engine, words: Words) -> Speeds:
        return await measure_speeds(engine, words, bench.effort.window_s)

    our_own = bench.all_ours(n_slots=32)
    contestants = [*our_own, *(peer(settings) for settings in peers)]
    found: list[list[Speeds]] = [[] for _ in contestants]
    machine = limits.machine(bench.threads)
    for _ in range(bench.effort.rounds):
        for contestant, rounds in zip(contestants, found, strict=True):
            rounds.append(bench.on(contestant, measure))
    machine = limits.better(machine, limits.machine(bench.threads))
    best = [best_of(rounds) for rounds in found]
    mine, *more = best[: len(our_own)]
    rivals = list(zip(contestants[len(our_own) :], best[len(our_own) :], strict=True))
    settings, theirs = max(rivals, key=lambda one: sum(one[1].decode.values()))
    shown = [mine, theirs, *more]
    rows = [
        _row("prefill of 1,000 tokens", [one.prefill for one in shown]),
        *(_row(f"decode, {n} at once", [one.decode[n] for one in shown]) for n in WIDTHS),
    ]
    shares = _shares(bench, machine, mine, theirs)
    return Report(
        "Speed, tokens a second (goal: 1.0 ×)",
        _head(our_own),
        rows,
        [f"llama-server: {settings.label}", *shares],
        {
            **{one.name: asdict(figure) for one, figure in zip(our_own, best, strict=False)},
            "peers": {one.label: asdict(figure) for one, figure in rivals},
            "machine": asdict(machine),
        },
    )


def chat(bench: Bench, peers: Iterable[Settings]) -> Report:
    """Conversations that pause half a second between two turns, more of them than slots."""
    our_own = bench.all_ours(n_slots=SLOTS, host_bytes=HOST_BYTES)
    contestants = [*our_own, *(peer(one) for one in peers)]
    load = bench.effort.chat
    played = [_played(bench, contestant, load) for contestant in contestants]
    best = max(range(len(our_own), len(contestants)), key=lambda n: played[n].tokens_per_s)
    places = [0, best, *range(1, len(our_own))]  # as the columns stand
    rows = _chat_rows([played[n] for n in places])
    data = {
        f"{one.name} {one.label}": asdict(figures)
        for one, figures in zip(contestants, played, strict=True)
    }
    title = f"Chats: {load.n_conversations} conversations of {load.n_turns} turns"
    return Report(
        f"{title} (goals: tokens 1.2 ×, TTFT p95 0.8 ×)",
        _head(our_own),
        rows,
        [f"{contestants[n].name}: {contestants[n].label}" for n in places],
        data,
    )


def huge(bench: Bench, peers: Iterable[Settings]) -> Report:
    """One huge prompt beside eight streams."""

    async def measure(engine: Engine, words: Words) -> Interference:
        return await measure_interference(engine, words, bench.effort.huge_tokens)

    contestants = {one.name: one for one in bench.all_ours(n_slots=16)}
    if bench.effort.is_whole:
        unchunked = ours(
            n_slots=16, batch_tokens=UNCHUNKED_TOKENS, step_target_s=600.0, mixes_all=True
        )
        contestants["ours, whole prompts in a step"] = unchunked
    contestants |= {f"llama-server, n_batch={one['n_batch']}": peer(one) for one in peers}
    found = {name: bench.on(contestant, measure) for name, contestant in contestants.items()}
    rows = [
        (
            name,
            *(f"{gap * 1e3:.0f}" for gap in (one.calm.p50_s, one.calm.p99_s)),
            *(f"{gap * 1e3:.0f}" for gap in (one.disturbed.p50_s, one.disturbed.p99_s)),
            f"{one.disturbed.longest_s * 1e3:.0f}",
            f"{one.disturbed.p50_s / max(one.calm.p50_s, 0.001):.2f}",
            f"{one.disturbed.p99_s / one.calm.p99_s:.2f}",
            f"{one.ttft_s:.1f}",
        )
        for name, one in found.items()
    ]
    return Report(
        f"{bench.effort.huge_tokens} prompt tokens beside 8 streams (goal: ratios 1.5)",
        HUGE_HEAD,
        rows,
        [],
        {name: asdict(one) for name, one in found.items()},
    )


def again(bench: Bench, _peers: Iterable[Settings]) -> Report:
    """The second turn: its tokens in the cache, or pushed out to host memory by others."""
    effort = bench.effort
    small = effort.small_cache_tokens
    cases = (
        (
            "cached (goal 0.15)",
            0,
            [*bench.all_ours(host_bytes=HOST_BYTES), peer(AGAIN_PEER)],
        ),
        (
            f"pushed out by {effort.n_others} others (goal 0.4)",
            effort.n_others,
            [
                *bench.all_ours(host_bytes=HOST_BYTES, n_slots=2, n_cache=small),
                peer(PUSHED_PEER),
            ],
        ),
    )
    rows, data = [], {}
    for name, n_others, contestants in cases:

        async def measure(engine: Engine, words: Words, n_others: int = n_others) -> SecondTurns:
            return await measure_second_turns(
                engine,
                words,
                turn_tokens=effort.turn_tokens,
                n_others=n_others,
                repeats=effort.repeats,
            )

        for contestant in contestants:
            found = bench.on(contestant, measure)
            data[f"{name} {contestant.name}"] = asdict(found)
            rows.append(
                (
                    name,
                    contestant.name,
                    f"{found.cold_s * 1e3:.0f}",
                    f"{found.again_s * 1e3:.0f}",
                    f"{found.n_cached:.0f}",
                    f"{found.again_s / found.cold_s:.2f}",
                )
            )
    head = ("", "engine", "cold TTFT ms", "second turn ms", "found tokens", "ratio")
    return Report(f"Second turns after {effort.turn_tokens} tokens", head, rows, [], data)


def _played(bench: Bench, contestant: Contestant, load: Load) -> Figures:
    async def measure(engine: Engine, words: Words) -> Figures:
        return chats.figures([await chats.play(engine, words, load, SEED)])

    return bench.on(contestant, measure)


def _head(our_own: Sequence[Contestant]) -> tuple[str, ...]:
    """First ours and the peer, then what else is ours; each ratio is to the peer."""
    more = [cell for one in our_own[1:] for cell in (one.name, "ratio")]
    return ("", "ours", "llama-server", "ratio", *more)


def _row(name: str, figures: Sequence[float]) -> tuple[str, ...]:
    mine, theirs, *more = figures

    def ratio(one: float) -> str:
        return f"{one / theirs:.2f}" if theirs else ""

    begin = (name, f"{mine:.0f}", f"{theirs:.0f}", ratio(mine))
    return (*begin, *(cell for one in more for cell in (f"{one:.0f}", ratio(one))))


def _chat_rows(played: Sequence[Figures]) -> list[tuple[str, ...]]:
    shown = (
        ("output tokens a second", "tokens_per_s", 1),
        ("TTFT p50, ms", "ttft_p50_s", 1e3),
        ("TTFT p95, ms", "ttft_p95_s", 1e3),
        ("gap p95, ms", "gap_p95_s", 1e3),
        ("prompt tokens cached, %", "cached_share", 100),
        ("ids not told", "n_lost_ids", 1),
    )
    return [
        _row(name, [factor * float(getattr(one, field)) for one in played])
        for name, field, factor in shown
    ]


def _shares(bench: Bench, machine: limits.Machine, mine: Speeds, theirs: Speeds) -> list[str]:
    weights = limits.weights_of(bench.folder)
    read, compute = machine.read_bytes_per_s, machine.fp32_flop_per_s
    tokens = f"a token reads {weights.n_bytes / 1e6:.0f} MB and, in a prompt, takes "
    tokens += f"{weights.flop_per_prompt_token / 1e9:.3f} GFLOP"
    rates = f"{read / 1e9:.1f} GB/s read, {compute / 1e9:.0f} GFLOP/s multiplied in fp32"
    lines = [f"the machine's limits with {bench.threads} threads: {rates}; {tokens}"]
    for name, one in (("ours", mine), ("llama-server", theirs)):
        reading = one.decode[1] * weights.n_bytes / read
        computing = one.prefill * weights.flop_per_prompt_token / compute
        lines.append(
            f"{name}: one stream uses {reading:.0%} of the reading, prefill {computing:.0%} of the "
            f"multiplying (goal: 60 %)"
        )
    return lines


Part = Callable[[Bench, Iterable[Settings]], Report]
PARTS: Final[dict[str, tuple[Part, tuple[Settings, ...]]]] = {
    "speeds": (speeds, SPEED_PEERS),
    "chat": (chat, CHAT_PEERS),
    "huge": (huge, HUGE_PEERS),
    "again": (again, (AGAIN_PEER,)),
}
