"""A replica for tests only: a real HTTP process in vLLM's dialect whose answers are a function of
the prompt, and which breaks exactly as it is told. It computes nothing and must never be shipped.

`python -m tests.fake_replica --model-dir .tertulia/models/small --faults '[{"do": "die"}]'` prints
`{"port": N}` when it listens. A continued prompt gets exactly the rest of the undisturbed answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import struct
import sys
import time
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tertulia.backends.replicas.questions import TRIAL
from tertulia.backends.vocabulary import load_vocabulary
from tertulia.core.turn import pack_ids
from tertulia.core.types import TokenIds, Unit
from tertulia.ports import Vocabulary
from tests.fake_answers import answer, split_prompt
from tests.sim.language import FakeVocabulary

_BODY_BYTES: Final = 8_000_000
_STALL_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong in one generation once `after` tokens were sent.

    `die` ends the process; `reset` sends RST; `cut` sends half of a chunk, inside a character where
    there is one, and closes; `end` ends the stream without a finish; `stall` says nothing for
    `for_s`; `slow` takes `for_s` for each token; `error` sends an error event; `refuse` answers
    `status` and `code` instead; `deaf` goes on to the end whoever aborts it or leaves.
    """

    do: Literal["die", "reset", "cut", "end", "stall", "slow", "error", "refuse", "deaf"]
    after: int = 0
    for_s: float = _STALL_S
    status: int = 503
    code: str = "Told"


@dataclass(slots=True)
class Generated:
    """One generation as the log tells it; `tokens` were sent."""

    request_id: str
    question: int
    said_before: int
    max_tokens: int
    began_at: float
    tokens: int = 0
    ended_at: float | None = None
    reason: str = ""


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class FakeReplica:
    """One replica. Each generation takes the next fault of the list, if there is one."""

    vocabulary: Vocabulary
    model: str
    end_id: int
    step_s: float = 0.005
    abort_s: float = 0.0
    faults: deque[Fault] = field(default_factory=deque)
    log: list[Generated] = field(default_factory=list)
    log_file: Path | None = None
    port: int = 0
    moving: asyncio.Event = field(default_factory=_set_event)
    draining: bool = False
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _aborted: set[str] = field(default_factory=set)
    _running: dict[str, Generated] = field(default_factory=dict)
    _answers: dict[tuple[int, TokenIds], tuple[Unit, ...]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncGenerator[FakeReplica, None]:
        """Serves in this process until the block ends."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.moving.set()
            self._server.close()

    def freeze(self) -> None:
        """Says nothing any more, to nobody, as a stopped process; `moving.set()` ends it."""
        self.moving.clear()

    def kill(self) -> None:
        """Is gone, as a killed process: every connection is reset, and nobody listens."""
        assert self._server is not None
        self._server.close()
        for generated in self._running.values():
            self.ended(generated, "killed")
        for writer in self._writers:
            writer.transport.abort()

    @property
    def n_running(self) -> int:
        return len(self._running)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (request := await _read_request(reader)) is not None:
                await self.moving.wait()
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the client is gone, or is no client
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection goes on."""
        if request.path == "/v1/completions":
            return await self._complete(request, reader, writer)
        status, document = await self._small_answer(request)
        _write_json(writer, status, document)
        await writer.drain()
        return True

    async def _small_answer(self, request: _Request) -> tuple[int, Any]:
        if request.path == "/health":
            return 200, None
        if request.path == "/v1/models":
            card = {
                "id": self.model,
                "object": "model",
                "created": 0,
                "owned_by": "tests",
                "max_model_len": self.vocabulary.window,
            }
            return 200, {"object": "list", "data": [card]}
        if request.path == "/tokenize":
            tokens = self.vocabulary.encode(request.json["prompt"])
            window = self.vocabulary.window
            return 200, {"count": len(tokens), "max_model_len": window, "tokens": tokens}
        if request.path == "/metrics":
            label = f'{{model_name="{self.model}",engine="0"}}'
            return 200, f"vllm:num_requests_running{label} {len(self._running)}\n"
        if request.path == "/inference/v1/abort_requests":
            await asyncio.sleep(self.abort_s)
            ids = {one.removeprefix("cmpl-") for one in request.json["request_ids"]}
            self._aborted |= ids
            return 200, {"aborted": len(ids & self._running.keys())}
        if request.path == "/faults":
            self.faults.extend(Fault(**fault) for fault in request.json)
            return 200, {"waiting": len(self.faults)}
        if request.path == "/pace":
            self.step_s = float(request.json["step_s"])
            return 200, {"step_s": self.step_s}
        if request.path == "/log":
            return 200, [asdict(one) for one in self.log]
        return 404, _error("no such path", 404)

    async def _complete(
        self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        is_trial = request.headers.get("x-request-id", "").startswith(TRIAL)
        fault = self.faults.popleft() if self.faults and not is_trial else None
        if fault is not None and fault.do == "refuse":
            _write_json(writer, fault.status, _error("told to refuse", fault.status, fault.code))
            await writer.drain()
            return True
        body = request.json
        try:
            units, finish, generated = self._begin(request, body)
        except ValueError as error:
            _write_json(writer, 400, _error(str(error), 400))
            await writer.drain()
            return True
        stream = _Stream(self, writer, generated, bool(body.get("stream")))
        self._running[generated.request_id] = generated
        gone = asyncio.ensure_future(reader.read(1))
        try:
            return await stream.write(units, finish, fault, gone)
        finally:
            gone.cancel()
            await asyncio.wait([gone])  # the next request is read from the same stream
            self._running.pop(generated.request_id, None)
            self.ended(generated, "gone")

    def _begin(
        self, request: _Request, body: dict[str, Any]
    ) -> tuple[tuple[Unit, ...], str, Generated]:
        prompt = body["prompt"]
        ids = self.vocabulary.encode(prompt) if isinstance(prompt, str) else tuple(prompt)
        question, before = split_prompt(self.vocabulary, ids)
        given = request.headers.get("x-request-id", f"{len(self.log)}")
        whole = self._whole(given, question, before)
        if tuple(unit.ids[0] for unit in whole[: len(before)]) != before:
            raise ValueError("these tokens are no beginning of the answer")
        max_tokens = body.get("max_tokens") or 16
        units = whole[len(before) :][:max_tokens]
        finish = "stop" if len(before) + len(units) == len(whole) else "length"
        question_sum = zlib.crc32(pack_ids(question))
        generated = Generated(given, question_sum, len(before), max_tokens, time.time())
        if not given.startswith(TRIAL):
            self.log.append(generated)
        return units, finish, generated

    def _whole(self, request_id: str, question: TokenIds, before: TokenIds) -> tuple[Unit, ...]:
        """The whole answer of which a generation says the rest."""
        return self._answer_in(0, question)

    def _answer_in(self, mood: int, question: TokenIds) -> tuple[Unit, ...]:
        if (mood, question) not in self._answers:
            self._answers[mood, question] = answer(self.vocabulary, question, mood)
        return self._answers[mood, question]

    def ended(self, generated: Generated, reason: str) -> None:
        """Notes an end once; the file's line is there even if the process dies next."""
        if generated.ended_at is not None or generated.request_id.startswith(TRIAL):
            return
        generated.ended_at, generated.reason = time.time(), reason
        if self.log_file is not None:
            with self.log_file.open("a") as file:
                file.write(json.dumps(asdict(generated)) + "\n")

    def is_aborted(self, generated: Generated) -> bool:
        return generated.request_id in self._aborted


@dataclass(slots=True)
class _Stream:
    """Writes one generation, streamed or whole."""

    replica: FakeReplica
    writer: asyncio.StreamWriter
    generated: Generated
    streamed: bool
    _whole: list[Unit] = field(default_factory=list)

    async def write(
        self, units: Sequence[Unit], finish: str, fault: Fault | None, gone: asyncio.Future[bytes]
    ) -> bool:
        """Whether the connection can carry another response."""
        if self.streamed:
            self.writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
        slow_s = 0.0
        is_deaf = False
        for n, unit in enumerate((*units, None)):
            if fault is not None and n == fault.after:
                if fault.do == "slow":
                    slow_s = fault.for_s
                elif fault.do == "deaf":
                    is_deaf = True
                elif not await self._break(fault, unit, gone):
                    return False
            if is_deaf and gone.done():
                await asyncio.sleep(self.replica.step_s)
                self.generated.tokens += unit is not None
                continue
            await asyncio.wait([gone], timeout=slow_s or self.replica.step_s)
            await self.replica.moving.wait()
            if gone.done() and not is_deaf:
                return False
            if self.replica.is_aborted(self.generated) and not is_deaf:
                finish = "abort"
                break
            if unit is not None:
                self.generated.tokens += 1
                await self._send(unit)
        if is_deaf and gone.done():
            self.replica.ended(self.generated, f"deaf {finish}")
            return False
        await self._finish(finish)
        return True

    async def _break(self, fault: Fault, unit: Unit | None, gone: asyncio.Future[bytes]) -> bool:
        """Does what the fault says; whether the generation goes on after it."""
        if fault.do == "stall":
            await asyncio.wait([gone], timeout=fault.for_s)
            return not gone.done()
        await self.writer.drain()
        self.replica.ended(self.generated, fault.do)
        if fault.do == "die":
            os._exit(9)
        if fault.do == "cut":
            chunk = _chunked(_event(self._document([unit or Unit("é", (0,))])))
            at = next((n + 1 for n, byte in enumerate(chunk) if byte >= 0xC0), len(chunk) // 2)
            self.writer.write(chunk[:at])
            await self.writer.drain()
        elif fault.do == "error":
            self.writer.write(_chunked(_event(_error("told to fail", 500))))
        elif fault.do == "end":
            self.writer.write(b"0\r\n\r\n")
            await self.writer.drain()
        elif fault.do == "reset":
            connection = self.writer.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)  # no lingering: closing then sends RST
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.writer.transport.abort()
        return False

    async def _send(self, unit: Unit) -> None:
        if not self.streamed:
            self._whole.append(unit)
            return
        self.writer.write(_chunked(_event(self._document([unit]))))
        await self.writer.drain()

    async def _finish(self, finish: str) -> None:
        replica, generated = self.replica, self.generated
        last = Unit("", (replica.end_id,) if finish == "stop" else ())
        document = self._document([*self._whole, last], finish)
        usage = {
            "prompt_tokens": generated.said_before,
            "completion_tokens": generated.tokens,
            "total_tokens": generated.said_before + generated.tokens,
        }
        replica.ended(generated, finish)
        if not self.streamed:
            _write_json(self.writer, 200, {**document, "usage": usage})
        else:
            closing = _event({**document, "choices": [], "usage": usage})
            self.writer.write(_chunked(_event(document)) + _chunked(closing))
            self.writer.write(_chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await self.writer.drain()

    def _document(self, units: Sequence[Unit], finish: str | None = None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "text": "".join(unit.text for unit in units),
            "logprobs": None,
            "finish_reason": finish,
            "stop_reason": None,
            "token_ids": [number for unit in units for number in unit.ids],
            "prompt_token_ids": None,
        }
        return {
            "id": f"cmpl-{self.generated.request_id}",
            "object": "text_completion",
            "created": int(self.generated.began_at),
            "model": self.replica.model,
            "choices": [choice],
        }


@dataclass(frozen=True, slots=True)
class _Request:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if length > _BODY_BYTES:
        raise ValueError("the body is too large")
    return _Request(lines[0].split(" ")[1], headers, await reader.readexactly(length))


def _write_json(writer: asyncio.StreamWriter, status: int, document: Any) -> None:
    is_text = isinstance(document, str)
    body = document.encode() if is_text else json.dumps(document).encode()
    kind = "text/plain" if is_text else "application/json"
    head = f"HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


def _event(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _error(message: str, status: int, kind: str = "Told") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


async def _main(options: argparse.Namespace) -> None:
    vocabulary: Vocabulary
    if options.model_dir is None:
        vocabulary, end_id = FakeVocabulary(), 5
    else:
        vocabulary = load_vocabulary(options.model_dir)
        end_id = json.loads((options.model_dir / "model.json").read_text())["eos_id"]
    faults = deque(Fault(**fault) for fault in json.loads(options.faults))
    replica = FakeReplica(
        vocabulary, options.model, end_id, options.step_s, options.abort_s, faults
    )
    replica.log_file = options.log
    async with replica.listening(options.port):
        print(json.dumps({"port": replica.port}), flush=True)
        # Whoever started this process holds its standard input: it must not outlive them.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fake_replica", description=__doc__)
    parser.add_argument("--model-dir", type=Path, help="whose tokenizer and template to use")
    parser.add_argument("--model", default="fake-1", help="the served model's name")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--step-s", type=float, default=0.005, help="seconds a token")
    parser.add_argument("--abort-s", type=float, default=0.0, help="how long an abort takes")
    parser.add_argument("--faults", default="[]", help="a JSON list, see `Fault`")
    parser.add_argument("--log", type=Path, help="append a JSON line for each generation's end")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(_main(_options()))
