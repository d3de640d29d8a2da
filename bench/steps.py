"""`python -m bench steps [--model small]`: a load test of the embedded engine, for `calibrate`.

Steps of several batches and lengths of context, and prompts of several lengths, each the median of
a few. It writes the file that `tertulia calibrate` fits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.engine.contestants import ROOT, Ask, Contestant, Engine, running
from bench.engine.limits import machine, weights_of
from bench.engine.run import MODELS
from bench.engine.streams import ANSWER_S, Stream
from bench.engine.words import Words, words_of
from tertulia.planner.load_tests import KIND

BATCHES: Final = (1, 4, 8)
CONTEXTS: Final = (64, 256, 768)
PROMPTS: Final = (64, 128, 256, 512, 1024)
STEPS: Final = 24  # of each batch: their median is shaken by no other process
REPEATS: Final = 3  # of each prompt
LONGEST_REPLY: Final = 1_200  # the first stream must not end while the last one's prompt is read
_F16: Final = 2


def main(given: list[str]) -> None:
    """Starts the engine, measures, and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m bench steps", description=__doc__)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--model", default="small", help="an installed model")
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "steps.json")
    seen = parser.parse_args(given)
    folder = MODELS / seen.model
    document = {"kind": KIND, "model": seen.model, "threads": seen.threads, **_shape(folder)}
    document["bandwidth"] = machine(seen.threads).read_bytes_per_s
    with running(Contestant("ours", {"n_slots": max(BATCHES)}), folder, seen.threads) as engine:
        document |= asyncio.run(_measured(engine, words_of(folder)))
    seen.json.parent.mkdir(parents=True, exist_ok=True)
    seen.json.write_text(json.dumps(document, indent=1))
    print(f"written to {seen.json}; next: tertulia calibrate {seen.json}")


async def _measured(engine: Engine, words: Words) -> dict[str, Any]:
    await engine.complete(Ask(words.draw(16), 8))  # it learns its own costs
    prompts = [
        {
            "tokens": n,
            "seconds": median([await _prompt_s(engine, words, n) for _ in range(REPEATS)]),
        }
        for n in PROMPTS
    ]
    steps = [
        await _step(engine, words, batch, context) for batch in BATCHES for context in CONTEXTS
    ]
    return {"steps": steps, "prompts": prompts}


async def _prompt_s(engine: Engine, words: Words, n_tokens: int) -> float:
    return (await engine.complete(Ask(words.draw(n_tokens), 1))).ttft_s


async def _step(engine: Engine, words: Words, batch: int, context: int) -> dict[str, float]:
    """The median gap while all streams are under way, and how long they were meanwhile."""
    streams: list[Stream] = []
    try:
        for n in range(batch):
            ask = Ask(words.draw(context), LONGEST_REPLY, owner=f"u{n}")
            streams.append(await engine.begin(ask))
        async with asyncio.timeout(ANSWER_S):
            await asyncio.gather(*(stream.reached(1) for stream in streams))
            first = [len(stream.answer.token_s) for stream in streams]
            await asyncio.gather(
                *(stream.reached(n + STEPS) for stream, n in zip(streams, first, strict=True))
            )
    finally:
        for stream in streams:
            stream.close()
    gaps = [
        gap
        for stream, n in zip(streams, first, strict=True)
        for gap in stream.answer.gaps_s[n : n + STEPS]
    ]
    length = context + sum(first) / batch + STEPS / 2
    return {"batch": batch, "context_tokens": length, "step_s": median(gaps)}


def _shape(folder: Path) -> dict[str, float]:
    """What a step reads, by the model's own file: weights once, and a context's keys and values."""
    from gguf import GGUFReader

    fields = GGUFReader(folder / "model.gguf").fields
    name = str(fields["general.architecture"].contents())

    def of(key: str) -> int:
        return int(fields[f"{name}.{key}"].contents())

    head = of("embedding_length") // of("attention.head_count")
    kv = 2 * of("block_count") * of("attention.head_count_kv") * head * _F16
    return {"weights_bytes": weights_of(folder).n_bytes, "kv_bytes_per_token": kv}
