"""The browsers that are signed in to an account, for its owner to look at and to sign out."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from tertulia.core.types import OpenSession
from tertulia.gateway.auth import Asking
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.front import AtFront
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import not_found

sessions = APIRouter(prefix="/v1/sessions", tags=["account"])

# Who has more has lost sight of them, and signs all the others out.
_LISTED: Final = 100
# Enough that no two of a list are alike; it tells nothing of the token that the hash is of.
_ID_CHARS: Final = 24


@sessions.get("", summary="List your sessions")
async def list_sessions(caller: Asking, front: AtFront) -> JSONResponse:
    """The newest first, at most 100; `isCurrent` is the one that asks."""
    found = await _of(front.desk, caller)
    return JSONResponse({"items": [_session_json(one, caller) for one in found]})


@sessions.delete("/{session_id}", summary="Sign one browser out", status_code=204)
async def end_session(session_id: str, caller: Asking, front: AtFront) -> Response:
    """At once and everywhere; streams opened with it end within seconds."""
    for one in await _of(front.desk, caller):
        if _id_of(one) == session_id:
            await front.desk.sessions.close(token_hash=one.token_hash, user_id=caller.user.id)
            return Response(status_code=204)
    raise not_found()


@sessions.delete("", summary="Sign all other browsers out", status_code=204)
async def end_others(caller: Asking, front: AtFront) -> Response:
    """All but the one that asks; asked with an API key, all. The newest 100 in one call."""
    for one in await _of(front.desk, caller):
        if not _is_current(one, caller):
            await front.desk.sessions.close(token_hash=one.token_hash, user_id=caller.user.id)
    return Response(status_code=204)


async def _of(desk: Desk, caller: Caller) -> list[OpenSession]:
    return list(await desk.sessions.list(caller.user.id, limit=_LISTED))


def _id_of(session: OpenSession) -> str:
    return "s_" + hashlib.sha256(b"id of " + session.token_hash.encode()).hexdigest()[:_ID_CHARS]


def _is_current(session: OpenSession, caller: Caller) -> bool:
    return caller.session is not None and caller.session.token_hash == session.token_hash


def _session_json(session: OpenSession, caller: Caller) -> dict[str, Any]:
    return {
        "id": _id_of(session),
        "createdAt": rfc3339(session.created_at),
        "expiresAt": rfc3339(session.expires_at),
        "isCurrent": _is_current(session, caller),
    }
