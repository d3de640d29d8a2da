"""Write the parts of docs/reference that the code knows best: settings and commands.

Usage: .venv/bin/python -m scripts.write_reference. A test fails while the pages are out of date.
What a program cannot know (the HTTP interface's meaning) is written by hand beside them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from typer.main import get_command

from scripts.plan_reference import plan_page
from tertulia.cli import app
from tertulia.config import Settings
from tertulia.core.quota import MILLI
from tertulia.core.spending import DAY_MS, most_spent
from tertulia.core.types import BudgetUnit
from tertulia.wiring.desks import plans_of

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"

SETTINGS_HEAD = """\
# Settings

One TOML file (`--config FILE`, or `tertulia.toml` in the folder where the command starts) and the
environment, which wins: `server.port` is `TERTULIA_SERVER__PORT`. Settings are read once, at the
start. An unknown name is an error that names it. `tertulia config` prints what is in force, with
secrets hidden.

```toml
data_dir = "/var/lib/tertulia"

[server]
port = 9000

[plans.free]
replies_running = 1
```
"""

SPENDING_HEAD = """\
# The most that an account can spend

What a stolen session or key can use of a plan as it is without any setting, however it asks: each
row is the most within *any* such time. A unit is what one new token of a prompt costs; a cached one
costs a tenth of it and a token of an answer four times as much. A budget of another kind bounds it,
too: so many tokens are at most four times as many units.
[What else bounds a thief](../explanation/shared-limits.md), and what to do, is on another page.
`GET /v1/admin/plans` tells the most within a day of the plans in force.
"""

UNITS: dict[BudgetUnit, str] = {
    "units": "units",
    "tokens": "tokens",
    "prompt_tokens": "tokens of prompts",
    "turns": "turns",
}
# A session lasts for the last of them.
TIMES = {
    "a moment": 0,
    "an hour": 3_600_000,
    "a day": DAY_MS,
    "30 days": 30 * DAY_MS,
}

COMMANDS_HEAD = """\
# Commands

`tertulia --help` lists them, `tertulia COMMAND --help` explains one.
"""


def main() -> None:
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)


def pages() -> dict[str, str]:
    """The generated pages: name and text."""
    return {
        "settings.md": settings_page(),
        "cli.md": commands_page(),
        "spending.md": spending_page(),
        "plan.md": plan_page(),
    }


def settings_page() -> str:
    head = "| setting | default | what it is |\n| --- | --- | --- |"
    tables: dict[str, list[str]] = {}
    for path, field in settings(Settings, ""):
        row = f"| `{path}` | {default_of(field)} | {field.description or ''}{bounds_of(field)} |"
        tables.setdefault(path.rpartition(".")[0], []).append(row)
    parts = [SETTINGS_HEAD]
    for table, rows in tables.items():
        title = f"## `{table}`\n\n{purpose_of(table)}\n\n" if table else "## Top level\n\n"
        parts.append(title + "\n".join([head, *rows]) + "\n")
        if table == "plans.*.budgets":
            parts.append(plans_at_first())
    return "\n".join(parts)


def plans_at_first() -> str:
    """The plans that exist without any setting, in the form of the file."""
    lines = [
        "Without any setting there are these; the file changes or adds to them.",
        "",
        "```toml",
    ]
    plans = Settings.model_fields["plans"].get_default(call_default_factory=True)
    for name, plan in plans.items():
        lines += [f"[plans.{name}]"]
        for key, value in plan.model_dump().items():
            if key == "budgets":
                lines += ["budgets = [", *(f"  {as_toml(one)}," for one in value), "]"]
            else:
                lines.append(f"{key} = {as_toml(value)}")
        lines.append("")
    return "\n".join([*lines[:-1], "```", ""])


def as_toml(value: Any) -> str:
    """A setting's value as the file has it."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {as_toml(one)}' for key, one in value.items())} }}"
    return json.dumps(value)


def spending_page() -> str:
    parts = [SPENDING_HEAD]
    tables = Settings.model_fields["plans"].get_default(call_default_factory=True)
    for plan in plans_of(tables).values():
        lines = [f"## `{plan.name}`", "", "| within | " + " | ".join(UNITS.values()) + " |"]
        lines += ["| --- |" + " --- |" * len(UNITS)]
        for name, within_ms in TIMES.items():
            most = [most_spent(plan.budgets, unit, within_ms) for unit in UNITS]
            cells = ["no bound" if m is None else f"{m // MILLI:,}" for m in most]
            lines += [f"| {name} | " + " | ".join(cells) + " |"]
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


def settings(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """The dotted name of every setting; in a table with free keys the key is a `*`."""
    for name, field in model.model_fields.items():
        inner = list(tables_in(field.annotation))
        star = ".*" if get_origin(field.annotation) is dict else ""
        if not inner or field.description:  # a list of tables in a table is a setting, too
            yield prefix + name, field
        for table in inner:
            yield from settings(table, f"{prefix}{name}{star}.")


def tables_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from tables_in(part)


def purpose_of(table: str) -> str:
    """The first line of the docstring of the class behind a table's name."""
    model: type[BaseModel] = Settings
    for name in table.split("."):
        if name != "*":
            (model,) = tables_in(model.model_fields[name].annotation)
    return (model.__doc__ or "").strip().splitlines()[0]


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=False)
    if default is None or isinstance(default, SecretStr):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, int | float):
        return f"`{default:,}`".replace(",", "_") if default >= 10_000 else f"`{default}`"
    if isinstance(default, tuple) and any(isinstance(one, BaseModel) for one in default):
        return "below"
    if isinstance(default, tuple):
        return f"`{json.dumps(default)}`"
    return f"`{default}`"


def bounds_of(field: FieldInfo) -> str:
    """What else is allowed: choices, or the range of a number."""
    choices = [part for part in get_args(field.annotation) if isinstance(part, str)]
    if choices:
        return " One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
    ends = {
        name: bound
        for constraint in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if (bound := getattr(constraint, name, None)) is not None
    }
    if not ends:
        return ""
    low = ends.get("ge", ends.get("gt"))
    high = ends.get("le", ends.get("lt"))
    above = "more than " if "gt" in ends else ""
    return f" From {above}{low:,} to {high:,}." if high is not None else f" At least {low:,}."


def commands_page() -> str:
    parts = [COMMANDS_HEAD]
    for path, command in commands(get_command(app), "tertulia"):
        parts.append(f"## `{path}`\n\n{prose(command.help or '')}\n")
        rows = [row for parameter in command.params if (row := parameter_row(parameter))]
        if rows:
            parts.append("\n".join(["| argument | what it is |", "| --- | --- |", *rows]) + "\n")
    return "\n".join(parts)


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The full name of every command below `command`: a leaf is what a person can type."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield path, command
    for name, child in inner.items():
        if not child.hidden:
            yield from commands(child, f"{path} {name}")


def parameter_row(parameter: Any) -> str:
    if getattr(parameter, "hidden", False):
        return ""
    option = parameter.param_type_name == "option"
    name = ", ".join(parameter.opts) if option else parameter.name.upper()
    default = parameter.default
    given = "" if default is None or default is False or callable(default) else f" ({default})"
    return f"| `{name}` | {prose(parameter.help or '')}{given} |"


def prose(text: str) -> str:
    """Paragraphs as they are, each on lines of its own."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n\n".join(paragraphs)


if __name__ == "__main__":
    main()
