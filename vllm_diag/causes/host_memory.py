"""Host memory was refused to a process, without anybody being killed.

`host-allocation-failed`: an allocator got no memory from the system (a limit on address
space, overcommit switched off, an absurd size) and said so. `pinned-memory-failed`:
page-locked memory for swap space, offloading or KV transfer was refused; limits on locked
memory and WSL lower what can be had. `mmap-count-limit`: the number of memory maps is
limited (`vm.max_map_count`), not memory.
"""

from vllm_diag.causes import Case, Cause, Finding, in_gib, plain_facts
from vllm_diag.causes._torch_oom import CASCADE, first, host_region
from vllm_diag.event_types import HostAllocationFailed
from vllm_diag.quantities import MIB

# A mapping below this that is refused with ENOMEM points to the count of maps, not to memory.
_SMALL_MAP = 64 * MIB


def _is_map_count(event: HostAllocationFailed) -> bool:
    return event.code == "mmap-failed" and event.tried is not None and event.tried.bytes < _SMALL_MAP


def _host(case: Case, cause: Cause) -> Finding | None:
    events = [e for e in case.run.of(HostAllocationFailed) if not _is_map_count(e)]
    if not events:
        return None
    tried = next((e.tried for e in events if e.tried is not None), None)
    return cause.finding(
        *events[:3],
        facts={"tried_gib": in_gib(tried), "tried_bytes": tried.bytes if tried else None},
        summary=cause.summary if tried else "The system refused host memory.",
        missing=["free -g, ulimit -v, vm.overcommit_memory"],
    )


def _maps(case: Case, cause: Cause) -> Finding | None:
    events = [e for e in case.run.of(HostAllocationFailed) if _is_map_count(e)]
    if not events:
        return None
    return cause.finding(
        *events[:3],
        verdict="likely",
        facts={"tried_bytes": events[0].tried.bytes if events[0].tried else None},
        missing=["sysctl vm.max_map_count, and the number of lines in /proc/PID/maps"],
    )


def _pinned(case: Case, cause: Cause) -> Finding | None:
    # From 0.20 on a region that cannot be pinned is used as it is, and a warning says so.
    stated = [e for e in case.run.coded("pinned-memory-failed") if e.at.level not in ("WARNING", "INFO", "DEBUG")]
    if stated:
        return cause.finding(*stated[:4], facts=plain_facts(stated[0]))
    refusal = first(case, cause.code)
    if refusal is None:
        return None
    region = host_region(case)
    settings = case.run.settings
    summary = "Page-locked host memory was refused while the CPU swap space was allocated; the text calls it CUDA's."
    if region is not None:
        summary = (
            "Memory was refused below PyTorch's allocator, and {host_region} of page-locked host memory were asked for:"
            " the text calls it CUDA's, wherever the failure is noticed."
        )
    return cause.finding(
        refusal.event,
        verdict="likely",
        facts={
            "swap_space_gib": settings.get("swap_space"),
            "host_region_gib": None if region is None else round(region, 3),
            "cpu_bytes_to_use": settings.get("cpu_bytes_to_use"),
        },
        summary=summary,
        missing=["ulimit -l and free -g; on WSL the limit of its virtual machine"],
    )


CAUSES = (
    Cause(
        code="host-allocation-failed",
        term="host_ram",
        title="Host memory was refused",
        summary="The system refused {tried} of host memory.",
        judge=_host,
        explains=(*CASCADE, "engine-vanished", "root-cause-not-in-log"),
        arises=(
            "malloc, mmap or NumPy asked for a block and the system said no at once. `ulimit -v` of a "
            "batch system, `vm.overcommit_memory=2`, and a size read from a damaged file are the usual "
            "situations."
        ),
        verify=(
            "The start passes the step that the traceback shows; in /proc/meminfo `CommitLimit` exceeds "
            "`Committed_AS` by more than the size that was refused."
        ),
        useless=(
            "Memory that `free` shows is no counter-proof: what is limited is what was promised, not what "
            "is in use. Settings of the GPU's memory leave host memory as it is."
        ),
    ),
    Cause(
        code="mmap-count-limit",
        term="none",
        title="Too many memory maps",
        summary="A map of only {tried_bytes:,} bytes was refused: the number of maps is limited, not memory.",
        judge=_maps,
        explains=CASCADE,
        arises=(
            "Each mapped file, thread stack, shared segment and piece of an allocator is a map, and a "
            "process may have 65,530 of them by default. Checkpoints in very many pieces, and profilers "
            "or allocators that map small pieces, use them up."
        ),
        verify=("`wc -l /proc/PID/maps` of the worker stays below `sysctl vm.max_map_count` until loading is over."),
        useless=(
            "RAM, swap and a higher limit of the container do not raise the number. It cannot be set in "
            "an unprivileged container, for it is the host's."
        ),
    ),
    Cause(
        code="pinned-memory-failed",
        term="host_ram",
        title="Page-locked host memory was refused",
        summary="Page-locked host memory was refused.",
        judge=_pinned,
        explains=(*CASCADE, "root-cause-not-in-log"),
        arises=(
            "Locked memory needs real pages at once, and the driver has to register them with the device. "
            "V0's swap space for every GPU, KV offloading and weight offloading ask for many GiB in one "
            "piece."
        ),
        verify=(
            "The start passes the allocation of that buffer, and `free -g` shows its size as used once "
            "the server is up."
        ),
        useless=(
            "A lower share of the GPU and allocator settings concern the device, whatever the text calls "
            "the memory. The system's swap does not help, for locked pages cannot be swapped."
        ),
    ),
)
