"""A finding to what to do: for each cause its levers, in the order to try them.

`PLAN` is the table. A lever looks at the finding, the ledger and the settings, computes its
value and returns a `Remedy`, or None where it does not apply: already set, not there in this
release or on this device, or refused by the arithmetic. `WONT_HELP` holds what the message
or folklore suggests and the sum refuses. A value holds at the pessimistic end of what the
log printed, and in whole blocks.
"""

from __future__ import annotations

from vllm_diag.causes import Finding
from vllm_diag.diagnosis import Diagnosis
from vllm_diag.kv_arithmetic import ModelConfig
from vllm_diag.releases import Release, has_flag
from vllm_diag.remedies import fixes
from vllm_diag.remedies.activations import (
    ask_for_less_of_shared_memory,
    expandable_segments,
    fewer_batched_tokens,
    fewer_batched_tokens_first,
    fewer_images,
    fewer_sequences,
    lower_utilization,
    no_defragmentation,
    no_higher_utilization_for_peaks,
    no_lower_utilization_before_the_cache,
    shorter_profile,
    smaller_given_cache,
)
from vllm_diag.remedies.host import (
    cover_the_others,
    fixed_kv_bytes,
    higher_limit,
    host_ipc,
    larger_cpu_share,
    larger_cpu_space,
    larger_shm,
    later_ray_kill,
    less_swap_space,
    more_cpu_cache,
    more_host_memory,
    more_maps,
    more_open_files,
    no_gpu_flags,
    no_gpu_utilization_on_cpu,
    no_higher_utilization_beside_others,
    no_lower_utilization_for_weights,
    no_pressure_kill,
    no_shared_buffers,
    no_shorter_context,
    no_utilization_for_weights,
    other_cache_disk,
    share_the_device,
    shorter_requests,
    slots_that_fit,
    smaller_cpu_space,
    smaller_host_region,
    start_again,
    stop_the_other,
    writable_shm,
)
from vllm_diag.remedies.known import doubts, known, without_useless
from vllm_diag.remedies.kv_cache import (
    eager,
    fp8_kv_cache,
    higher_utilization,
    more_devices,
    no_higher_utilization,
    no_higher_utilization_overspent,
    offload_weights,
    quantized_weights,
    shorter_context,
    shorter_than_dropped,
)
from vllm_diag.remedies.model import Context, Doubt, Lever, Plan, Remedy, WontHelp
from vllm_diag.remedies.recheck import recheck

__all__ = ["PLAN", "WONT_HELP", "Context", "Plan", "Remedy", "WontHelp", "plan"]

_ROOM_OUTSIDE: tuple[Lever, ...] = (
    expandable_segments, fewer_images, shorter_profile, fewer_batched_tokens, fewer_sequences, lower_utilization, eager,
    quantized_weights, more_devices,
)  # fmt: skip

PLAN: dict[str, tuple[Lever, ...]] = {
    **fixes.PLAN,
    "kv-cache-too-small": (
        shorter_context, shorter_than_dropped, higher_utilization, fp8_kv_cache, quantized_weights, more_devices, eager,
        offload_weights,
    ),
    "cpu-kv-space-too-small": (larger_cpu_space, shorter_context),
    "cpu-kv-space-exceeds-ram": (smaller_cpu_space,),
    "no-kv-cache-memory": (
        larger_cpu_share, fewer_images, fewer_batched_tokens_first, higher_utilization, quantized_weights,
        more_devices, fewer_batched_tokens, fewer_sequences, eager, offload_weights,
    ),
    "weights-do-not-fit": (quantized_weights, more_devices, offload_weights),
    "activation-oom": _ROOM_OUTSIDE,
    "cuda-graph-oom": (lower_utilization, fewer_sequences, eager, quantized_weights),
    "kv-allocation-oom": (smaller_given_cache, lower_utilization, stop_the_other),
    "serving-oom": (
        expandable_segments, lower_utilization, fewer_batched_tokens, fewer_sequences, fewer_images, quantized_weights,
    ),
    "gpu-memory-held-by-others": (stop_the_other, share_the_device, cover_the_others),
    "oom-contradicts-free-memory": (ask_for_less_of_shared_memory,),
    "memory-profiling-race": (start_again, fixed_kv_bytes),
    "kv-cache-pressure": (
        more_cpu_cache, fewer_sequences, higher_utilization, shorter_requests, fp8_kv_cache, more_devices,
    ),
    "recurrent-state-slots-too-few": (slots_that_fit,),
    "host-oom-kill": (no_pressure_kill, more_host_memory, less_swap_space, later_ray_kill),
    "container-memory-limit": (higher_limit, less_swap_space),
    "engine-vanished": (more_host_memory, less_swap_space),
    "host-allocation-failed": (more_host_memory, less_swap_space),
    "pinned-memory-failed": (smaller_host_region, less_swap_space, more_host_memory),
    "swap-space-too-large": (less_swap_space, more_host_memory),
    "swap-space-exhausted": (fewer_sequences,),
    "shm-too-small": (larger_shm, host_ipc),
    "mmap-count-limit": (more_maps,),
    "disk-full": (other_cache_disk,),
    "unrecognised-exception": (writable_shm, more_open_files, no_shared_buffers),
}  # fmt: skip

WONT_HELP: dict[str, tuple[Doubt, ...]] = {
    **fixes.WONT_HELP,
    "kv-cache-too-small": (no_higher_utilization,),
    "cpu-kv-space-too-small": (no_gpu_utilization_on_cpu,),
    "no-kv-cache-memory": (no_higher_utilization_overspent, no_shorter_context),
    "weights-do-not-fit": (no_utilization_for_weights, no_lower_utilization_for_weights, no_shorter_context,
                           no_defragmentation),
    "activation-oom": (
        no_higher_utilization_for_peaks, no_lower_utilization_before_the_cache, no_defragmentation,
    ),
    "cuda-graph-oom": (no_higher_utilization_for_peaks, no_defragmentation),
    "serving-oom": (no_higher_utilization_for_peaks, no_defragmentation),
    "gpu-memory-held-by-others": (no_higher_utilization_beside_others,),
    "host-oom-kill": (no_gpu_flags,),
    "container-memory-limit": (no_gpu_flags,),
    "recurrent-state-slots-too-few": (no_shorter_context,),
}  # fmt: skip


def plan(finding: Finding, diagnosis: Diagnosis, config: ModelConfig | None = None) -> Plan:
    """Return the levers that apply to ``finding``, in order, and what will not help.

    ``config`` is the model's own, where it is at hand.
    """
    context = Context(finding, diagnosis, config)
    found = [lever(context) for lever in PLAN.get(finding.code, ())]
    remedies = [
        remedy
        for remedy in found
        if remedy is not None and not _in_force(remedy, context) and has_flag(remedy.flag or "", _release(context))
    ]
    defects = known(context)
    remedies = list({remedy.id: remedy for remedy in reversed(remedies)}.values())[::-1]
    remedies = recheck(context, without_useless(remedies, defects))
    # What applies as it is comes before what needs a choice; the table's order decides the rest.
    remedies.sort(key=lambda r: _RANK[r.applicability])
    refused = [*(doubt(context) for doubt in WONT_HELP.get(finding.code, ())), *doubts(defects)]
    offered = {(r.flag, r.op) for r in remedies}
    return Plan(
        tuple(remedies),
        tuple(d for d in refused if d is not None and (d.flag, d.op) not in offered),
        defects,
    )


# The last release with the V0 engine.
_LAST_V0 = Release(0, 10, 2)


def _release(context: Context) -> Release | None:
    """Return the release for which flags are looked up: V0's last where only V0's texts tell."""
    run = context.diagnosis.run
    if context.release is None and (run.engine == "v0" or run.has("kv-blocks")):
        return _LAST_V0
    return context.release


_RANK = {"as-is": 0, "choose": 1, "situational": 2}


def _in_force(remedy: Remedy, context: Context) -> bool:
    if remedy.kind != "flag" or remedy.flag is None:
        return False
    name = remedy.flag.removeprefix("--").replace("-", "_")
    current = context.setting(name)
    return current is not None and (current == remedy.value or str(current) == str(remedy.value))
