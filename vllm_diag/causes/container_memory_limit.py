"""The memory limit of the container, unit or job was reached, and a process killed for it.

The machine may have plenty left: a cgroup's limit counts, page cache and /dev/shm included.
The kernel says `Memory cgroup out of memory`, Docker and Kubernetes `OOMKilled`, Slurm
`oom-kill event`. Raise that limit (`docker run --memory`, `resources.limits.memory`,
`MemoryMax=`), or need less host memory.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes import _killed as killed


def judge(case: Case, cause: Cause) -> Finding | None:
    events = killed.evidence_of(case)
    if not events or not killed.at_a_limit(case):
        return None
    facts = killed.facts(case)
    summary = cause.summary
    if not facts.get("limit_gib"):
        summary = "A memory limit was reached, and a process killed for it."
    elif "victim" not in facts:
        summary = "The limit of {limit} was reached, and a process killed for it."
    if (facts.get("shmem_gib") or 0) > 0.5 * (facts.get("limit_gib") or float("inf")):
        summary += " {shmem} of it were /dev/shm or other files in memory."
    doubtful = killed.contradicted(case, events)
    return cause.finding(
        *events[:6],
        facts=facts,
        summary=summary + " The server's own log shows no death." if doubtful else summary,
        severity="info" if doubtful else None,
        verdict="undetermined" if doubtful else "confirmed",
        missing=() if facts.get("limit_gib") else ("the limit: docker inspect, kubectl describe, systemctl show",),
    )


CAUSE = Cause(
    code="container-memory-limit",
    term="host_ram",
    title="The memory limit of the container was reached",
    summary="The limit of {limit} was reached, and {victim} (pid {victim_pid}) killed for it.",
    judge=judge,
    explains=(*killed.FOLLOWS, "oom-kill"),
    arises=(
        "Each rank adds its interpreter, its CUDA context and the tensors it is reading; message queues, "
        "swap space and offloaded weights come on top, all under one limit. A limit that was set from the "
        "size of the GPU or of the checkpoint is too low for several ranks."
    ),
    verify=(
        "`memory.peak` of the cgroup stays below `memory.max` over a whole start, and `oom_kill` in its "
        "`memory.events` does not grow (cgroup v2)."
    ),
    useless="RAM added to the machine leaves the limit where it is. A restart policy repeats the kill.",
)
