"""The log of every role: it says where something broke, and never what a user wrote."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import structlog, sys
from tertulia.config import Settings
from tertulia.terminal.logs import start_log
start_log(Settings(log_format=sys.argv[1]))
def answer(words):
    raise ValueError("broken")
try:
    answer("the words " + "of a user")
except ValueError:
    structlog.get_logger("tests").exception("answer_failed")
"""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_in_the_log_shows_no_variables(log_format: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, log_format], capture_output=True, text=True, check=True
    )
    assert "answer_failed" in ended.stderr
    assert "broken" in ended.stderr
    assert "the words of a user" not in ended.stderr
