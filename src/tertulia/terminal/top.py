"""`tertulia top`: how the fleet is, in this terminal, until Ctrl-C. It changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tertulia.terminal.client import NobodyThere, Server

# As often as the gateway itself looks.
_EVERY_S: Final = 2.0
UNKNOWN: Final = "-"
_BAD: Final = frozenset({"lost", "refused"})


def _wait(seconds: float) -> object:
    return threading.Event().wait(seconds)


def watch(
    server: Server, console: Console, *, once: bool, wait: Callable[[float], object] = _wait
) -> None:
    """Shows the fleet, again and again unless `once`. Refused where the key is no administrator's;
    NobodyThere if the first look finds no server: one that goes away later is waited for."""
    seen = server.fleet()
    if once:
        console.print(picture(seen))
        return
    with Live(
        picture(seen), console=console, screen=console.is_terminal, auto_refresh=False
    ) as live:
        while True:
            wait(_EVERY_S)
            try:
                shown = picture(server.fleet())
            except NobodyThere as error:
                shown = Group(Text(f"! {error}; trying again", style="red"), picture(seen))
            live.update(shown, refresh=True)


def picture(seen: Mapping[str, Any]) -> Group:
    """One look as tables. Every word of the server's is plain text to the terminal."""
    return Group(_head(seen), _replicas(seen["replicas"]), _lanes(seen["lanes"]))


def _head(seen: Mapping[str, Any]) -> Text:
    ladder, first, gap = seen["ladder"], seen["firstText"], seen["betweenTokens"]
    load = ladder["load"]
    parts = [
        f"rung {ladder['rung']} ({ladder['name']})",
        f"load {_share(load[0] if load else None)}",
        f"first text p50 {_seconds(first['p50'])} p95 {_seconds(first['p95'])}",
        f"between tokens p50 {_seconds(gap['p50'])} p95 {_seconds(gap['p95'])}",
        f"{seen['openStreams']} streams here",
    ]
    return Text(" · ".join(parts))


def _replicas(replicas: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for name in ("replica", "model", "state"):
        table.add_column(name)
    for name in ("batch", "to read", "cache", "hits", "tok/s", "gap"):
        table.add_column(name, justify="right")
    for one in replicas:
        table.add_row(
            Text(one["name"]),
            Text(one["model"]),
            Text(one["state"], style=_style(one["state"])),
            f"{one['running']}/{one['slots']}",
            str(one["owedTokens"]),
            _share(one["cacheUsed"]),
            _share(one["cacheHits"]),
            UNKNOWN if one["tokensPerSecond"] is None else f"{one['tokensPerSecond']:.1f}",
            _seconds(one["gapSeconds"]),
        )
    return table


def _lanes(lanes: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    table.add_column("lane")
    for name in ("running", "waiting", "wait"):
        table.add_column(name, justify="right")
    for lane in lanes:
        table.add_row(
            Text(lane["name"]),
            str(lane["running"]),
            str(lane["queued"]),
            _seconds(lane["waitSeconds"]),
        )
    return table


def _style(state: str) -> str:
    return "green" if state == "ready" else "red" if state in _BAD else "yellow"


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
