"""Levers outside the device: other processes, host memory, shared memory, disks."""

from __future__ import annotations

import math

from vllm_diag.event_types import CpuMemoryShort, SwapSpaceTooLarge
from vllm_diag.quantities import GIB
from vllm_diag.releases import cpu_uses_utilization, has_flag
from vllm_diag.remedies.model import HIGHEST_UTILIZATION, Applicability, Context, Remedy, WontHelp


def stop_the_other(context: Context) -> Remedy | None:
    """Free the device."""
    held = context.finding.facts.get("held_by_others_gib")
    if context.finding.code != "gpu-memory-held-by-others" and (held is None or held < 0.5):
        return None
    return Remedy(
        id="stop-the-other-process",
        kind="action",
        flag=None,
        op="remove",
        value=None,
        applicability="as-is",
        gain=f"{held:.2f} GiB" if held else "what the other process holds",
        cost="that process stops",
        why="nvidia-smi shows who holds the memory; an earlier engine that has not gone is the usual one",
    )


def share_the_device(context: Context) -> Remedy | None:
    """Ask for no more than is free."""
    share = context.finding.facts.get("share_free")
    used = context.utilization
    if share is None or used is None:
        return None
    value = math.floor((share - 0.002) * 100) / 100
    # Below a third of the device a model and its cache hardly fit; that is a question of placement.
    if value < 0.33 or value >= used:
        return None
    return Remedy(
        id="share-the-device",
        kind="flag",
        flag="--gpu-memory-utilization",
        op="lower",
        value=value,
        applicability="situational",
        gain="the start check passes beside the other process",
        cost="a smaller KV cache; the weights must still fit",
        why=f"{share:.3f} of the device is free",
    )


def no_higher_utilization_beside_others(context: Context) -> WontHelp | None:
    """Say why a larger share cannot pass the check."""
    return WontHelp("--gpu-memory-utilization", "raise", "more would be asked for than is free")


def start_again(context: Context) -> Remedy | None:
    """Start again when nobody else is moving memory."""
    return Remedy(
        id="start-again",
        kind="action",
        flag=None,
        op="set",
        value=None,
        applicability="as-is",
        gain="a measurement that holds",
        cost="none",
        why="nothing is short; another process let go of memory during the measurement",
    )


def fixed_kv_bytes(context: Context) -> Remedy | None:
    """Give the KV cache a size instead of measuring."""
    if context.release is None and context.diagnosis.run.has("memory-profiling-error-v0"):
        return None
    return Remedy(
        id="fixed-kv-cache-size",
        kind="flag",
        flag="--kv-cache-memory-bytes",
        op="set",
        value=None,
        applicability="choose",
        gain="no measurement, so no race",
        cost="the size has to be chosen by hand",
        why="with a given size the profile is not used",
    )


def no_pressure_kill(context: Context) -> Remedy | None:
    """Keep systemd-oomd away from the unit, where it killed for waiting and not for want of memory."""
    if context.finding.facts.get("pressure_percent") is None:
        return None
    return Remedy(
        id="no-kill-for-pressure",
        kind="command",
        flag="ManagedOOMMemoryPressure",
        op="set",
        value="auto",
        applicability="choose",
        gain="systemd-oomd lets the unit alone; run it as a system service in a slice of its own",
        cost="a machine that really runs out of memory gets slow before the kernel kills",
        why="it reacts to time lost to waiting for memory, of which much can be free",
    )


def later_ray_kill(context: Context) -> Remedy | None:
    """Let Ray kill later, where what it keeps free is much."""
    total, threshold = context.finding.facts.get("total_ram_gib"), context.finding.facts.get("threshold")
    if not context.diagnosis.run.has("ray-oom-kill") or not total or not threshold or (1 - threshold) * total < 10:
        return None
    return Remedy(
        id="later-ray-kill",
        kind="env",
        flag="RAY_memory_usage_threshold",
        op="raise",
        value=round(1 - 5 / total, 2),
        applicability="situational",
        gain=f"{(1 - threshold) * total - 5:.0f} GiB more before Ray kills",
        cost="the kernel's killer is then nearer",
        why=f"Ray kills at {threshold:g} of {total:.0f} GiB",
    )


def more_host_memory(context: Context) -> Remedy | None:
    """Give the host or the job more memory."""
    return Remedy(
        id="more-host-memory",
        kind="action",
        flag=None,
        op="raise",
        value=None,
        applicability="choose",
        gain="RAM for the weights and 8 to 16 GB beside them, at least 16 GB",
        cost="a larger machine, or fewer other processes on it",
        why="loading passes the weights through host memory",
    )


def higher_limit(context: Context) -> Remedy | None:
    """Raise the limit of the container."""
    run = context.diagnosis.run
    flag, unit = "--memory", "g"
    if run.has("slurm-oom-kill"):
        flag, unit = "--mem", "G"
    elif run.has("container-oom-killed") or "/kubepods" in str(context.finding.facts.get("cgroup", "")):
        flag, unit = "resources.limits.memory", "Gi"
    elif str(context.finding.facts.get("cgroup", "")).endswith(".service"):
        flag, unit = "MemoryMax", "G"
    limit = context.finding.facts.get("limit_gib")
    resident = context.finding.facts.get("resident_gib")
    value = f"{math.ceil(max(limit or 0, resident or 0) * 1.5) + 1}{unit}" if limit or resident else None
    return Remedy(
        id="higher-memory-limit",
        kind="command",
        flag=flag,
        op="raise",
        value=value,
        applicability="choose",
        gain="the limit no longer cuts the start off",
        cost="host memory; /dev/shm and page cache count in it",
        why=f"the limit is {limit:.2f} GiB" if limit else "a limit was reached",
    )


def less_swap_space(context: Context) -> Remedy | None:
    """Lower vLLM's page-locked CPU swap space."""
    v1 = context.diagnosis.run.engine == "v1"
    if context.on_cpu or v1 or not (context.release is None or has_flag("--swap-space", context.release)):
        return None
    current = context.setting("swap_space")
    event = next((e for e in context.finding.because if isinstance(e, SwapSpaceTooLarge)), None)
    if event is None and context.release is None and current is None and not context.diagnosis.run.has("kv-blocks"):
        return None
    value = 0
    if event is not None:
        # Accepted without a warning up to 40 % of RAM, all ranks together.
        value = int(event.total_ram.low * 0.35 / GIB / context.parallel)
    if isinstance(current, int | float) and value >= current:
        return None
    return Remedy(
        id="less-swap-space",
        kind="flag",
        flag="--swap-space",
        op="lower",
        value=value,
        applicability="as-is" if event else "choose",
        gain="page-locked host memory, 4 GiB for each GPU by default",
        cost="preempted requests are computed again instead of swapped back",
        why=f"{event.swap} of {event.total_ram} were asked for" if event else "the default takes 4 GiB a GPU",
    )


_REGIONS = (
    ("cpu_bytes_to_use", "cpu_bytes_to_use"),
    ("kv_offloading_size", "--kv-offloading-size"),
    ("cpu_offload_gb", "--cpu-offload-gb"),
    ("max_local_cpu_size", "max_local_cpu_size"),
)


def smaller_host_region(context: Context) -> Remedy | None:
    """Ask for less page-locked host memory."""
    for name, flag in _REGIONS:
        given = context.setting(name)
        if not isinstance(given, int | float) or given <= 0:
            continue
        return Remedy(
            id="smaller-host-region",
            kind="flag",
            flag=flag,
            op="lower",
            value=int(given // 2) or None,
            applicability="choose",
            gain="half as much to lock; some systems refuse one very large region whatever is free",
            cost="less of the cache or of the weights is kept in host memory",
            why=f"{given:,} asked for",
        )
    return None


def cover_the_others(context: Context) -> Remedy | None:
    """Raise the share over what others hold, in a release whose share counts all that is in use."""
    used, total = context.finding.facts.get("used_before_gib"), context.finding.facts.get("total_gib")
    if not used or not total or used >= (HIGHEST_UTILIZATION - 0.02) * total:
        return None
    return Remedy(
        id="cover-the-others",
        kind="flag",
        flag="--gpu-memory-utilization",
        op="raise",
        value=HIGHEST_UTILIZATION,
        applicability="situational",
        gain=f"{HIGHEST_UTILIZATION * total - used:.2f} GiB for this server beside the other",
        cost="none if the other process does not grow; a newer vLLM counts only its own memory",
        why="the releases that print this line count the memory of other processes in the share",
    )


def writable_shm(context: Context) -> Remedy | None:
    """Let the process make shared-memory objects."""
    if not _refused_with(context, 13):
        return None
    return Remedy(
        id="writable-shm",
        kind="action",
        flag=None,
        op="set",
        value=None,
        applicability="as-is",
        gain="shared memory between the ranks",
        cost="none",
        why="/dev/shm must be writable for the user that runs the server (mode 1777)",
    )


def no_shared_buffers(context: Context) -> Remedy | None:
    """Do without vLLM's own all-reduce, which shares buffers between the ranks."""
    if not _refused_with(context, 13):
        return None
    return Remedy(
        id="no-custom-all-reduce",
        kind="flag",
        flag="--disable-custom-all-reduce",
        op="add",
        value=None,
        applicability="situational",
        gain="one user of such objects less",
        cost="slower communication between the GPUs",
        why="ranks share buffers for it; other users of /dev/shm remain",
    )


def more_open_files(context: Context) -> Remedy | None:
    """Raise the limit on open files."""
    if not _refused_with(context, 24):
        return None
    return Remedy(
        id="more-open-files",
        kind="command",
        flag="ulimit -n",
        op="raise",
        value=65536,
        applicability="as-is",
        gain="shared-memory objects are files, and each takes one",
        cost="none",
        why="error 24 is the limit on open files; docker run --ulimit nofile=65536",
    )


def _refused_with(context: Context, errno: int) -> bool:
    return context.finding.facts.get("errno") == errno


def larger_shm(context: Context) -> Remedy | None:
    """Give the container a larger /dev/shm."""
    if context.diagnosis.run.has("pod-volume-over-limit"):
        return _larger_volume(context)
    required = context.finding.facts.get("required_mib")
    # 16 GiB is the customary size; it is a ceiling, only what is used is taken.
    size = max(16, math.ceil((required or 0) * 2 / 1024))
    return Remedy(
        id="larger-shm",
        kind="command",
        flag="--shm-size",
        op="raise",
        value=f"{size}g",
        applicability="as-is",
        gain=f"{required:.0f} MiB are needed" if required else "room for message queues and NCCL",
        cost="none until used; counts in the container's memory limit",
        why="Docker gives a container 64 MiB",
    )


def _larger_volume(context: Context) -> Remedy:
    return Remedy(
        id="larger-shm-volume",
        kind="command",
        flag="emptyDir.sizeLimit",
        op="raise",
        value="16Gi",
        applicability="as-is",
        gain="room for message queues and NCCL",
        cost="none until used; counts in the container's memory limit",
        why="the volume at /dev/shm outgrew its limit",
    )


def host_ipc(context: Context) -> Remedy | None:
    """Use the host's /dev/shm."""
    if context.diagnosis.run.has("pod-volume-over-limit"):
        return None
    return Remedy(
        id="host-ipc",
        kind="command",
        flag="--ipc",
        op="set",
        value="host",
        applicability="situational",
        gain="half of the host's RAM as shared memory, by the usual default",
        cost="the container shares the host's IPC namespace",
        why="no size has to be chosen",
    )


def larger_cpu_space(context: Context) -> Remedy | None:
    """Give the CPU backend's KV cache more memory."""
    event = context.refused()
    total = context.total
    value: int | None = None
    applicability: Applicability = "choose"
    if event and event.needed and event.needed.bytes >= GIB // 4:
        # A whole GiB above the need: from 0.29 on one block more than the need is required.
        value = event.needed.high // GIB + 1
        if total and value * context.parallel > total.gib * 0.7:
            applicability = "situational"
        elif total or value <= 8:
            applicability = "as-is"
    elif event and event.tokens and event.max_model_len:
        space = context.diagnosis.ledger.main.kv_cache
        if space:
            value = math.ceil(space.amount.gib * event.max_model_len / event.tokens) + 1
    return Remedy(
        id="larger-cpu-kv-space",
        kind="env",
        flag="VLLM_CPU_KVCACHE_SPACE",
        op="raise",
        value=value,
        applicability=applicability,
        gain="the full length fits" if value else "more tokens fit",
        cost=f"{value} GiB of host memory for each rank" if value else "as much host memory for each rank",
        why=f"one request needs {event.needed}" if event and event.needed else "the space holds less than one request",
    )


def more_cpu_cache(context: Context) -> Remedy | None:
    """Give the CPU backend's KV cache more memory when requests have to wait for it."""
    return larger_cpu_space(context) if context.on_cpu else None


def smaller_cpu_space(context: Context) -> Remedy | None:
    """Ask for no more than the node has."""
    event = next((e for e in context.finding.because if isinstance(e, CpuMemoryShort)), None)
    if event is None or event.available is None:
        return None
    if event.utilization is not None:
        if event.total is None or not event.total.bytes:
            return None
        value = math.floor(event.available.low / event.total.high * 100 - 2) / 100
        return Remedy(
            id="smaller-cpu-share",
            kind="flag",
            flag="--gpu-memory-utilization",
            op="lower",
            value=max(0.05, value),
            applicability="as-is",
            gain="the share asked for is then available",
            cost="a smaller KV cache",
            why=f"{event.available} of {event.total} are available; on the CPU the flag is a share of the node's RAM",
        )
    value_gib = max(1, int(event.available.low * 0.8 / GIB))
    return Remedy(
        id="smaller-cpu-kv-space",
        kind="env",
        flag="VLLM_CPU_KVCACHE_SPACE",
        op="lower",
        value=value_gib,
        applicability="as-is",
        gain="the space asked for is then available",
        cost="a smaller KV cache",
        why=f"{event.available} of {event.total} are available on the node",
    )


def larger_cpu_share(context: Context) -> Remedy | None:
    """Raise the share of the node so that something is left beside the worker."""
    event = next((e for e in context.finding.because if isinstance(e, CpuMemoryShort)), None)
    consumed = context.finding.facts.get("consumed_gib")
    if event is None or consumed is None or event.requested is None:
        return None
    total = event.total
    value = None
    if total is not None:
        # Twice what the worker holds leaves as much again for the cache, if the node has it.
        wanted = min(2 * consumed + 1, (event.available or total).low / GIB * 0.9)
        value = round(wanted / total.gib, 2)
    return Remedy(
        id="larger-cpu-share",
        kind="flag",
        flag="--gpu-memory-utilization",
        op="raise",
        value=value,
        applicability="as-is" if value else "choose",
        gain="memory for the KV cache beside the worker's own",
        cost="as much host memory",
        why=f"the worker holds {consumed:.2f} GiB, its share is {event.requested}; the flag is a share of RAM here",
    )


def no_gpu_utilization_on_cpu(context: Context) -> WontHelp | None:
    """Say that the flag does nothing while the CPU space is given or not derived from it."""
    if cpu_uses_utilization(context.release) and not context.diagnosis.run.has("cpu-kv-size-set"):
        return None
    return WontHelp(
        "--gpu-memory-utilization", "raise", "the size of the CPU KV cache is given by VLLM_CPU_KVCACHE_SPACE here"
    )


def slots_that_fit(context: Context) -> Remedy | None:
    """Lower max_num_seqs to the state blocks there are."""
    blocks = context.finding.facts.get("blocks")
    if not isinstance(blocks, int):
        return None
    return Remedy(
        id="sequences-that-fit",
        kind="flag",
        flag="--max-num-seqs",
        op="lower",
        value=blocks,
        applicability="as-is",
        gain="every sequence gets its block of state",
        cost=f"at most {blocks:,} requests at once",
        why=f"{blocks:,} blocks fit",
    )


def other_cache_disk(context: Context) -> Remedy | None:
    """Put the model cache where there is room."""
    return Remedy(
        id="cache-on-another-disk",
        kind="env",
        flag="HF_HOME",
        op="set",
        value=None,
        applicability="choose",
        gain="downloads go to a disk with room",
        cost="what is there already is fetched again or moved",
        why="the model cache is the largest thing vLLM writes",
    )


def more_maps(context: Context) -> Remedy | None:
    """Raise the kernel's limit on memory maps."""
    return Remedy(
        id="more-memory-maps",
        kind="command",
        flag="vm.max_map_count",
        op="raise",
        value=1048576,
        applicability="as-is",
        gain="the limit on maps is 65530 by default",
        cost="none known",
        why="a small map was refused",
    )


def shorter_requests(context: Context) -> Remedy | None:
    """Cap the length of a request when the cache is under pressure."""
    current = context.setting("max_model_len")
    return Remedy(
        id="shorter-requests",
        kind="flag",
        flag="--max-model-len",
        op="lower",
        value=current // 2 if isinstance(current, int) and current >= 1024 else None,
        applicability="situational",
        gain="a request can no longer grow to fill the cache",
        cost="longer requests are refused",
        why="a full cache is shared by fewer, shorter requests",
    )


def no_shorter_context(context: Context) -> WontHelp | None:
    """Say that the length of a request is not what is missing."""
    return WontHelp(
        "--max-model-len", "lower", "not the length of a request is short: there is no room before it counts"
    )


def no_utilization_for_weights(context: Context) -> WontHelp | None:
    """Say that the share does not bound the weights."""
    return WontHelp(
        "--gpu-memory-utilization",
        "raise",
        "weights are loaded before the share is looked at; the device itself is full",
    )


def no_lower_utilization_for_weights(context: Context) -> WontHelp | None:
    """Say the same of the message's own hint."""
    return WontHelp(
        "--gpu-memory-utilization",
        "lower",
        "the share does not bound the weights; less of it leaves the device as full",
    )


def no_gpu_flags(context: Context) -> WontHelp | None:
    """Say that host memory is not GPU memory."""
    return WontHelp("--gpu-memory-utilization", "lower", "host memory ran out, not the GPU's")
