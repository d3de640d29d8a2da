"""Accelerators and models that many people use: what their makers say of them, and where.

Rates are dense, without the doubling that data sheets print for sparse matrices. Prices are not
the makers': they are round figures of renting by the hour, to be replaced by your own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_NVIDIA: Final = "https://www.nvidia.com/en-us/data-center"
_AMD: Final = "https://www.amd.com/en/products/accelerators/instinct"
_GB: Final = 1e9
_TB_S: Final = 1e12
_TFLOPS: Final = 1e12


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device. `flops_8` is None where 8-bit floating point is not computed faster."""

    name: str
    says: str
    memory_gb: float
    bandwidth_tb_s: float
    tflops_16: float
    tflops_8: float | None
    price_per_hour: float
    source: str

    def values(self, precision: str) -> dict[str, float]:
        """A pool's inputs for it."""
        tflops = self.tflops_16 if PRECISIONS[precision].is_wide else self.tflops_8
        return {
            "memory_bytes": self.memory_gb * _GB,
            "bandwidth": self.bandwidth_tb_s * _TB_S,
            "flops": (tflops or self.tflops_16) * _TFLOPS,
            "price_per_hour": self.price_per_hour,
        }


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a dense model, as its configuration file has it."""

    name: str
    params_b: float
    layers: int
    kv_heads: int
    head_dim: int
    source: str

    def values(self) -> dict[str, float]:
        """A pool's inputs for it."""
        return {
            "params": self.params_b * 1e9,
            "layers": self.layers,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
        }


@dataclass(frozen=True, slots=True)
class Precision:
    """Of weights and KV cache. `is_wide`: computed in 16 bits."""

    name: str
    weight_bytes: float
    kv_bytes: float
    is_wide: bool

    def values(self) -> dict[str, float]:
        """A pool's inputs for it."""
        return {"weight_bytes_each": self.weight_bytes, "kv_bytes_each": self.kv_bytes}


PRECISIONS: Final = {
    one.name: one
    for one in (
        Precision("bf16", 2, 2, is_wide=True),
        Precision("fp8", 1, 1, is_wide=False),
        Precision("int4", 0.5, 2, is_wide=True),  # weights alone; computed in 16 bits
    )
}

ACCELERATORS: Final = {
    one.name: one
    for one in (
        Accelerator(
            "a100-40", "NVIDIA A100 SXM 40 GB", 40, 1.555, 312, None, 1.3, f"{_NVIDIA}/a100/"
        ),
        Accelerator(
            "a100-80", "NVIDIA A100 SXM 80 GB", 80, 2.039, 312, None, 1.6, f"{_NVIDIA}/a100/"
        ),
        Accelerator(
            "h100-sxm", "NVIDIA H100 SXM", 80, 3.35, 989.4, 1_978.9, 3.0, f"{_NVIDIA}/h100/"
        ),
        Accelerator("h100-nvl", "NVIDIA H100 NVL", 94, 3.9, 835, 1_671, 2.8, f"{_NVIDIA}/h100/"),
        Accelerator("h200", "NVIDIA H200 SXM", 141, 4.8, 989.4, 1_978.9, 3.5, f"{_NVIDIA}/h200/"),
        Accelerator("b200", "NVIDIA B200 (HGX)", 180, 8.0, 2_250, 4_500, 5.5, f"{_NVIDIA}/hgx/"),
        Accelerator("l40s", "NVIDIA L40S", 48, 0.864, 362, 733, 1.2, f"{_NVIDIA}/l40s/"),
        Accelerator("l4", "NVIDIA L4", 24, 0.3, 121, 242, 0.6, f"{_NVIDIA}/l4/"),
        Accelerator(
            "mi300x", "AMD Instinct MI300X", 192, 5.3, 1_307.4, 2_614.9, 2.5, f"{_AMD}/mi300.html"
        ),
        Accelerator(
            "mi325x", "AMD Instinct MI325X", 256, 6.0, 1_307.4, 2_614.9, 3.0, f"{_AMD}/mi300.html"
        ),
        Accelerator(
            "mi355x", "AMD Instinct MI355X", 288, 8.0, 2_516.6, 5_033.2, 4.5, f"{_AMD}/mi350.html"
        ),
    )
}

_HUB: Final = "https://huggingface.co"
MODELS: Final = {
    one.name: one
    for one in (
        Model("llama-3.1-70b", 70.6, 80, 8, 128, f"{_HUB}/meta-llama/Llama-3.1-70B-Instruct"),
        Model("llama-3.1-8b", 8.03, 32, 8, 128, f"{_HUB}/meta-llama/Llama-3.1-8B-Instruct"),
        Model("qwen2.5-72b", 72.7, 80, 8, 128, f"{_HUB}/Qwen/Qwen2.5-72B-Instruct"),
        Model("qwen2.5-32b", 32.8, 64, 8, 128, f"{_HUB}/Qwen/Qwen2.5-32B-Instruct"),
        Model("qwen2.5-7b", 7.62, 28, 4, 128, f"{_HUB}/Qwen/Qwen2.5-7B-Instruct"),
        Model("qwen3-32b", 32.8, 64, 8, 128, f"{_HUB}/Qwen/Qwen3-32B"),
        Model("qwen3-8b", 8.19, 36, 8, 128, f"{_HUB}/Qwen/Qwen3-8B"),
        Model("mistral-small-3", 23.6, 40, 8, 128, f"{_HUB}/mistralai/Mistral-Small-24B-Base-2501"),
        Model("gemma-3-27b", 27.4, 62, 16, 128, f"{_HUB}/google/gemma-3-27b-it"),
    )
}
