"""What deleting reaches, when, and what can be shown of it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tertulia.core import deletions as rules
from tertulia.core.deletions import DAY_S, CacheAnswer
from tertulia.core.types import Missing, PromptMessage, User
from tertulia.gateway import pump
from tertulia.gateway.admit import Answer, StatelessAsk, admit_turn
from tertulia.gateway.desk import Desk
from tertulia.ports import StoreUnavailable
from tertulia.worker.forget import Ageing, forget_round
from tests.lanes.batch_rig import batch_rig, begun, jsonl, line, sdk
from tests.lanes.gateway_rig import (
    PASSWORD,
    PLANS,
    Rig,
    ScriptedReplicas,
    ask,
    ask_later,
    new_conversation,
    rig,
    until,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for who may still be writing."""
    monkeypatch.setattr(rules, "LATE_S", 0.0)


async def orders(admin: httpx2.AsyncClient) -> list[dict[str, Any]]:
    """What an administrator sees."""
    listed = await admin.get("/v1/admin/deletions")
    assert listed.status_code == 200, listed.text
    items: list[dict[str, Any]] = listed.json()["items"]
    return items


async def looked_at(here: Rig) -> None:
    """Every order that is due is looked at, by this test if not by the worker."""
    while await forget_round(here.worker.desk):
        pass


async def test_a_deleted_conversation_is_forgotten_by_every_replica_and_the_row_says_so(
    at_once: None,
) -> None:
    async with rig() as here:
        admin, ana = await here.user("root", role="admin"), await here.user("ana")
        conversation = await new_conversation(ana)
        await ask(ana, conversation, "The canary is Zugunruhe")
        assert (await ana.delete(f"/v1/conversations/{conversation}")).status_code == 204
        await looked_at(here)
        [order] = await orders(admin)
        owner = (await ana.get("/v1/me")).json()["id"]
        shown = (await admin.get("/v1/admin/deletions")).text
        worker_page = here.worker.figures.page().decode()
    assert here.replicas.forgotten == [(owner, conversation)]
    assert (order["owner"], order["target"], order["kind"]) == (owner, conversation, "conversation")
    assert order["doneAt"] is not None
    hows = {place: reach["how"] for place, reach in order["reached"].items()}
    assert hows == {
        "rows": "deleted",
        "logs": "deleted",
        "disk": "overwritten",
        "cache:replica-1": "forgotten",
    }
    assert "Zugunruhe" not in shown
    done = 'tertulia_worker_deletions_total{end="whole",kind="conversation"} 1.0'
    assert done in worker_page


async def test_an_order_waits_for_whoever_may_still_be_writing() -> None:
    async with rig() as here:
        admin, ana = await here.user("root", role="admin"), await here.user("ana")
        conversation = await new_conversation(ana)
        await ana.delete(f"/v1/conversations/{conversation}")
        await looked_at(here)
        [order] = await orders(admin)
    assert order["looks"] == 1
    assert order["doneAt"] is None
    assert order["reached"]["cache:replica-1"]["how"] == "forgotten"
    assert order["reached"]["disk"]["how"] == "pending"


class Away(ScriptedReplicas):
    """One replica that answers only when it is back, and one that can't forget."""

    is_back = False

    async def forget(self, owner: str, conversation_id: str | None) -> dict[str, CacheAnswer]:
        await super().forget(owner, conversation_id)
        return {"a": "forgotten" if self.is_back else "unanswered", "v": "unsupported"}


async def test_a_replica_that_is_away_is_asked_again_and_one_that_can_not_is_named(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "_FIRST_PAUSE_S", 0.0)
    replicas = Away()
    async with rig(replicas=replicas) as here:
        admin, ana = await here.user("root", role="admin"), await here.user("ana")
        await ana.delete(f"/v1/conversations/{await new_conversation(ana)}")
        await forget_round(here.worker.desk)
        [before] = await orders(admin)
        replicas.is_back = True
        await looked_at(here)
        [after] = await orders(admin)
    assert (before["doneAt"], before["reached"]["cache:a"]["how"]) == (None, "pending")
    assert after["doneAt"] is not None
    hows = [after["reached"][f"cache:{name}"]["how"] for name in "av"]
    assert hows == ["forgotten", "unsupported"]


async def test_an_order_is_looked_at_by_a_worker_that_nobody_tells(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tertulia.worker.forget._SETTLE_S", 0.0)
    async with rig() as here:
        ana = await here.user("ana")
        await ana.delete(f"/v1/conversations/{await new_conversation(ana)}")
        await until(lambda: here.replicas.forgotten)


@pytest.mark.parametrize("port", ["deletions", "erasure", "replicas"])
async def test_neither_a_store_that_is_away_nor_a_fault_ends_a_worker_or_an_order(
    at_once: None, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    monkeypatch.setattr("tertulia.worker.forget._SETTLE_S", 0.0)
    monkeypatch.setattr("tertulia.worker.forget._LOOK_EVERY_S", 0.01)
    monkeypatch.setattr("tertulia.worker.forget._LEASE_S", 0.01)
    failures = [StoreUnavailable("away"), RuntimeError("a fault"), StoreUnavailable("away")]
    if port == "deletions":
        failures = [one for one in failures if isinstance(one, StoreUnavailable)]
    method = {"deletions": "claim", "erasure": "left", "replicas": "forget"}[port]
    async with rig() as here:
        target = getattr(here.worker.desk, port)
        real = getattr(target, method)

        async def flaky(*given: Any, **more: Any) -> Any:
            if failures:
                raise failures.pop()
            return await real(*given, **more)

        monkeypatch.setattr(target, method, flaky)
        ana = await here.user("ana")
        await ana.delete(f"/v1/conversations/{await new_conversation(ana)}")
        [kept] = here.backend.store.deletions.values()
        await until(lambda: kept.deletion.done_at is not None)
        assert not here.working.done()
    assert failures == []


async def test_orders_are_for_administrators_and_come_in_pages() -> None:
    async with rig() as here:
        admin, ana = await here.user("root", role="admin"), await here.user("ana")
        for _ in range(3):
            await ana.delete(f"/v1/conversations/{await new_conversation(ana)}")
        refused = await ana.get("/v1/admin/deletions")
        foreign = await admin.get("/v1/admin/deletions?cursor=x")
        first = (await admin.get("/v1/admin/deletions?limit=2")).json()
        rest = (await admin.get(f"/v1/admin/deletions?cursor={first['nextCursor']}")).json()
    assert (refused.status_code, foreign.status_code) == (403, 400)
    assert (len(first["items"]), len(rest["items"]), rest["nextCursor"]) == (2, 1, None)
    assert first["overdue"] == 0


async def test_an_account_ends_with_everything_and_its_order_shows_it(at_once: None) -> None:
    async with batch_rig() as here:
        admin = await here.user("root", role="admin")
        ana = await here.browser("ana")
        await ask(ana, await new_conversation(ana))
        sent = {"file": ("in.jsonl", jsonl(line("a")))}
        await ana.post("/v1/files", data={"purpose": "batch"}, files=sent)
        owner = (await ana.get("/v1/me")).json()["id"]
        assert (await ana.delete("/v1/me")).status_code == 204
        users = (await admin.get("/v1/admin/users")).json()
        body = {"name": "ANA", "password": PASSWORD}
        again = await here.client().post("/v1/auth/register", json=body)
        await forget_round(here.worker.desk)
        [pending] = await orders(admin)
        await here.desk.files.sweep(parts=100)
        await here.desk.files.sweep(parts=100)
        here.backend.store.deletions[owner, owner].due_at = 0.0
        await looked_at(here)
        [over] = await orders(admin)
    assert [user["name"] for user in users["items"]] == ["root"]
    assert again.status_code == 409
    assert pending["kind"] == "account"
    assert (pending["doneAt"], pending["reached"]["files"]["how"]) == (None, "pending")
    assert over["doneAt"] is not None
    assert {over["reached"][name]["how"] for name in ("rows", "logs", "files", "batches")} == {
        "deleted"
    }
    assert (owner, None) in here.replicas.forgotten


async def test_a_crash_in_the_midst_of_an_account_s_end_leaves_nothing(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig() as here:
        ana = await here.browser("ana")
        await ask(ana, await new_conversation(ana))
        owner = (await ana.get("/v1/me")).json()["id"]
        await here.desk.erasure.close(owner)  # and there the gateway was killed
        await looked_at(here)
        store = here.backend.store
        assert not store.conversations
        assert not store.messages
        assert not store.turns


async def test_a_line_of_a_batch_that_comes_to_the_door_after_its_owner_left_is_no_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its pump looked the owner up before, and dies right after: nobody would take it back."""
    left: list[int] = []
    async with batch_rig() as here, sdk(here) as client:

        async def late(desk: Desk, user: User, ask: StatelessAsk) -> Answer:
            me = here.client(Authorization=f"Bearer {client.api_key}")
            body = {"password": PASSWORD}
            left.append((await me.request("DELETE", "/v1/me", json=body)).status_code)
            answer = await admit_turn(desk, user, ask)
            assert answer == Missing()
            raise RuntimeError("the pump was killed")

        monkeypatch.setattr(pump, "admit_turn", late)
        await begun(client, jsonl(line("a")))
        await until(lambda: left)
        await until(lambda: not here.backend.store.users)
        assert not here.backend.store.turns
    assert left == [204]


async def test_a_conversation_under_generation_is_deleted_and_its_writer_leaves_nothing() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        posted = (await ask_later(ana, conversation)).json()
        await until(lambda: here.replicas.asked)
        deleted = await ana.delete(f"/v1/conversations/{conversation}")
        here.replicas.hold.set()
        await until(lambda: not here.worker.held)
        resumed = await ana.get(posted["streamUrl"])
        store = here.backend.store
        assert not store.turns
        assert not store.messages
    assert (deleted.status_code, resumed.status_code) == (204, 404)


def older(seconds: float) -> Callable[[Any], Any]:
    return lambda one: replace(one, updated_at=one.updated_at - seconds)


@pytest.mark.parametrize(("days", "kept"), [(29, True), (31, False)])
async def test_what_nobody_touches_is_kept_as_long_as_the_plan_says(
    days: float, kept: bool
) -> None:
    async with rig() as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        await ana.patch(f"/v1/conversations/{conversation}", json={"pinned": True})
        me = (await ana.get("/v1/me")).json()
        stored = here.backend.store.conversations
        for key, one in stored.items():
            stored[key] = older(days * DAY_S)(one)
        n_aged = await Ageing(here.worker.desk).round()
        found = await ana.get(f"/v1/conversations/{conversation}")
    assert me["limits"]["retentionDays"] == 30
    assert (n_aged == 0) == kept
    assert (found.status_code == 200) == kept


async def test_a_plan_may_keep_for_ever() -> None:
    plans = {name: replace(plan, retention_days=0) for name, plan in PLANS.items()}
    async with rig(plans=plans) as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        stored = here.backend.store.conversations
        for key, one in stored.items():
            stored[key] = older(10_000 * DAY_S)(one)
        assert await Ageing(here.worker.desk).round() == 0
        assert (await ana.get(f"/v1/conversations/{conversation}")).status_code == 200


async def test_users_are_gone_through_in_turns_and_all_over_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tertulia.worker.forget._USERS", 2)
    monkeypatch.setattr("tertulia.worker.forget._USERS_PAGE", 1)
    async with rig() as here:
        clients = [await here.user(f"p{n}") for n in range(3)]
        ageing = Ageing(here.worker.desk)
        for client in clients:
            await new_conversation(client)
        stored = here.backend.store.conversations
        for key, one in stored.items():
            stored[key] = older(31 * DAY_S)(one)
        assert [await ageing.round() for _ in range(3)] == [2, 1, 0]
    assert not stored


async def test_a_stateless_ask_of_somebody_who_left_is_refused_as_missing() -> None:
    async with rig() as here:
        ana = await here.browser("ana")
        user = await here.backend.accounts.by_name("ana")
        assert user is not None
        await ana.delete("/v1/me")
        ask_ = StatelessAsk((PromptMessage("user", "Hi"),), "auto", "key", "sha")
        assert await admit_turn(here.desk, user, ask_) == Missing()
