"""`tertulia scale`: how many replicas each model should have, by what a running fleet says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from typing import Annotated, Final

import httpx2
import typer
from prometheus_client.parser import text_string_to_metric_families

from tertulia.core.sizing import Because, Pressure, Pressures, ScaleRules, Supply
from tertulia.terminal.options import AsJson, fail, remark
from tertulia.terminal.pages import NoPage, page_of

EVERY_S: Final = 2.0
_WHY: Final[dict[Because, str]] = {
    "floor": "one and the spare ones are always there",
    "slots": "running and waiting replies ask for them",
    "reading": "prompts that wait to be read ask for them",
    "growth": "what is asked for grows",
    "most": "more are not allowed",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """What is said of one model."""

    model: str
    ready: int
    wanted: int
    because: Because
    slots: int
    taken: float
    waiting: float
    owed_tokens: float
    owed_s: float | None


def scale(
    url: Annotated[str, typer.Argument(help="A gateway's address, or a worker's health port.")],
    utilisation: Annotated[float, typer.Option(help="Share of the slots that may be taken.")] = 0.7,
    owed_s: Annotated[
        float, typer.Option(help="How long replicas may have to read; half of a first token's.")
    ] = 0.5,
    spare: Annotated[int, typer.Option(help="Replicas that may fail at once.")] = 1,
    load_s: Annotated[float, typer.Option(help="How long a replica takes to be ready.")] = 600,
    most: Annotated[int, typer.Option(help="Replicas that there may be at most.")] = 1_000,
    seconds: Annotated[
        float, typer.Option(min=0, max=3_600, help="How long to look; 0 looks once.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Say how many replicas each model should have: enough slots, prompts read in time, N + spare.

    It looks at the metrics of a gateway or a worker every two seconds. An autoscaler reads
    `tertulia_replicas_wanted` there: the same figure by the last ten minutes.
    """
    try:
        rules = ScaleRules(utilisation, owed_s, spare, load_s, most)
        advice = advise(rules, _looks(url, seconds))
    except (ValueError, NoPage) as error:
        fail(str(error), status=2)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in advice], indent=1))
        return
    for one in advice:
        owed = "unknown" if one.owed_s is None else f"{one.owed_s:.2f} s"
        typer.echo(
            f"{one.model}: {one.wanted} wanted, {one.ready} ready: {_WHY[one.because]}."
            f" {one.taken:g} of {one.slots} slots taken, {one.waiting:.3g} turns wait,"
            f" {one.owed_tokens:,.0f} prompt tokens to read: {owed}."
        )


def advise(rules: ScaleRules, looks: Iterable[tuple[float, str]]) -> list[Advice]:
    """What follows from pages of metrics, each with its time; `NoPage` if they say nothing."""
    history: dict[str, Pressures] = {}
    last: list[Pressure] = []
    for at, page in looks:
        last = pressures_of(page, at)
        for one in last:
            history.setdefault(one.supply.model, Pressures(rules)).add(one)
    if not last:
        raise NoPage("That page says nothing of replicas: is it a gateway's or a worker's?")
    return [_advice(one, history[one.supply.model]) for one in last]


def pressures_of(page: str, at: float) -> list[Pressure]:
    """What a page says of each model; models of which something is missing are left out."""
    values: dict[str, dict[str, float]] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if "model" in sample.labels:
                    values.setdefault(sample.labels["model"], {})[sample.name] = sample.value
    except ValueError as error:
        raise NoPage(f"That is no page of metrics: {error}.") from error
    return [
        Pressure(
            at,
            Supply(
                model=model,
                replicas=int(found["tertulia_replicas_ready"]),
                slots=int(found["tertulia_decode_slots"]),
                running=int(found["tertulia_decode_slots_taken"]),
                owed_tokens=int(found["tertulia_owed_prompt_tokens"]),
                prefill_per_s=found.get("tertulia_prefill_tokens_per_second"),
            ),
            found.get("tertulia_turns_waiting", 0.0),
        )
        for model, found in values.items()
        if found.keys() >= _NEEDED
    ]


_NEEDED: Final = frozenset(
    (
        "tertulia_replicas_ready",
        "tertulia_decode_slots",
        "tertulia_decode_slots_taken",
        "tertulia_owed_prompt_tokens",
    )
)


def _advice(one: Pressure, history: Pressures) -> Advice:
    found, supply = history.wanted(), one.supply
    return Advice(
        model=supply.model,
        ready=supply.replicas,
        wanted=found.replicas,
        because=found.because,
        slots=supply.slots,
        taken=supply.running,
        waiting=one.waiting,
        owed_tokens=supply.owed_tokens,
        owed_s=supply.owed_s,
    )


def _looks(url: str, seconds: float) -> Iterator[tuple[float, str]]:
    """Pages with the time since the first, which the terminal counts by its own pauses."""
    with httpx2.Client(trust_env=False) as client:
        for n in count():
            at = n * EVERY_S
            yield at, page_of(client, url)
            if at + EVERY_S > seconds:
                return
            if n == 0:
                remark(f"looking for {seconds:g} s …")
            threading.Event().wait(EVERY_S)
