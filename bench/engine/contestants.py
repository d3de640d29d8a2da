"""The two engines as processes on loopback, and how each is asked for the same tokens.

It must never let both run at once: each has all cores while it is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.engine.streams import ANSWER_S, Answer, Piece, Stream

ROOT = Path(__file__).resolve().parent.parent.parent
PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
END_S = 20.0


@dataclass(frozen=True)
class Ask:
    """One completion; of its prompt, the first `n_shared` tokens are the same for everybody."""

    prompt: Sequence[int]
    n_tokens: int
    owner: str = "someone"
    n_shared: int = 0
    priority: int = 0


@dataclass(frozen=True)
class Contestant:
    """An engine with a configuration: how to start it and how to talk to it."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("ours")

    @property
    def label(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.settings.items()) or "defaults"

    def command(self, folder: Path, threads: int) -> list[str]:
        if self.is_ours:
            given = {"folder": str(folder), "parent_pid": os.getpid()}
            start = [sys.executable, "-m", "bench.engine.replica_process"]
        else:
            given = {"model": str(folder / "model.gguf"), "flash_attn_type": 1}
            start = [str(PEER_PYTHON), str(Path(__file__).with_name("llama_server.py"))]
        return [*start, json.dumps({**given, "threads": threads, **self.settings})]

    def request(self, ask: Ask) -> bytes:
        body: dict[str, Any] = {"prompt": list(ask.prompt), "stream": True, "temperature": 0}
        body |= {"ignore_eos": True, "cache_prompt": True}
        if self.is_ours:
            path = "/v1/completions"
            body |= {"max_tokens": ask.n_tokens, "repetition_penalty": 1.0}
            body |= {"return_token_ids": True, "stream_options": {"include_usage": True}}
            body |= {"cache_salt": ask.owner, "cache_shared_tokens": ask.n_shared}
            body |= {"priority": ask.priority}
            # A greedy reply of a small model is soon a loop, which is ended by default.
            body |= {"repetition_detection": {"max_pattern_size": 0, "min_count": 0}}
        else:
            # The same completion, on the path where llama-server tells the ids of its tokens; the
            # sampler is the shortest that is greedy.
            path = "/completion"
            body |= {"n_predict": ask.n_tokens, "return_tokens": True}
            body |= {"samplers": ["top_k"], "top_k": 1}
            body |= {"response_fields": ["tokens", "timings"]}
        data = json.dumps(body, separators=(",", ":")).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        head += f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n"
        return head.encode() + data

    def read(self, event: dict[str, Any]) -> Piece:
        if self.is_ours:
            usage, choices = event.get("usage"), event["choices"]
            n_cached = usage["prompt_tokens_details"]["cached_tokens"] if usage else None
            return Piece(tuple(choices[0]["token_ids"]) if choices else (), n_cached)
        timings = event.get("timings")
        return Piece(tuple(event.get("tokens", ())), timings["cache_n"] if timings else None)


@dataclass(frozen=True)
class Engine:
    """A running contestant."""

    contestant: Contestant
    port: int
    pid: int

    async def begin(self, ask: Ask) -> Stream:
        """Sends the request; the stream is the caller's to wait for or to close."""
        loop = asyncio.get_running_loop()
        request = self.contestant.request(ask)
        _, stream = await loop.create_connection(
            lambda: Stream(request, self.contestant.read), "127.0.0.1", self.port
        )
        stream.answer.n_prompt = len(ask.prompt)
        return stream

    async def complete(self, ask: Ask) -> Answer:
        """The whole answer."""
        stream = await self.begin(ask)
        try:
            await asyncio.wait_for(stream.closed, ANSWER_S)
        finally:
            stream.close()
        return stream.answer


@contextmanager
def running(contestant: Contestant, folder: Path, threads: int) -> Iterator[Engine]:
    """Starts it, waits until it has loaded the model, and ends it."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            contestant.command(folder, threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                log.seek(0)
                raise RuntimeError(f"{contestant.name} did not start: {log.read()[-2000:]!r}")
            yield Engine(contestant, json.loads(line)["port"], process.pid)
        finally:
            process.kill()
            process.wait(END_S)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
