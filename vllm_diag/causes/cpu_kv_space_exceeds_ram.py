"""CPU backend: more memory was asked for than the node has.

`VLLM_CPU_KVCACHE_SPACE`, `--kv-cache-memory-bytes` or, from 0.20 on, the share
`--gpu-memory-utilization` of the node's RAM is larger than what is available on the NUMA
node. In a container, 0.20 to 0.23 take the host's total and do not see the limit.
"""

from vllm_diag.causes import Case, Cause, Finding, in_gib
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.causes.no_kv_cache_memory import share_overspent
from vllm_diag.event_types import CpuMemoryShort


def judge(case: Case, cause: Cause) -> Finding | None:
    events = [e for e in case.run.of(CpuMemoryShort) if not share_overspent(e)]
    if not events:
        return None
    event = events[0]
    wanted = event.wanted_kv or event.requested
    facts = {
        "available_gib": in_gib(event.available),
        "total_gib": in_gib(event.total),
        "wanted_gib": in_gib(wanted),
        "requested_gib": in_gib(event.requested),
        "utilization": event.utilization,
        "node": event.node,
    }
    return cause.finding(*events[:3], facts=facts)


CAUSE = Cause(
    code="cpu-kv-space-exceeds-ram",
    term="cpu_kv_space",
    title="More asked for than the node has",
    summary="{wanted} were asked for; node {node} has {available_gib:.2f} of {total} available.",
    judge=judge,
    explains=CASCADE,
    arises=(
        "The worker compares what it is to set aside with the memory its NUMA node has available at "
        "start, which may be half of the machine's or less. A figure copied from a larger machine, one "
        "figure taken by several ranks, and the default share of a node that other programs use in part "
        "are the usual situations."
    ),
    verify=(
        "The start prints the size of the KV cache in tokens; `numactl -H` shows beforehand how much of "
        "the node is free."
    ),
    useless="RAM of another NUMA node is not counted for this worker, and neither is the system's swap.",
)
