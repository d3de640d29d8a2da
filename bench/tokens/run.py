"""`python -m bench tokens [options]`: the token path over each kind of stores, beside a proxy.

It must print a figure that misses its goal like any other.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.tokens import parts
from bench.tokens.load import CHAT, OPENAI, ROOT, TOKENS, Call, Target, Tools
from bench.tokens.peers import PEERS, NotInstalled, peer
from bench.tokens.services import (
    BATCHES,
    MOCK_SENTENCE,
    PACES,
    SENTENCES,
    Pace,
    Stores,
    ours,
)

CALLS: Final = {"chat": CHAT, "openai": OPENAI}
# Each takes about a minute.
ROWS: Final = ("sqlite:sentences", "fleet:sentences", "fleet:batches", "fleet:tokens")
PARTS: Final = ("streams", "more", "peers")


def main(given: list[str]) -> None:
    """Runs the parts, prints a line for each and writes them as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench tokens", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help="stores:release, as by default")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--call", choices=CALLS, default="chat", help="what clients ask")
    parser.add_argument("--peers", type=Path, help="a folder with peers' programs")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of a reply")
    parser.add_argument("--light", action="store_true", help="only 200 streams, no search")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "tokens.json")
    asked = parser.parse_args(given)
    wanted = asked.parts.split(",")
    document = Document(asked.json)
    with tempfile.TemporaryDirectory(prefix="tertulia-bench-") as made:
        tools = Tools(Path(made), asked.tokens)
        for row in asked.rows.split(",") if "streams" in wanted else ():
            stores, _, pace = row.partition(":")
            found = _row(tools, stores, PACES[pace], CALLS[asked.call], is_light=asked.light)
            document.add(row, found)
        if "more" in wanted:
            for stores in dict.fromkeys(row.partition(":")[0] for row in asked.rows.split(",")):
                document.add(f"{stores}:more", _more(tools, stores, CALLS[asked.call]))
        if "peers" in wanted:
            for name in PEERS:
                _peer(tools, name, asked.peers, document)
    print(f"written to {asked.json}")


def _row(tools: Tools, stores: Stores, pace: Pace, call: Call, *, is_light: bool) -> dict[str, Any]:
    """How many streams a core carries when text is released so."""
    # Of a held sentence only its last token can come at once.
    added = "newest_ms" if pace is SENTENCES else "added_ms"
    with tools.mock(sentence_tokens=MOCK_SENTENCE), ours(tools, stores, pace, call) as target:
        if is_light:
            return {"says": pace.says, "light": _figures(parts.light(tools, target), added)}
        found = parts.most_streams(tools, target, added=added)
    return {"says": pace.says, **_found(found, added)}


def _more(tools: Tools, stores: Stores, call: Call) -> dict[str, Any]:
    """What a stream takes, how late its first text is, and how soon a stop acts."""
    with tools.mock(sentence_tokens=MOCK_SENTENCE):
        direct = Target(tools.mock_port, (), OPENAI)
        direct_ms = parts.first_text_ms(tools, direct)
        with ours(tools, stores, SENTENCES, call) as target:
            kilobytes = parts.kilobytes_a_stream(tools, target)
            stopped_ms = parts.p50_p99(parts.stop_ms(tools, target))
        with ours(tools, stores, BATCHES, call) as target:
            first_ms = parts.first_text_ms(tools, target)
    return {
        "kb_a_stream": round(kilobytes, 1),
        "stop_ms_p50_p99": stopped_ms,
        "added_first_text_ms_p50": round(first_ms[0] - direct_ms[0], 2),
        "first_text_ms_p50_p99": first_ms,
        "first_text_without_us_ms_p50_p99": direct_ms,
    }


def _peer(tools: Tools, name: str, programs: Path | None, document: Document) -> None:
    with tools.mock(sentence_tokens=MOCK_SENTENCE):
        try:
            with peer(tools, name, programs) as target:
                found = parts.most_streams(tools, target, added="added_ms")
        except NotInstalled:
            print(f"{name}: not installed here", flush=True)
            return
    document.add(name, _found(found, "added_ms"))


def _found(found: parts.Found, added: str) -> dict[str, Any]:
    return {
        "streams": found.streams,
        "light": _figures(found.light, added),
        "full": _figures(found.full, added) if found.full else None,
    }


def _figures(report: dict[str, Any], added: str) -> dict[str, Any]:
    sut = report["sut"]
    return {
        "streams": report["streams"],
        "tok_per_s": round(report["tok_per_s"]),
        "tok_per_cpu_s": round(sut["tok_per_cpu_s"]),
        "cpu_share": round(sut["cpu_share"], 2),
        "user_share": round(sut["user_s"] / sut["cpu_s"], 2) if sut["cpu_s"] else None,
        "turns_per_s": round(report["req_per_s"], 1),
        "added_ms_p50_p99": [round(report[added][q], 1) for q in ("p50", "p99")],
        "first_text_ms_p50_p99": [round(report["ttft_ms"][q], 1) for q in ("p50", "p99")],
        "rss_mb": sut["rss_mb"],
        "errors": report["errors"]["total"],
        "sample_error": report["sample_error"],
    }


class Document:
    """What was found so far, in a file that is written after each row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, Any] = {}
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, found: dict[str, Any]) -> None:
        """Prints a row and keeps it."""
        self._rows[name] = {"at": time.strftime("%Y-%m-%d %H:%M"), **found}
        self._path.write_text(json.dumps(self._rows, indent=1))
        print(f"{name}: {json.dumps(found)}", flush=True)
