"""What a scenario's file may say, and each refusal of what can't be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tertulia.simulator import scenario as module
from tertulia.simulator.scenario import CantUse, load, merge, parse, shipped
from tertulia.simulator.traffic import trace_of

HEAD = 'title = "a test"\n'


def refusal(text: str) -> str:
    with pytest.raises(CantUse) as refused:
        parse("mine", HEAD + text)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seconds = 0", "seconds: Input should be greater than 0"),
        ("seconds = nan", "seconds"),
        ("secnds = 10", "secnds: Extra inputs are not permitted"),
        ("warm_s = 300", "warm_s must be less than seconds"),
        ("[fleet]\naccelerators = 0", "fleet.accelerators"),
        ("[people]\nfree_share = 2", "people.free_share"),
        ("[people]\nusers = 0", "people.users"),
        ("[people]\ncached_tokens = 3_000", "cached_tokens must be less than prompt_tokens"),
        ("[traffic]\nper_s = -1", "traffic.per_s"),
        ("[traffic]\nper_s = 1e6", "300,000,000 messages are more than the exact engine plays"),
        ('[traffic]\nkind = "trace"', "a trace needs its file"),
        ('[traffic]\nkind = "burst"', "needs n, how many there are"),
        ('[traffic]\nkind = "conversations"\nn = 900_000\nthink_s = 1', "are more than the exact"),
        ('[traffic]\nkind = "flood"', "traffic.kind"),
        ('[traffic]\nkind = "day"\nhourly = [1, 2]', "hourly needs 24 figures"),
        ("[policy]\nladder = 9", "policy.ladder"),
        ('[[faults]]\nkind = "sunspots"\nat_s = 1', "faults.0.kind"),
        ('[[faults]]\nkind = "caches_lost"\nat_s = 1\nregion = 3', "a region that there is not"),
        ("[plans.free]\nanswer_tokens = 9_000", "answer_tokens must be less than window_tokens"),
        ("[fleet.large]\nread_s = -1", "fleet.large"),
        ("[scaling]\nheadroom = 0.5", "scaling.headroom"),
        ("[steps]\nstreams = 0", "steps.streams"),
        ('engine = "fast"\n[policy]\nbudgets = true', "the fast engine plays no budgets"),
        ('engine = "fast"\n[fleet]\naccelerators = 9\nregions = 2', "plays no regions"),
        ('engine = "fast"\n[traffic]\nkind = "bursty"', "plays no traffic of kind bursty"),
        ("variants = []", "variants must be 1 to 40 tables"),
        ('[[variants]]\nname = "a"\n[[variants]]\nname = "a"', "two variants have one name"),
        ("title = ", "is no TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence_that_names_it(text: str, told: str) -> None:
    assert told in refusal(text)


def test_a_scenario_that_is_not_there_is_told_of_those_that_are() -> None:
    with pytest.raises(
        CantUse, match=r"There is no scenario nope\. There are every-step, fairness"
    ):
        load("nope")
    with pytest.raises(CantUse, match="can't be read: No such file"):
        load("nope.toml")


def test_a_file_too_large_or_no_text_is_refused(tmp_path: Path, monkeypatch: object) -> None:
    del monkeypatch
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * (module.MOST_BYTES + 1))
    with pytest.raises(CantUse, match="too large"):
        load(str(big))
    bytes_only = tmp_path / "bytes.toml"
    bytes_only.write_bytes(b"\xff\xfe")
    with pytest.raises(CantUse, match="is no text"):
        load(str(bytes_only))


@pytest.mark.parametrize("name", [name for name, _ in shipped()])
def test_every_shipped_scenario_can_be_used(name: str) -> None:
    play = load(name)
    assert play.title
    assert len(play.about) > 40, "it says what it is about"
    assert play.variants


def of_caches(name: str) -> bool:
    return load(name).variants[0].scenario.caches is not None


@pytest.mark.parametrize("name", [name for name, _ in shipped() if of_caches(name)])
def test_every_shipped_scenario_of_caches_is_on_a_page_about_them(name: str) -> None:
    stories = Path(__file__).parents[2] / "docs" / "stories"
    pages = [(stories / page).read_text() for page in ("routing.md", "hit-table.md")]
    assert any(f"`{name}`" in page or f"tertulia simulate {name}" in page for page in pages)


@pytest.mark.parametrize("name", [name for name, _ in shipped() if not of_caches(name)])
def test_every_shipped_scenario_has_a_page_with_a_picture(name: str) -> None:
    stories = Path(__file__).parents[2] / "docs" / "stories"
    page = (stories / f"{name}.md").read_text()
    assert page.startswith(f"# {load(name).title}\n")
    assert f"tertulia simulate {name} " in page
    assert (stories / f"{name}.svg").read_text().startswith("<svg")
    assert f"]({name}.md)" in (stories / "README.md").read_text()


def test_a_variant_changes_what_it_says_and_nothing_else() -> None:
    text = "[fleet]\naccelerators = 7\n[[variants]]\n[[variants]]\nfleet = { load_s = 5 }"
    first, second = parse("mine", HEAD + text).variants
    assert (first.name, second.name) == ("1", "2")
    assert (second.scenario.fleet.accelerators, second.scenario.fleet.load_s) == (7, 5)
    assert first.scenario.fleet.load_s == 300


def test_changes_from_outside_win() -> None:
    (variant,) = parse("mine", HEAD + "seed = 3", {"seed": 4}).variants
    assert variant.scenario.seed == 4
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


def test_plans_begin_as_those_that_are_there() -> None:
    (variant,) = parse("mine", HEAD + "[plans.free]\nwait_s = 3").variants
    plan = variant.scenario.plan("free")
    assert (plan.wait_s, plan.ladder, plan.abandon_s, plan.budgets) == (3, True, 30.0, ())
    assert variant.scenario.plan("plus").window_tokens == 32_000
    assert variant.scenario.plan("batch").abandon_s is None


def test_a_calibration_gives_what_a_message_costs() -> None:
    """70B in BF16 on four H100: a step of 26.6 ms with 100 streams of 3,200 tokens."""
    text = """
[fleet]
accelerators = 4
large = { a_ms = 3.31, e = 0.89, b_ms = 0.0314, p0_ms = 8.81, p1_us = 57.51, p2_us = 0.0007143, \
accelerators = 4, weights_gb = 140, kv_bytes = 327_680, bandwidth_tb_s = 3.35, batch = 100 }
"""
    (variant,) = parse("mine", HEAD + text).variants
    timing = variant.scenario.fleet.large.timing
    assert timing.write_s == pytest.approx(4 * 0.0266 / 100, rel=0.03)
    assert timing.read_s * 390 == pytest.approx(4 * 0.0312, rel=0.03)


def trace(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return f'[traffic]\nkind = "trace"\nfile = "{path}"\ntimes = 2'


def test_traces_of_three_kinds_are_read(tmp_path: Path) -> None:
    azure = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.6805900,396,0\n"
    )
    own = "at_s,prompt_tokens,answer_tokens\n10,374,44\n14,396,1\n"
    mooncake = (
        '{"timestamp": 0, "input_length": 1100, "output_length": 44, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 4000, "input_length": 1500, "output_length": 7, "hash_ids": [0, 1, 9]}\n'
    )
    for name, text in (("a.csv", azure), ("b.csv", own)):
        (variant,) = parse("mine", HEAD + trace(tmp_path, name, text)).variants
        first, second = trace_of(variant.scenario.traffic)
        assert (first.at_s, first.prompt_tokens, first.answer_tokens) == (0.0, 374, 44)
        assert second.at_s == pytest.approx(2.0)
        assert (second.prompt_tokens, second.answer_tokens) == (396, 1)
    (variant,) = parse("mine", HEAD + trace(tmp_path, "c.jsonl", mooncake)).variants
    first, second = trace_of(variant.scenario.traffic)
    assert (first.cached_tokens, second.cached_tokens) == (0, 1024)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("when,what\n1,2\n", "no trace that is known"),
        ("at_s,prompt_tokens,answer_tokens\n1,2,x\n", "no trace that is known"),
        ("at_s,prompt_tokens,answer_tokens\n5,2,3\n4,2,3\n", "message 2 lies before"),
    ],
)
def test_a_trace_that_is_none_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (variant,) = parse("mine", HEAD + trace(tmp_path, "t.csv", text)).variants
    with pytest.raises(CantUse, match=told):
        list(trace_of(variant.scenario.traffic))
    traffic = variant.scenario.traffic.model_copy(update={"file": str(tmp_path / "gone.csv")})
    with pytest.raises(CantUse, match="can't be read"):
        list(trace_of(traffic))
