"""The search for forgotten processes finds them by their mark and spares all others."""

import os
import subprocess
import sys

from scripts import leftovers

WAIT_FOR_EVER = "import signal; print('up', flush=True); signal.pause()"


def start(**environment: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT_FOR_EVER],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_marked_process_is_found_and_ended_and_its_neighbour_is_not() -> None:
    with start(PLANTED_MARK="left") as marked, start(PLANTED_MARK="other") as neighbour:
        try:
            found = leftovers.find("PLANTED_MARK", "left")
            assert [one.pid for one in found] == [marked.pid]
            leftovers.end(found)
            assert marked.wait(timeout=10) == -9
            assert neighbour.poll() is None
        finally:
            marked.kill()
            neighbour.kill()
    assert leftovers.find("PLANTED_MARK", "left") == []
