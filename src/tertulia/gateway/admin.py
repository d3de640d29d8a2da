"""What administrators do to accounts: look one up, change its plan or role, disable it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from tertulia.core.types import User
from tertulia.gateway.accounts import end_everything
from tertulia.gateway.auth import AdminAsking
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.front import AtFront
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import invalid, not_found
from tertulia.gateway.welcome import sign_in_token

admin = APIRouter(prefix="/v1/admin", tags=["administration"])


class AccountChanges(Body):
    """Only the named fields change."""

    plan: str = Field(default="", min_length=1, max_length=40)
    role: Literal["admin", "user"] = "user"
    disabled: bool = False


@admin.get("/users", summary="Find an account by its name")
async def find(
    _: AdminAsking, front: AtFront, name: Annotated[str, Query(min_length=1, max_length=64)]
) -> JSONResponse:
    """The account of that name, if there is one, and how many accounts there are."""
    user = await front.desk.accounts.by_name(name)
    items = [] if user is None else [_user_json(user)]
    return JSONResponse({"items": items, "count": await front.desk.accounts.count()})


@admin.post("/sign-in-links", summary="Make a one-time sign-in link for yourself")
async def sign_in_link(caller: AdminAsking, front: AtFront) -> JSONResponse:
    """The secret of a link that signs the caller in, once; it is shown here and never again."""
    token = await sign_in_token(front.desk, caller.user)
    return JSONResponse({"token": token}, 201)


@admin.patch(
    "/users/{user_id}",
    summary="Change a plan or role, or disable an account",
    openapi_extra=schema_of(AccountChanges),
)
async def change(
    request: Request, user_id: str, caller: AdminAsking, front: AtFront
) -> JSONResponse:
    """Disabling ends sessions, keys and running replies at once, streams in seconds (S-50)."""
    body = await read_body(request, AccountChanges)
    changes = body.model_dump(exclude_unset=True)
    if "plan" in changes and body.plan not in front.desk.plans:
        raise invalid("plan", f"The plans are {', '.join(sorted(front.desk.plans))}.")
    if user_id == caller.user.id and (body.disabled or "role" in changes):
        raise invalid("disabled", "You can't lock yourself out.")
    changed = await front.desk.accounts.change(user_id, changes)
    if changed is None:
        raise not_found()
    if changed.disabled:
        await end_everything(front, changed)
    return JSONResponse(_user_json(changed))


def _user_json(user: User) -> dict[str, Any]:
    return {
        "id": user.id,
        "name": user.name,
        "role": user.role,
        "plan": user.plan,
        "disabled": user.disabled,
        "createdAt": rfc3339(user.created_at),
    }
