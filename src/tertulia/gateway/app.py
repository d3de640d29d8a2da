"""Puts the gateway's HTTP together: routes, the built page, and what guards every request.

Nothing leaves here without the safety headers, and no error ever repeats what was sent.
"""

from __future__ import annotations

from typing import Any, cast

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tertulia import __version__
from tertulia.gateway.accounts import accounts
from tertulia.gateway.admin import admin
from tertulia.gateway.batches import batches
from tertulia.gateway.bodies import field_problem
from tertulia.gateway.branches import branches
from tertulia.gateway.conversations import conversations
from tertulia.gateway.desk import Desk
from tertulia.gateway.exports import exports
from tertulia.gateway.files import files
from tertulia.gateway.following import come_back, is_resume
from tertulia.gateway.front import Front, open_front
from tertulia.gateway.headers import SafeHeaders
from tertulia.gateway.hosts import KnownHosts
from tertulia.gateway.importfile import import_bytes
from tertulia.gateway.imports import imports
from tertulia.gateway.instructions import instructions
from tertulia.gateway.intake import Intake
from tertulia.gateway.messages import asking, messages
from tertulia.gateway.openai import completing, openai
from tertulia.gateway.operations import operations
from tertulia.gateway.ops import ops
from tertulia.gateway.page import BuiltPage
from tertulia.gateway.planning import planning
from tertulia.gateway.problems import PASSING, Problem, not_found, problem_response
from tertulia.gateway.prompts import prompts
from tertulia.gateway.sessions import sessions
from tertulia.gateway.shares import shares
from tertulia.gateway.signin import signin
from tertulia.gateway.single_sign_on import single_sign_on
from tertulia.gateway.temporary import temporary
from tertulia.gateway.uploads import upload_bytes
from tertulia.ports import StoreFull, StoreUnavailable

_log = structlog.get_logger(__name__)

_STORE_RETRY_S = 2
# A full disk is not emptied in two seconds.
_FULL_RETRY_S = 30
# First what is asked most.
_ROUTERS = (
    asking,
    completing,
    messages,
    openai,
    conversations,
    branches,
    temporary,
    shares,
    signin,
    single_sign_on,
    accounts,
    instructions,
    exports,
    imports,
    files,
    batches,
    sessions,
    admin,
    operations,
    planning,
    prompts,
    ops,
)
_API_PATHS = ("/v1/", "/livez", "/readyz", "/metrics", "/openapi.json")


def create_app(desk: Desk, *, page: ASGIApp | None = None) -> ASGIApp:
    """The whole application; `page` stands in for the built one."""
    front = open_front(desk)
    api = _api(front)
    split = _Split(api, page or BuiltPage())
    uploads = {
        "/v1/files": upload_bytes(desk.rules.batches),
        "/v1/imports": import_bytes(desk.rules.imports),
    }
    guarded = Intake(split, desk.rules.body_bytes, uploads)
    return SafeHeaders(_LastResort(KnownHosts(guarded, desk.rules.hosts)))


class _Split:
    """Sends calls to the routes and everything else to the page."""

    def __init__(self, api: ASGIApp, page: ASGIApp):
        self._api = api
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        to_page = scope["type"] == "http" and not scope["path"].startswith(_API_PATHS)
        await (self._page if to_page else self._api)(scope, receive, send)


class _LastResort:
    """Ends an unknown error here: its text could hold a user's, so only its kind is logged."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001  # the last border before the server's own log
            _log.error("unexpected_error", kind=type(error).__name__, place=_place_of(error))


def _api(front: Front) -> FastAPI:
    api = FastAPI(
        title="Tertulia",
        version=__version__,
        summary="A chat assistant on your own machines.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Nothing is told to anybody else, and each call would look up anew whether it should be.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    api.state.front = front
    # As routes of its own: FastAPI walks twice through the routes of each router that is included,
    # for every call.
    for router in _ROUTERS:
        api.router.routes.extend(router.routes)
    api.add_exception_handler(Problem, _on_problem)
    api.add_exception_handler(RequestValidationError, _on_invalid)
    api.add_exception_handler(StoreUnavailable, _on_store)
    api.add_exception_handler(HTTPException, _on_http)
    api.add_exception_handler(Exception, _on_unknown)
    return api


# Coroutines all of them: a plain function would be given to another thread for each refusal, which
# costs more than the refusal.


async def _on_problem(request: Request, error: Exception) -> Response:
    return _answer(request, cast("Problem", error))


def _answer(request: Request, problem: Problem) -> Response:
    front: Front = request.app.state.front
    front.figures.refused(problem.code)
    if is_resume(request) and problem.code in PASSING | {"budget_exhausted"}:
        return come_back(problem.retry_after or _STORE_RETRY_S)
    return problem_response(problem, request.scope["path"])


async def _on_invalid(request: Request, error: Exception) -> Response:
    details: list[Any] = list(cast("RequestValidationError", error).errors())
    return _answer(request, field_problem(details))


async def _on_store(request: Request, error: Exception) -> Response:
    if isinstance(error, StoreFull):
        sentence = "The disk is full: nothing new can be kept until there is room again."
        full = Problem("store_unavailable", sentence, retry_after_s=_FULL_RETRY_S)
        return _answer(request, full)
    sentence = "The store can't be reached just now; nothing was changed."
    return _answer(request, Problem("store_unavailable", sentence, retry_after_s=_STORE_RETRY_S))


async def _on_http(request: Request, error: Exception) -> Response:
    known = cast("HTTPException", error)
    if known.status_code == 405:
        allowed = dict(known.headers or {})
        sentence = "This address does not take this method."
        return _answer(request, Problem("method_not_allowed", sentence, headers=allowed))
    if known.status_code == 404:
        return _answer(request, not_found())
    sentence = "The request can't be read."
    return _answer(request, Problem("invalid_request", sentence, status=known.status_code))


async def _on_unknown(request: Request, _error: Exception) -> Response:
    return _answer(request, Problem("internal", "Something went wrong here; try again."))


def _place_of(error: Exception) -> str:
    """File and line of where it was raised, without values."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return "nowhere"
    return f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
