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
        "attention_backend", "host", "port", "kv_offloading_size", "cpu_bytes_to_use", "max_local_cpu_size",
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
    for match in _NESTED.finditer(text[:_MAX_DUMP]):
        found.setdefault(match[1], _value(match[2]))
    return tuple(found.items())


# Names that stand deep inside another setting.
_NESTED = re.compile(r"""['"](cpu_bytes_to_use|max_local_cpu_size)['"]:\s{0,4}(\d{1,18}(?:\.\d{1,9})?)""")


# A flag and its value on a command line, however it is quoted.
_FLAG = re.compile(
    r"""(?<![\w-])--(?P<name>[a-z][a-z0-9_-]{2,60})"""
    r"""(?:(?:=|\s{1,20})(?P<value>'[^']{0,2000}'|"(?:[^"\\]|\\.){0,2000}"|(?!--)[^\s'"]{1,300}))?"""
)


_POSITIONAL = re.compile(r"\s{0,20}(?!-)([\w./:@+-]{2,300})(?:\s|$)")


def parse_command(text: str) -> tuple[tuple[str, Any], ...]:
    """Return the known settings that a command line gives, in order, the last of a name wins."""
    found: dict[str, Any] = {}
    if (model := _POSITIONAL.match(text)) is not None:
        found["model"] = model[1]
    for match in _FLAG.finditer(text[:_MAX_DUMP]):
        name, value = KNOWN.get(match["name"].replace("-", "_")), match["value"]
        if value and "{" in value:
            found |= {inner[1]: _value(inner[2]) for inner in _NESTED.finditer(value)}
        elif name in _BARE:
            found[name] = True
        elif name and value and value != "\\":
            read = _value(value)
            if name not in _NUMBERS or isinstance(read, int | float):
                found[name] = read
    return tuple(found.items())


# Flags that take no value, and those whose value is a number.
_BARE = frozenset(("enforce_eager", "enable_prefix_caching"))
_NUMBERS = frozenset(name for name in KNOWN if name.startswith(("max_", "num_", "gpu_mem", "swap", "cpu_", "block_"))
                     or name.endswith(("_size", "_bytes", "port")))  # fmt: skip


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
