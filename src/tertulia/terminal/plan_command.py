"""`tertulia plan`: how many accelerators, of what use, at what price; and why."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tertulia.planner.plan import Plan, Wish, plan_for, widths
from tertulia.planner.presets import PRESETS
from tertulia.planner.sheet import CantCompute
from tertulia.planner.telling import as_document, swings
from tertulia.planner.wishes import Nonsense
from tertulia.terminal import plan_view
from tertulia.terminal.options import AsJson, fail

_SIZE = "accelerators"


def plan(
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", help="TOML file with inputs: users = 50_000 …; repeatable."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"Begin from a published design: {', '.join(PRESETS)}.")
    ] = None,
    users: Annotated[float | None, typer.Option(help="People who use it on a day.")] = None,
    turns: Annotated[float | None, typer.Option(help="Messages of each in a day.")] = None,
    peak_factor: Annotated[float | None, typer.Option(help="Busiest hour over the mean.")] = None,
    think_s: Annotated[float | None, typer.Option(help="From an answer to the next turn.")] = None,
    answer_tokens: Annotated[float | None, typer.Option(help="Of an answer, on average.")] = None,
    hit_share: Annotated[
        str | None, typer.Option(help="Of what may be cached: 0 to 1, or `simulated`.")
    ] = None,
    small_share: Annotated[
        float | None, typer.Option(help="Turns that the small model answers.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The large model's shape.")] = None,
    accelerator: Annotated[str | None, typer.Option(help="What the large model runs on.")] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp8 or int4.")] = None,
    width: Annotated[
        int | None, typer.Option(help="Accelerators of one replica (tensor parallelism).")
    ] = None,
    timing: Annotated[
        str | None, typer.Option(help="measured, or roofline: by the data sheet alone.")
    ] = None,
    give: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE, any input or figure; repeatable.")
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Plan beyond what a calibration has measured.")
    ] = False,
    explain: Annotated[str | None, typer.Option(help="How this figure follows.")] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Which guess matters most.")
    ] = False,
    by_width: Annotated[
        bool, typer.Option("--widths", help="Compare 1, 2, 4 and 8 accelerators a replica.")
    ] = False,
    names: Annotated[bool, typer.Option("--names", help="List inputs and figures.")] = False,
    catalogue: Annotated[
        bool, typer.Option("--catalogue", help="List accelerators and models, with sources.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Size a fleet: replicas, memory, storage and cost, each figure with its formula.

    Without anything it plans for 10,000 people a day. `--preset seed-003` is a published design,
    line by line. What is assumed is a flag, a line of the file or `--set`; a figure that you have
    measured may be set as well and is then not computed.
    """
    if names or catalogue:
        lines = plan_view.name_lines() if names else plan_view.catalogue_lines()
        _say(lines)
        return
    given = {
        "users": users,
        "turns_per_user": turns,
        "peak_factor": peak_factor,
        "think_s": think_s,
        "answer_tokens": answer_tokens,
        "hit_share": None if hit_share is None else _number(hit_share),
        "small_share": small_share,
        "timing": timing,
        "extrapolate": extrapolate or None,
        "large": _known(
            model=model,
            accelerator=accelerator,
            precision=precision,
            accelerators_per_replica=width,
        )
        or None,
    }
    wishes = [Wish(table_of(one), str(one)) for one in file or ()]
    wishes += [Wish(_known(**given), "flag"), Wish(_pairs(give or ()), "--set")]
    if by_width:
        if preset is not None:
            fail("A preset has its own hardware: --widths goes with plans of your own.", status=2)
        _say(plan_view.width_lines(widths(wishes)))
        return
    try:
        found = plan_for(wishes, preset)
        _show(found, explain, sensitivity=sensitivity, as_json=as_json)
    except (Nonsense, CantCompute) as error:
        fail(str(error), status=2)


def _show(found: Plan, explain: str | None, *, sensitivity: bool, as_json: bool) -> None:
    if explain is not None:
        try:
            _say(plan_view.explanation(found, explain))
        except KeyError:
            fail(f"There is no figure `{explain}`; `tertulia plan --names` lists all.", status=2)
    elif sensitivity:
        _say(plan_view.swing_lines(found, swings(found, _SIZE), _SIZE))
    elif as_json:
        typer.echo(json.dumps(as_document(found), ensure_ascii=False, indent=1, allow_nan=False))
    else:
        _say(plan_view.plan_lines(found))


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def table_of(file: Path) -> Mapping[str, Any]:
    """A TOML file's table; what is none ends the command."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"{file} can't be read: {error.strerror}.", status=2)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{file} is no TOML: {error}.", status=2)


def _pairs(given: Iterable[str]) -> dict[str, Any]:
    """NAME=VALUE, where NAME may be of a pool."""
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            fail(f"--set takes NAME=VALUE, and {pair!r} is none.", status=2)
        found[name.strip()] = _number(text.strip())
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _known(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
