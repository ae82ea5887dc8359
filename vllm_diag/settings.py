"""Engine arguments out of a dump of them, whatever its syntax.

``non-default args: {'max_model_len': 8192}``, ``args: Namespace(max_model_len=8192)`` and
``with config: model='m', max_seq_len=8192`` differ by release. Only names in `KNOWN` are
kept: a dump may hold keys, templates and prompts, and none of them is needed.
"""

from __future__ import annotations

import re
from typing import Any

# Name in a dump -> the engine argument it is.
KNOWN = {
    name: name
    for name in (
        "model", "served_model_name", "max_model_len", "gpu_memory_utilization", "max_num_seqs",
        "max_num_batched_tokens", "tensor_parallel_size", "pipeline_parallel_size",
        "data_parallel_size", "decode_context_parallel_size", "enforce_eager", "kv_cache_dtype",
        "quantization", "dtype", "swap_space", "cpu_offload_gb", "block_size", "load_format",
        "num_gpu_blocks_override", "kv_cache_memory_bytes", "limit_mm_per_prompt",
        "enable_prefix_caching", "max_lora_rank", "device", "distributed_executor_backend",
        "attention_backend", "host", "port",
    )
}  # fmt: skip
KNOWN |= {
    "max_seq_len": "max_model_len",
    "model_tag": "model",
    "device_config": "device",
    "cpu_offload_gb": "cpu_offload_gb",
}

# Squeezed text: blanks are gone, so a value ends at a comma or a closing bracket.
_PAIR = re.compile(
    r"""(?<![\w'"])['"]?(?P<name>[a-z_]{4,40})['"]?[=:]"""
    r"""(?P<value>'[^']{0,300}'|"[^"]{0,300}"|\{[^{}]{0,200}\}|[^,(){}\[\]'"]{1,120})"""
)
_MAX_DUMP = 16_000


def parse(text: str) -> tuple[tuple[str, Any], ...]:
    """Return the known settings in ``text`` (blanks removed), in order, first one wins."""
    found: dict[str, Any] = {}
    for match in _PAIR.finditer(text[:_MAX_DUMP]):
        name = KNOWN.get(match["name"])
        if name and name not in found:
            value = _value(match["value"])
            if value is not None:
                found[name] = value
    return tuple(found.items())


def _value(text: str) -> Any:
    if text[0] in "'\"":
        return text[1:-1]
    if text in ("True", "False"):
        return text == "True"
    if text in ("None", "null"):
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
