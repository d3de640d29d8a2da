"""What administrators look at and change: plans; an account's plan, role and end; the ladder."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from tertulia.core.deletions import OVERDUE_S, Deletion
from tertulia.core.ladder import RUNGS, Terms
from tertulia.core.plans import Plan
from tertulia.core.quota import MILLI
from tertulia.core.spending import DAY_MS, most_spent
from tertulia.core.types import Budget, BudgetUnit, Page, User
from tertulia.gateway.accounts import end_everything
from tertulia.gateway.auth import AdminAsking
from tertulia.gateway.bodies import Body, clean_text, read_body, schema_of
from tertulia.gateway.front import AtFront, Front
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import invalid, not_found
from tertulia.gateway.welcome import sign_in_token

admin = APIRouter(prefix="/v1/admin", tags=["administration"])


class AccountChanges(Body):
    """Only the named fields change."""

    plan: str = Field(default="", min_length=1, max_length=40)
    role: Literal["admin", "user"] = "user"
    disabled: bool = False


@admin.get("/plans", summary="The plans and what each may use")
async def plans(_: AdminAsking, front: AtFront) -> JSONResponse:
    """As they are configured, and the most that one account on each can spend in a day."""
    return JSONResponse({"items": [_plan_json(plan) for plan in front.desk.plans.values()]})


@admin.get("/users", summary="List accounts, or find one by its name")
async def users(
    _: AdminAsking,
    front: AtFront,
    name: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    plan: Annotated[str | None, Query(min_length=1, max_length=40)] = None,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> JSONResponse:
    """The oldest first, those on a plan where one is named, and how many accounts there are."""
    found = await _found(front, name, plan, cursor, limit)
    return JSONResponse(
        {
            "items": [_user_json(user) for user in found.items],
            "nextCursor": found.next_cursor,
            "count": await front.desk.accounts.count(),
        }
    )


@admin.post("/sign-in-links", summary="Make a one-time sign-in link for yourself")
async def sign_in_link(caller: AdminAsking, front: AtFront) -> JSONResponse:
    """The secret of a link that signs the caller in, once; it is shown here and never again."""
    token = await sign_in_token(front.desk, caller.user)
    return JSONResponse({"token": token}, 201)


@admin.get("/ladder", summary="Which rung of the ladder holds, and why")
async def ladder(_: AdminAsking, front: AtFront) -> JSONResponse:
    """The rung as this gateway last heard it, and the load as it would be on each rung."""
    lookout = front.desk.lookout
    foothold, load = lookout.foothold, lookout.load
    plans = [lookout.terms(plan) for _, plan in sorted(front.desk.plans.items())]
    return JSONResponse(
        {
            "rung": foothold.rung,
            "name": RUNGS[foothold.rung],
            "heldSeconds": round(foothold.held_s, 1),
            "changes": foothold.changes,
            "heardSecondsAgo": None if lookout.heard_s is None else round(lookout.heard_s, 1),
            "load": None
            if load is None
            else {
                "onRung": [round(share, 3) for share in load.on_rung],
                "isWhole": load.is_whole,
            },
            "plans": {terms.plan.name: _terms_json(terms) for terms in plans},
        }
    )


@admin.get("/deletions", summary="What deletions have reached")
async def deletions(
    _: AdminAsking,
    front: AtFront,
    cursor: Annotated[str | None, Query(max_length=400)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> JSONResponse:
    """The newest first: what was ordered to go, which copies were reached when, and by which
    replica's word. No words of anybody's are here."""
    try:
        page = await front.desk.deletions.page(cursor=cursor, limit=limit)
    except ValueError:
        raise invalid("cursor", "This cursor was not made here.") from None
    return JSONResponse(
        {
            "items": [_deletion_json(deletion) for deletion in page.items],
            "nextCursor": page.next_cursor,
            "overdue": await front.desk.deletions.overdue(age_s=OVERDUE_S),
        }
    )


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


def _deletion_json(deletion: Deletion) -> dict[str, Any]:
    done_at = deletion.done_at
    return {
        "owner": deletion.owner,
        "target": deletion.target or None,
        "kind": deletion.kind,
        "requestedAt": rfc3339(deletion.requested_at),
        "doneAt": None if done_at is None else rfc3339(done_at),
        "looks": deletion.looks,
        "reached": {
            name: {"how": reach.how, "at": rfc3339(reach.at)}
            for name, reach in deletion.reached.items()
        },
    }


def _terms_json(terms: Terms) -> dict[str, Any]:
    return {
        "answerTokens": terms.answer_tokens,
        "goesToSmall": terms.goes_to_small,
        "startsWithinSeconds": terms.starts_within_s,
        "abandonSeconds": terms.abandon_s,
    }


async def _found(
    front: Front, name: str | None, plan: str | None, cursor: str | None, limit: int
) -> Page[User]:
    accounts = front.desk.accounts
    for field, word in (("name", name), ("plan", plan), ("cursor", cursor)):
        clean_text(word or "", field)
    if name is None:
        # Also of a plan that is configured no more: its users are on `free` until they are moved.
        return await accounts.page(plan=plan, after=cursor, limit=limit)
    user = await accounts.by_name(name)
    return Page(() if user is None or plan not in (None, user.plan) else (user,), None)


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "lane": plan.lane.name.lower(),
        "windowTokens": plan.window_tokens,
        "answerTokens": plan.answer_tokens,
        "budgets": [_budget_json(budget) for budget in plan.budgets],
        "repliesRunning": plan.replies_running,
        "openStreams": plan.open_streams,
        "waitSeconds": plan.wait_s,
        "models": list(plan.models),
        "ladder": plan.ladder,
        "abandonSeconds": plan.abandon_s,
        "retentionDays": plan.retention_days or None,
        "mostPerDay": {unit: _most_a_day(plan, unit) for unit in get_args(BudgetUnit)},
    }


def _budget_json(budget: Budget) -> dict[str, Any]:
    return {
        "name": budget.name,
        "unit": budget.unit,
        "limit": budget.limit // MILLI,
        "refillSeconds": budget.refill_ms // 1000,
    }


def _most_a_day(plan: Plan, unit: BudgetUnit) -> int | None:
    most = most_spent(plan.budgets, unit, DAY_MS)
    return None if most is None else most // MILLI


def _user_json(user: User) -> dict[str, Any]:
    return {
        "id": user.id,
        "name": user.name,
        "role": user.role,
        "plan": user.plan,
        "disabled": user.disabled,
        "createdAt": rfc3339(user.created_at),
    }
