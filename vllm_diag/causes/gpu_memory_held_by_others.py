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
from vllm_diag.events import FreeMemoryShort


def judge(case: Case, cause: Cause) -> Finding | None:
    refused = case.run.of(FreeMemoryShort)
    if not refused:
        return oom.judge(case, cause)
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
        summary="Only {free_gib:.2f} of {total_gib:.2f} GiB were free at start; {requested_gib:.2f} GiB were asked for."
        " {held_by_others_gib:.2f} GiB are held already.",
        missing=["nvidia-smi at the time of the start: which process holds the memory"],
    )


CAUSE = Cause(
    code="gpu-memory-held-by-others",
    term="foreign_process",
    title="Others hold the device memory",
    summary="{tried_gib:.2f} GiB were refused with {free_gib:.2f} GiB free: others hold about"
    " {held_by_others_gib:.2f} GiB of the {total_gib:.2f} GiB.",
    judge=judge,
    explains=(*oom.CASCADE, "no-kv-cache-memory"),
)
