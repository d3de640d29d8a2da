"""What the machine can do at most, and how much of it an engine would need for its figures.

Run as a process of its own (`python -m bench.engine.limits THREADS`): the linear algebra library
reads its number of threads when it is loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

REPEATS = 7
READ_BYTES = 512_000_000  # of each thread: far more than any cache
MATRIX = 2048  # rows and columns; a larger one is no faster
THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True)
class Machine:
    """The best of several attempts."""

    read_bytes_per_s: float
    fp32_flop_per_s: float


@dataclass(frozen=True)
class Weights:
    """What a token costs: all weights for one of a reply, those of the layers for a prompt's."""

    n_bytes: int  # of the layers and of the output
    n_layer_parameters: int

    @property
    def flop_per_prompt_token(self) -> int:
        """A multiplication and an addition for each weight; attention is left out."""
        return 2 * self.n_layer_parameters


def machine(threads: int) -> Machine:
    """Measured now, in processes of their own, with this number of threads."""
    found = {}
    for what, n_blas in (("read", 1), ("multiply", threads)):
        done = subprocess.run(
            [sys.executable, "-m", "bench.engine.limits", what, str(threads)],
            env={**os.environ, THREADS_VARIABLE: str(n_blas)},
            cwd=Path(__file__).resolve().parent.parent.parent,
            stdout=subprocess.PIPE,
            check=True,
        )
        found[what] = float(json.loads(done.stdout))
    return Machine(found["read"], found["multiply"])


def better(one: Machine, other: Machine) -> Machine:
    """Of each figure the higher: before and after a measurement, so that a lull decides."""
    return Machine(
        max(one.read_bytes_per_s, other.read_bytes_per_s),
        max(one.fp32_flop_per_s, other.fp32_flop_per_s),
    )


def weights_of(folder: Path) -> Weights:
    """From the file's own list of tensors."""
    from gguf import GGUFReader

    tensors = GGUFReader(folder / "model.gguf").tensors
    layers = [tensor for tensor in tensors if tensor.name.startswith("blk.")]
    # A model without an output of its own uses the embedding table for it.
    outputs = [tensor for tensor in tensors if tensor.name == "output.weight"] or [
        tensor for tensor in tensors if tensor.name == "token_embd.weight"
    ]
    return Weights(
        sum(int(tensor.n_bytes) for tensor in layers + outputs),
        sum(int(tensor.n_elements) for tensor in layers),
    )


def read_rate(threads: int) -> float:
    """Bytes a second that all threads together can read."""
    import numpy as np

    parts = [np.ones(READ_BYTES // 4, np.float32) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def once() -> float:
            began_s = time.perf_counter()
            list(pool.map(lambda part: float(part @ part), parts))
            return threads * READ_BYTES / (time.perf_counter() - began_s)

        return max(once() for _ in range(REPEATS))


def multiply_rate() -> float:
    """Floating-point operations a second in a product of two matrices of 32-bit numbers."""
    import numpy as np

    a, b = (np.full((MATRIX, MATRIX), value, np.float32) for value in (0.5, 0.25))

    def once() -> float:
        began_s = time.perf_counter()
        np.matmul(a, b)
        return 2 * MATRIX**3 / (time.perf_counter() - began_s)

    return max(once() for _ in range(REPEATS))


if __name__ == "__main__":
    rate = read_rate(int(sys.argv[2])) if sys.argv[1] == "read" else multiply_rate()
    sys.stdout.write(json.dumps(rate))
