"""The signed-in user's own account: plan and budgets, API keys, and its end."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.placement import AUTO
from tertulia.core.types import ApiKey, User
from tertulia.gateway.auth import Asking, new_key
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.front import AtFront, Front
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import Problem, invalid, not_found
from tertulia.gateway.signin import guesser
from tertulia.gateway.stop import stop_reply

accounts = APIRouter(prefix="/v1", tags=["account"])

# Enough for every program of one person; a list that grows without end is a mistake or worse.
_KEYS = 50
# A session this young has just shown its password.
_FRESH_S = 300.0
# Pages of conversations that one account's end may take; 100 conversations each.
_PAGES = 10_000


class NewKey(Body):
    """A program that gets a credential of its own."""

    name: str = Field(min_length=1, max_length=100)


class Farewell(Body):
    """The password again, for what can't be undone."""

    password: str = Field(default="", max_length=200)


@accounts.get("/me", summary="Your account, budgets and running replies")
async def me(caller: Asking, front: AtFront) -> JSONResponse:
    """The user, the plan, what is left of each budget, and which replies are running."""
    desk, user = front.desk, caller.user
    plan = desk.plans[user.plan]
    spent = await desk.accounts.spent(user.id)
    limits = plan.limits
    budgets = [
        {
            "name": "tokens_per_day",
            "limit": limits.tokens_per_day,
            "remaining": max(0, limits.tokens_per_day - spent.used_today - spent.reserved),
            "resetAt": rfc3339(spent.day_ends_at),
        },
        {
            "name": "replies_running",
            "limit": limits.replies_running,
            "remaining": max(0, limits.replies_running - len(spent.running)),
            "resetAt": None,
        },
    ]
    return JSONResponse(
        {
            "id": user.id,
            "name": user.name,
            "role": user.role,
            "plan": user.plan,
            "budgets": budgets,
            "running": list(spent.running),
            "limits": {
                "messageTokens": _message_tokens(desk, user),
                "messageBytes": desk.rules.message_bytes,
            },
        }
    )


@accounts.delete("/me", summary="Delete your account and everything in it", status_code=204)
async def leave(request: Request, caller: Asking, front: AtFront) -> Response:
    """Stops what runs and deletes every conversation and every credential.

    The name stays taken: somebody else could otherwise pass for the person who left.
    Asks for the password again unless it was given within the last five minutes.
    """
    await _demand_fresh(request, caller, front)
    # First of all, so that no other program of this user writes anew what is being deleted.
    gone = {"password_hash": None, "disabled": True}
    await front.desk.accounts.change(caller.user.id, gone)
    await end_everything(front, caller.user)
    await _delete_conversations(front.desk, caller.user.id)
    for key in await front.desk.api_keys.list(caller.user.id):
        await front.desk.api_keys.revoke(caller.user.id, key.id)
    return Response(status_code=204)


@accounts.get("/api-keys", summary="List your API keys")
async def list_keys(caller: Asking, front: AtFront) -> JSONResponse:
    """Names and first characters; the secrets themselves are not stored."""
    keys = await front.desk.api_keys.list(caller.user.id)
    return JSONResponse({"items": [_key_json(key) for key in keys]})


@accounts.post(
    "/api-keys", summary="Make an API key", status_code=201, openapi_extra=schema_of(NewKey)
)
async def add_key(request: Request, caller: Asking, front: AtFront) -> JSONResponse:
    """The secret is in this answer and never again."""
    body = await read_body(request, NewKey)
    desk = front.desk
    if len(await desk.api_keys.list(caller.user.id)) >= _KEYS:
        raise invalid("name", f"You have {_KEYS} API keys; revoke one first.")
    key, secret = new_key(desk, caller.user, body.name)
    await desk.api_keys.add(key)
    return JSONResponse({"id": key.id, "name": key.name, "secret": secret}, 201)


@accounts.delete("/api-keys/{key_id}", summary="Revoke an API key", status_code=204)
async def revoke_key(key_id: str, caller: Asking, front: AtFront) -> Response:
    """The key ends at once, the streams opened with it within seconds."""
    if not await front.desk.api_keys.revoke(caller.user.id, key_id):
        raise not_found()
    return Response(status_code=204)


async def end_everything(front: Front, user: User) -> None:
    """Closes a user's sessions and stops every running reply; open streams end within seconds."""
    desk = front.desk
    await desk.sessions.close(user_id=user.id)
    spent = await desk.accounts.spent(user.id)
    for reply_id in spent.running:
        await stop_reply(desk, user.id, reply_id, "stopped")


async def _demand_fresh(request: Request, caller: Caller, front: Front) -> None:
    session = caller.session
    if session is not None and session.authenticated_at > front.desk.clock.now() - _FRESH_S:
        return
    body = await read_body(request, Farewell, empty=b"{}")
    front.logins_by_name.demand(guesser(request, caller.user.name))
    if not await front.passwords.matches(caller.user.password_hash, body.password):
        raise Problem("forbidden", "Give your password again to do this.", field="password")


async def _delete_conversations(desk: Desk, owner: str) -> None:
    for archived in ("no", "yes"):
        for _ in range(_PAGES):
            page = await desk.conversations.list(
                owner, cursor=None, limit=100, query="", archived=archived == "yes"
            )
            for conversation in page.items:
                await desk.conversations.delete(owner, conversation.id)
            if not page.items:
                break
    await desk.conversations.delete(owner, None)  # what was said without a conversation


def _message_tokens(desk: Desk, user: User) -> int:
    """The longest message that the door would take, in tokens of the model that answers `auto`."""
    vocabulary, plan = desk.vocabulary(AUTO), desk.plans[user.plan]
    fixed = sum(vocabulary.cost) + len(vocabulary.encode(desk.rules.system_prompt))
    return plan.room_for_text(vocabulary.window, fixed_tokens=fixed)


def _key_json(key: ApiKey) -> dict[str, Any]:
    used = key.last_used_at
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "createdAt": rfc3339(key.created_at),
        "lastUsedAt": None if used is None else rfc3339(used),
    }
