"""What tests of files and batches share: a gateway whose pump is quick, OpenAI's client, forms."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from openai import AsyncOpenAI
from openai.types import Batch

from tertulia.core.batches import BatchRules
from tertulia.core.plans import Plan
from tertulia.core.types import Lane
from tests.lanes.gateway_rig import (
    ANSWER,
    PLANS,
    RULES,
    Rig,
    rig,
    until,
)

WHOLE: Final = "".join(ANSWER)
BATCH_PLAN: Final = Plan(
    name="batch",
    lane=Lane.BATCH,
    window_tokens=8_000,
    answer_tokens=400,
    replies_running=4,
    abandon_s=None,
)
QUICK: Final = BatchRules(pause_s=0.01)


@asynccontextmanager
async def batch_rig(rules: BatchRules = QUICK, **more: Any) -> AsyncIterator[Rig]:
    """A gateway whose pump does not let tests wait."""
    plans = more.pop("plans", {**PLANS, "batch": BATCH_PLAN})
    async with rig(rules=replace(RULES, batches=rules), plans=plans, **more) as here:
        yield here


@asynccontextmanager
async def sdk(here: Rig, name: str = "ana") -> AsyncIterator[AsyncOpenAI]:
    program = await here.user(name)
    secret = program.headers["Authorization"].removeprefix("Bearer ")
    async with AsyncOpenAI(
        base_url=f"{here.url}/v1", api_key=secret, _strict_response_validation=True, max_retries=0
    ) as client:
        yield client


def line(custom_id: str, content: str = "Hi", **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "auto", "messages": messages, **body},
    }


def jsonl(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


async def begun(client: AsyncOpenAI, data: bytes, **more: Any) -> Batch:
    file = await client.files.create(file=("in.jsonl", data), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        **more,
    )


async def ended(client: AsyncOpenAI, batch: Batch) -> Batch:
    async def final() -> Batch | None:
        now = await client.batches.retrieve(batch.id)
        is_final = now.status in ("completed", "failed", "expired", "cancelled")
        return now if is_final else None

    found: Batch = await until(final)
    return found


async def results(client: AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    content = await client.files.content(file_id)
    return [json.loads(one) for one in content.text.splitlines()]


def form(border: str, *fields: tuple[str, str | None, bytes]) -> bytes:
    body = b""
    for name, file_name, data in fields:
        more = f'; filename="{file_name}"' if file_name is not None else ""
        body += f'--{border}\r\nContent-Disposition: form-data; name="{name}"{more}'.encode()
        body += b"\r\n\r\n" + data + b"\r\n"
    return body + f"--{border}--\r\n".encode()


PURPOSE = ("purpose", None, b"batch")
FILE = ("file", "in.jsonl", b"x")
