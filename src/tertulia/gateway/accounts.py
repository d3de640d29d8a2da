"""The signed-in user's own account: plan and budgets, API keys, and its end."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.choice import AUTO
from tertulia.core.deletions import DELETIONS_BELL
from tertulia.core.opening import NO_INSTRUCTIONS, Footing
from tertulia.core.quota import MILLI, Standing, standing
from tertulia.core.types import ApiKey, User
from tertulia.erasing import erase_all
from tertulia.gateway.auth import Asking, new_key
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.caller import Caller
from tertulia.gateway.counting import longest_message
from tertulia.gateway.desk import Desk
from tertulia.gateway.footing import rollout_now, tokens_on
from tertulia.gateway.front import AtFront, Front
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import Problem, invalid, not_found
from tertulia.gateway.signin import guesser
from tertulia.gateway.single_sign_on import signs_in_by
from tertulia.gateway.stop import stop_reply

accounts = APIRouter(prefix="/v1", tags=["account"])

# Enough for every program of one person; a list that grows without end is a mistake or worse.
_KEYS = 50
# A session this young has just shown its password.
_FRESH_S = 300.0


class NewKey(Body):
    """A program that gets a credential of its own."""

    name: str = Field(min_length=1, max_length=100)


class MyChanges(Body):
    """Only the named fields change."""

    evaluation: bool = False


class Farewell(Body):
    """The password again, for what can't be undone."""

    password: str = Field(default="", max_length=200)


@accounts.get("/me", summary="Your account, budgets and running replies")
async def me(caller: Asking, front: AtFront) -> JSONResponse:
    """The user, the plan, what is left of each budget, and which replies are running."""
    return JSONResponse(await account_json(front.desk, caller.user))


async def account_json(desk: Desk, user: User) -> dict[str, Any]:
    """An account as its owner sees it."""
    plan = desk.plans[user.plan]
    spent = await desk.accounts.spent(user.id)
    running = len(spent.running_beside(plan.lane))
    budgets = [
        *(_budget_json(standing(budget, spent)) for budget in plan.budgets),
        {
            "name": "replies_running",
            "unit": "replies",
            "limit": plan.replies_running,
            "remaining": max(0, plan.replies_running - running),
            "resetAt": None,
        },
    ]
    return {
        "id": user.id,
        "name": user.name,
        "role": user.role,
        "plan": user.plan,
        "evaluation": user.evaluation,
        "signIn": await signs_in_by(desk, user),
        "budgets": budgets,
        "running": list(spent.running),
        "limits": {
            "messageTokens": await _message_tokens(desk, user),
            "messageBytes": desk.rules.message_bytes,
            "retentionDays": plan.retention_days or None,
        },
    }


@accounts.patch("/me", summary="Say what your account allows", openapi_extra=schema_of(MyChanges))
async def change_me(request: Request, caller: Asking, front: AtFront) -> JSONResponse:
    """`evaluation`: whether your conversations may be used to judge models and changes. It is off
    until you turn it on, and off again at once."""
    changes = (await read_body(request, MyChanges)).model_dump(exclude_unset=True)
    if changes:
        await front.desk.accounts.change(caller.user.id, changes)
    return JSONResponse({"evaluation": changes.get("evaluation", caller.user.evaluation)})


@accounts.delete("/me", summary="Delete your account and everything in it", status_code=204)
async def leave(request: Request, caller: Asking, front: AtFront) -> Response:
    """Stops what runs and deletes every conversation, file, batch and credential.

    The name stays taken, by a mark that does not tell it: somebody else could otherwise pass for
    the person who left. Asks for the password again unless it was given within the last five
    minutes.
    """
    await demand_fresh(request, caller, front)
    desk, owner = front.desk, caller.user.id
    # First of all, so that no other program of this user writes anew what is being deleted. Should
    # this process die from here on, a worker goes on.
    await desk.erasure.close(owner)
    await _stop_replies(desk, owner)
    await erase_all(desk, owner)
    desk.bell.ring(DELETIONS_BELL)
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
    await front.desk.sessions.close(user_id=user.id)
    await _stop_replies(front.desk, user.id)


async def demand_fresh(request: Request, caller: Caller, front: Front) -> None:
    """Somebody signed in within the last five minutes, or the password is in the body (`Farewell`).
    An account without one has the first way alone."""
    session = caller.session
    if session is not None and session.age_s < _FRESH_S:
        return
    if caller.user.password_hash is None:
        raise Problem("forbidden", "Sign in again to do this: it was more than five minutes ago.")
    body = await read_body(request, Farewell, empty=b"{}")
    guessing = guesser(request, caller.user.name)
    await front.logins_by_name.demand(guessing)
    if not await front.passwords.matches(caller.user.password_hash, body.password):
        raise Problem("forbidden", "Give your password again to do this.", field="password")
    front.logins_by_name.forgive(guessing)


async def _stop_replies(desk: Desk, owner: str) -> None:
    spent = await desk.accounts.spent(owner)
    for reply_id in spent.running:
        await stop_reply(desk, owner, reply_id, "stopped")


async def _message_tokens(desk: Desk, user: User) -> int:
    """The longest message that the door would take in a conversation that begins now, in tokens of
    the model that answers `auto`."""
    vocabulary, plan = desk.vocabulary(AUTO), desk.plans[user.plan]
    told = await desk.instructions.current(user.id)
    version = (await rollout_now(desk)).version
    footing = Footing(version, NO_INSTRUCTIONS if told is None else told.version)
    fixed = await tokens_on(desk, user.id, footing, vocabulary)
    return longest_message(plan, vocabulary, fixed)


def _budget_json(seen: Standing) -> dict[str, Any]:
    full_at_ms = seen.full_at_ms
    return {
        "name": seen.budget.name,
        "unit": seen.budget.unit,
        "limit": seen.budget.limit // MILLI,
        "remaining": seen.remaining // MILLI,
        "resetAt": None if full_at_ms is None else rfc3339(full_at_ms / 1000),
        "refillSeconds": seen.budget.refill_ms // 1000,
    }


def _key_json(key: ApiKey) -> dict[str, Any]:
    used = key.last_used_at
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "createdAt": rfc3339(key.created_at),
        "lastUsedAt": None if used is None else rfc3339(used),
    }
