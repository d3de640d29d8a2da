"""Our engine as this process, with the settings given as JSON; what it may be set to is its own.

It must end with whoever started it, which `parent_pid` sees to.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from tertulia.replica import llama
from tertulia.replica.main import ReplicaSettings, run

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    given = json.loads(sys.argv[1])
    if given.pop("mixes_all", False):  # as an engine that reads whole prompts beside streams
        llama.BELOW_TILES = given["batch_tokens"]
    sys.exit(run(ReplicaSettings(**{**given, "folder": Path(given["folder"])})))
