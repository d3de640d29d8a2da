"""What llama.cpp's own settings and habits cost or gain: the levers of the embedded engine.

`python -m bench.levers MODEL [PART ...]`; it drives the binding directly, never the engine.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

MODELS = Path(__file__).resolve().parent.parent / ".tertulia" / "models"
ROUNDS = 5  # interleaved, after one to warm up; the median counts
TILE = 64  # rows from which llama.cpp's attention on a CPU works in tiles of 64 × 64
F16, Q8 = 1, 8  # ggml's numbers of the types a cache can have
N_CACHE, N_SEQUENCES, N_BATCH = 14_336, 40, 256

Piece = tuple[int, int, Sequence[int]]  # sequence, position of its first token, tokens


class Rig:
    """A model and its context, opened with any of the library's settings."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        cpp: Any = importlib.import_module("cyllama.llama.llama_cpp")
        cpp.disable_logging()
        cpp.ggml_backend_load_all()
        self.cpp = cpp
        model_params = cpp.LlamaModelParams()
        model_params.n_gpu_layers = 0
        path = str(folder / "model.gguf")
        self.model = cpp.LlamaModel(path_model=path, params=model_params, verbose=False)
        params = cpp.LlamaContextParams()
        params.n_ctx, params.n_seq_max = N_CACHE, N_SEQUENCES
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
        params.kv_unified, params.flash_attn_type = True, 1
        for name, value in changes.items():
            setattr(params, name, value)
        self.context = cpp.LlamaContext(model=self.model, params=params, verbose=False)
        self.batch = cpp.LlamaBatch(n_tokens=N_BATCH, embd=0, n_seq_max=1, verbose=False)
        self._states: dict[int, bytes] = {}

    def call(self, pieces: Sequence[Piece], *, all_logits: bool = False) -> float:
        """Decodes the pieces in one call; the seconds it took."""
        self.batch.clear()
        for sequence, first, tokens in pieces:
            for place, token in enumerate(tokens):
                wants = all_logits or place == len(tokens) - 1
                self.batch.add(token, first + place, [sequence], wants)
        began = time.perf_counter()
        self.context.decode(self.batch)
        return time.perf_counter() - began

    def hold(self, sequence: int, n_tokens: int) -> None:
        """Gives the sequence so many tokens in cells of its own."""
        self.context.memory_seq_rm(sequence, -1, -1)
        if n_tokens not in self._states:
            for first in range(0, n_tokens, 128):
                self.call([(sequence, first, tokens_of(min(128, n_tokens - first)))])
            self._states[n_tokens] = bytes(self.context.get_state_seq_data(sequence))
            return
        self.context.set_state_seq_data(self._states[n_tokens], sequence)

    def cut(self, sequence: int, n_tokens: int) -> None:
        self.context.memory_seq_rm(sequence, n_tokens, -1)

    def clear(self) -> None:
        for sequence in range(N_SEQUENCES):
            self.context.memory_seq_rm(sequence, -1, -1)

    def streams(self, n_streams: int, n_tokens: int) -> Callable[[], float]:
        """A timed step of so many streams, each with a context of its own; leaves no trace."""

        def step() -> float:
            took = self.call([(stream, n_tokens, [500]) for stream in range(n_streams)])
            for stream in range(n_streams):
                self.cut(stream, n_tokens)
            return took

        return step

    def chunk(self, sequence: int, first: int, n_tokens: int) -> Callable[[], float]:
        """A timed piece of a prompt; leaves no trace."""

        def read() -> float:
            took = self.call([(sequence, first, tokens_of(n_tokens))])
            self.cut(sequence, first)
            return took

        return read

    def close(self) -> None:
        self.batch.close()
        self.context.close()
        self.model.close()


def main(names: Sequence[str]) -> None:
    """Runs the named parts on one model, or all of them on the small one."""
    names = names or ("small",)
    folder = MODELS / names[0]
    for part in names[1:] or PARTS:
        print(f"-- {part}", flush=True)
        PARTS[part](folder)


def mixed_steps(folder: Path) -> None:
    """Eight streams and a piece of a newcomer's prompt: in one call, and in two."""
    rig = Rig(folder)
    for n_context in (20, 400, 1300):
        for stream in range(8):
            rig.hold(stream, n_context)
        decodes: list[Piece] = [(stream, n_context, [500]) for stream in range(8)]
        for n_prefill in (0, 8, 16, 32, 48, 55, 56, 64, 96, 128):
            prefill: list[Piece] = [(8, 0, tokens_of(n_prefill))] if n_prefill else []
            times = interleaved(
                {
                    "one call": partial(_calls, rig, n_context, [decodes + prefill]),
                    "two calls": partial(_calls, rig, n_context, [decodes, prefill]),
                }
            )
            said = ", ".join(f"{name} {ms(took)}" for name, took in times.items())
            print(f"  8 streams at {n_context} + {n_prefill}: {said}", flush=True)
        rig.clear()
    rig.close()


def _calls(rig: Rig, n_context: int, batches: Sequence[list[Piece]]) -> float:
    took = sum(rig.call(batch) for batch in batches if batch)
    rig.cut(8, 0)
    for stream in range(8):
        rig.cut(stream, n_context)
    return took


def step_cost(folder: Path) -> None:
    """Fits the cost of one call; the errors are relative, no term may be negative."""
    rig = Rig(folder)
    few: list[tuple[list[float], float]] = []
    many: list[tuple[list[float], float]] = []
    for n_streams, n_context, timed in _stream_cases(rig):
        n_attended = n_streams * (n_context + 1)
        used = _used(n_streams, n_context)
        few.append(([1, n_streams, n_streams * used, n_attended, n_attended], timed))
    for n_rows, n_own, n_others, timed in _chunk_cases(rig):
        n_mean = n_own + (n_rows + 1) / 2
        used = n_others + n_own + n_rows
        if n_rows < TILE:
            few.append(([1, n_rows, n_rows * used, n_rows * n_mean, n_own + n_rows], timed))
        else:
            n_tiles = -(-n_rows // TILE)
            many.append(([1, n_rows, n_rows * used, n_tiles * n_mean], timed))
    rig.close()
    names = ("ms a call", "ms a row", "µs a row and 1,000 used", "ms per 1,000 attended")
    _fit("below 64 rows", few, (*names, "ms per 1,000 distinct"))
    _fit("64 rows of one sequence and more", many, (*names[:3], "ms per 1,000 cells and tile"))


def _used(n_streams: int, n_context: int) -> int:
    """Cells up to the highest used one: the others' are there as well."""
    return max(n_streams, 8) * n_context


def _stream_cases(rig: Rig) -> Iterator[tuple[int, int, float]]:
    for n_context in (20, 200, 400, 800, 1300):
        for stream in range(8):
            rig.hold(stream, n_context)
        cases = {str(n): rig.streams(n, n_context) for n in (1, 2, 4, 8)}
        for name, times in interleaved(cases, rounds=3).items():
            yield int(name), n_context, statistics.median(times)
        rig.clear()


def _chunk_cases(rig: Rig) -> Iterator[tuple[int, int, int, float]]:
    for n_others in (0, 3000, 8000):
        for n_own in (0, 400, 1000, 2600):
            rig.clear()
            for other in range(n_others // 1000):
                rig.hold(1 + other, 1000)
            rig.hold(0, n_own) if n_own else None
            cases = {str(n): rig.chunk(0, n_own, n) for n in (2, 8, 32, 63, 64, 128)}
            for name, times in interleaved(cases, rounds=2).items():
                yield int(name), n_own, n_others, statistics.median(times)


def _fit(title: str, cases: list[tuple[list[float], float]], names: Sequence[str]) -> None:
    features = np.array([case[0] for case in cases])
    took = np.array([case[1] for case in cases])
    terms = list(range(features.shape[1]))
    while True:
        weights = np.linalg.lstsq(features[:, terms] / took[:, None], np.ones(len(took)))[0]
        if (weights >= 0).all():
            break
        terms = [term for term, weight in zip(terms, weights, strict=True) if weight >= 0]
    errors = np.abs(features[:, terms] @ weights / took - 1) * 100
    scales = (1e3, 1e3, 1e9, 1e6, 1e6)
    print(f"{title}, {len(took)} cases:")
    for term, weight in zip(terms, weights, strict=True):
        print(f"  {weight * scales[term]:8.2f} {names[term]}")
    print(f"  off by {np.median(errors):.0f} %, p90 {np.percentile(errors, 90):.0f} %")


def cache_types(folder: Path) -> None:
    """Cells of 16 bits against cells of 8: speed, size, and whether the texts stay."""
    rigs = {"f16": Rig(folder), "q8": Rig(folder, type_k=Q8, type_v=Q8)}
    for n_context in (400, 1000):
        for rig in rigs.values():
            for stream in range(8):
                rig.hold(stream, n_context)
        cases = {f"{name} 8 streams": rig.streams(8, n_context) for name, rig in rigs.items()}
        for n_rows in (8, 32, 64, 128):
            cases |= {
                f"{name} chunk of {n_rows}": rig.chunk(0, n_context, n_rows)
                for name, rig in rigs.items()
            }
        for name, times in interleaved(cases).items():
            print(f"  at {n_context}: {name}: {ms(times)}", flush=True)
    for name, rig in rigs.items():
        rig.hold(0, 1000)
        print(f"  {name}: {len(rig.context.get_state_seq_data(0)) // 1000} bytes a token")
        rig.close()


def shape(folder: Path) -> None:
    """Threads and where they run, the size of micro-batches, streams in a batch, order of cells."""
    cores = sorted(os.sched_getaffinity(0))
    rigs = {
        "1 thread": Rig(folder, n_threads=1, n_threads_batch=1),
        "all threads": Rig(folder),
        "micro-batch 32": Rig(folder, n_ubatch=32),
        "no flash attention": Rig(folder, flash_attn_type=0),
    }
    for rig in rigs.values():
        for stream in range(8):
            rig.hold(stream, 400)
    cases: dict[str, Callable[[], float]] = {}
    for name, rig in rigs.items():
        cases |= {f"{name}: 8 streams at 400": rig.streams(8, 400)}
        cases |= {f"{name}: chunk of 128 at 400": rig.chunk(9, 0, 128)}
    pinned = rigs["all threads"].streams(8, 400)
    cases["a core for each thread: 8 streams at 400"] = lambda: _pinned(cores, pinned)
    for name, times in interleaved(cases).items():
        print(f"  {name}: {ms(times)}", flush=True)
    for name, rig in rigs.items():
        if name != "all threads":
            rig.close()
    rig = rigs["all threads"]
    for n_context in (20, 400):
        rig.clear()
        for stream in range(32):
            rig.hold(stream, n_context)
        cases = {str(n): rig.streams(n, n_context) for n in (1, 4, 8, 16, 32)}
        for name, times in interleaved(cases).items():
            per_s = int(name) / statistics.median(times)
            print(f"  {name} streams at {n_context}: {per_s:.0f} tokens/s, {ms(times)}", flush=True)
    _scattered(rig)
    rig.close()


def _pinned(cores: Sequence[int], step: Callable[[], float]) -> float:
    """This thread on the first core, the library's on the others: two on one core spin in vain."""
    threads = sorted(int(name) for name in os.listdir("/proc/self/task"))
    for place, thread in enumerate(threads):
        os.sched_setaffinity(thread, {cores[min(place, len(cores) - 1)]})
    took = step()
    for thread in threads:
        os.sched_setaffinity(thread, cores)
    return took


def _scattered(rig: Rig) -> None:
    """Eight streams grown side by side, then the same after each was saved and put back."""
    rig.clear()
    for place in range(0, 400, 4):
        rig.call([(stream, place, tokens_of(4)) for stream in range(8)])
    timed = {"grown side by side": [rig.streams(8, 400)() for _ in range(ROUNDS)]}
    states = [bytes(rig.context.get_state_seq_data(stream)) for stream in range(8)]
    rig.clear()
    for stream, state in enumerate(states):
        rig.context.set_state_seq_data(state, stream)
    timed["each in a row"] = [rig.streams(8, 400)() for _ in range(ROUNDS)]
    for other in range(8, 28):
        rig.hold(other, 400)
    for stream in range(8):  # again, now behind the others' cells
        rig.cut(stream, 0)
        rig.hold(stream + 30, 400)
        rig.context.set_state_seq_data(states[stream], stream)
        rig.cut(stream + 30, 0)
    for other in range(8, 28):
        rig.cut(other, 0)
    timed["behind 8,000 free cells"] = [rig.streams(8, 400)() for _ in range(ROUNDS)]
    for name, times in timed.items():
        print(f"  8 streams at 400, cells {name}: {ms(times)}", flush=True)


def tokens_of(n_tokens: int) -> list[int]:
    """Ordinary tokens; what they say does not change how long they take."""
    return [200 + place * 97 % 40_000 for place in range(n_tokens)]


def interleaved(
    cases: dict[str, Callable[[], float]], rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """The seconds of every case, taken in turns, so that a busy moment hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, case in cases.items():
            took = case()
            if turn:
                times[name].append(took)
    return times


def ms(times: Sequence[float]) -> str:
    """The median in milliseconds, with the least and the most."""
    low, high = min(times) * 1000, max(times) * 1000
    return f"{statistics.median(times) * 1000:.1f} ({low:.1f}-{high:.1f})"


PARTS: dict[str, Callable[[Path], None]] = {
    "mixed": mixed_steps,
    "cost": step_cost,
    "types": cache_types,
    "shape": shape,
}


if __name__ == "__main__":
    main(sys.argv[1:] or ("small",))
