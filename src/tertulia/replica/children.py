"""Runs one of our own modules to its end in a child process, where llama.cpp may abort.

It must never raise for what the child did: the caller decides what its end means.
"""

import os
import subprocess
import sys

CHILD_S = 900.0  # requantising 1.5 billion parameters on one slow core stays below this
TAIL_CHARS = 1000  # of a traceback, the end says what happened


def ended_child(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The ended `python -m ARGUMENTS` with what it wrote; one that hangs is killed."""
    command = [sys.executable, "-m", *arguments]
    try:
        return subprocess.run(  # noqa: S603  # our own modules, with paths of our own
            command,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
            timeout=CHILD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        text = f"it did not end within {CHILD_S:.0f} s and was killed"
        return subprocess.CompletedProcess(command, -9, "", text)


def tail_of(ended: subprocess.CompletedProcess[str]) -> str:
    """The end of what it wrote, for an error's message."""
    output = (ended.stdout + ended.stderr).strip()
    return output[-TAIL_CHARS:] or f"the child ended with {ended.returncode}"
