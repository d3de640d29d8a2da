"""How fast engines were measured to be, and what to expect of one that nobody has measured.

The measurements are tables of kernels, put together by a tool, and not whole runs. A load test of
your own replicas is better than anything here (`calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Final

from tertulia.planner.catalogue import ACCELERATORS, MODELS, PRECISIONS

ROOFLINE: Final = "roofline"
MEASURED: Final = "measured"
# What a timing decides. Whoever gives another timing takes back all of them.
TIMING_NAMES: Final = frozenset(
    (
        "a_s",
        "efficiency",
        "b_s",
        "p0_s",
        "p1_s",
        "p2_s",
        "flops_share",
        "prefill_flops",
        "prefill_token_s",
        "prefill_tokens_per_s",
        "step_s",
        "stream_tokens_per_s",
        "decode_tokens_per_s",
    )
)
# What a calibration gives: with all of them nothing is left to the tables here.
FITTED_NAMES: Final = frozenset(("a_s", "efficiency", "b_s", "p0_s", "p1_s", "p2_s"))
# Of a data sheet's bandwidth and arithmetic, by those who publish such estimates.
ROOFLINE_VALUES: Final = {"efficiency": 0.6, "flops_share": 0.4}


@dataclass(frozen=True, slots=True)
class Timing:
    """The coefficients of a pool's steps, as its inputs; and where they are from."""

    values: dict[str, float]
    source: str
    is_measured: bool


@dataclass(frozen=True, slots=True)
class _Fit:
    """A fit of `core.timing`'s two laws, in the units in which they are read most easily."""

    a_ms: float
    efficiency: float
    b_ms: float
    p0_ms: float
    p1_us: float
    p2_ns: float
    worst_step: float
    worst_prefill: float

    @property
    def values(self) -> dict[str, float]:
        return {
            "a_s": self.a_ms / 1e3,
            "efficiency": self.efficiency,
            "b_s": self.b_ms / 1e3,
            "p0_s": self.p0_ms / 1e3,
            "p1_s": self.p1_us / 1e6,
            "p2_s": self.p2_ns / 1e9,
        }


# AIConfigurator 0.12.0 (Apache-2.0), H100 SXM, its measured kernels for vLLM 0.24; least squares on
# the relative error over 10 to 15 steps and 7 lengths of prompts.
_FITS: Final = {
    ("llama-3.1-70b", "bf16", 4): _Fit(3.31, 0.89, 0.0314, 8.81, 57.51, 0.7143, 0.027, 0.030),
    ("llama-3.1-70b", "fp8", 8): _Fit(4.90, 0.80, 0.0310, 7.95, 34.93, 0.02548, 0.048, 0.034),
    ("llama-3.1-8b", "bf16", 1): _Fit(0.46, 0.82, 0.0042, 3.66, 17.83, 0.5657, 0.062, 0.076),
}
FITTED_ON: Final = "h100-sxm"


def timing_of(
    model: str, precision: str, n_accelerators: int, accelerator: str, *, is_own: bool = False
) -> Timing:
    """The measured timing where there is one, else an estimate from those measured.

    `is_own`: some of the hardware is not the catalogue's, so that nothing was measured on it.
    """
    fit = _FITS.get((model, precision, n_accelerators))
    if fit is None:
        return _estimate(model, precision, n_accelerators, accelerator)
    if is_own or accelerator != FITTED_ON:
        return _carried_over(fit, model, precision, n_accelerators)
    source = (
        "kernels measured on H100 for vLLM 0.24, fitted"
        f" (errs by {fit.worst_step:.1%} in steps, {fit.worst_prefill:.1%} in prefill)"
    )
    return Timing(fit.values, source, is_measured=True)


def _carried_over(fit: _Fit, model: str, precision: str, n_accelerators: int) -> Timing:
    """A fit on another accelerator: what it costs besides bytes and arithmetic stays, and of the
    data sheet's rates the same shares are reached."""
    there = ACCELERATORS[FITTED_ON].values(precision)["flops"]
    values = {name: one for name, one in fit.values.items() if name not in ("p1_s", "p2_s")}
    flops_per_token = 2 * MODELS[model].values()["params"] / n_accelerators
    values["flops_share"] = min(1.0, flops_per_token / (there * fit.values["p1_s"]))
    source = "kernels measured on H100, carried over by the data sheets; load-test your own"
    return Timing(values, source, is_measured=False)


def _estimate(model: str, precision: str, n_accelerators: int, accelerator: str) -> Timing:
    """By the pattern of the three fits: the fixed part and each sequence cost more the more layers
    and accelerators there are; eight bits do not compute twice as fast as sixteen."""
    layers = MODELS[model].layers
    doublings = log2(n_accelerators)
    is_fast = not PRECISIONS[precision].is_wide and ACCELERATORS[accelerator].tflops_8 is not None
    values = {
        "a_s": layers * (14e-6 + 15e-6 * doublings),
        "efficiency": 0.83,
        "b_s": layers * (0.13e-6 + 0.1e-6 * doublings),
        "p0_s": layers * 110e-6,
        "flops_share": 0.3 if is_fast else 0.6,
    }
    source = "an estimate by the pattern of three fits on H100; load-test your own"
    return Timing(values, source, is_measured=False)
