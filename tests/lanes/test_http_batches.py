"""Batches as OpenAI's own client uses them, strictly validating, and their refusals."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from openai import APIError, BadRequestError, ConflictError
from openai.types import Batch
from structlog.testing import capture_logs

from tertulia.core import batches as core_batches
from tertulia.core.fleet import Wanted
from tertulia.core.quota import MILLI
from tertulia.core.types import Admission, Budget, Limits, NewTurn
from tertulia.gateway import pump
from tertulia.gateway.desk import Desk
from tertulia.ports import Turns
from tests.lanes.batch_rig import (
    BATCH_PLAN,
    PURPOSE,
    QUICK,
    WHOLE,
    batch_rig,
    begun,
    ended,
    form,
    jsonl,
    line,
    results,
    sdk,
)
from tests.lanes.gateway_rig import (
    FORBIDDEN,
    PLANS,
    ScriptedReplicas,
    until,
)

pytestmark = pytest.mark.anyio


async def test_a_batch_is_answered_line_by_line() -> None:
    lines = [line(f"r{n}", f"Question {n}") for n in range(10)]
    async with batch_rig() as here, sdk(here) as client:
        batch = await begun(client, jsonl(*lines), metadata={"night": "1"})
        assert batch.status == "validating"
        batch = await ended(client, batch)
        output = await results(client, batch.output_file_id)
        n_turns = len(here.backend.store.turns)
        plans = {turn.plan for turn in here.backend.store.turns.values()}
    assert batch.status == "completed"
    assert batch.metadata == {"night": "1"}
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 10, "completed": 10, "failed": 0}
    assert batch.error_file_id is None
    assert batch.errors is None
    assert [result["custom_id"] for result in output] == [f"r{n}" for n in range(10)]
    assert {result["error"] for result in output} == {None}
    body = output[0]["response"]["body"]
    assert output[0]["response"]["status_code"] == 200
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == WHOLE
    assert batch.usage is not None
    assert batch.usage.output_tokens == 10 * len(WHOLE)
    assert batch.usage.input_tokens_details.cached_tokens == 30
    assert n_turns == len(here.replicas.asked) == 10
    assert plans == {"batch"}
    moments = [
        batch.created_at,
        batch.in_progress_at,
        batch.finalizing_at,
        batch.completed_at,
    ]
    assert None not in moments
    assert moments == sorted(moments, key=lambda moment: moment or 0)


async def test_a_line_that_is_refused_is_in_the_error_file_and_harms_no_other() -> None:
    lines = [
        line("good"),
        line("tools", tools=[{"type": "function", "function": {"name": "f"}}]),
        line("model", model="gpt-9"),
        line("long", "x" * 20_000),
        line("stream", stream=True),
        {**line("none"), "body": {"model": "auto"}},
        line("flagged", f"Tell me of {FORBIDDEN}"),
    ]
    async with batch_rig() as here, sdk(here) as client:
        batch = await ended(client, await begun(client, jsonl(*lines)))
        output = await results(client, batch.output_file_id)
        errors = await results(client, batch.error_file_id)
        assert len(here.replicas.asked) == 1
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 5)
    assert [result["custom_id"] for result in output] == ["good", "flagged"]
    finish = output[1]["response"]["body"]["choices"][0]["finish_reason"]
    assert finish == "content_filter"
    told = {
        error["custom_id"]: (
            error["response"]["status_code"],
            error["response"]["body"]["error"]["param"],
        )
        for error in errors
    }
    assert told == {
        "tools": (400, "tools"),
        "model": (404, "model"),
        "long": (413, "content"),
        "stream": (400, "stream"),
        "none": (400, "messages"),
    }


BAD_FILES: list[tuple[bytes, str, int | None, str | None]] = [
    (b"", "empty_file", None, None),
    (b"\n  \n", "empty_file", None, None),
    (jsonl(line("a")) + b"\n" * 60, "too_many_lines", None, None),
    (jsonl(line("a")) + b"{\n", "invalid_json_line", 2, None),
    (b'["a"]\n', "invalid_json_line", 1, None),
    (b'{"custom_id":"\xff"}\n', "invalid_json_line", 1, None),
    (jsonl(line("a"), line("b"), line("a")), "duplicate_custom_id", 3, "custom_id"),
    (jsonl({"custom_id": "a"}), "missing_required_parameter", 1, "method"),
    (jsonl({**line("a"), "custom_id": None}), "missing_required_parameter", 1, "custom_id"),
    (jsonl({**line("a"), "custom_id": 7}), "invalid_request", 1, "custom_id"),
    (jsonl({**line("a"), "custom_id": "a\nb"}), "invalid_request", 1, "custom_id"),
    (jsonl({**line("a"), "custom_id": "x" * 257}), "invalid_request", 1, "custom_id"),
    (jsonl({**line("a"), "method": "GET"}), "invalid_request", 1, "method"),
    (jsonl({**line("a"), "url": "/v1/embeddings"}), "url_mismatch", 1, "url"),
    (jsonl({**line("a"), "body": []}), "invalid_request", 1, "body"),
    (jsonl(line("a", "x" * 400_000)), "line_too_long", 1, None),
    (jsonl(*(line(str(n)) for n in range(31))), "too_many_tasks", None, None),
]


@pytest.mark.parametrize(
    ("data", "code", "number", "param"), BAD_FILES, ids=[str(code) for _, code, _, _ in BAD_FILES]
)
async def test_a_file_that_is_no_batch_fails_before_any_line_runs(
    data: bytes, code: str, number: int | None, param: str | None
) -> None:
    rules = replace(QUICK, lines=30, line_bytes=300_000)
    async with batch_rig(rules) as here, sdk(here) as client:
        batch = await ended(client, await begun(client, data))
        assert not here.replicas.asked
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("failed", None, None)
    assert batch.failed_at is not None
    assert batch.errors is not None
    assert batch.errors.data is not None
    (error,) = batch.errors.data
    assert (error.code, error.line, error.param) == (code, number, param)
    assert error.message


async def test_odd_but_valid_files_are_read() -> None:
    data = b"\xef\xbb\xbf" + jsonl(line("a")).replace(b"\n", b"\r\n") + b"\n \t\n"
    data += jsonl(line("b", "ñandú 🌲")).rstrip()
    async with batch_rig() as here, sdk(here) as client:
        batch = await ended(client, await begun(client, data))
        output = await results(client, batch.output_file_id)
    assert [result["custom_id"] for result in output] == ["a", "b"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"endpoint": "/v1/embeddings"}, "endpoint"),
    ({"completion_window": "1h"}, "completion_window"),
    ({"input_file_id": "file_none"}, "input_file_id"),
    ({"input_file_id": ""}, "input_file_id"),
    ({"metadata": {"k": 1}}, "metadata.k"),
    ({"metadata": {str(n): "v" for n in range(17)}}, "metadata"),
    ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    (
        {"output_expires_after": {"anchor": "created_at", "seconds": 5}},
        "output_expires_after.seconds",
    ),
    ({"output_expires_after": {"anchor": "x", "seconds": 5000}}, "output_expires_after.anchor"),
]


@pytest.mark.parametrize(("more", "field"), REFUSED, ids=[str(more)[:40] for more, _ in REFUSED])
async def test_what_a_batch_can_not_be_is_a_400_that_names_the_field(
    more: dict[str, Any], field: str
) -> None:
    async with batch_rig() as here, sdk(here) as client:
        file = await client.files.create(file=("in.jsonl", jsonl(line("a"))), purpose="batch")
        body = {
            "input_file_id": file.id,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            **more,
        }
        with pytest.raises(BadRequestError) as refused:
            await client.post("/batches", body=body, cast_to=Batch)
    assert refused.value.param == field


async def test_a_cancelled_batch_stops_its_running_lines_and_keeps_what_was_answered() -> None:
    replicas = ScriptedReplicas()
    async with batch_rig(replicas=replicas) as here, sdk(here) as client:
        lines = jsonl(*(line(f"r{n}") for n in range(12)))
        first = await ended(client, await begun(client, jsonl(line("first"))))
        assert first.status == "completed"
        replicas.before_hold = 2
        batch = await begun(client, lines)
        await until(lambda: len(replicas.asked) == 5)  # the plan lets four run
        cancelled = await client.batches.cancel(batch.id)
        assert cancelled.status == "cancelling"
        batch = await ended(client, batch)
        assert len(replicas.aborted) >= 4
        assert not here.backend.store.open
        errors = await results(client, batch.error_file_id)
        again = await client.batches.cancel(batch.id)
        with pytest.raises(ConflictError) as over:
            await client.batches.cancel(first.id)
    assert batch.status == again.status == "cancelled"
    assert (batch.cancelling_at, batch.cancelled_at) != (None, None)
    assert [error["custom_id"] for error in errors] == [f"r{n}" for n in range(12)]
    assert {error["error"]["code"] for error in errors} == {"batch_cancelled"}
    assert batch.request_counts is not None
    assert batch.request_counts.failed == 12
    assert over.value.code == "batch_ended"


class SlowDoor:
    """Turns that nobody is admitted to before `open` is set."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.asked = asyncio.Event()
        self.open = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turns, name)

    async def admit(self, turn: NewTurn, limits: Limits) -> Admission:
        self.asked.set()
        await self.open.wait()
        return await self._turns.admit(turn, limits)


async def test_a_line_that_is_late_at_the_door_does_not_run_after_its_batch() -> None:
    doors: list[SlowDoor] = []

    def slowly(desk: Desk) -> Desk:
        doors.append(SlowDoor(desk.turns))
        return replace(desk, turns=cast("Turns", doors[0]))

    async with batch_rig(change_desk=slowly) as here, sdk(here) as client:
        batch = await begun(client, jsonl(line("a"), line("b")))
        await doors[0].asked.wait()
        await client.batches.cancel(batch.id)
        async with asyncio.TaskGroup() as tasks:
            other = replace(here.desk, turns=here.backend.turns)
            pumping = tasks.create_task(pump.pump_batches(other))
            batch = await ended(client, batch)
            pumping.cancel()
        doors[0].open.set()
        await asyncio.sleep(0.1)
        assert not here.backend.store.open
        assert not here.replicas.asked
    assert batch.status == "cancelled"


async def test_a_batch_that_can_not_be_done_in_a_day_expires_with_what_it_has() -> None:
    replicas = ScriptedReplicas()
    async with batch_rig(replicas=replicas) as here, sdk(here) as client:
        replicas.before_hold = 2
        batch = await begun(client, jsonl(line("a"), line("b")))
        await until(lambda: len(replicas.asked) == 2)
        (kept,) = here.backend.batches._all.kept.values()
        kept.batch = replace(kept.batch, expires_at=0.0, epoch=kept.batch.epoch + 1)
        kept.lease_until = 0.0
        batch = await ended(client, batch)
        errors = await results(client, batch.error_file_id)
    assert batch.status == "expired"
    assert batch.expired_at is not None
    assert {error["error"]["code"] for error in errors} == {"batch_expired"}


async def test_lines_wait_for_room_and_take_none_of_the_chats() -> None:
    replicas = ScriptedReplicas(before_hold=2)
    async with batch_rig(replicas=replicas) as here, sdk(here) as client:
        batch = await begun(client, jsonl(*(line(f"r{n}") for n in range(9))))
        await until(lambda: len(replicas.asked) == 4)
        await asyncio.sleep(0.1)
        assert len(replicas.asked) == 4
        assert len(here.backend.store.turns) == 4
        replicas.before_hold = 10_000
        chat = await client.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": "Hi"}]
        )
        replicas.hold.set()
        batch = await ended(client, batch)
    assert chat.choices[0].message.content == WHOLE
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 9


async def test_two_batches_take_turns() -> None:
    replicas = ScriptedReplicas(before_hold=2)
    async with batch_rig(replicas=replicas) as here, sdk(here) as client:
        big = await begun(client, jsonl(*(line(f"r{n}") for n in range(50))))
        await until(lambda: len(replicas.asked) == 4)
        small = await begun(client, jsonl(line("a"), line("b")))
        await until(
            lambda: (
                here.backend.batches._all.kept[
                    next(iter(here.backend.store.users)), small.id
                ].batch.total
            )
        )
        replicas.before_hold = 10_000
        replicas.hold.set()
        small = await ended(client, small)
        left = await client.batches.retrieve(big.id)
        big = await ended(client, big)
    assert small.status == big.status == "completed"
    assert left.status == "in_progress"


async def test_a_batch_waits_for_its_budget_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "_SHORTEST_WAIT_S", 0.01)
    two_a_moment = Budget("batch_turns", "turns", 2 * MILLI, 400)
    plans = {**PLANS, "batch": replace(BATCH_PLAN, budgets=(two_a_moment,))}
    async with batch_rig(plans=plans) as here, sdk(here) as client:
        lines = jsonl(*(line(f"r{n}") for n in range(5)))
        batch = await ended(client, await begun(client, lines))
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (5, 0)
    assert len(here.replicas.asked) == 5


async def test_a_line_that_no_budget_has_room_for_fails_by_itself() -> None:
    few = Budget("batch_tokens", "tokens", 200 * MILLI, 1_000)
    plans = {**PLANS, "batch": replace(BATCH_PLAN, budgets=(few,))}
    async with batch_rig(plans=plans) as here, sdk(here) as client:
        batch = await begun(client, jsonl(line("long", "x" * 300), line("short")))
        batch = await ended(client, batch)
        (error,) = await results(client, batch.error_file_id)
    assert error["custom_id"] == "long"
    assert error["response"]["status_code"] == 429
    assert error["response"]["body"]["error"]["code"] == "budget_exhausted"
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 1


async def test_a_line_that_failed_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class BrokenTwice(ScriptedReplicas):
        faults = 2

        async def place(self, wanted: Wanted) -> str | None:
            if self.faults:
                self.faults -= 1
                raise ValueError("a fault of ours")
            return await super().place(wanted)

    monkeypatch.setattr(core_batches, "FIRST_PAUSE_S", 0.01)
    with capture_logs():  # printing the fault's traceback takes seconds
        async with batch_rig(replicas=BrokenTwice()) as here, sdk(here) as client:
            batch = await ended(client, await begun(client, jsonl(line("a"))))
            (output,) = await results(client, batch.output_file_id)
            assert len(here.backend.store.turns) == 1
    assert output["response"]["body"]["choices"][0]["message"]["content"] == WHOLE


async def test_a_line_that_fails_each_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(ScriptedReplicas):
        async def place(self, wanted: Wanted) -> str | None:
            raise ValueError("a fault of ours")

    monkeypatch.setattr(core_batches, "FIRST_PAUSE_S", 0.01)
    with capture_logs() as logs:
        async with batch_rig(replicas=Broken()) as here, sdk(here) as client:
            batch = await ended(client, await begun(client, jsonl(line("a"))))
            (error,) = await results(client, batch.error_file_id)
    assert sum(log["event"] == "answer_failed" for log in logs) == core_batches.TRIES
    assert error["response"]["status_code"] == 500
    assert batch.status == "completed"


async def test_the_lines_of_a_disabled_user_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "_DISABLED_WAIT_S", 0.02)
    replicas = ScriptedReplicas(before_hold=2)
    async with batch_rig(replicas=replicas) as here, sdk(here) as client:
        batch = await begun(client, jsonl(*(line(f"r{n}") for n in range(8))))
        await until(lambda: len(replicas.asked) == 4)
        (user_id,) = here.backend.store.users
        await here.backend.accounts.change(user_id, {"disabled": True})
        replicas.hold.set()
        await until(lambda: not here.backend.store.open)
        await asyncio.sleep(0.1)
        assert len(replicas.asked) == 4
        await here.backend.accounts.change(user_id, {"disabled": False})
        batch = await ended(client, batch)
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 8


async def test_lines_that_wait_for_their_owner_take_nobodys_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pump, "_DISABLED_WAIT_S", 0.02)
    replicas = ScriptedReplicas(before_hold=2)
    rules = replace(QUICK, open_lines=2)
    async with batch_rig(rules, replicas=replicas) as here, sdk(here) as ana:
        await begun(ana, jsonl(*(line(f"r{n}") for n in range(8))))
        await until(lambda: len(replicas.asked) == 2)
        (user_id,) = here.backend.store.users
        await here.backend.accounts.change(user_id, {"disabled": True})
        replicas.before_hold = 10_000
        replicas.hold.set()
        async with sdk(here, "ben") as ben:
            batch = await ended(ben, await begun(ben, jsonl(line("a"), line("b"))))
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 2


async def test_a_file_that_is_deleted_takes_only_lines_that_have_not_begun() -> None:
    replicas = ScriptedReplicas(before_hold=2)
    async with batch_rig(replicas=replicas) as here, sdk(here) as client:
        batch = await begun(client, jsonl(*(line(f"r{n}") for n in range(6))))
        await until(lambda: len(replicas.asked) == 4)
        await client.files.delete(batch.input_file_id)
        replicas.hold.set()
        batch = await ended(client, batch)
        errors = await results(client, batch.error_file_id)
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (4, 2)
    assert {error["response"]["status_code"] for error in errors} == {404}


async def test_a_repeated_post_makes_one_batch() -> None:
    async with batch_rig() as here:
        program = await here.user("ana")
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        upload = form("b", PURPOSE, ("file", "f", jsonl(line("a"))))
        file = (await program.post("/v1/files", content=upload, headers=headers)).json()
        body = {
            "input_file_id": file["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        key = {"Idempotency-Key": "k1"}
        first = (await program.post("/v1/batches", json=body, headers=key)).json()
        again = (await program.post("/v1/batches", json=body, headers=key)).json()
        other = await program.post(
            "/v1/batches", json={**body, "metadata": {"a": "b"}}, headers=key
        )
        retry = {"x-stainless-retry-count": "1"}
        third = (await program.post("/v1/batches", json=body)).json()
        fourth = (await program.post("/v1/batches", json=body, headers=retry)).json()
    assert first["id"] == again["id"] != third["id"] == fourth["id"]
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reuse")


async def test_a_user_has_so_many_batches_at_once() -> None:
    replicas = ScriptedReplicas(before_hold=0)
    rules = replace(QUICK, user_batches=1)
    async with batch_rig(rules, replicas=replicas) as here, sdk(here) as client:
        await begun(client, jsonl(line("a")))
        with pytest.raises(APIError) as refused:
            await begun(client, jsonl(line("b")))
    assert refused.value.code == "too_many_running"


async def test_batches_are_listed_newest_first() -> None:
    async with batch_rig() as here, sdk(here) as client:
        made = [await begun(client, jsonl(line("a"))) for _ in range(3)]
        listed = [batch.id async for batch in client.batches.list(limit=2)]
        page = await client.batches.list(limit=2)
    assert listed == [batch.id for batch in reversed(made)]
    assert page.has_more


async def test_an_account_takes_its_files_and_batches_with_it() -> None:
    replicas = ScriptedReplicas(before_hold=2)
    async with batch_rig(replicas=replicas) as here, sdk(here) as client:
        await begun(client, jsonl(*(line(f"r{n}") for n in range(9))))
        await until(lambda: len(replicas.asked) == 4)
        browser = here.client(Origin=here.url)
        await browser.post(
            "/v1/auth/login", json={"name": "ana", "password": "a long enough password"}
        )
        left = await browser.request("DELETE", "/v1/me")
        assert left.status_code == 204
        files = here.backend.files._files
        await until(lambda: not here.backend.store.open)
        await asyncio.sleep(0.1)
        assert all(file.is_deleted for file in files.values())
        assert not here.backend.store.turns
        assert len(replicas.asked) == 4
