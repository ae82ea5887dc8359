"""What a refused device allocation means: where it happened, and whose memory it was.

The stack decides; without one, how far the launch had come; without that, nothing does and
the verdict stays open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from vllm_diag.causes import Case, Cause, Finding, RuledOut, Verdict, in_gib
from vllm_diag.event_types import Event, KvCacheAvailable, SamplerOom, TorchOom
from vllm_diag.ledger import foreign_memory, own_memory
from vllm_diag.quantities import GIB, LARGEST_DEVICE, MIB, Amount

# Refused below PyTorch's allocator: no figures, and page-locked host memory reads the same.
BELOW_ALLOCATOR = ("device-out-of-memory", "out-of-memory-bare", "cublas-handle-failed")
OOM_CODES = ("torch-out-of-memory", "torch-oom-async", "torch-oom-over-fraction", "torch-oom-masked",
             "torch-oom-garbage-size", *BELOW_ALLOCATOR, "sampler-warmup-oom", "weights-out-of-memory")  # fmt: skip

# Function names of vLLM's releases that tell the phase, innermost phase first: a capture runs
# inside warm-up, profiling inside cache initialisation.
_PHASES = (
    ("cuda-graph-oom", re.compile(r":(?:capture\w*|_capture\w*|graph_capture|cuda_graph\w*|_warmup_and_capture)$")),
    (
        "kv-allocation-oom",
        re.compile(
            r":(?:_?allocate_kv_cache\w*|initialize_kv_cache|initialize_kv_cache_tensors|initialize_cache"
            r"|initialize_from_config|_init_cache_engine|init_cache_engine|init_cache)$|cache_engine\.py:"
        ),
    ),
    (
        "activation-oom",
        re.compile(
            r":(?:profile_\w+|_?dummy\w*|determine_\w*(?:memory|blocks)|_dummy_\w+|warm_?up\w*|kernel_warmup"
            r"|compile_or_warm_up_model|embed_multimodal|get_multimodal_embeddings)$"
        ),
    ),
    (
        "weights-do-not-fit",
        re.compile(
            r":(?:load_model|load_weights|create_weights|process_weights_after_loading|initialize_model"
            r"|_initialize_model|get_model|weight_loader|load_\w*weights?\w*|_init_executor|_load_model)$"
            r"|(?:loader|weight_utils)\.py:"
        ),
    ),
    (
        "serving-oom",
        re.compile(
            r":(?:execute_model|step|_process_engine_step|run_busy_loop|sample_tokens|_model_forward|_?get_prompt_logprobs\w*"
            r"|compute_logprobs|generate)$"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused allocation and the cause it is put down to."""

    event: TorchOom | Event
    code: str
    verdict: Verdict
    own: Amount | None = None
    foreign: Amount | None = None


def refusals(case: Case) -> list[Refusal]:
    """Return the run's refused allocations, each with its cause.

    One that is told as a warning was survived: an autotuner tried something smaller.
    """
    told = [e for e in case.run.coded(*OOM_CODES) if e.at.level not in ("WARNING", "INFO", "DEBUG")]
    return [_judge(case, event) for event in told]


def first(case: Case, code: str) -> Refusal | None:
    """Return the first refusal whose cause is ``code``."""
    return next((refusal for refusal in refusals(case) if refusal.code == code), None)


def _judge(case: Case, event: Event) -> Refusal:
    if isinstance(event, SamplerOom):
        return Refusal(event, "activation-oom", "confirmed")
    if event.code == "weights-out-of-memory" or not isinstance(event, TorchOom):
        return Refusal(event, "weights-do-not-fit", "confirmed")
    if event.code == "torch-oom-garbage-size":
        return Refusal(event, "oom-contradicts-free-memory", "confirmed")
    own, foreign = own_memory(event), foreign_memory(event)
    phase, verdict = _phase(case, event)
    if _pinning(event):
        return Refusal(event, "pinned-memory-failed", "likely")
    if verdict == "undetermined" and event.code in BELOW_ALLOCATOR:
        phase = _below_the_allocator(case, event, phase)
    if contradicts_free(event) and not (verdict != "undetermined" and phase == "kv-allocation-oom"):
        return Refusal(event, "oom-contradicts-free-memory", "confirmed", own, foreign)
    if _held_by_others(event, foreign):
        return Refusal(event, "gpu-memory-held-by-others", "likely", own, foreign)
    return Refusal(event, phase, verdict, own, foreign)


# Frames in which page-locked host memory is asked for.
_PINS = re.compile(r"^source:pin_memory$|^cache_engine\.py:|:_?(?:pin_\w+|\w*host_register\w*|allocate_pinned\w*)$")
_PINS_NEARBY = 3


def _pinning(event: TorchOom) -> bool:
    """Whether page-locked host memory was asked for, of which the runtime says the same as of its own.

    V0's cache engine takes its blocks on the device from PyTorch's allocator, which prints
    figures; those of the swap space are page-locked.
    """
    if event.code not in BELOW_ALLOCATOR:
        return False
    near = event.at.frames[-_PINS_NEARBY:]
    return any(_PINS.search(frame) for frame in near) or any(f.startswith("cache_engine.py:") for f in event.at.frames)


def host_region(case: Case) -> float | None:
    """Return how many GiB of page-locked host memory the settings ask for, None when none."""
    settings = case.run.settings
    in_bytes = settings.get("cpu_bytes_to_use")
    given = [in_bytes / GIB if isinstance(in_bytes, int | float) else None]
    given += [settings.get(name) for name in ("kv_offloading_size", "cpu_offload_gb", "max_local_cpu_size")]
    return max((float(v) for v in given if isinstance(v, int | float) and v > 0), default=None)


def _below_the_allocator(case: Case, event: TorchOom, phase: str) -> str:
    """Put down a refusal without figures and without a phase: to a host region, or to NCCL that set up."""
    if host_region(case) is not None:
        return "pinned-memory-failed"
    if "Cuda failure" in event.at.evidence.text or "NCCL" in event.at.evidence.text:
        return "nccl-init-failed"
    return phase


def contradicts_free(event: TorchOom) -> bool:
    """Whether plainly more was free than asked for, so that capacity is not the reason."""
    if event.tried is None or event.free is None:
        return False
    # Drivers hand out 2 MiB pages and keep some back; only a wide margin is a contradiction.
    return event.free.low > event.tried.high * 1.25 + 256 * MIB


def _held_by_others(event: TorchOom, foreign: Amount | None) -> bool:
    """Whether what others certainly hold is large, and would have been enough."""
    if foreign is None or event.total is None or event.free is None:
        return False
    floor = max(1 * GIB, event.total.bytes // 20)
    short = (event.tried.high if event.tried else 0) - event.free.low
    return short > 0 and foreign.low > floor and foreign.low >= short


def _phase(case: Case, event: TorchOom) -> tuple[str, Verdict]:
    stack = event.at.frames
    for code, pattern in _PHASES:
        if any(pattern.search(frame) for frame in stack):
            if code == "serving-oom":
                return code, "confirmed" if case.run.ready else "likely"
            return code, "confirmed"
    if not case.run.ready and any(_ENCODER.search(frame) for frame in stack):
        return "activation-oom", "likely"
    if (progress := _phase_by_progress(case, event)) is not None:
        return progress
    return _phase_by_figures(case, event)


# The encoder of a multimodal model: at start it is the dummy run that feeds it the largest media.
_ENCODER = re.compile(r"vit_|vision|multimodal|mm_encoder", re.IGNORECASE)


def _phase_by_progress(case: Case, event: TorchOom) -> tuple[str, Verdict] | None:
    before = {other.code for other in case.run.events if other.at.order < event.at.order}
    if before & {"server-ready", "stats", "request-answered"}:
        return "serving-oom", "likely"
    if event.private_pools is not None or "graph-capture-done" in before:
        return "serving-oom", "likely" if "engine-init-done" in before else "undetermined"
    if "graph-capture-started" in before:
        return "cuda-graph-oom", "likely"
    if before & {"kv-blocks", "kv-cache-size"}:
        # V0 prints its blocks before it allocates them; V1 has checked that they fit, and what
        # comes next is graph capture, unless that is off.
        eager = case.run.settings.get("enforce_eager") is True or "eager-mode" in before
        v1 = "kv-cache-size" in before and not eager
        return ("cuda-graph-oom" if v1 else "kv-allocation-oom"), "likely"
    if "weights-loaded" in before:
        return "activation-oom", "likely"
    if before & {"weights-loading-started", "weights-shards-progress", "engine-starting"}:
        return "weights-do-not-fit", "likely"
    return None


# What the allocator holds and nobody uses, as a share of what is used, while nothing but weights
# was ever allocated: every step of a model gives back activations, and leaves more.
_NEVER_FREED = 0.0025
# No single weight is larger than the second; few are larger than the first.
_LARGE_WEIGHT, _LARGEST_WEIGHT = GIB, 4 * GIB


def _phase_by_figures(case: Case, event: TorchOom) -> tuple[str, Verdict]:
    """Return what the allocator's own figures suggest where neither stack nor progress tells."""
    if event.tried is not None and event.tried.low > (event.total.high if event.total else LARGEST_DEVICE):
        # No batch of a running server asks for more than a device has; the largest dummy batch does.
        return "activation-oom", "likely"
    if event.tried is not None and _never_freed(event):
        if event.tried.low > _LARGEST_WEIGHT:
            return "kv-allocation-oom", "likely"
        if event.tried.high < _LARGE_WEIGHT:
            return "weights-do-not-fit", "undetermined"
    if event.code == "torch-oom-masked" or case.run.has("engine-init-failed"):
        # MIG slices, where that text is met, are too small for the dummy run rather than for a request.
        return "activation-oom", "undetermined"
    # Nothing tells the phase. A line quoted alone is most often from a server that was up.
    return "serving-oom", "undetermined"


def _never_freed(event: TorchOom) -> bool:
    """Whether the allocator has given out memory only, and taken none back."""
    if event.allocated is None or event.total is None or event.private_pools is not None:
        return False
    unused = event.unallocated
    if unused is None and event.reserved is not None:
        unused = event.reserved - event.allocated
    full = event.allocated.bytes >= 0.75 * event.total.bytes
    return unused is not None and full and unused.bytes <= _NEVER_FREED * event.allocated.bytes


def facts(refusal: Refusal) -> dict[str, Any]:
    """Return the figures of a refusal, and what follows from them."""
    event = refusal.event
    if isinstance(event, SamplerOom):
        return {"num_reqs": event.num_reqs}
    if not isinstance(event, TorchOom):
        return {}
    short = None
    if event.tried is not None and event.free is not None:
        short = event.tried - event.free
    return {
        "tried_gib": in_gib(event.tried),
        "gpu": event.gpu,
        "total_gib": in_gib(event.total),
        "free_gib": in_gib(event.free),
        "short_by_gib": in_gib(short) if short and short.bytes > 0 else None,
        "own_gib": in_gib(refusal.own),
        "held_by_others_gib": in_gib(refusal.foreign),
        "allocated_gib": in_gib(event.allocated),
        "reserved_unallocated_gib": in_gib(event.unallocated),
        "private_pools_gib": in_gib(event.private_pools),
    }


def kv_before(case: Case) -> Amount | None:
    """Return the KV cache that the run had been given, None when nothing tells."""
    events = case.run.of(KvCacheAvailable)
    return min((e.available for e in events), key=lambda a: a.bytes, default=None)


CASCADE = (
    "engine-core-failed", "engine-init-failed", "worker-failed", "worker-died", "engine-died", "engine-dead",
    "utility-call-failed",
)  # fmt: skip


def judge(case: Case, cause: Cause) -> Finding | None:
    """Judge for every cause of a refused device allocation: the one whose code it is put down to."""
    found = [refusal for refusal in refusals(case) if refusal.code == cause.code]
    if not found:
        return None
    refusal = max(found, key=lambda r: (sum(v is not None for v in facts(r).values()), -r.event.at.order))
    figures = facts(refusal)
    missing = []
    if refusal.verdict == "undetermined":
        missing.append("the traceback above the error, or the lines since the start: they tell the phase")
    summary = cause.summary
    if refusal.event.code == "torch-oom-garbage-size":
        summary = "More than 2**60 bytes were asked for: a wrong size in the program, not a full device."
    elif figures.get("tried_gib") is None:
        summary = f"{cause.title}; the text holds no figures."
    elif figures.get("free_gib") is None:
        summary = f"{cause.title}: {{tried_gib:.2f}} GiB were refused."
    title = None
    if refusal.verdict == "undetermined" and refusal.code not in ("gpu-memory-held-by-others",):
        title = "Device memory ran out"
        summary = "{tried} were refused with {free} free; nothing in the log tells in which phase."
        if figures.get("free_gib") is None:
            summary = "Device memory was refused; nothing in the log tells in which phase."
    events = sorted((r.event for r in found), key=lambda e: e is not refusal.event)
    return cause.finding(
        *events[:4],
        verdict=refusal.verdict,
        facts=figures,
        summary=summary,
        title=title,
        missing=missing,
        ruled_out=_not_others(refusal),
    )


def _not_others(refusal: Refusal) -> list[RuledOut]:
    event = refusal.event
    if not isinstance(event, TorchOom) or refusal.own is None or refusal.foreign is None or event.total is None:
        return []
    if refusal.code == "gpu-memory-held-by-others":
        return []
    return [
        RuledOut(
            "gpu-memory-held-by-others",
            f"{refusal.own} of {event.total} is this process's own; others hold {refusal.foreign}",
        )
    ]
