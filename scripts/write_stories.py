"""Play the shipped scenarios and write their pages: table and picture of each, in docs/stories.

Usage: .venv/bin/python -m scripts.write_stories [NAME ...]. It takes some minutes and needs
matplotlib. What is written by hand below a page's last mark stays as it is. The pages of caches and
routing are by hand: only their pictures are written, and only where they are named.
"""

import sys
from pathlib import Path

from tertulia.simulator.plots import drawings
from tertulia.simulator.scenario import Play, load, shipped
from tertulia.simulator.story import Told, tell
from tertulia.simulator.table import as_text, rows

STORIES = Path(__file__).parent.parent / "docs" / "stories"
MARK = "<!-- What follows is written by hand. -->"
# The picture that tells most of each; what became of the messages if it is not named here.
PICTURES = {
    "huge-prompt": "How long each step took",
    "flapping": "The rung that holds",
    "queue-spike": "Messages that wait",
    "scaling-day": "Accelerators",
    "five-regions": "The wait of those that began, in seconds",
    "faults": "The share of accelerators in use",
    "routing": "Hits, waits and turns inside the targets",
    "hit-table": "Found of the prompts, by the size of the caches",
}
DEFAULT = "What became of the messages"


def main(names: list[str]) -> None:
    STORIES.mkdir(parents=True, exist_ok=True)
    for name, _ in shipped():
        if names and name not in names:
            continue
        play = load(name)
        is_by_hand = play.variants[0].scenario.caches is not None
        if is_by_hand and name not in names:
            continue
        told = list(tell(play, lambda what: print(what, file=sys.stderr)))
        title, svg = picture(name, told)
        (STORIES / f"{name}.svg").write_text(svg + "\n" if not svg.endswith("\n") else svg)
        if is_by_hand:
            print(as_text(rows(told)))
            continue
        path = STORIES / f"{name}.md"
        by_hand = path.read_text().partition(MARK)[2] if path.exists() else "\n"
        path.write_text(f"{page(play, told, title)}\n{MARK}{by_hand}")
        print(f"written: {path.name}", flush=True)


def picture(name: str, told: list[Told]) -> tuple[str, str]:
    """The one that tells most, with its title."""
    wanted = PICTURES.get(name, DEFAULT)
    return next(one for one in drawings(told) if one[0] == wanted)


def page(play: Play, told: list[Told], title: str) -> str:
    """The page up to what is written by hand."""
    found = rows(told)
    names = list(found[0])
    lines = [
        f"# {play.title}",
        "",
        play.about.strip(),
        "",
        "```sh",
        f"tertulia simulate {play.name} --report out/",
        "```",
        "",
        f"![{title}]({play.name}.svg)",
        "",
        f"{title}. Seed {told[0].variant.scenario.seed};",
        f"[the scenario](../../src/tertulia/simulator/scenarios/{play.name}.toml).",
        "",
        "| " + " | ".join(names) + " |",
        "| " + " | ".join("---" for _ in names) + " |",
        *("| " + " | ".join(row[name] for name in names) + " |" for row in found),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
