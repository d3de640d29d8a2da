"""Every refusal the gateway can answer, as problem+json or in OpenAI's form.

A refusal has a stable code and one sentence; it never repeats what the caller sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from tertulia.core.turn import to_json

# code -> (status, title). The one table: a code that is not in it can't be answered.
CODES: Final[Mapping[str, tuple[int, str]]] = {
    "invalid_request": (400, "The request is not valid"),
    "invalid_event_id": (400, "The event id is not valid"),
    "unauthenticated": (401, "Sign in first"),
    "forbidden": (403, "Not allowed"),
    "csrf": (403, "The request came from another site"),
    "not_found": (404, "Not found"),
    "method_not_allowed": (405, "Method not allowed"),
    "conversation_busy": (409, "A reply is running on this branch"),
    "batch_ended": (409, "The batch has ended"),
    "too_many_shares": (409, "There are too many links"),
    "name_taken": (409, "The name is taken"),
    "event_id_ahead": (409, "The event id is beyond the newest event"),
    "rollout_under_way": (409, "Another rollout is under way"),
    "text_too_long": (413, "The text is too long"),
    "message_too_long": (413, "The message is too long"),
    "body_too_large": (413, "The request body is too large"),
    "idempotency_key_reuse": (422, "The idempotency key was used for another request"),
    "budget_exhausted": (429, "A budget is used up"),
    "too_many_running": (429, "Too many replies are running"),
    "too_many_requests": (429, "Too many requests"),
    "internal": (500, "Something went wrong here"),
    "busy": (503, "Too busy"),
    "draining": (503, "This gateway is going away"),
    "store_unavailable": (503, "The store can't be reached"),
}

# Trying the same again may help with these; every other refusal is final for a retrying client,
# unless it passes so soon that such clients wait for it: a minute's budget does, a day's does not.
_SOON_S: Final = 60
PASSING: Final = frozenset(
    {"too_many_running", "too_many_requests", "internal", "busy", "draining", "store_unavailable"}
)

_OPENAI_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}

# Callers of these paths expect OpenAI's error object.
_OPENAI_PATHS: Final = ("/v1/chat/", "/v1/models", "/v1/files", "/v1/batches")


class Problem(Exception):
    """A refusal on its way to the caller. `field` names the part of the request at fault.

    `more` is further members of the answer; `openai_code` replaces the code where OpenAI's
    clients know another word. `status` differs from the table only where HTTP has a finer one.
    """

    def __init__(
        self,
        code: str,
        sentence: str,
        *,
        field: str | None = None,
        retry_after_s: float | None = None,
        status: int | None = None,
        more: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        openai_code: str | None = None,
    ):
        super().__init__(code)
        usual, self.title = CODES[code]
        self.code = code
        self.status = status or usual
        self.sentence = sentence
        self.field = field
        self.retry_after = None if retry_after_s is None else max(1, math.ceil(retry_after_s))
        self.more = more or {}
        self.headers = headers or {}
        self.openai_code = openai_code or code

    @property
    def is_passing(self) -> bool:
        """Whether a client that tries again by itself would do well."""
        is_soon = self.retry_after is not None and self.retry_after <= _SOON_S
        return self.code in PASSING or is_soon


def problem_response(problem: Problem, path: str) -> Response:
    """The answer in the form that callers of `path` expect."""
    headers = dict(problem.headers)
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if path.startswith(_OPENAI_PATHS):
        if not problem.is_passing:
            headers["x-should-retry"] = "false"
        body = to_json({"error": openai_error(problem)})
        return Response(body, problem.status, headers, media_type="application/json")
    body = to_json(_members(problem))
    return Response(body, problem.status, headers, media_type="application/problem+json")


def openai_error(problem: Problem) -> dict[str, Any]:
    """The inside of OpenAI's `{"error": ...}`."""
    kind = _OPENAI_TYPES.get(problem.status, "invalid_request_error")
    return {
        "message": problem.sentence,
        "type": "insufficient_quota" if problem.code == "budget_exhausted" else kind,
        "param": problem.field,
        "code": problem.openai_code,
        **({} if problem.retry_after is None else {"retryAfterSeconds": problem.retry_after}),
        **problem.more,
    }


def not_found() -> Problem:
    """The one answer for what does not exist and for what is somebody else's."""
    return Problem("not_found", "There is nothing here under this address.")


def not_pickable(names: Sequence[str]) -> Problem:
    """The plan does not let this user ask for that model; `names` are what may be asked for."""
    sentence = f"Your plan does not let you pick this model; you may ask for {_listed(names)}."
    return Problem(
        "forbidden",
        sentence,
        field="model",
        more={"models": list(names)},
        openai_code="model_not_found",
    )


def key_reused() -> Problem:
    """The key of this request belongs to another one."""
    sentence = "This Idempotency-Key was used for a different request."
    return Problem("idempotency_key_reuse", sentence, field="Idempotency-Key")


def restarting() -> Problem:
    """For what this gateway takes no more of, because it was asked to end."""
    return Problem("draining", "This gateway is restarting; try again.", retry_after_s=2)


def invalid(field: str, sentence: str) -> Problem:
    """A 400 that names the field."""
    return Problem("invalid_request", sentence, field=field)


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _members(problem: Problem) -> dict[str, Any]:
    members: dict[str, Any] = {
        "title": problem.title,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.sentence,
    }
    if problem.field is not None:
        members["field"] = problem.field
    if problem.retry_after is not None:
        members["retryAfterSeconds"] = problem.retry_after
    return {**members, **problem.more}
