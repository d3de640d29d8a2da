"""What administrators see and change of plans and accounts, and that nobody else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tertulia.core.types import User
from tertulia.gateway.streams import Seat
from tests.lanes.gateway_rig import PLANS, Rig, ask, new_conversation, rig

pytestmark = pytest.mark.anyio


async def added(here: Rig, *names: str, plan: str = "free") -> None:
    for name in names:
        await here.backend.accounts.add(User(f"u_00{name}", name, "user", plan, None, 1.0))


async def test_the_plans_are_shown_with_what_each_may_use_and_can_spend() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        plans = {
            plan["name"]: plan for plan in (await admin.get("/v1/admin/plans")).json()["items"]
        }
    assert set(plans) == set(PLANS)
    free, plan = plans["free"], PLANS["free"]
    assert (free["lane"], free["openStreams"]) == (plan.lane.name.lower(), plan.open_streams)
    assert (free["answerTokens"], free["repliesRunning"]) == (400, 2)
    assert [budget["name"] for budget in free["budgets"]] == [b.name for b in plan.budgets]
    for shown, budget in zip(free["budgets"], plan.budgets, strict=True):
        assert shown["limit"] * 1000 == budget.limit
        assert shown["refillSeconds"] * 1000 == budget.refill_ms
    assert set(free["mostPerDay"]) == {"units", "tokens", "prompt_tokens", "turns"}


async def test_the_accounts_are_listed_page_after_page_with_their_plans() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        await added(here, "a", "b", "c")
        await added(here, "d", plan="plus")
        first = (await admin.get("/v1/admin/users?limit=3")).json()
        rest = (await admin.get(f"/v1/admin/users?cursor={first['nextCursor']}")).json()
        plus = (await admin.get("/v1/admin/users?plan=plus")).json()
    assert [item["name"] for item in first["items"]] == ["a", "b", "c"]
    assert [item["name"] for item in rest["items"]] == ["d", "root"]
    assert (rest["nextCursor"], rest["count"]) == (None, 5)
    assert [(item["name"], item["plan"]) for item in plus["items"]] == [("d", "plus")]


async def test_an_account_is_found_by_its_name_in_any_case_and_on_its_plan_alone() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        await added(here, "ana", plan="plus")
        found = [
            [item["id"] for item in (await admin.get(f"/v1/admin/users?{query}")).json()["items"]]
            for query in ("name=ANA", "name=ANA&plan=plus", "name=ana&plan=free", "name=nobody")
        ]
    assert found == [["u_00ana"], ["u_00ana"], [], []]


async def test_who_is_on_a_plan_that_is_gone_is_listed_and_can_be_moved() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        await added(here, "ana", plan="gone")
        listed = (await admin.get("/v1/admin/users?plan=gone")).json()["items"]
        moved = await admin.patch(f"/v1/admin/users/{listed[0]['id']}", json={"plan": "plus"})
        left = (await admin.get("/v1/admin/users?plan=gone")).json()["items"]
    assert (moved.status_code, moved.json()["plan"], left) == (200, "plus", [])


async def test_a_changed_plan_counts_from_the_next_call_on() -> None:
    plans = {**PLANS, "tiny": replace(PLANS["free"], name="tiny", open_streams=1)}
    async with rig(plans=plans) as here:
        admin, ana = await here.user("root", role="admin"), await here.user("ana")
        user_id = (await ana.get("/v1/me")).json()["id"]
        conversation = await new_conversation(ana)
        assert await here.desk.streams.take(Seat(user_id, "elsewhere"), limit=20)
        before = await ask(ana, conversation, "Before")
        await admin.patch(f"/v1/admin/users/{user_id}", json={"plan": "tiny"})
        after = await ask(ana, conversation, "After")
        assert (await ana.get("/v1/me")).json()["plan"] == "tiny"
    assert (before.status_code, after.status_code) == (200, 429)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"plan": "gold"}, "plan"),
        ({"plan": ""}, "plan"),
        ({"plan": "x" * 41}, "plan"),
        ({"plan": 3}, "plan"),
        ({"role": "owner"}, "role"),
        ({"budgets": []}, "budgets"),
        ({"name": "ben"}, "name"),
    ],
    ids=str,
)
async def test_a_change_that_can_not_be_is_refused_by_its_field(
    body: dict[str, object], field: str
) -> None:
    async with rig() as here:
        admin, ana = await here.user("root", role="admin"), await here.user("ana")
        before = (await ana.get("/v1/me")).json()
        refused = await admin.patch(f"/v1/admin/users/{before['id']}", json=body)
        after = (await ana.get("/v1/me")).json()
    assert (refused.status_code, refused.json()["field"]) == (400, field)
    assert (after["plan"], after["role"]) == (before["plan"], before["role"])


@pytest.mark.parametrize(
    "query", ["name=", "plan=", "limit=0", "limit=201", "limit=x", "cursor=%00", "name=" + "n" * 65]
)
async def test_a_list_that_can_not_be_asked_for_is_refused(query: str) -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        refused = await admin.get(f"/v1/admin/users?{query}")
    assert (refused.status_code, refused.json()["field"]) == (400, query.partition("=")[0])


async def test_nobody_but_administrators_sees_or_changes_any_of_it() -> None:
    """T45, and a change with a browser's cookie must come from our own page."""
    async with rig() as here:
        ana = await here.user("ana")
        user_id = (await ana.get("/v1/me")).json()["id"]
        calls = [("GET", "/v1/admin/plans"), ("GET", "/v1/admin/users")]
        calls += [("PATCH", f"/v1/admin/users/{user_id}")]
        for method, path in calls:
            body = {"plan": "plus"} if method == "PATCH" else None
            by_user = await ana.request(method, path, json=body)
            by_nobody = await here.client().request(method, path, json=body)
            assert (by_user.status_code, by_nobody.status_code) == (403, 401)
        browser = await here.browser("root")
        root = (await browser.get("/v1/me")).json()["id"]
        await here.backend.accounts.change(root, {"role": "admin"})
        foreign = await browser.patch(
            f"/v1/admin/users/{user_id}",
            json={"plan": "plus"},
            headers={"Origin": "https://elsewhere.example"},
        )
        assert (await ana.get("/v1/me")).json()["plan"] == "free"
    assert (foreign.status_code, foreign.json()["code"]) == (403, "csrf")
