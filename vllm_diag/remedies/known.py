"""What is known to be wrong in the release of the log and bears on a finding."""

from __future__ import annotations

from vllm_diag.defects import Defect, Subject, defects_of
from vllm_diag.remedies.model import Context, Remedy, WontHelp

_BEARS_ON: dict[str, tuple[Subject, ...]] = {
    "kv-cache-too-small": ("kv-cache", "memory-profile"),
    "cpu-kv-space-too-small": ("kv-cache", "host-memory"),
    "cpu-kv-space-exceeds-ram": ("host-memory",),
    "no-kv-cache-memory": ("memory-profile", "kv-cache"),
    "kv-cache-pressure": ("kv-cache",),
    "gpu-memory-held-by-others": ("memory-profile",),
    "memory-profiling-race": ("memory-profile",),
    "cuda-graph-oom": ("graphs", "memory-profile"),
    "activation-oom": ("memory-profile",),
    "weights-do-not-fit": ("weights",),
    "host-oom-kill": ("host-memory",),
    "container-memory-limit": ("host-memory",),
    "engine-vanished": ("host-memory",),
}
# A finding of these kinds is a start that was let through or refused for this very reason.
_TOUCHES = {
    "kv-cache-too-small": ("starts-too-long",),
}


def known(context: Context) -> tuple[Defect, ...]:
    """Return the defects that the run is certain to meet and that bear on the finding."""
    subjects = _BEARS_ON.get(context.finding.code, ())
    if not subjects:
        return ()
    run = context.diagnosis.run
    engine = run.engine if run.engine in ("v0", "v1") else None
    pipeline = context.setting("pipeline_parallel_size")
    found = defects_of(
        context.release,
        engine=engine,
        device=run.device,
        has_recurrent=True if run.has("hybrid-block-size", "state-slots-too-few") else None,
        pipeline_parallel=pipeline if isinstance(pipeline, int) else 1,
        eager=context.setting("enforce_eager") is True or run.has("eager-mode"),
        block_override=context.setting("num_gpu_blocks_override") is not None or run.has("kv-blocks-overridden"),
        cpu_space_given=context.cache_size_given,
    )
    # A length that was refused was not let through.
    untouched = _TOUCHES.get(context.finding.code, ())
    return tuple(defect for defect in found if defect.subject in subjects and defect.effect not in untouched)


def doubts(defects: tuple[Defect, ...]) -> list[WontHelp]:
    """Return the flags that do nothing in this release."""
    return [
        WontHelp(flag, "set", f"{defect.wrong.rstrip('.')}; {defect.fixed_words}")
        for defect in defects
        for flag in defect.useless
    ]


def without_useless(remedies: list[Remedy], defects: tuple[Defect, ...]) -> list[Remedy]:
    """Return the remedies whose flag does something in this release."""
    useless = {flag for defect in defects for flag in defect.useless}
    return [remedy for remedy in remedies if remedy.flag not in useless]
