"""Bytes of one weight matrix under each way of quantizing it, scales and zero points included.

vllm/model_executor/layers/quantization, the tensors that each method's create_weights makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod
from typing import Any, Literal

import regex

from vllm_diag.kv_arithmetic.config import ConfigError
from vllm_diag.kv_arithmetic.interval import Interval

# A list of patterns comes from the checkpoint: neither their number nor one of them may take long.
_MOST_PATTERNS = 64
_MATCHING_SECONDS = 0.05

Granularity = Literal["tensor", "channel", "group", "block"]


@dataclass(frozen=True, slots=True)
class Kept:
    """The modules that stay unquantized: by name or part of it, by glob, by regular expression ("re:...")."""

    modules: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    def names(self, name: str) -> bool:
        """Whether the weight called ``name`` belongs to one of them."""
        module = name.removesuffix(".weight")
        parts = module.split(".")
        spans = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
        return any(span in self.modules for span in spans) or any(_matches(p, module) for p in self.patterns)


def _matches(pattern: str, module: str) -> bool:
    if not pattern.startswith("re:"):
        return fnmatchcase(module, pattern) or fnmatchcase(module, pattern + ".*")
    try:
        return regex.match(pattern[3:], module, timeout=_MATCHING_SECONDS) is not None
    except (regex.error, TimeoutError):
        return False


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a matrix is stored: bits a weight, and a scale for each tensor, output row, group or block.

    ``scale_bytes`` and ``zero_bits`` are those of one scale and one zero point, ``index_bytes`` the
    bytes for each input column that a sorted group order takes, kept or dropped at loading.
    ``experts_only`` leaves all but the experts of a mixture as they are, ``slack_bits`` what a
    variant of the method stores more a weight. ``padded_to`` is what some kernels pad both sides of
    a matrix to.
    """

    name: str
    bits: int
    granularity: Granularity = "tensor"
    scale_bytes: int = 4
    group: int = 0
    block: tuple[int, int] = (128, 128)
    zero_bits: int = 0
    index_bytes: int = 0
    slack_bits: float = 0.0
    experts_only: bool = False
    padded_to: int = 1
    kept: Kept = Kept()

    def covers(self, name: str, *, expert: bool) -> bool:
        """Whether the matrix called ``name`` is quantized."""
        if self.experts_only and not expert:
            return False
        return not self.kept.names(name)

    def size(self, shape: Sequence[int]) -> Interval:
        """Return the bytes of a matrix of ``shape`` (the last two: output rows, input columns)."""
        padded = (*shape[:-2], *(-(-side // self.padded_to) * self.padded_to for side in shape[-2:]))
        count = prod(padded)
        more = self.index_bytes * (count // max(1, padded[-2])) + int(count * self.slack_bits / 8)
        return Interval(self._stored(shape), self._stored(padded) + more)

    def _stored(self, shape: Sequence[int]) -> int:
        scales = self._scales(shape)
        return -(-prod(shape) * self.bits // 8) + scales * self.scale_bytes + scales * self.zero_bits // 8

    def _scales(self, shape: Sequence[int]) -> int:
        rows, columns = shape[-2], shape[-1]
        matrices = prod(shape[:-2])
        if self.granularity == "tensor":
            return matrices
        if self.granularity == "channel":
            return matrices * rows
        if self.granularity == "block":
            return matrices * -(-rows // self.block[0]) * -(-columns // self.block[1])
        return matrices * rows * -(-columns // (self.group or columns))


def scheme_of(said: Mapping[str, Any], chosen: str | None = None) -> Scheme | None:
    """Return the scheme that a `quantization_config` states or --quantization chooses; None for none.

    Raises:
        ConfigError: a method whose storage is not known here.

    """
    method = str(said.get("quant_method", "")).lower().replace("_", "-")
    if not method and chosen is None:
        return None
    name = method or str(chosen).lower().replace("_", "-")
    kept = _kept(said)
    maker = _METHODS.get(name)
    if maker is None:
        raise ConfigError(f"how the quantization method {name[:60]!r} stores weights is not known here")
    return maker(said, kept)


def _kept(said: Mapping[str, Any]) -> Kept:
    found: list[str] = []
    for key in ("ignore", "ignored_layers", "modules_to_not_convert", "llm_int8_skip_modules", "exclude_modules"):
        value = said.get(key)
        if isinstance(value, list):
            found.extend(entry for entry in value if isinstance(entry, str) and len(entry) <= 300)
    patterns = [entry for entry in found if entry.startswith("re:") or "*" in entry]
    return Kept(frozenset(found), tuple(patterns[:_MOST_PATTERNS]))


def _whole(said: Mapping[str, Any], key: str, default: int) -> int:
    value = said.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**20 else default


def _fp8(said: Mapping[str, Any], kept: Kept) -> Scheme:
    block = said.get("weight_block_size")
    if isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block):
        return Scheme("fp8", 8, "block", block=(block[0], block[1]), kept=kept)
    return Scheme("fp8", 8, "tensor", kept=kept)


def _awq(said: Mapping[str, Any], kept: Kept) -> Scheme:
    bits = _whole(said, "bits", _whole(said, "w_bit", 4))
    return Scheme(
        "awq",
        bits,
        "group",
        2,
        _whole(said, "group_size", _whole(said, "q_group_size", 128)),
        zero_bits=bits,
        kept=kept,
    )


def _gptq(said: Mapping[str, Any], kept: Kept) -> Scheme:
    bits, size = _whole(said, "bits", 4), said.get("group_size")
    group = size if isinstance(size, int) and size > 0 else 0
    return Scheme("gptq", bits, "group", 2, group, zero_bits=bits, index_bytes=4, kept=kept)


def _bitsandbytes(said: Mapping[str, Any], kept: Kept) -> Scheme:
    if said.get("load_in_8bit") is True:
        return Scheme("bitsandbytes", 8, "channel", 4, kept=kept)
    # A scale for 64 weights: 1 byte where the scales are quantized too, else 4.
    return Scheme("bitsandbytes", 4, "group", 1, 64, slack_bits=24 / 64, kept=kept)


def _nvfp4(said: Mapping[str, Any], kept: Kept) -> Scheme:
    inner = said.get("quantization")
    kept = kept if kept.modules or not isinstance(inner, dict) else _kept(inner)
    algo = str((inner if isinstance(inner, dict) else said).get("quant_algo", "NVFP4")).upper()
    if "FP8" in algo and "FP4" not in algo:
        return Scheme("fp8", 8, "tensor", kept=kept)
    return Scheme("nvfp4", 4, "group", 1, 16, kept=kept)


def _modelopt(said: Mapping[str, Any], kept: Kept) -> Scheme:
    return _nvfp4({"quant_algo": "FP8", **said}, kept)


def _mxfp4(said: Mapping[str, Any], kept: Kept) -> Scheme:
    return Scheme("mxfp4", 4, "group", 1, 32, experts_only=True, padded_to=256, kept=kept)


def _compressed(said: Mapping[str, Any], kept: Kept) -> Scheme:
    groups = said.get("config_groups")
    first = next((g for g in groups.values() if isinstance(g, dict)), {}) if isinstance(groups, dict) else {}
    weights = first.get("weights")
    if not isinstance(weights, dict):
        raise ConfigError("`quantization_config` has no `config_groups` with `weights`")
    bits = _whole(weights, "num_bits", 8)
    group = _whole(weights, "group_size", 0)
    if bits == 4 and weights.get("type") == "float":
        return Scheme("nvfp4", 4, "group", 1, group or 16, kept=kept)
    strategy = str(weights.get("strategy", "tensor"))
    granularity: Granularity = {"channel": "channel", "group": "group", "block": "block"}.get(strategy, "tensor")  # type: ignore[assignment]
    block = weights.get("block_structure")
    sides = (block[0], block[1]) if isinstance(block, list) and len(block) == 2 else (128, 128)
    zero = 0 if weights.get("symmetric", True) else bits
    wide = 2 if bits < 8 else 4
    return Scheme("compressed-tensors", bits, granularity, wide, group, block=sides, zero_bits=zero, kept=kept)


def _fp8_rows(said: Mapping[str, Any], kept: Kept) -> Scheme:
    return Scheme("fp8", 8, "channel", kept=kept)


def _experts_int8(said: Mapping[str, Any], kept: Kept) -> Scheme:
    return Scheme("experts_int8", 8, "channel", experts_only=True, kept=kept)


_METHODS: Mapping[str, Callable[[Mapping[str, Any], Kept], Scheme]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fp8_rows,
    "ptpc-fp8": _fp8_rows,
    "awq": _awq,
    "awq-marlin": _awq,
    "gptq": _gptq,
    "gptq-marlin": _gptq,
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
    "modelopt-fp4": _nvfp4,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "experts-int8": _experts_int8,
}
