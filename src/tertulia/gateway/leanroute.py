"""A route for the calls that come most often. It finds the caller itself: solving that by FastAPI's
dependencies takes longer than looking a key up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from tertulia.gateway.auth import who
from tertulia.gateway.front import front_of


class LeanRoute(APIRoute):
    """For endpoints that take `request`, their path's parameters, `caller` and `front`, and nothing
    else; the OpenAPI document has them like any other."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What Starlette calls for a request."""
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            front = await front_of(request)
            caller = await who(request, front, None)
            answer: Response = await endpoint(
                request=request, **request.path_params, caller=caller, front=front
            )
            return answer

        return handle
