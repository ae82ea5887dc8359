"""What a figure means where the same words mean different quantities in different releases.

Which reading applies is told by the text first (a wording that only some releases print), by
the release the log declares where the text leaves it open, and is left open where neither does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from vllm_diag.versions import Release, parse_release


@dataclass(frozen=True, slots=True)
class Reading:
    """One meaning of one figure.

    ``figure`` is the field of the event, ``means`` what it is, ``why`` where that is known from.
    More than one reading of a figure on an event: the log does not tell which applies.
    """

    figure: str
    means: str
    why: str


@dataclass(frozen=True, slots=True)
class _Row:
    code: str
    figure: str
    means: str
    first: Release
    last: Release
    source: str


_ALWAYS = (Release(0, 0), Release(999, 0))


def _row(code: str, figure: str, span: str, means: str, source: str) -> _Row:
    """Return a row; ``span`` is ``"0.8.0 - 0.19.1"``, either end open."""
    first, _, last = span.partition("-")
    return _Row(
        code,
        figure,
        means,
        parse_release(first.strip()) or _ALWAYS[0],
        parse_release(last.strip()) or _ALWAYS[1],
        source,
    )


_RANK = "one rank's share; each rank has its own"
_FIRST_RANK = "what the first rank of the node has; the rank with the least decides and need not be printed"

_ROWS = (
    _row("kv-cache-size", "tokens", "0.8.0 - 0.9.0", "blocks x block size of one rank", "v1/core/kv_cache_utils.py"),
    _row("kv-cache-size", "tokens", "0.9.1 - 0.20.0",
         "blocks / layer groups x smallest block size: too low for models with sliding windows",
         "v1/core/kv_cache_utils.py"),
    _row("kv-cache-size", "tokens", "0.20.1 -", "maximum concurrency x max_model_len, rounded down",
         "v1/core/kv_cache_utils.py"),
    _row("kv-cache-size", "concurrency", "-", "requests of max_model_len tokens that one data-parallel engine holds",
         "v1/core/kv_cache_utils.py"),
    _row("kv-max-concurrency", "concurrency", "-",
         "requests of max_model_len tokens that one data-parallel engine holds; shorter ones fit in larger numbers",
         "v1/core/kv_cache_utils.py"),
    _row("kv-blocks", "blocks", "-", "blocks of one rank, the same number on each: not to be added up",
         "executor/gpu_executor.py"),
    _row("kv-cache-available", "available", "0.9.1 - 0.17.1",
         "share - weights - non-torch growth - activation peak of one rank", "v1/worker/gpu_worker.py"),
    _row("kv-cache-available", "available", "0.18.0 - 0.26.0",
         "share - weights - non-torch growth - activation peak - estimate of CUDA graphs (where enabled), of one rank",
         "v1/worker/gpu_worker.py"),
    _row("kv-cache-available", "available", "0.27.0 -",
         "share - drop of free memory since the first snapshot - activation headroom - estimate of CUDA graphs",
         "v1/worker/gpu_worker.py"),
    _row("kv-cache-too-small", "needed", "- 0.8.2", "GiB, though GB is printed", "v1/core/kv_cache_utils.py"),
    _row("kv-cache-too-small", "estimated_max_len", "0.9.2 - 0.28.99",
         "the length that fills the whole cache; one block of it serves no request, so such a request waits for ever",
         "v1/core/kv_cache_utils.py"),
    _row("kv-cache-too-small", "estimated_max_len", "0.29.0 -", "the longest length that starts and is served",
         "v1/core/kv_cache_utils.py"),
    _row("weights-loaded", "weights", "- 0.8.2", f"GiB, though GB is printed; {_RANK}", "worker/model_runner.py"),
    _row("weights-loaded", "weights", "0.8.3 - 0.11.0", _RANK, "v1/worker/gpu_model_runner.py"),
    _row("weights-loaded", "weights", "0.11.1 -", _FIRST_RANK, "v1/worker/gpu_model_runner.py"),
    _row("graph-capture-done", "graphs", "0.6.4 -", "change of free device memory during capture, of one rank",
         "v1/worker/gpu_model_runner.py"),
    _row("memory-profile-keys", "non_torch", "-",
         "memory on the device that is not torch's: other processes' is in it", "worker/worker.py"),
    _row("memory-profile", "non_torch", "-", "growth of this process's memory outside torch", "worker/worker.py"),
    _row("budget-summary", "activations", "0.18.0 - 0.18.99",
         "activation peak and, where it is enabled, the estimate of CUDA graphs", "v1/worker/gpu_worker.py"),
    _row("budget-summary", "activations", "0.27.0 -", "transient headroom and the estimate of CUDA graphs",
         "v1/worker/gpu_worker.py"),
    _row("budget-summary", "free", "- 0.10.2", "free before the weights and before NCCL started",
         "v1/worker/gpu_worker.py"),
    _row("budget-summary", "free", "0.11.0 -", "free before the weights, NCCL's buffers already taken off",
         "v1/worker/gpu_worker.py"),
    _row("free-memory-below-requested", "free", "- 0.10.2", "free after the CUDA context, before NCCL started",
         "v1/worker/gpu_worker.py"),
    _row("free-memory-below-requested", "free", "0.11.0 -", "free after the CUDA context and NCCL's buffers",
         "v1/worker/gpu_worker.py"),
    _row("memory-profiling-error-v0", "initial_used", "-", "used, not free, memory", "worker/worker.py"),
    _row("sleep-freed", "freed", "-", _RANK, "v1/worker/gpu_worker.py"),
    _row("sleep-freed", "backup", "-", "host RAM, for each rank", "device_allocator/cumem.py"),
    _row("kv-offload-host-pool", "cpu_capacity", "-", "GiB, though GB is printed; one rank's share",
         "v1/simple_kv_offload/manager.py"),
    _row("kv-offload-host-pool", "offload_capacity", "-", "GiB, though GB is printed; one rank's share",
         "v1/simple_kv_offload/manager.py"),
    _row("kv-offload-host-pool", "total_size", "-", "10^9 bytes, of all ranks", "v1/kv_offload"),
    _row("weights-cpu-offload", "offloaded", "-", "GiB where no unit is printed, 10^9 bytes where GB is",
         "model_executor/offloader"),
    _row("stats", "kv_usage", "-", "share of this engine's blocks that requests hold", "v1/metrics/loggers.py"),
    _row("engine-init-failed", "exit_code", "-", "an empty list of failed processes does not mean that none failed",
         "v1/engine/utils.py"),
)  # fmt: skip


@cache
def _by_code() -> Mapping[str, tuple[_Row, ...]]:
    found: dict[str, list[_Row]] = defaultdict(list)
    for row in _ROWS:
        found[row.code].append(row)
    return {code: tuple(rows) for code, rows in found.items()}


def readings_of(
    code: str, figures: frozenset[str], printed_in: tuple[str, ...], declared: Release | None
) -> tuple[Reading, ...]:
    """Return what the ``figures`` of a message mean.

    ``printed_in`` are the releases whose sources hold the very wording (empty: not known);
    ``declared`` is the release that the log names. A declaration that the wording contradicts
    is not believed.
    """
    rows = [row for row in _by_code().get(code, ()) if row.figure in figures]
    if not rows:
        return ()
    possible = [release for text in printed_in if (release := parse_release(text))]
    if declared and (not possible or possible[0] <= declared <= possible[-1] or declared > _newest()):
        possible, told_by = [declared], f"{declared} is declared"
    elif possible:
        told_by = f"this wording is that of {possible[0]} to {possible[-1]}"
    else:
        told_by = "the release is not known"
    return tuple(Reading(row.figure, row.means, f"{told_by}; {row.source}") for row in rows if _applies(row, possible))


def _applies(row: _Row, possible: list[Release]) -> bool:
    return not possible or any(row.first <= release <= row.last for release in possible)


def _newest() -> Release:
    return Release(0, 33)
