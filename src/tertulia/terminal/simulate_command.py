"""`tertulia simulate`: plays a scenario under virtual time, and says what people would see."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tertulia.terminal.options import AsJson, fail, remark

if TYPE_CHECKING:
    from tertulia.simulator.scenario import Play
    from tertulia.simulator.story import Told


def simulate(
    scenario: Annotated[
        str | None, typer.Argument(help="A shipped scenario, or a TOML file of your own.")
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the shipped scenarios.")] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**31, help="Other dice; the file's if not given.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change the scenario: fleet.accelerators=300; again for more."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Folder to write report.html into.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play a scenario in virtual time with the service's own decisions: what happens when…?

    Admission, budgets, lanes, waits, the ladder and the engine's scheduler are the code that runs
    live, and so are placement, prefix caches and prompts where `routing` compares them; machines,
    people and their faults are invented. The same scenario and seed give the same bytes. `pip
    install 'tertulia[simulate]'` brings the report's pictures, and makes the fast engine's
    scenarios ten times faster.
    """
    from tertulia.simulator.line import LineTooLong
    from tertulia.simulator.scenario import CantUse, load, shipped
    from tertulia.simulator.story import tell

    if list_them:
        for name, title in shipped():
            typer.echo(f"{name:<20}  {title}")
        return
    if scenario is None:
        fail("Which scenario? `tertulia simulate --list` names those that there are.", status=2)
    try:
        play = load(scenario, _changes(changes or [], seed))
        _advise(play)
        told = []
        for one in tell(play, remark):
            remark(f"played: {one.variant.name}")
            told.append(one)
    except CantUse as error:
        fail(str(error), status=2)
    except LineTooLong as error:
        fail(f"The scenario asks for the impossible: {error}.", status=2)
    _say(play, told, as_json=as_json)
    if report is not None:
        _write(report, play, told)


def _advise(play: Play) -> None:
    """Says what to install where that saves much time."""
    from tertulia.simulator.machine import has_numba

    if any(one.scenario.can_be_compiled for one in play.variants) and not has_numba():
        remark("Ten times faster with numba: pip install 'tertulia[simulate]'.")


def _say(play: Play, told: list[Told], *, as_json: bool) -> None:
    from tertulia.simulator.table import as_text, as_values, rows

    if as_json:
        typer.echo(json.dumps([as_values(one) for one in told], indent=2, sort_keys=True))
        return
    typer.echo(f"{play.title}\n")
    typer.echo(as_text(rows(told)))


def _write(folder: Path, play: Play, told: list[Told]) -> None:
    from tertulia.simulator.plots import has_matplotlib
    from tertulia.simulator.report import write_report

    try:
        path = write_report(folder, play, told)
    except OSError as error:
        fail(f"The report can't be written: {error.strerror}.")
    remark(f"written: {path}")
    if not has_matplotlib():
        remark("It has no pictures: pip install 'tertulia[simulate]' for them.")


def _changes(given: list[str], seed: int | None) -> dict[str, Any]:
    """What the options change, as tables; a value is read as TOML does, else it is a text."""
    from tertulia.simulator.scenario import CantUse, merge

    found: dict[str, Any] = {} if seed is None else {"seed": seed}
    for one in given:
        name, is_given, text = one.partition("=")
        if not is_given or not all(name.split(".")):
            raise CantUse(f"--set {one}: write it as NAME=VALUE, such as fleet.accelerators=300.")
        try:
            value: Any = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        for part in reversed(name.split(".")):
            value = {part: value}
        found = merge(found, value)
    return found
