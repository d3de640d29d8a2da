"""A trace is read with care and replayed at its own times; ours finds what an oracle does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tertulia.simulator.caching.fleet import Fleet, Span, play
from tertulia.simulator.caching.people import Replay
from tertulia.simulator.caching.runs import one_cache_share
from tertulia.simulator.caching.trace import SAMPLE, WrongTrace, read_trace

SOUND = {"timestamp": 1_500, "input_length": 700, "output_length": 20, "hash_ids": [0, 7]}


def lines(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_request_has_its_time_its_lengths_and_its_blocks(tmp_path: Path) -> None:
    (request,) = read_trace(lines(tmp_path, SOUND))
    assert (request.at_s, request.prompt, request.reply) == (1.5, 700, 20)
    assert (request.ids, request.conversation) == ((0, 7), "m7")


def test_requests_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    early = {**SOUND, "timestamp": 3}
    assert [one.at_s for one in read_trace(lines(tmp_path, SOUND, early))] == [0.003, 1.5]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        "text",
        {**SOUND, "timestamp": -1},
        {**SOUND, "timestamp": 1.5},
        {**SOUND, "input_length": True},
        {**SOUND, "input_length": 0, "hash_ids": []},
        {**SOUND, "input_length": 10**12},
        {**SOUND, "hash_ids": [0]},
        {**SOUND, "hash_ids": [0, -7]},
        {**SOUND, "hash_ids": [0, 2**40]},
        {**SOUND, "hash_ids": "07"},
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(WrongTrace, match=r"trace\.jsonl: line 2 is no request"):
        read_trace(lines(tmp_path, SOUND, wrong))


def test_a_line_without_an_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("[" * 1_000_000)
    with pytest.raises(WrongTrace, match="line 1 is too much"):
        read_trace(path)


def test_the_sample_finds_what_a_plain_list_of_seen_blocks_finds() -> None:
    requests = read_trace(SAMPLE)
    seen: set[int] = set()
    found = 0
    for request in requests:
        full = request.ids[: (request.prompt - 1) // 512]
        known = next((n for n, one in enumerate(full) if one not in seen), len(full))
        found += 512 * known
        seen.update(request.ids[: request.prompt // 512])
    expected = found / sum(request.prompt for request in requests)
    assert one_cache_share(requests, 100_000_000) == pytest.approx(expected)
    assert 0.35 < expected < 0.45


def test_on_the_sample_ours_finds_what_an_oracle_finds() -> None:
    requests = read_trace(SAMPLE)
    fleet = Fleet(replicas=4, cache_tokens=500_000, cache="trace")
    # Twenty times as fast: the sample is a thirty-second of the trace.
    span = Span(0.0, requests[-1].at_s / 20)
    shares = {
        policy: play(fleet, Replay(requests, 20.0), policy, span=span).hit_share
        for policy in ("ours", "oracle", "random")
    }
    assert shares["ours"] > shares["oracle"] - 0.03
    assert shares["ours"] > shares["random"] + 0.05
