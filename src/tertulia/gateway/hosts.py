"""Refuses calls that name another host: a foreign page whose name was made to resolve to this
machine (DNS rebinding) would otherwise be same-origin with it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from tertulia.gateway.problems import Problem, problem_response

ANY = "*"


class KnownHosts:
    """ASGI middleware: only calls whose Host is one of `hosts` pass; ports do not matter."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]):
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ANY not in self._hosts and not self._knows(scope):
            problem = Problem("forbidden", "This service is not known under that host name.")
            await problem_response(problem, scope["path"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"host"]
        return len(given) == 1 and _without_port(given[0].decode("latin-1")) in self._hosts


def _without_port(host: str) -> str:
    name, bracket, port = host.partition("]")
    if bracket:
        return (name + bracket).lower() if port[:1] in ("", ":") else host
    return host.partition(":")[0].lower()
