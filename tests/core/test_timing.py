"""The law of an engine's steps, against the fits that were made of measured kernels."""

import pytest

from tertulia.core.timing import PrefillTiming, StepTiming, step_bytes

H100 = 3.35e12
KV = 20_480  # bytes a token on each of 8 accelerators: 70B, 8 bit


def test_a_step_is_a_fixed_part_its_bytes_and_its_sequences() -> None:
    timing = StepTiming(bandwidth=1e12, efficiency=0.5, a_s=0.001, b_s=1e-5)
    assert timing.step_s(2e9, 100) == pytest.approx(0.001 + 0.004 + 0.001)


def test_the_roofline_of_one_factor_is_the_same_law() -> None:
    n_bytes = step_bytes(weight_bytes=8.825e9, kv_bytes_per_token=KV, context_tokens=256 * 3_200)
    assert StepTiming(H100, 0.6).step_s(n_bytes, 256) == pytest.approx(0.012737, rel=1e-4)


def test_the_measured_law_is_far_slower_than_the_roofline() -> None:
    n_bytes = step_bytes(weight_bytes=8.825e9, kv_bytes_per_token=KV, context_tokens=256 * 3_200)
    measured = StepTiming(H100, 0.80, a_s=4.90e-3, b_s=0.0310e-3)
    assert measured.step_s(n_bytes, 256) == pytest.approx(0.0226, rel=0.048)


def test_chunks_of_a_prompt_take_what_its_pass_takes_without_the_fixed_part() -> None:
    timing = PrefillTiming(p1_s=57.5e-6, p2_s=7.1e-10, p0_s=8.8e-3)
    chunks = sum(timing.chunk_s(500, n_before) for n_before in range(0, 3_000, 500))
    assert chunks + timing.p0_s == pytest.approx(timing.pass_s(3_000))


def test_longer_prompts_are_read_more_slowly() -> None:
    timing = PrefillTiming(p1_s=57.5e-6, p2_s=7.1e-10)
    assert timing.tokens_per_s(30_000) < timing.tokens_per_s(300) < 1 / timing.p1_s


@pytest.mark.parametrize(
    ("bandwidth", "efficiency", "a_s", "b_s"),
    [(0, 0.8, 0, 0), (1e12, 0, 0, 0), (1e12, 0.8, -1e-9, 0), (1e12, 0.8, 0, -1e-9)],
)
def test_an_impossible_step_is_refused(
    bandwidth: float, efficiency: float, a_s: float, b_s: float
) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        StepTiming(bandwidth, efficiency, a_s, b_s)


@pytest.mark.parametrize(("p0_s", "p1_s", "p2_s"), [(-1, 1, 0), (0, 0, 0), (0, 1, -1)])
def test_an_impossible_pass_is_refused(p0_s: float, p1_s: float, p2_s: float) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        PrefillTiming(p1_s, p2_s, p0_s)
