"""`python -m bench rush [options]`: people of two plans ask twice as much as the engine can answer.

First what the engine can do, then the plus traffic alone, then all of it, each by people who ask
whatever became of the others. It must count every turn that was asked, and how it ended.

Within a minute of such a load the ladder refuses free turns that can't begin within two seconds, so
that nobody waits for long. `--free-waits` leaves them to the line: what it says is then measured.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from bench.rush_figures import Seen, Told, tell, tell_together
from bench.tokens.load import ROOT, wait_until_ready
from tertulia.backends.clock import SystemClock
from tertulia.config import load_settings
from tertulia.core.types import ApiKey, User
from tertulia.gateway.auth import secret_hash
from tertulia.listening import free_port
from tertulia.wiring.stores import opened_stores

# Of each plan: nobody asks again while he waits, or is to come back, so that no promise is meant
# for two of his turns.
_PEOPLE: Final = 1_500
_ANSWER_TOKENS: Final = 80
_QUESTIONS: Final = (
    "Tell me about the harbour of a small town in winter.",
    "Explain how bread is made, step by step.",
    "Why is the sky blue during the day and red in the evening?",
    "List ten animals that live near rivers and say what they eat.",
)
# Each question has a number of its own, in front: nothing of it was ever read before.
_NUMBERS: Final = itertools.count(1000)
# A batch of this many lines waits for room all the time.
_BATCH_LINES: Final = 40
# It comes once people wait: before that there is room, and a line that has begun goes on.
_BATCH_AFTER: Final = 0.25  # of the load


@dataclass(frozen=True, slots=True)
class Person:
    """One account of a plan."""

    plan: str
    key: str


def main(given: list[str]) -> None:
    """Runs the three parts and prints their figures."""
    parser = argparse.ArgumentParser(prog="python -m bench rush", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="of each of the two loads")
    parser.add_argument("--times", type=float, default=2.0, help="the capacity that is asked for")
    parser.add_argument("--plus", type=float, default=0.4, help="the share of plus turns")
    parser.add_argument("--slots", type=int, default=8, help="of the engine")
    parser.add_argument(
        "--free-waits", type=float, help="seconds that free turns may wait, without the ladder"
    )
    parser.add_argument(
        "--patience", type=float, default=300.0, help="whoever is to come back later does not"
    )
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="tertulia-rush-") as made:
        folder, ports = Path(made), (free_port(), free_port())
        config = _configure(folder, ports, options)
        people = asyncio.run(_prepare(config))
        with _service(config, folder, ports[0]):
            asyncio.run(_measure(ports, people, options))


async def _measure(
    ports: tuple[int, int], people: Sequence[Person], options: argparse.Namespace
) -> None:
    chance = random.Random(options.seed)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=200)
    url, health = (f"http://127.0.0.1:{port}" for port in ports)
    async with httpx2.AsyncClient(
        base_url=url, trust_env=False, timeout=120.0, limits=limits
    ) as http:
        plus = [person for person in people if person.plan == "plus"]
        at_once = 2 * options.slots
        per_s = await _capacity(http, plus, at_once, options.seconds / 3, chance)
        print(f"the engine answers {per_s:.2f} turns/s ({_ANSWER_TOKENS} tokens at most)")
        rate, seconds, share = options.times * per_s, options.seconds, options.plus

        def asked(people: Sequence[Person], per_s: float, seed: int) -> Awaitable[list[Seen]]:
            load = Load(people, per_s, seconds, options.patience)
            return _play(http, load, random.Random(seed))

        def of_plus() -> Awaitable[list[Seen]]:
            """The same people ask the same at the same moments, both times."""
            return asked(plus, rate * share, options.seed)

        alone = await of_plus()
        tell("plus alone", alone)
        free = [person for person in people if person.plan == "free"]
        beside, of_free, lines = await asyncio.gather(
            of_plus(),
            asked(free, rate * (1 - share), options.seed + 1),
            _lines_meanwhile(http, people[0], health, seconds),
        )
        tell(f"plus at {options.times:g} times the capacity", beside)
        tell(f"free at {options.times:g} times the capacity", of_free)
        tell_together(alone, beside, of_free, seconds)
        print(f"batch: {lines} of {_BATCH_LINES} lines began while people waited (goal 0)")


async def _capacity(
    http: httpx2.AsyncClient,
    people: Sequence[Person],
    n_at_once: int,
    seconds: float,
    chance: random.Random,
) -> float:
    """Turns a second while more people ask than there are slots; somebody else each time, as in the
    loads."""
    until = time.perf_counter() + seconds
    ended: list[float] = []
    next_one = itertools.cycle(people)

    async def ask_on() -> None:
        while time.perf_counter() < until:
            seen = await _ask(http, next(next_one), chance.choice(_QUESTIONS))
            if seen.end == "done":
                ended.append(time.perf_counter())

    await asyncio.gather(*(ask_on() for _ in range(n_at_once)))
    counted = [at for at in ended if until - seconds * 0.75 <= at <= until]
    return len(counted) / (seconds * 0.75)


@dataclass(frozen=True, slots=True)
class Load:
    """Turns at random moments, `per_s` a second at the mean, whatever became of those before.
    Whoever is to come back within `patience_s`, and while people ask, does so."""

    people: Sequence[Person]
    per_s: float
    seconds: float
    patience_s: float


async def _play(http: httpx2.AsyncClient, load: Load, chance: random.Random) -> list[Seen]:
    asked: list[asyncio.Task[Seen]] = []
    until = time.perf_counter() + load.seconds
    for person in itertools.cycle(load.people):
        await asyncio.sleep(chance.expovariate(load.per_s))
        if time.perf_counter() > until:
            break
        asking = _ask(http, person, chance.choice(_QUESTIONS), load.patience_s, until)
        asked.append(asyncio.create_task(asking))
    return list(await asyncio.gather(*asked))


async def _ask(
    http: httpx2.AsyncClient,
    person: Person,
    question: str,
    patience_s: float = 0.0,
    until: float = 0.0,
) -> Seen:
    """Asks in a conversation of its own; told to come back, it does so once, when it was told."""
    seen = Seen(person.plan, time.perf_counter())
    question = f"{next(_NUMBERS)}. {question}"
    headers = {"Authorization": f"Bearer {person.key}"}
    made = await http.post("/v1/conversations", json={}, headers=headers)
    path = f"/v1/conversations/{made.json()['id']}/messages"
    for n in (1, 2):
        sent_s = _since(seen)
        headers |= {"Accept": "text/event-stream", "Idempotency-Key": f"{made.json()['id']}-{n}"}
        async with http.stream("POST", path, json={"content": question}, headers=headers) as told:
            if n == 2:
                seen.was_let_in = told.status_code == 200
            if told.status_code == 200:
                await _read(told, seen)
                return seen
            body = json.loads(await told.aread())
        seen.end = body.get("code", str(told.status_code))
        if n == 2 or "retryAfterSeconds" not in body:
            return seen
        seen.refused_in_s = _since(seen) - sent_s
        seen.retry_after_s = float(body["retryAfterSeconds"])
        if seen.retry_after_s > min(patience_s, until - time.perf_counter()):
            return seen
        await asyncio.sleep(seen.retry_after_s)
    return seen


async def _read(response: httpx2.Response, seen: Seen) -> None:
    async for block in httpx2.EventSource(response):
        if not block.data:
            continue
        now_s, data = _since(seen), json.loads(block.data)
        if block.event == "queue":
            seen.told.append(Told(now_s, data["position"], float(data["estimatedWaitSeconds"])))
        elif block.event == "meta":
            seen.began_s = seen.began_s or now_s
        elif block.event == "delta":
            seen.first_text_s = seen.first_text_s or now_s
        elif block.event in ("done", "fail"):
            seen.ended_s = now_s
            seen.end = "done" if block.event == "done" else data["code"]
            return


def _since(seen: Seen) -> float:
    return time.perf_counter() - seen.sent_at


async def _lines_meanwhile(
    http: httpx2.AsyncClient, owner: Person, health: str, seconds: float
) -> int:
    """How many lines of a batch that could use any room begin while people wait for it."""
    await asyncio.sleep(seconds * _BATCH_AFTER)
    await _send_batch(http, owner)
    await asyncio.sleep(seconds * (1 - _BATCH_AFTER))
    page = (await http.get(f"{health}/metrics")).text
    begun = next(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "tertulia_worker_wait_seconds_count"
        and sample.labels == {"lane": "batch"}
    )
    return int(begun)


async def _send_batch(http: httpx2.AsyncClient, owner: Person) -> None:
    headers = {"Authorization": f"Bearer {owner.key}"}
    lines = [
        {
            "custom_id": f"line-{n}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "auto", "messages": [{"role": "user", "content": _QUESTIONS[0]}]},
        }
        for n in range(_BATCH_LINES)
    ]
    document = "\n".join(json.dumps(line) for line in lines).encode()
    form: dict[str, Any] = {"purpose": "batch"}
    files = {"file": ("lines.jsonl", document, "application/jsonl")}
    sent = await http.post("/v1/files", data=form, files=files, headers=headers)
    wanted = {
        "input_file_id": sent.json()["id"],
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    made = await http.post("/v1/batches", json=wanted, headers=headers)
    made.raise_for_status()


def _configure(folder: Path, ports: tuple[int, int], options: argparse.Namespace) -> Path:
    """The small model alone, on one thread: the other core is for everything else."""
    path = folder / "tertulia.toml"
    waits = options.free_waits
    line_alone = f"wait_s = {waits}\nladder = false\n" if waits is not None else ""
    path.write_text(f"""
data_dir = "{folder}"
models_dir = "{ROOT / ".tertulia" / "models"}"
log_format = "json"
[server]
port = {ports[0]}
[models]
large = "off"
threads = 1
slots = {options.slots}
[worker]
health_port = {ports[1]}
sentence_tokens = 1  # the first text is the first token, not the end of a sentence
[plans.plus]
answer_tokens = {_ANSWER_TOKENS}
[plans.free]
answer_tokens = {_ANSWER_TOKENS}
{line_alone}[plans.batch]
answer_tokens = {_ANSWER_TOKENS}
""")
    return path


async def _prepare(config: Path) -> list[Person]:
    """The accounts, made through the stores."""
    settings, clock = load_settings(config), SystemClock()
    people = [Person(plan, f"tk_{plan}_{n}") for plan in ("plus", "free") for n in range(_PEOPLE)]
    async with opened_stores(settings, clock) as stores:

        async def add(person: Person) -> None:
            name = person.key.removeprefix("tk_")
            user = User(f"u_{name}", name, "user", person.plan, None, clock.now())
            await stores.accounts.add(user)
            hashed = secret_hash(person.key)
            await stores.api_keys.add(ApiKey(f"key_{name}", user.id, "bench", "tk_", hashed, 0.0))

        await asyncio.gather(*map(add, people))
    return people


@contextmanager
def _service(config: Path, folder: Path, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tertulia", "serve", "--config", str(config)]
    with (folder / "serve.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until_ready(port, "/readyz")
        yield
    finally:
        process.terminate()
        process.wait(30)
