"""An embedded engine as a process of its own, with the settings given as JSON.

It must have no settings of its own: the tests say all.
"""

import json
import logging
import sys
from pathlib import Path

from tertulia.replica.main import ReplicaSettings, run


def main(given: str) -> int:
    """Runs until it is ended; the engine's own exit status."""
    logging.basicConfig(level=logging.INFO)
    settings = json.loads(given)
    return run(ReplicaSettings(**{**settings, "folder": Path(settings["folder"])}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
