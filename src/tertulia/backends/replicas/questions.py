"""What a replica is asked about itself: whether it lives, how much it has done, what it can do.

No answer is never an exception here, and a figure that is missing is unknown, never 0.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2

from tertulia.backends.replicas.fleet import ReplicaAddress
from tertulia.backends.replicas.request import abort_body, bearer, forget_body, request_bytes
from tertulia.backends.replicas.stream import Generation, connect
from tertulia.core.deletions import CacheAnswer
from tertulia.core.engines import ENGINES, Metrics
from tertulia.core.prompt import splice_ids
from tertulia.core.types import GenerateRequest, PromptMessage, Sampling, TokenIds
from tertulia.ports import ReplicaLost, ReplicaRefused, Vocabulary

# Texts on which a replica's tokenizer must agree with ours: spaces, scripts, emoji, markup. None
# holds a control token's text: engines read those as control tokens, and we never send any.
CORPUS = (
    "Hello, world! It's 3.14159 o'clock.\n\n  Tabs\tand   spaces ",
    "def f(x):\n    return x**2  # ünïcödé",
    "你好，世界。こんにちは 안녕하세요 Привет مرحبا",
    "👩‍👩‍👧‍👦 e\u0301 \u200b 1234567890",
    "[INST] <b>&amp;</b> {{7*7}} \\n <s> </s>",
)

# An address that is none comes from a report, and must not end whoever asks.
NO_ANSWER = (httpx2.HTTPError, httpx2.InvalidURL)

TRIAL = "trial-"  # what the ids of trials begin with
# Long enough that an abort comes in its midst, short enough to cost nothing.
_TRIAL_TOKENS = 64
_TRIAL_S = 20.0  # a cold engine compiles at its first request
# vLLM answers before an abort takes effect; this is many steps.
_GONE_S = 5.0
# An engine forgets between two steps; one that takes longer, or can't be reached, is asked again.
_FORGET_S = 10.0
_REACH_S = 1.0
# The first pages of an engine's metrics hold all that is read; a stranger may send for ever.
_METRICS_BYTES = 2_000_000
# A health says a word or two, a list of tokens some kilobytes.
_ANSWER_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine's metrics say."""

    running: int | None = None
    waiting: int | None = None
    cache_used_share: float | None = None
    tokens_done: float | None = None
    generated_tokens: float | None = None
    cache_hit_share: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial showed; `aborts` is None where it could not be seen."""

    priorities: bool
    aborts: bool | None


class _Transport(httpx2.AsyncHTTPTransport):
    """A connection that is reset while it is being made is no answer, like any other.

    On uvloop it then has no socket any more, and the library below looks at it unasked.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            raise httpx2.ConnectError("reset while connecting", request=request) from error


def asker(timeout_s: float) -> httpx2.AsyncClient:
    """What questions are asked with; whoever made it closes it."""
    return httpx2.AsyncClient(timeout=timeout_s, transport=_Transport(trust_env=False))


async def sign_of_life(
    http: httpx2.AsyncClient, address: ReplicaAddress
) -> Literal["alive", "refused", "silent"]:
    """Silent is what does not answer in the time that `http` gives it: it may only be busy."""
    try:
        status, _ = await _answer(http, "GET", address.url + "/health", most_bytes=_ANSWER_BYTES)
    except httpx2.TimeoutException:
        return "silent"
    except NO_ANSWER:
        return "refused"
    return "alive" if status == 200 else "refused"


async def load_of(http: httpx2.AsyncClient, address: ReplicaAddress) -> Load:
    """Its load, by its metrics; whatever is missing there is unknown."""
    names = ENGINES[address.engine].metrics
    if names is None:
        return Load()
    try:
        status, body = await _answer(
            http,
            "GET",
            address.url + "/metrics",
            most_bytes=_METRICS_BYTES,
            headers=bearer(address.key),
        )
    except NO_ANSWER:
        return Load()
    return read_load(body.decode(errors="replace"), names) if status == 200 else Load()


def read_load(text: str, names: Metrics) -> Load:
    """The load in metrics of Prometheus' text form; several engines in one are added up."""
    wanted = {names.running, names.waiting, names.cache_used_share, *names.done_tokens}
    wanted |= {names.generated_tokens, *(names.cache_hits or ())}
    found: dict[str, float] = {}
    for line in text.splitlines():
        name = line[: min(at for at in (line.find("{"), line.find(" "), len(line)) if at >= 0)]
        if name not in wanted:
            continue
        # A time may follow the value, and a label may hold spaces.
        value = line[line.rfind("}") + 1 :] if "}" in line else line[len(name) :]
        try:
            number = float(value.split()[0])
        except (ValueError, IndexError):
            continue
        if math.isfinite(number):  # engines do say NaN
            found[name] = found.get(name, 0.0) + number
    done = [found[name] for name in names.done_tokens if name in found]
    running, waiting = found.get(names.running), found.get(names.waiting)
    return Load(
        None if running is None else int(running),
        None if waiting is None else int(waiting),
        found.get(names.cache_used_share),
        sum(done) if done else None,
        found.get(names.generated_tokens),
        _share(*(found.get(name) for name in names.cache_hits or ("", ""))),
    )


def _share(part: float | None, whole: float | None) -> float | None:
    """None where either is unknown, or there is nothing to have a share of."""
    return min(1.0, part / whole) if part is not None and whole else None


async def disagreement(
    http: httpx2.AsyncClient, address: ReplicaAddress, vocabulary: Vocabulary
) -> str:
    """Why the replica's tokenizer can't be trusted, or nothing: then it agrees with ours."""
    if address.trusted or not ENGINES[address.engine].has_tokenize:
        return ""
    for text in CORPUS:
        try:
            _, body = await _answer(
                http,
                "POST",
                address.url + "/tokenize",
                most_bytes=_ANSWER_BYTES,
                headers=bearer(address.key),
                json={"model": address.model, "prompt": text, "add_special_tokens": False},
            )
            theirs = tuple(json.loads(body)["tokens"])
        except (*NO_ANSWER, ValueError, KeyError, TypeError, RecursionError):
            return "its /tokenize does not answer"
        if theirs != vocabulary.encode(text):
            return "its tokenizer differs from the model's"
    return ""


async def abort(
    http: httpx2.AsyncClient, address: ReplicaAddress, request_id: str, *, timeout_s: float
) -> bool:
    """Asks it to end a request by its id; whether it says that it has."""
    engine = ENGINES[address.engine]
    if not engine.abort_path:
        return False
    try:
        status, _ = await _answer(
            http,
            "POST",
            address.url + engine.abort_path,
            most_bytes=_ANSWER_BYTES,
            json=abort_body(request_id, engine),
            headers=bearer(address.key),
            timeout=timeout_s,
        )
    except NO_ANSWER:
        return False
    return status == 200


async def forget(
    http: httpx2.AsyncClient, address: ReplicaAddress, owner: str, conversation_id: str | None
) -> CacheAnswer:
    """Asks it to drop what it has cached for an owner, or in one of his conversations."""
    path = ENGINES[address.engine].forget_path
    if not path:
        return "unsupported"
    try:
        status, _ = await _answer(
            http,
            "POST",
            address.url + path,
            most_bytes=_ANSWER_BYTES,
            json=forget_body(owner, conversation_id),
            headers=bearer(address.key),
            timeout=httpx2.Timeout(_FORGET_S, connect=_REACH_S),
        )
    except NO_ANSWER:
        return "unanswered"
    return "forgotten" if status == 200 else "unanswered"


async def trial(
    http: httpx2.AsyncClient,
    address: ReplicaAddress,
    vocabulary: Vocabulary,
    number: str,
) -> Trial:
    """Begins a tiny generation, aborts it and looks whether it ends; ReplicaLost if it never began.

    An engine that may refuse priorities is sent one, and tried again without if it does.
    """
    engine = ENGINES[address.engine]
    priorities = engine.priority_sign != 0
    while True:
        request = GenerateRequest(
            request_id=f"{TRIAL}{number}-{int(priorities)}",
            model=address.model,
            prompt=_greeting(vocabulary),
            max_tokens=_TRIAL_TOKENS,
            sampling=Sampling(),
            priority=1,
            cache_salt="trial",
        )
        try:
            return Trial(priorities, await _aborts(http, address, request, priorities))
        except ReplicaRefused as refused:
            if not (priorities and engine.priority_is_asked and refused.status == 400):
                raise ReplicaLost(f"it refused a trial: {refused}") from refused
            priorities = False


async def _aborts(
    http: httpx2.AsyncClient,
    address: ReplicaAddress,
    request: GenerateRequest,
    priorities: bool,
) -> bool | None:
    url = urlsplit(address.url)
    connection = await connect(url)
    engine = ENGINES[address.engine]
    try:
        connection.send(request_bytes(url, address.key, request, engine, priorities=priorities))
        generation = Generation(connection, None)
        try:
            async with asyncio.timeout(_TRIAL_S):
                said = await generation.next()
        except TimeoutError:
            raise ReplicaLost("a trial generation did not begin") from None
        if said.finish is not None:
            return None
        if not await abort(http, address, request.request_id, timeout_s=_GONE_S):
            return False
        return await _has_gone(generation)
    finally:
        connection.fail("the trial is over")


async def _has_gone(generation: Generation) -> bool | None:
    try:
        async with asyncio.timeout(_GONE_S):
            while True:
                said = await generation.next()
                if said.finish is not None:
                    # What came to its own end was not seen to be aborted.
                    return True if said.finish == "abort" else None
    except TimeoutError:
        return False
    except ReplicaLost:
        return True  # it closed the stream, which is an end as well


async def _answer(
    http: httpx2.AsyncClient, method: str, url: str, *, most_bytes: int, **more: Any
) -> tuple[int, bytes]:
    """Status and body; one that has no end is none, like any other that does not come."""
    body = b""
    async with http.stream(method, url, **more) as answer:
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > most_bytes:
                raise httpx2.DecodingError("the answer has no end", request=answer.request)
    return answer.status_code, body


def _greeting(vocabulary: Vocabulary) -> TokenIds:
    said = [PromptMessage("user", "Hello")]
    try:
        return splice_ids(
            vocabulary.render(said),
            said,
            tokenizer=vocabulary.name,
            encode=vocabulary.encode,
            encode_control=vocabulary.encode_control,
        )
    except ValueError:  # a template that wants a system message first
        return vocabulary.encode("Hello")
