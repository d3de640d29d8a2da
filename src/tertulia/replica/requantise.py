"""Rewrites a model file at another precision, in a child process.

It must never run inside another process of the service: the library can abort the interpreter.
"""

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tertulia.replica.children import ended_child, tail_of
from tertulia.replica.lifeline import die_with_parent
from tertulia.replica.placing import InstallFailed


@dataclass(frozen=True)
class FileType:
    """A precision that makes sense here."""

    name: str
    number: int  # llama.cpp's own
    weight_bits: float  # of most weights, scales included
    good_for: str


# docs/howto/models.md has the measured rates. Q4_1 is missing on purpose: it is larger than Q4_0,
# and half as fast at reading prompts.
FILE_TYPES = (
    FileType("Q4_0", 2, 4.5, "speed: the smallest and quickest, with AVX2 kernels of its own"),
    FileType("Q4_K_M", 15, 4.9, "better answers at about that size, slower"),
    FileType("Q6_K", 18, 6.6, "nearly the original's answers, smaller than Q8_0"),
    FileType("Q8_0", 7, 8.5, "answers that nobody tells from the original's"),
    FileType("F16", 1, 16.0, "converting on: large, slow, and nothing lost"),
)


def file_type_named(name: str) -> FileType:
    """The type with this name, in capitals or not; `InstallFailed` names the known ones."""
    for file_type in FILE_TYPES:
        if file_type.name == name.upper():
            return file_type
    known = ", ".join(file_type.name for file_type in FILE_TYPES)
    raise InstallFailed(f"there is no type {name!r}; there are: {known}")


def requantise(source: Path, target: Path, file_type: str) -> None:
    """Writes `source` to `target` at another precision; `InstallFailed` says what went wrong."""
    ended = ended_child([__name__, str(source), str(target), file_type])
    if ended.returncode != 0 or not target.exists():
        raise InstallFailed(f"rewriting the model as {file_type} failed: {tail_of(ended)}")


def main(arguments: list[str]) -> int:
    """`python -m tertulia.replica.requantise SOURCE TARGET TYPE`; 0 when TARGET is complete."""
    source, target, file_type = arguments
    cpp: Any = importlib.import_module("cyllama.llama.llama_cpp")
    cpp.disable_logging()
    cpp.ggml_backend_load_all()
    params = cpp.LlamaModelQuantizeParams()
    params.allow_requantize = True
    params.nthread = 1  # an install must not take a small machine away from its user
    params.ftype = file_type_named(file_type).number
    cpp.model_quantize(source, target, params)
    return 0


if __name__ == "__main__":
    die_with_parent(os.getppid())
    sys.exit(main(sys.argv[1:]))
