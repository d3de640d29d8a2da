"""What is measured of one service: streams a core, memory, first text, and how soon a stop acts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from bench.tokens.load import CONVERSATIONS, RATE, Target, Tools

# The goal for what the service may add to a token, at the 99th percentile.
MOST_ADDED_MS: Final = 150.0
# Less than this share of the tokens means that the service is behind.
_LEAST_SHARE: Final = 0.95
_LIGHT_STREAMS: Final = 200
_PROBES: Final = 4
_STEP: Final = 1.15
# Beyond it the harness itself is full on one core.
_MOST_STREAMS: Final = 2_400
_MEMORY_STREAMS: Final = 500
_STOPS: Final = 40


@dataclass(frozen=True)
class Found:
    """The most streams within the goal, and the load client's reports of that and of light load."""

    streams: int
    light: dict[str, Any]
    full: dict[str, Any] | None


def light(tools: Tools, target: Target) -> dict[str, Any]:
    """The report of a fixed light load."""
    return tools.load(target, _LIGHT_STREAMS, window_s=tools.reply_s)


def most_streams(tools: Tools, target: Target, *, added: str) -> Found:
    """Guesses from the CPU time of light load, then goes up or down until the answer changes.

    `added` names the latency that counts: `added_ms` of every token, `newest_ms` of what was not
    held for its sentence.
    """
    first = light(tools, target)
    guess = round(0.9 * first["sut"]["tok_per_cpu_s"] / RATE)
    best, full = 0, None
    too_many = _MOST_STREAMS + 1
    for _ in range(_PROBES):
        guess = min(guess, too_many - 1)
        report = tools.load(target, guess)
        if _is_good(report, guess, added):
            best, full = guess, report
            guess = round(guess * _STEP)
        else:
            too_many = guess
            guess = round(guess / _STEP)
        if best >= guess or (best and guess >= too_many):
            break
    return Found(best, first, full)


def kilobytes_a_stream(tools: Tools, target: Target) -> float:
    """What the processes grow by for each open stream, before any of them has ended."""
    report = tools.load(target, _MEMORY_STREAMS, ramp_s=4.0, warm_s=1.0, window_s=3.0)
    sut = report["sut"]
    grown_mb: float = sut["rss_mb"] - sut["rss_before_mb"]
    return grown_mb * 1024 / _MEMORY_STREAMS


def first_text_ms(tools: Tools, target: Target) -> tuple[float, float]:
    """From the request to the first text, p50 and p99, at a load of twenty streams."""
    report = tools.load(target, 20, ramp_s=2.0, warm_s=0.0, window_s=20.0)
    return report["ttft_ms"]["p50"], report["ttft_ms"]["p99"]


def stop_ms(tools: Tools, target: Target) -> list[float]:
    """From sending a stop to the engine's loss of the sequence, for replies stopped one by one."""
    tools.mock_says("/reset")
    sent_us = asyncio.run(_stop_many(target))
    cancelled = [line.split() for line in tools.mock_says("/cancels").splitlines()]
    at_us = [int(line[1]) for line in cancelled]
    # One after another, so that each is the next after its stop. There may be others: a worker
    # tries whether aborting works.
    if len(at_us) < len(sent_us):
        raise RuntimeError(f"{len(sent_us)} replies were stopped, {len(at_us)} cancelled")
    return sorted((min(at for at in at_us if at >= sent) - sent) / 1_000 for sent in sent_us)


def p50_p99(values: list[float]) -> tuple[float, float]:
    """Of sorted values."""
    return median(values), values[len(values) * 99 // 100]


def _is_good(report: dict[str, Any], streams: int, added: str) -> bool:
    if report["errors"]["total"]:
        return False
    if report["tok_per_s"] < _LEAST_SHARE * RATE * streams:
        return False
    return bool(report[added]["p99"] <= MOST_ADDED_MS)


async def _stop_many(target: Target) -> list[int]:
    """When each stop was sent, in microseconds of the clock that the mock uses."""
    sent_us = []
    for number in range(_STOPS):
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        body = target.call.body.replace("{{id}}", str(number)).replace("{{tokens}}", "300")
        slot = str(CONVERSATIONS - 1 - number)
        person = replace(target, key=target.key.replace("{{slot}}", slot))
        path = target.call.path.replace("{{slot}}", slot)
        writer.write(_request(person, path, body, key=f"stop-{number}"))
        reply_id = await _first_text(reader)
        other_reader, other = await asyncio.open_connection("127.0.0.1", target.port)
        loop = asyncio.get_running_loop()
        sent_us.append(round(loop.time() * 1_000_000))
        other.write(_request(person, f"/v1/messages/{reply_id}/stop", "", key="none"))
        await other_reader.readuntil(b"\r\n\r\n")
        for each in (writer, other):
            each.close()
            with contextlib.suppress(ConnectionError):
                await each.wait_closed()
    return sent_us


async def _first_text(reader: asyncio.StreamReader) -> str:
    """Reads until the reply's first text; its id."""
    reply_id = ""
    status = await reader.readuntil(b"\r\n")
    if b" 200 " not in status:
        raise RuntimeError(f"no stream: {status!r} {await reader.read(2_000)!r}")
    while True:
        line = await reader.readuntil(b"\n")
        if line.startswith(b"data: ") and b'"messageId"' in line:
            reply_id = json.loads(line[len(b"data: ") :])["messageId"]
        if line == b"event: delta\n":
            assert reply_id, "a text before the event that names its reply"
            return reply_id


def _request(target: Target, path: str, body: str, *, key: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {target.key}\r\n"
        f"Idempotency-Key: {key}\r\nAccept: text/event-stream\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()
