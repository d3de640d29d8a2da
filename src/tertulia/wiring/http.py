"""The HTTP servers of the roles: uvicorn, quiet, with bounds, and with its signals left to us."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from tertulia.gateway.patience import PatientHttp
from tertulia.listening import BACKLOG

# A page asks again within this time; a connection that rests longer is not worth its memory.
_IDLE_S = 30
# Open streams are closed at an event border well within this; then they resume elsewhere.
_DRAIN_S = 5


class Server(uvicorn.Server):
    """Leaves signals to us: uvicorn raises them again before anything could be put away."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_for(app: ASGIApp, *, trusted_proxies: Sequence[str] = ()) -> Server:
    """A server that is ended by its `should_exit`. Only those proxies say who their clients are."""
    return Server(
        uvicorn.Config(
            app,
            loop="none",
            http=PatientHttp,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            # Never left to the environment, as uvicorn would: settings say whom we believe.
            forwarded_allow_ips=list(trusted_proxies),
            date_header=True,
            backlog=BACKLOG,
            timeout_graceful_shutdown=_DRAIN_S,
            timeout_keep_alive=_IDLE_S,
        )
    )
