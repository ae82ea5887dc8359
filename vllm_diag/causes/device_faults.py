"""A kernel failed on the GPU, or the GPU itself did. Neither is a lack of memory.

`cuda-illegal-access`: a kernel touched an address it must not, or failed an assertion
(`an illegal memory access was encountered`, `unspecified launch failure`, Xid 13 and 31,
amdgpu `page fault`). It is reported late, by whatever call comes next, so the traceback
shows where it was noticed. The context is lost and every later call of that process, NCCL's
watchdog included, repeats the text. Find the kernel with `CUDA_LAUNCH_BLOCKING=1`, or take
one feature away at a time: CUDA graphs, the attention backend, custom all-reduce, the
quantization kernel. A newer vLLM is often the cure. More or less GPU memory changes nothing.

`gpu-fault`: the device, its memory or a link is broken or hangs (`GPU has fallen off the
bus`, `uncorrectable ECC error`, Xid 48, 74, 79, 94, 95, 119, 154, a GPU reset). Drain the
machine, reset or power-cycle the GPU, and look at `nvidia-smi -q` and `dcgmi diag -r 3`.

Look-alikes: Xid 43 and 45 are the echo of a process that was ended; `NV_ERR_NO_MEMORY` in
the kernel log is printed on healthy machines too.
"""

from vllm_diag.causes import Case, Cause, Finding, Verdict
from vllm_diag.causes._stated import ECHO, EXPLAINS, MEMORY, cuda_errors, fact, gathered, loud
from vllm_diag.event_types import Event
from vllm_diag.messages.gpu_runtime import BROKEN, FAULTS

# NVIDIA's catalogue of October 2025: events whose action is a reset, a reboot or a repair.
_BROKEN_XIDS = frozenset({46, 48, 61, 62, 64, 74, 79, 94, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 173})
_LINK_XIDS = range(144, 151)
_RECOVERY_XID = 154
# A fault of a kernel, seen by the driver.
_KERNEL_XIDS = frozenset({13, 31, 69})


def _is_broken(event: Event) -> bool:
    xid, detail = fact(event, "xid"), str(fact(event, "detail") or "")
    if xid == _RECOVERY_XID:
        return not detail.rstrip(".").endswith("(None)")
    if xid in _LINK_XIDS:
        return "Fatal" in detail
    return xid in _BROKEN_XIDS


def _is_fatal_switch(event: Event) -> bool:
    detail = str(fact(event, "detail") or "").lower()
    return "fatal" in detail and "non-fatal" not in detail and "nonfatal" not in detail


def _gpu_fault(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    xids = [e for e in run.coded("xid") if _is_broken(e)]
    switches = [e for e in run.coded("nvswitch-error") if _is_fatal_switch(e)]
    events = [*xids, *switches, *run.coded("gpu-lost", "amdgpu-reset"), *loud(cuda_errors(case, BROKEN))]
    if not events:
        return _xpu(case, cause) or _watchdog(case, cause)
    events.sort(key=lambda event: event.at.order)
    facts = gathered([*events, *run.coded("gpu-probe-failed")])
    facts = {k: v for k, v in facts.items() if k in ("xid", "sxid", "bus", "gpu", "pid", "comm", "devices", "error")}
    only_unknown = all(fact(e, "error") == "unknown error" for e in events)
    what = f"Xid {facts['xid']}" if "xid" in facts else facts.get("error", "it was lost or had to be reset")
    where = facts.get("bus") or facts.get("gpu")
    return cause.finding(
        *events[:4],
        verdict="likely" if only_unknown else "confirmed",
        facts=facts,
        summary="A GPU failed" + (f" ({where})" if where else "") + f": {what}.",
        missing=["the kernel log of the host: dmesg -T | grep -iE 'xid|sxid|nvrm|amdgpu'"] if only_unknown else [],
    )


def _xpu(case: Case, cause: Cause) -> Finding | None:
    """Intel's runtime says of a device that it is lost, or out of resources, and means one or the other."""
    run = case.run
    events = run.coded("xpu-error")
    if not events or run.has(*MEMORY):
        return None
    return cause.finding(
        *events[:4],
        verdict="undetermined",
        facts={k: v for k, v in gathered(events).items() if k in ("number", "error")},
        summary="Intel's runtime failed ({error}): a device that was lost, or one that was full, which some drivers"
        " tell in the same words.",
        missing=["the kernel log of the host: dmesg -T | grep -iE 'xe |i915'", "xpu-smi stats: memory used before it"],
    )


def _watchdog(case: Case, cause: Cause) -> Finding | None:
    """A process group's watchdog ends a process only after a call on the GPU has failed."""
    run = case.run
    events = run.coded("watchdog-abort")
    if not events or run.has(*MEMORY, "cuda-error", "nccl-error", "nccl-setup-error", "collective-timeout"):
        return None
    return cause.finding(
        *events[:2],
        verdict="undetermined",
        summary="The watchdog of a process group ended the process because a call on the GPU had failed before.",
        missing=["the first error above the native stack, and the kernel log of the host (Xid lines)"],
    )


def _illegal_access(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    said = loud(cuda_errors(case, FAULTS))
    said += run.coded("gpu-memory-access-fault", "device-assert", "amdgpu-page-fault")
    kernel = [e for e in run.coded("xid") if fact(e, "xid") in _KERNEL_XIDS]
    # A process that was killed leaves such lines behind as well.
    if not said and (not kernel or run.has(*MEMORY)):
        return None
    events = sorted([*said, *kernel], key=lambda event: event.at.order)
    facts = gathered([*events, *run.coded("amdgpu-fault-process")])
    facts = {k: v for k, v in facts.items() if k in ("error", "xid", "bus", "gpu", "pid", "comm", "condition", "node")}
    verdict: Verdict = "confirmed" if said or any(fact(e, "xid") != 13 for e in kernel) else "likely"
    what = facts.get("error") or (f"Xid {facts['xid']}" if "xid" in facts else "a page that is not mapped was touched")
    return cause.finding(*events[:4], verdict=verdict, facts=facts, summary=f"A kernel on the GPU failed: {what}.")


CAUSES = (
    Cause(
        code="gpu-fault",
        term="none",
        title="A GPU failed",
        summary="A GPU failed.",
        judge=_gpu_fault,
        explains=("cuda-illegal-access", "custom-allreduce-failed", "gpu-not-visible", *EXPLAINS),
        arises=(
            "The driver lost the device, or found its memory, a link or its own firmware in error; heat, "
            "power, a riser or an ageing card are behind it. It ends whatever runs at that moment, so the "
            "same start may have worked many times."
        ),
        verify=(
            "`nvidia-smi` lists every GPU, `nvidia-smi -q` shows no pending row remapping or page "
            "retirement, and the kernel log stays free of new Xids under load."
        ),
        useless=(
            "Restarting vLLM alone meets the same device. Another model or release changes only when the "
            "fault is noticed."
        ),
    ),
    Cause(
        code="cuda-illegal-access",
        term="none",
        title="A kernel failed on the GPU",
        summary="A kernel on the GPU failed.",
        judge=_illegal_access,
        explains=("custom-allreduce-failed", *EXPLAINS, *ECHO),
        arises=(
            "A kernel reads or writes outside its tensors, mostly through an index (block table, token or "
            "expert number) or a shape that it was not written for. New models and GPUs, quantization "
            "kernels and speculative decoding are met most, and often one batch size alone."
        ),
        verify=(
            "The requests that failed are answered when they are sent again, and the kernel log has no "
            "new Xid 13 or 31."
        ),
        useless=(
            "Catching the exception and going on does not work, as only a new process gets a working "
            "context. Reinstalling the same versions brings the same kernel."
        ),
    ),
)
