"""The reference of a plan's inputs and figures, as the planner's book has them."""

from collections.abc import Iterable, Iterator

from tertulia.planner.book import BOOK
from tertulia.planner.measured import TIMING_NAMES
from tertulia.planner.sheet import Figure, Input

HEAD = """\
# Inputs and figures of a plan

What [`tertulia plan`](../howto/plan-a-fleet.md) takes and computes, as `tertulia plan --names`
lists it. A figure may be given as well, by whoever has measured it, and is then not computed.
Names of a pool stand in `[large]` or `[small]` of a file, and are written `large.step_s`
elsewhere; in a pool's formula they are its own. Defaults of a pool's hardware and timing are
replaced by those of its model, its accelerator and its [measured
steps](../explanation/planning.md#how-long-a-step-takes).
"""
INPUTS = "| input | default | from | to | unit | what it is |"
FIGURES = "| figure | unit | formula | what it is |"


def plan_page() -> str:
    """The whole page."""
    parts = [
        HEAD,
        "## Inputs of the fleet\n",
        "\n".join(_inputs(BOOK.fleet_inputs.values())),
        "\n## Inputs of a pool\n",
        "\n".join(_inputs(BOOK.pool_inputs.values())),
        "\n## Figures of a pool\n",
        "\n".join(_figures(BOOK.pool.values())),
        "\n## Figures of the fleet\n",
        "\n".join(_figures(BOOK.fleet.values())),
        "",
    ]
    return "\n".join(parts)


def _inputs(inputs: Iterable[Input]) -> Iterator[str]:
    yield f"{INPUTS}\n| --- | --- | --- | --- | --- | --- |"
    for one in inputs:
        default = "by timing" if one.name in TIMING_NAMES else f"{one.default:g}"
        yield (
            f"| `{one.name}` | {default} | {one.low:g} | {one.high:g} | {one.unit} | {one.says} |"
        )


def _figures(figures: Iterable[Figure]) -> Iterator[str]:
    yield f"{FIGURES}\n| --- | --- | --- | --- |"
    for one in figures:
        yield f"| `{one.name}` | {one.unit} | `{one.text}` | {one.says} |"
