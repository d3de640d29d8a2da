"""Makes OpenVINO's graph of an installed model, in a child process.

It must never leave half a graph that passes for a whole one, whenever the process is killed.
"""

import importlib
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tertulia.replica.card import GRAPH, GRAPH_WEIGHTS, WEIGHTS, checked_header
from tertulia.replica.children import ended_child, tail_of
from tertulia.replica.install import emptied
from tertulia.replica.lifeline import die_with_parent
from tertulia.replica.placing import (
    InstallFailed,
    Progress,
    Report,
    check_room,
    incoming_folder,
    locked,
    sha256_of,
    sync,
)
from tertulia.replica.requantise import requantise
from tertulia.replica.shelf import complete_fields, record_more

READ_KINDS = frozenset(("F32", "F16", "Q4_0", "Q4_1", "Q8_0"))  # of tensors; it refuses others
# What others are made first: the other way round, a Q4_0 of the Q4_K_M model was right about the
# next token in 39.6 % of cases, its Q8_0 in 40.7 %.
READ_AS = "Q8_0"


def convert(folder: Path, report: Report) -> Path:
    """Makes the graph of the model in this folder, again if there is one; returns the folder.

    Errors are `InstallFailed`. Two processes may call it at once: the second waits.
    """
    if find_spec("openvino_genai") is None:
        raise InstallFailed("OpenVINO is not installed: `scripts/setup openvino` does that")
    if complete_fields(folder) is None:
        raise InstallFailed(f"{folder} is not a complete model")
    name, models_dir = folder.name, folder.parent
    try:
        with locked(name, models_dir, lambda: report(Progress("wait", 0, 1))):
            incoming = emptied(incoming_folder(name, models_dir))
            _make(folder, incoming, report)
            _place(incoming, folder)
            shutil.rmtree(incoming)
    except OSError as error:
        raise InstallFailed(f"{folder}: {error}") from error
    report(Progress("done", 1, 1))
    return folder


def _make(folder: Path, incoming: Path, report: Report) -> None:
    header = checked_header(folder / WEIGHTS)
    n_bytes = (folder / WEIGHTS).stat().st_size
    # The graph's weights take what the file takes, or what its Q8_0 does, which lies beside them.
    check_room(folder.name, n_bytes + 3 * header.n_parameters, incoming)
    readable = incoming / WEIGHTS
    if READ_KINDS.issuperset(header.n_tensors_of):
        readable.symlink_to((folder / WEIGHTS).absolute())
    else:
        report(Progress("requantise", 0, 1))
        requantise(folder / WEIGHTS, readable, READ_AS)
    report(Progress("graph", 0, 1))
    ended = ended_child([__name__, str(readable)])
    if ended.returncode != 0 or not (incoming / GRAPH).exists():
        raise InstallFailed(f"OpenVINO made no graph of {folder.name}: {tail_of(ended)}")


def _place(incoming: Path, folder: Path) -> None:
    """The graph goes first when an old one is replaced and comes last: with it, all is there."""
    hashes = {file: sha256_of(incoming / file) for file in (GRAPH, GRAPH_WEIGHTS)}
    for file in hashes:
        sync(incoming / file)
    (folder / GRAPH).unlink(missing_ok=True)
    sync(folder)
    for file in (GRAPH_WEIGHTS, GRAPH):
        (incoming / file).rename(folder / file)
        sync(folder)
    record_more(folder, hashes)


def main(arguments: list[str]) -> int:
    """`python -m tertulia.replica.graph FILE`; 0 when the graph lies beside the file."""
    genai: Any = importlib.import_module("openvino_genai")
    genai.LLMPipeline(arguments[0], "CPU", enable_save_ov_model=True)
    return 0


if __name__ == "__main__":
    die_with_parent(os.getppid())
    sys.exit(main(sys.argv[1:]))
