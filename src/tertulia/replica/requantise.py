"""Rewrites a model file at another precision, as a child process of the installer.

It must never run inside another process of the service: the library can abort the interpreter.
"""

import importlib
import sys
from typing import Any

FILE_TYPES = {"Q4_0": 2}  # llama.cpp's number for "mostly Q4_0"


def main(arguments: list[str]) -> int:
    """`python -m tertulia.replica.requantise SOURCE TARGET TYPE`; 0 when TARGET is complete."""
    source, target, file_type = arguments
    cpp: Any = importlib.import_module("cyllama.llama.llama_cpp")
    cpp.disable_logging()
    cpp.ggml_backend_load_all()
    params = cpp.LlamaModelQuantizeParams()
    params.allow_requantize = True
    params.nthread = 1  # an install must not take a small machine away from its user
    params.ftype = FILE_TYPES[file_type]
    cpp.model_quantize(source, target, params)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
