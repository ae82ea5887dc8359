"""Another process holds device memory that this start needed.

Either vLLM says so at start (less is free than the share asked for), or a refused allocation
shows it: capacity minus free minus what this process holds. A `Process N` clause is not proof
by itself: inside a container the failing engine is listed under a pid it does not know, so the
sums decide. Often it is an earlier engine that has not gone, or a second model on the card.

What helps: stop the other process (`nvidia-smi`), use another device, or, when both must
share, lower `--gpu-memory-utilization` below free / total.
"""

from vllm_diag.causes import Case, Cause, Finding, in_gib
from vllm_diag.causes import _torch_oom as oom
from vllm_diag.event_types import FreeMemoryShort, MemoryProfile, NoKvMemory
from vllm_diag.releases import default_utilization


def judge(case: Case, cause: Cause) -> Finding | None:
    refused = case.run.of(FreeMemoryShort)
    if not refused:
        return _held_before_profiling(case, cause) or oom.judge(case, cause)
    event = refused[0]
    held = event.total - event.free
    fits = event.free.low / event.total.high
    return cause.finding(
        *refused[:4],
        facts={
            "free_gib": in_gib(event.free),
            "total_gib": in_gib(event.total),
            "utilization": event.utilization,
            "requested_gib": in_gib(event.requested),
            "held_by_others_gib": in_gib(held),
            "share_free": round(fits, 4),
        },
        summary="Only {free_gib:.2f} of {total} were free at start; {requested} were asked for."
        " {held_by_others} are held already.",
        missing=["nvidia-smi at the time of the start: which process holds the memory"],
    )


def _held_before_profiling(case: Case, cause: Cause) -> Finding | None:
    """More was in use at the first snapshot than this start may use at all."""
    nothing_left = case.run.of(NoKvMemory)
    for event in case.run.of(MemoryProfile):
        share = (
            event.utilization
            or case.run.settings.get("gpu_memory_utilization")
            or default_utilization(case.run.release)
        )
        if event.total is None or event.used_before is None or not nothing_left:
            continue
        requested = event.total.scaled(float(share))
        if event.used_before.low > requested.high:
            return cause.finding(
                event,
                *nothing_left[:2],
                facts={
                    "total_gib": in_gib(event.total),
                    "used_before_gib": in_gib(event.used_before),
                    "requested_gib": in_gib(requested),
                    "utilization": share,
                    "held_by_others_gib": in_gib(event.used_before - requested),
                },
                summary="{used_before} were in use before profiling, and this start may use"
                " {requested}: the rest is not its own.",
                missing=["nvidia-smi at the time of the start: which process holds the memory"],
            )
    return None


CAUSE = Cause(
    code="gpu-memory-held-by-others",
    term="foreign_process",
    title="Others hold the device memory",
    summary="{tried} were refused with {free} free: others hold about {held_by_others} of the {total}.",
    judge=judge,
    explains=(*oom.CASCADE, "no-kv-cache-memory"),
    arises=(
        "The share is a part of the whole card and not of what is free, and nothing keeps it for this "
        "server. Workers that outlived a killed front end, a notebook kernel, a second server and a "
        "desktop session are the usual holders."
    ),
    verify=(
        "`nvidia-smi` before the start shows more free than the share x total, and the start passes to "
        "weight loading or beyond the point of the refusal."
    ),
    useless=(
        "`torch.cuda.empty_cache()` and allocator settings act in one process and free nothing of "
        "another. A new start while the holder runs meets the same figures."
    ),
)
