"""`tertulia scale`, and `calibrate --live`: what a terminal makes of pages of metrics."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner, Result

from tertulia.cli import app
from tertulia.core.sizing import ScaleRules, Supply
from tertulia.core.timing import PrefillTiming, StepTiming
from tertulia.planner.calibration import Counts, Shape
from tertulia.terminal import pages
from tertulia.terminal.live_counts import NAMES, correction_of
from tertulia.terminal.pages import NoPage
from tertulia.terminal.scale_command import advise
from tertulia.wiring.scaling import ScaleFigures
from tests.conformance.world import ManualClock

LARGE = Supply("large", replicas=2, slots=20, running=14, owed_tokens=500, prefill_per_s=10_000.0)


def page_of(*supplies: Supply, waiting: float = 0.0) -> str:
    """As a worker shows it."""
    registry = CollectorRegistry()
    registry.register(ScaleFigures(lambda: supplies, lambda: waiting, ManualClock()))
    return generate_latest(registry).decode()


def run(*words: str) -> Result:
    return CliRunner().invoke(app, [*words])


@contextmanager
def serving(*texts: str | bytes, status: int = 200) -> Iterator[str]:
    """A server on loopback whose pages are these, one after another; the last stays."""
    left: list[bytes] = [text.encode() if isinstance(text, str) else text for text in texts]

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/metrics"
            body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The terminal is for the command."""

    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_it_says_how_many_are_wanted_and_why() -> None:
    with serving(page_of(LARGE, waiting=7)) as url:
        ended = run("scale", url, "--seconds", "0")
    assert ended.exit_code == 0
    assert ended.stdout == (
        "large: 4 wanted, 2 ready: running and waiting replies ask for them. 14 of 20 slots taken,"
        " 7 turns wait, 500 prompt tokens to read: 0.05 s.\n"
    )


def test_a_program_gets_json() -> None:
    with serving(page_of(replace(LARGE, prefill_per_s=None))) as url:
        ended = run("scale", url, "--seconds", "0", "--json", "--spare", "0")
    (one,) = json.loads(ended.stdout)
    assert (one["model"], one["ready"], one["wanted"], one["owed_s"]) == ("large", 2, 2, None)


def test_of_several_looks_the_fullest_counts() -> None:
    looks = [(0.0, page_of(LARGE)), (2.0, page_of(replace(LARGE, running=0)))]
    assert advise(ScaleRules(), looks)[0].wanted == 3
    assert advise(ScaleRules(), looks[1:])[0].wanted == 2


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("", "says nothing of replicas"),
        ('up{model="large"} 1\n', "says nothing of replicas"),
        ("{{{", "no page of metrics"),
    ],
)
def test_a_page_that_says_nothing_is_refused(page: str, said: str) -> None:
    with pytest.raises(NoPage, match=said):
        advise(ScaleRules(), [(0.0, page)])


def refusals() -> Sequence[tuple[Sequence[str], str]]:
    nobody = "http://127.0.0.1:1"
    return [
        ((nobody,), f"{nobody} does not show its metrics"),
        (("nonsense",), "nonsense does not show its metrics"),
        ((nobody, "--utilisation", "2"), "above 0 and at most 1"),
        ((nobody, "--owed-s", "0"), "Times to read are above 0 s"),
        ((nobody, "--most", "0"), "at least one replica and the spare ones"),
    ]


@pytest.mark.parametrize(("words", "said"), refusals())
def test_nonsense_gets_one_sentence(words: Sequence[str], said: str) -> None:
    ended = run("scale", *words, "--seconds", "0")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_server_that_refuses_is_named() -> None:
    with serving("go away", status=404) as url:
        ended = run("scale", url, "--seconds", "0")
    assert ended.exit_code == 2
    assert "does not show its metrics" in ended.stderr


def test_a_page_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_BYTES", 1 << 20)
    with serving(b"#" * (2 << 20)) as url:
        ended = run("scale", url, "--seconds", "0")
    assert ended.exit_code == 2
    assert "are larger than 1 MB" in ended.stderr


def counted(of: Callable[[str], float]) -> str:
    """A replica's page with these counters."""
    return "".join(f"{names[0]} {of(field)}\n" for field, names in NAMES.items())


def test_a_fit_is_corrected_by_two_looks_at_a_replica() -> None:
    steps, prefill = StepTiming(1e12, 0.5, 1e-3), PrefillTiming(p1_s=1e-5)
    passed = {
        "gaps_s": 10.0,  # in half a second: twenty at once
        "n_gaps": 1_000.0,
        "n_requests": 10.0,
        "prompt_tokens": 1_000.0,
        "cached_tokens": 900.0,
        "answer_tokens": 1_000.0,
        "prefill_s": 1.0,
        "n_prefills": 10.0,
    }
    assert set(passed) == set(Counts.__dataclass_fields__)
    with serving(counted(lambda _: 5.0), counted(lambda field: 5.0 + passed[field])) as url:
        found = correction_of(url, 0.5, (steps, prefill), Shape(1e9, 0.0, 1e12), 512)
    # A gap of 10 ms, of which a five-thousandth goes into prompts, where a step should take 3 ms.
    assert found.batch == 20
    assert found.steps == pytest.approx(10 * (1 - 1e-3 / 0.5) / 3, rel=1e-3)
    assert found.context_tokens == 150
