"""The command line that a plan stands for, with flags as its release spells them."""

from __future__ import annotations

import shlex

from vllm_diag.flags import spelling
from vllm_diag.planning.model import Assessment, Options
from vllm_diag.quantities import GIB
from vllm_diag.releases import NEWEST, Release

# `vllm serve` from here on; before, the module of the server was started.
_SERVE = Release(0, 5, 4)
# What stands for another checkpoint of the same model.
_CHECKPOINTS = {"fp8": "FP8-CHECKPOINT", "awq": "4-BIT-CHECKPOINT"}


def command_line(options: Options, now: Assessment, *, device: str) -> str:
    """Return the command that starts the server with ``options``; defaults are left out, the length never."""
    release = options.release or NEWEST
    words = _start(_CHECKPOINTS.get(options.checkpoint or "", options.model), release)
    given: list[tuple[str, object]] = [("--max-model-len", now.settings.max_model_len)]
    if options.utilization is not None:
        given.append(("--gpu-memory-utilization", f"{options.utilization:g}"))
    if now.settings.tensor_parallel > 1:
        given.append(("--tensor-parallel-size", now.settings.tensor_parallel))
    if now.settings.pipeline_parallel > 1:
        given.append(("--pipeline-parallel-size", now.settings.pipeline_parallel))
    if options.dtype != "auto":
        given.append(("--dtype", options.dtype))
    if options.quantization:
        given.append(("--quantization", options.quantization))
    if options.kv_cache_dtype != "auto":
        given.append(("--kv-cache-dtype", options.kv_cache_dtype))
    given += [
        (flag, value)
        for flag, value in (
            ("--max-num-seqs", options.max_num_seqs),
            ("--max-num-batched-tokens", options.max_num_batched_tokens),
            ("--block-size", options.block_size),
        )
        if value is not None
    ]
    if options.kv_cache_memory is not None and device != "cpu":
        given.append(("--kv-cache-memory-bytes", options.kv_cache_memory))
    for flag, value in given:
        words += [_spelled(flag, release), str(value)]
    if options.enforce_eager:
        words.append(_spelled("--enforce-eager", release))
    line = " ".join(shlex.quote(word) for word in words)
    if options.kv_cache_memory is not None and device == "cpu":
        return f"VLLM_CPU_KVCACHE_SPACE={options.kv_cache_memory // GIB} {line}"
    return line


def _start(model: str, release: Release) -> list[str]:
    if release >= _SERVE:
        return ["vllm", "serve", model]
    return ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", model]


def _spelled(flag: str, release: Release) -> str:
    found = spelling(flag, release)
    return found.text if found else flag
