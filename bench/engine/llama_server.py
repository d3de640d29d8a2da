"""llama-server as this process, with the settings given as JSON; runs in the peers' environment.

It must import nothing of ours: that environment holds the peer's package alone.
"""

from __future__ import annotations

import json
import os
import sys

import xllamacpp


def main(given: str) -> None:
    """Serves until standard input ends, so that it never outlives whoever started it."""
    settings = json.loads(given)
    params = xllamacpp.CommonParams()
    params.model.path = settings.pop("model")
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.pop("threads")
    params.port = 0
    params.ui = False
    for name, value in settings.items():
        assert hasattr(params, name), name
        setattr(params, name, value)
    server = xllamacpp.Server(params)
    port = int(server.listening_address.rsplit(":", 1)[1])
    sys.stdout.write(json.dumps({"ready": True, "port": port}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # closing would wait for replies that nobody reads any more


main(sys.argv[1])
