"""What is known to be wrong in releases of vLLM, with what it means for advice.

`DEFECTS` is the table; `defects_of` says which rows hold for a release and what a log tells of
the run. Ranges name releases whose sources were read (or whose servers were run, where a row's
``source`` says so): a release between a row's ``last`` and its ``fixed`` may have the defect,
and is left out by `defects_of` and kept by `possible_defects`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from vllm_diag.versions import Release

Effect = Literal[
    "no-flag-helps",  # the sum is wrong whatever is set; another release is the way out
    "starts-too-long",  # a length is let through that the cache does not hold: concurrency below 1.00x
    "estimate-missing",  # the message has no number where it should
    "estimate-too-long",  # the number in the message is a block more than can be served
    "refuses-to-start",  # a start is refused that would work
    "flag-ignored",  # a flag is accepted and does nothing
    "wrong-advice",  # the message names a lever that does not help
    "overcounts",  # memory is counted that this process does not need
    "undercounts",  # memory is needed that the budget does not count: it runs out later
    "wastes-memory",  # memory is set aside that nothing will use
    "misleading-number",  # a printed figure does not mean what it says
    "looks-like-failure",  # a healthy server prints errors, or a failed one ends well
]
Subject = Literal["kv-cache", "graphs", "memory-profile", "host-memory", "weights", "flags", "reading"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a log tells of a run. What logs show only where it is set counts as not set."""

    engine: Literal["v0", "v1"] | None = None
    device: str | None = None  # cuda, rocm, cpu, xpu, tpu, hpu
    has_windows: bool | None = None  # some layers see a window or a chunk only, others everything
    has_recurrent: bool | None = None  # some layers keep a state (Mamba, linear attention) beside attention layers
    pipeline_parallel: int = 1
    manager_off: bool = False  # --disable-hybrid-kv-cache-manager, or a feature that implies it
    has_draft: bool = False  # speculative decoding with draft layers
    eager: bool = False
    sleep_mode: bool = False
    block_override: bool = False  # --num-gpu-blocks-override is given
    cpu_space_given: bool = False  # VLLM_CPU_KVCACHE_SPACE or --kv-cache-memory-bytes is given
    chunked_prefill_off: bool = False

    @property
    def hybrid(self) -> bool | None:
        """Whether the layers need caches of several kinds."""
        if self.has_windows or self.has_recurrent:
            return True
        return None if self.has_windows is None or self.has_recurrent is None else False

    @property
    def on_gpu(self) -> bool | None:
        """Whether graphs are captured on a device."""
        return None if self.device is None else self.device in ("cuda", "rocm", "xpu")


Wanted = str | bool | Callable[[Any], bool]


def _several(value: int) -> bool:
    return value > 1


@dataclass(frozen=True, slots=True)
class Defect:
    """One row: what is wrong from ``first`` to ``last``, and since when it is not.

    ``last`` and ``fixed`` are None where the newest release looked at still has it. ``useless``
    are flags and variables that do nothing about it, or nothing at all because of it. ``source``
    is the file of vLLM that shows it.
    """

    code: str
    first: Release
    last: Release | None
    fixed: Release | None
    subject: Subject
    effect: Effect
    wrong: str
    advice: str
    source: str
    needs: Mapping[str, Wanted] = field(default_factory=dict)
    useless: tuple[str, ...] = ()

    def covers(self, release: Release | None) -> bool | None:
        """Whether ``release`` has it; None where that is not known."""
        if release is None:
            return None
        if release < self.first or (self.fixed is not None and release >= self.fixed):
            return False
        return True if self.last is None or release <= self.last else None

    def applies(self, facts: Facts) -> bool | None:
        """Whether it bears on such a run; None where the facts do not tell."""
        unknown = False
        for name, wanted in self.needs.items():
            value = getattr(facts, name)
            if value is None:
                unknown = True
            elif not (wanted(value) if callable(wanted) else value == wanted):
                return False
        return None if unknown else True

    @property
    def fixed_words(self) -> str:
        """Say which release is without it."""
        return f"fixed in {self.fixed}" if self.fixed else "not fixed in the newest release looked at"


def _row(code: str, releases: str, subject: Subject, effect: Effect, source: str, **rest: Any) -> Defect:
    first, _, others = releases.partition(" - ")
    last, _, fixed = others.partition(", fixed ")
    return Defect(
        code, _release(first), _release(last) if last else None, _release(fixed) if fixed else None, subject, effect,
        source=source, **rest,
    )  # fmt: skip


def _release(text: str) -> Release:
    major, minor, patch = map(int, text.split("."))
    return Release(major, minor, patch)


_KV = "vllm/v1/core/kv_cache_utils.py"
_WORKER = "vllm/v1/worker/gpu_worker.py"
_RUNNER = "vllm/v1/worker/gpu_model_runner.py"
_ARGS = "vllm/engine/arg_utils.py"

DEFECTS: tuple[Defect, ...] = (
    # --- the check of a full-length request at start
    _row(
        "pipeline-stages-counted-together", "0.14.0 - 0.16.0, fixed 0.17.0", "kv-cache", "no-flag-helps", _KV,
        needs={"engine": "v1", "pipeline_parallel": _several},
        wrong="The layers of all pipeline stages are held against the memory of one rank, so the need printed is about"
        " as many times too large as there are stages.",
        advice="No flag corrects the sum; 0.17.0 or newer counts each stage by itself. A shorter context starts, but"
        " the length that really fits is longer than the one estimated; --max-model-len auto falls short the same way.",
    ),
    _row(
        "only-first-group-checked", "0.14.0 - 0.18.1, fixed 0.19.0", "kv-cache", "starts-too-long", _KV,
        needs={"engine": "v1", "hybrid": True, "manager_off": False},
        wrong="Only the first group of layers is checked, so a model that begins with a layer of small need (Gemma 2"
        " and 3, gpt-oss) is let through at any length.",
        advice="Where the concurrency printed is below 1.00x a request of full length never finishes: lower"
        " --max-model-len until it is 1.00x or more. --max-model-len auto does not find that length.",
    ),
    _row(
        "windows-stored-in-full", "0.8.3 - 0.9.0, fixed 0.9.1", "kv-cache", "starts-too-long", _KV,
        needs={"engine": "v1", "has_windows": True},
        wrong="The check counts layers with a window at their small need, and the cache stores them like the others.",
        advice="Where the concurrency printed is below 1.00x a request of full length never finishes: lower"
        " --max-model-len until it is 1.00x or more.",
    ),
    _row(
        "windows-stored-in-full-without-manager", "0.9.1 - 0.13.0, fixed 0.14.0", "kv-cache", "starts-too-long", _KV,
        needs={"engine": "v1", "has_windows": True, "manager_off": True},
        wrong="With the hybrid KV cache manager off (always so off CUDA and ROCm up to 0.10.0) the check counts layers"
        " with a window at their small need, and the cache stores them like the others.",
        advice="Where the concurrency printed is below 1.00x a request of full length never finishes: lower"
        " --max-model-len until it is 1.00x or more, or let the manager work.",
    ),
    _row(
        "estimate-without-number", "0.8.4 - 0.9.0, fixed 0.9.1", "kv-cache", "estimate-missing", _KV,
        needs={"engine": "v1"},
        wrong="The sentence with the estimated length breaks off before the number.",
        advice="The length that fits is worked out from the needed and the available memory.",
    ),
    _row(
        "null-block-not-reserved", "0.8.5 - 0.28.0, fixed 0.29.0", "kv-cache", "estimate-too-long", _KV,
        needs={"engine": "v1"},
        wrong="One block of the pool serves no request, and neither the check nor the estimate takes it off.",
        advice="The estimate is one block too long: a server with that length starts at 1.00x, and a request of full"
        " length waits for ever. Set a block less.",
    ),
    _row(
        "block-override-not-applied", "0.9.1 - 0.9.1, fixed 0.9.2", "kv-cache", "flag-ignored", _KV,
        needs={"engine": "v1", "block_override": True}, useless=("--num-gpu-blocks-override",),
        wrong="The override of the number of blocks is logged and not used.",
        advice="Size the cache by --gpu-memory-utilization in this release.",
    ),
    _row(
        "block-override-not-checked", "0.8.0 - 0.20.0, fixed 0.20.1", "kv-cache", "starts-too-long", _KV,
        needs={"engine": "v1", "block_override": True},
        wrong="The check uses the memory that was measured, not the number of blocks that overrides it.",
        advice="Too small an override starts with a concurrency below 1.00x; drop it or raise it.",
    ),
    _row(
        "hybrid-token-count-too-small", "0.9.1 - 0.20.0, fixed 0.20.1", "reading", "misleading-number", _KV,
        needs={"engine": "v1", "hybrid": True, "manager_off": False},
        wrong="The KV cache size in tokens is divided by the number of groups, as if each held the full length.",
        advice="Go by the concurrency; the tokens of this release and of 0.20.1 or newer are not to be compared.",
    ),
    # --- layouts
    _row(
        "windows-not-told-apart", "0.8.0 - 0.8.2, fixed 0.8.3", "kv-cache", "wastes-memory", _KV,
        needs={"engine": "v1", "has_windows": True},
        wrong="Layers with a window are checked and stored like the others.",
        advice="0.9.1 or newer stores windows only, in a much smaller cache.",
    ),
    _row(
        "windows-in-full-in-v0", "0.2.0 - 0.10.2, fixed 0.11.0", "kv-cache", "wastes-memory",
        "vllm/worker/cache_engine.py", needs={"engine": "v0", "has_windows": True},
        wrong="V0 stores layers with a window like the others.",
        advice="V1 from 0.9.1 on stores windows only, in a much smaller cache.",
    ),
    _row(
        "groups-sized-by-fewest-layers", "0.9.1 - 0.11.2, fixed 0.12.0", "kv-cache", "wastes-memory", _KV,
        needs={"engine": "v1", "hybrid": True, "has_draft": True, "manager_off": False},
        wrong="Groups are as large as the rarest kind of layer, so a single draft layer more makes a further group and"
        " about halves the concurrency.",
        advice="0.12.0 or newer pads the groups; in this release drafting without own layers (ngram) avoids it.",
    ),
    _row(
        "no-automatic-hybrid-block-size", "0.9.2 - 0.9.2, fixed 0.10.0", "kv-cache", "refuses-to-start", _KV,
        needs={"engine": "v1", "has_recurrent": True},
        wrong="The block size is not raised until a block of attention holds a recurrent state; the start pads or"
        " stops and suggests a --block-size.",
        advice="Set the --block-size that the message names, or use 0.10.0 or newer.",
    ),
    _row(
        "kv-head-floor-missing", "0.2.0 - 0.2.0, fixed 0.2.2", "kv-cache", "undercounts", "vllm/config.py",
        wrong="KV heads are divided by the ranks without a floor of one head a rank.",
        advice="More ranks than KV heads need another release.",
    ),
    _row(
        "query-heads-counted", "0.1.4 - 0.1.7, fixed 0.2.0", "kv-cache", "wastes-memory", "vllm/config.py",
        wrong="The cache is sized by all attention heads, not by the fewer KV heads of grouped attention.",
        advice="0.2.0 or newer fits several times the tokens into the same memory.",
    ),
    # --- the memory profile
    _row(
        "other-processes-counted", "0.6.4 - 0.9.0, fixed 0.9.1", "memory-profile", "overcounts", _WORKER,
        needs={"engine": "v1"},
        wrong="Memory that other processes hold on the device counts as this server's own.",
        advice="Free the device first; a share that leaves room for the others is counted twice.",
    ),
    _row(
        "other-processes-counted-in-v0", "0.6.4 - 0.6.4, fixed 0.6.5", "memory-profile", "overcounts",
        "vllm/worker/worker.py", needs={"engine": "v0"},
        wrong="Memory that other processes hold on the device counts as this server's own.",
        advice="Free the device first; a share that leaves room for the others is counted twice.",
    ),
    _row(
        "whole-device-counted", "0.2.5 - 0.3.0, fixed 0.3.2", "memory-profile", "overcounts",
        "vllm/worker/worker.py",
        wrong="All memory in use on the device counts as this server's own, other processes' included.",
        advice="Free the device first; a share that leaves room for the others is counted twice.",
    ),
    _row(
        "context-and-nccl-not-counted", "0.1.4 - 0.2.4, fixed 0.2.5", "memory-profile", "undercounts",
        "vllm/worker/worker.py",
        wrong="Only PyTorch's memory is measured; the CUDA context and NCCL come on top.",
        advice="Leave a GiB or more with a lower --gpu-memory-utilization.",
    ),
    _row(
        "graphs-not-in-budget", "0.2.6 - 0.19.1, fixed 0.20.0", "graphs", "undercounts", _WORKER,
        needs={"on_gpu": True, "eager": False},
        wrong="CUDA graphs are captured after the KV cache took its share, and are not in the budget.",
        advice="At a high share the server passes the check of the cache and runs out in graph capture: lower"
        " --gpu-memory-utilization, or --enforce-eager.",
    ),
    _row(
        "graphs-not-in-budget-on-rocm", "0.20.0 - 0.25.1, fixed 0.26.0", "graphs", "undercounts", _WORKER,
        needs={"device": "rocm", "eager": False},
        wrong="On ROCm graphs are captured after the KV cache took its share, and are not in the budget.",
        advice="At a high share the server runs out in graph capture: lower --gpu-memory-utilization, or"
        " --enforce-eager.",
        useless=("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",),
    ),
    _row(
        "graphs-not-in-budget-on-xpu", "0.20.0 - 0.30.0, fixed 0.31.0", "graphs", "undercounts", _WORKER,
        needs={"device": "xpu", "eager": False},
        wrong="On XPU graphs are captured after the KV cache took its share, and are not in the budget.",
        advice="At a high share the server runs out in graph capture: lower --gpu-memory-utilization, or"
        " --enforce-eager.",
        useless=("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",),
    ),
    _row(
        "graphs-counted-twice", "0.27.0", "graphs", "misleading-number", _WORKER,
        needs={"engine": "v1", "on_gpu": True, "eager": False},
        wrong="The KV cache sizes suggested in the budget summary have the graphs taken off twice, as estimated and as"
        " captured.",
        advice="The suggested size is too small by the graphs' memory; it is safe, not the most that fits.",
    ),
    _row(
        "graph-estimate-misdated", "0.18.0", "reading", "misleading-number", _WORKER,
        needs={"engine": "v1", "on_gpu": True},
        wrong="The log dates the graph estimate's being on by default to 0.19 (in 0.18 and 0.19) or 0.21 (since).",
        advice="It is on by default from 0.20.0.",
    ),
    _row(
        "abbreviated-flag-suggested", "0.10.2", "flags", "wrong-advice", _WORKER,
        needs={"engine": "v1"},
        wrong="The budget summary suggests --kv-cache-memory, which works only as an abbreviation.",
        advice="The flag is --kv-cache-memory-bytes.",
    ),
    # --- the CPU backend and host memory
    _row(
        "cpu-cache-ignores-container-limit", "0.13.0 - 0.19.1, fixed 0.20.0", "host-memory", "overcounts",
        "vllm/platforms/cpu.py", needs={"device": "cpu", "cpu_space_given": False},
        wrong="Without a size the KV cache gets half of the host's memory a NUMA node, whatever the container's limit.",
        advice="Set VLLM_CPU_KVCACHE_SPACE to what the container's limit leaves beside the weights.",
    ),
    _row(
        "cpu-share-ignores-container-limit", "0.20.0 - 0.23.0, fixed 0.24.0", "host-memory", "overcounts",
        "vllm/utils/cpu_resource_utils.py", needs={"device": "cpu", "cpu_space_given": False},
        wrong="The share is taken of the host's memory, not of what the container may use.",
        advice="Set VLLM_CPU_KVCACHE_SPACE, or --gpu-memory-utilization to the container's limit divided by the"
        " memory of the NUMA node, and less.",
    ),
    _row(
        "cpu-messages-name-the-share", "0.9.1 - 0.19.1, fixed 0.20.0", "kv-cache", "wrong-advice", _KV,
        needs={"engine": "v1", "device": "cpu"}, useless=("--gpu-memory-utilization",),
        wrong="The message suggests gpu_memory_utilization, which the CPU backend does not look at.",
        advice="VLLM_CPU_KVCACHE_SPACE is the lever.",
    ),
    _row(
        "swap-space-checked-though-unused", "0.8.0 - 0.17.1, fixed 0.18.0", "host-memory", "refuses-to-start",
        "vllm/config/cache.py", needs={"engine": "v1"},
        wrong="V1 never swaps, yet the start is refused where --swap-space times the ranks is over 70% of the RAM.",
        advice="--swap-space 0 costs nothing.",
    ),
    _row(
        "swap-check-ignores-container-limit", "0.1.4 - 0.17.1, fixed 0.18.0", "host-memory", "undercounts",
        "vllm/config/cache.py", needs={"engine": "v0"},
        wrong="The swap space is held against the host's memory, not against what the container may use.",
        advice="--swap-space is GiB a rank, page-locked at the start: all ranks together must fit the limit.",
    ),
    _row(
        "prefetch-ignores-container-limit", "0.19.0 - 0.26.0, fixed 0.27.0", "host-memory", "overcounts",
        "vllm/model_executor/model_loader/weight_utils.py",
        wrong="Whether a checkpoint on a network disk fits into memory for reading ahead is judged by the host's free"
        " memory.",
        advice="In a container --safetensors-load-strategy lazy avoids the page cache of the whole checkpoint.",
    ),
    # --- flags and messages
    _row(
        "weights-hint-does-not-help", "0.13.0", "weights", "wrong-advice", _RUNNER,
        needs={"engine": "v1"}, useless=("--gpu-memory-utilization",),
        wrong="Where the weights do not fit the message suggests a lower --gpu-memory-utilization, which bounds"
        " nothing before the KV cache is sized.",
        advice="More devices, fewer bits a weight or --cpu-offload-gb help.",
    ),
    _row(
        "engine-switch-left-over", "0.11.0 - 0.11.0, fixed 0.11.1", "flags", "flag-ignored", "vllm/envs.py",
        useless=("VLLM_USE_V1",),
        wrong="VLLM_USE_V1 is still read, but V0 is gone: 0 cannot serve.",
        advice="V1 is the only engine from 0.11.0 on.",
    ),
    _row(
        "expandable-segments-refused-in-sleep-mode", "0.8.0 - 0.20.0, fixed 0.20.1", "memory-profile",
        "refuses-to-start", "vllm/device_allocator/cumem.py", needs={"sleep_mode": True},
        useless=("PYTORCH_CUDA_ALLOC_CONF",),
        wrong="Sleep mode refuses to start with expandable_segments:True.",
        advice="Not both in this release; 0.20.1 or newer switches the setting off around its own pool.",
    ),
    _row(
        "cpu-offload-refused-for-several-groups", "0.9.1 - 0.19.1, fixed 0.20.0", "weights", "refuses-to-start",
        _RUNNER, needs={"engine": "v1", "hybrid": True}, useless=("--cpu-offload-gb",),
        wrong="Weights cannot be kept in host memory for models whose caches need several groups or another block"
        " size: an assertion stops the start.",
        advice="No --cpu-offload-gb for such a model before 0.20.0.",
    ),
    _row(
        "chunked-prefill-always-on", "0.8.0 - 0.11.0, fixed 0.11.1", "flags", "flag-ignored", _ARGS,
        needs={"engine": "v1"}, useless=("--no-enable-chunked-prefill",),
        wrong="V1 turns chunked prefill on for models that generate, whatever the flag says.",
        advice="It cannot be switched off in this release.",
    ),
    _row(
        "batched-tokens-overruled", "0.9.2 - 0.10.0, fixed 0.10.1", "flags", "flag-ignored", _ARGS,
        needs={"engine": "v1", "chunked_prefill_off": True}, useless=("--max-num-batched-tokens",),
        wrong="Without chunked prefill the tokens of a step are set to the context length, over a value that was"
        " given.",
        advice="Lower --max-model-len to lower the tokens of a step.",
    ),
    _row(
        "gb-means-gib", "0.4.0 - 0.8.2, fixed 0.8.3", "reading", "misleading-number", "vllm/worker/model_runner.py",
        wrong="The weights' size, and from 0.7.0 the KV cache needed and available, are printed as GB and are GiB.",
        advice="Read them as GiB.",
    ),
    _row(
        "orderly-stop-prints-errors", "0.23.0", "reading", "looks-like-failure", "vllm/v1/utils.py",
        needs={"engine": "v1"},
        wrong="A healthy server that is stopped prints that it kills processes by force, an error of its output"
        " handler and EngineDeadError (seen when 0.23.0, 0.26.0, 0.29.0 and 0.32.0 were stopped).",
        advice="That is no failure where a signal or the server's own shutdown line came first.",
    ),
    _row(
        "exit-status-zero-after-engine-death", "0.11.2", "reading", "looks-like-failure",
        "vllm/entrypoints/openai/api_server.py", needs={"engine": "v1"},
        wrong="The server ends with exit status 0 after its engine was killed under it (seen in runs of 0.11.2 and"
        " 0.32.0).",
        advice="Exit status 0 is no sign of an orderly end; restart on any exit.",
    ),
)  # fmt: skip


def settled(release: Release | None, facts: Facts) -> Facts:
    """Return the facts with what the release alone decides filled in: the engine, and the manager off GPUs."""
    if release is None:
        return facts
    engine = facts.engine
    if engine is None and release >= Release(0, 11, 0):
        engine = "v1"
    elif engine is None and release < Release(0, 6, 4):
        engine = "v0"
    # config.py of 0.9.1 to 0.10.0: the hybrid manager is off on any platform but CUDA and ROCm.
    without = Release(0, 9, 1) <= release <= Release(0, 10, 0) and facts.device not in (None, "cuda", "rocm")
    return replace(facts, engine=engine, manager_off=facts.manager_off or without)


def defects_of(release: Release | None, **facts: Any) -> tuple[Defect, ...]:
    """Return the defects that a run of ``release`` is certain to meet, in the table's order.

    ``facts`` are the fields of `Facts`; what is not given is unknown, and a row that needs it is
    left out. () for an unknown release. Raises `TypeError` for a fact that does not exist.
    """
    known = settled(release, Facts(**facts))
    return tuple(row for row in DEFECTS if row.covers(release) is True and row.applies(known) is True)


def possible_defects(release: Release | None, **facts: Any) -> tuple[Defect, ...]:
    """Return the defects that a run may meet: as `defects_of`, with those that facts not known decide."""
    known = settled(release, Facts(**facts))
    if release is None:
        return ()
    return tuple(row for row in DEFECTS if row.covers(release) is not False and row.applies(known) is not False)
