"""What the kernel and its relatives say about a kill: whose, and at which limit."""

from __future__ import annotations

import re
from typing import Any

from vllm_diag.causes import Case, in_gib
from vllm_diag.causes._stated import fact
from vllm_diag.event_types import CgroupUse, Event, OomKill, OomSummary, OomTask
from vllm_diag.quantities import Amount
from vllm_diag.runs import HOST_CODES

# Proof of a kill at a limit of the container, unit or job, without the kernel's own line.
LIMIT_STATEMENTS = ("container-oom-killed", "pod-list-oom-killed", "slurm-oom-kill", "slurm-accounting-oom")
# Proof of a kill for want of memory on the machine, or without a scope.
MACHINE_STATEMENTS = (
    "unit-oom-killed", "oomd-killed", "earlyoom-kill", "ray-oom-kill", "pod-evicted", "node-oom", "oom-no-victim",
)  # fmt: skip

FOLLOWS = (
    "engine-vanished", "root-cause-not-in-log", "unrecognised-exception", "engine-core-failed", "engine-init-failed",
    "worker-failed", "worker-died", "engine-died", "engine-dead", "killed", "killed-command", "exited-137",
    "unit-killed", "unit-restart", "unit-failed", "slurm-task-killed", "ray-worker-died", "utility-call-failed",
)  # fmt: skip

# Names under which the kernel knows the processes of a server, cut to 15 characters.
_OURS = re.compile(r"vllm|python|pt_|ray|uvicorn|gunicorn|engine|worker|nccl|cuda|triton|tini|bash|sh$", re.IGNORECASE)


def others_only(case: Case) -> bool:
    """Whether the kernel killed only programs that are none of the server's, which speaks itself.

    A kernel log given beside a server's holds the kills of the whole machine.
    """
    kills = case.run.of(OomKill)
    if not kills or _statements(case) or case.run.counts.keys() <= HOST_CODES:
        return False
    return not any(_OURS.match(kill.comm or "python") for kill in kills)


def at_a_limit(case: Case) -> bool:
    """Whether the kill was at a cgroup's limit and not because the machine was full."""
    kills = case.run.of(OomKill)
    summaries = case.run.of(OomSummary)
    if summaries:
        return summaries[-1].constraint == "CONSTRAINT_MEMCG"
    scoped = [kill.scope for kill in kills if kill.scope]
    if scoped:
        return scoped[-1] == "cgroup"
    # Old kernels name the scope with the candidate, on the line before the kill.
    scoped = [str(fact(e, "scope")) for e in case.run.coded("oom-candidate") if fact(e, "scope")]
    if kills:
        return scoped[-1:] == ["cgroup"] or bool(case.run.of(CgroupUse)) or case.run.has("oom-cgroup-limit")
    return case.run.has(*LIMIT_STATEMENTS)


def asked_for(case: Case) -> bool:
    """Whether somebody asked the kernel to kill, so that memory need not have been short."""
    return case.run.has("oom-on-request") or any(fact(e, "order") == -1 for e in case.run.coded("oom-invoked"))


def memory_evicted(event: Event) -> bool:
    """Whether the kubelet evicted a pod for memory, not for disk or process numbers."""
    return (fact(event, "resource") or fact(event, "condition") or "memory") in ("memory", "MemoryPressure")


def _statements(case: Case) -> list[Event]:
    """Return what says outright that a process was killed for want of memory."""
    run = case.run
    stated = run.coded(*LIMIT_STATEMENTS, *MACHINE_STATEMENTS)
    if run.has("earlyoom-dryrun"):
        stated = [e for e in stated if e.code != "earlyoom-kill"]
    return [e for e in stated if e.code != "pod-evicted" or memory_evicted(e)]


def contradicted(case: Case, events: list[Event]) -> bool:
    """Whether the server's own log, a source of its own, goes on as if nobody had been killed."""
    run = case.run
    kills = {e.at.evidence.source for e in events}
    own = {e.at.evidence.source for e in run.coded("server-ready", "stats", "request-answered")}
    if not own or own & kills:
        return False
    return not run.has(*FOLLOWS)


def evidence_of(case: Case) -> list[Event]:
    """Return the events that prove a kill, the strongest first."""
    run = case.run
    if others_only(case):
        return []
    kills: list[Event] = [*run.of(OomKill)]
    return [
        *kills,
        *run.of(OomSummary),
        *run.of(CgroupUse),
        *_statements(case),
        *run.coded("oom-group-kill", "oom-cgroup-limit", "ray-memory-use"),
    ]


def resident(kill: OomKill) -> Amount | None:
    """Return what the victim had resident at death."""
    parts = [part for part in (kill.anon_rss, kill.file_rss, kill.shmem_rss) if part is not None]
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def facts(case: Case) -> dict[str, Any]:
    """Return the figures of the last kill."""
    kills = case.run.of(OomKill)
    use = case.run.of(CgroupUse)
    limit = use[-1].limit if use else None
    found: dict[str, Any] = {"limit_gib": in_gib(limit)}
    memcg = next((s.memcg for s in reversed(case.run.of(OomSummary)) if s.memcg), None)
    found["cgroup"] = memcg
    if kills:
        kill = max(kills, key=lambda k: (resident(k) or Amount(0)).bytes)
        found |= {
            "victim": kill.comm,
            "victim_pid": kill.pid,
            "resident_gib": in_gib(resident(kill)),
            "anon_rss_gib": in_gib(kill.anon_rss),
            "shmem_rss_gib": in_gib(kill.shmem_rss),
            "kills": len({k.pid for k in kills}),
        }
    tasks = sorted(case.run.of(OomTask), key=lambda task: -task.rss.bytes)[:3]
    if tasks:
        found["largest"] = ", ".join(f"{task.name} {task.rss}" for task in tasks)
    known = {name: value for name, value in found.items() if value is not None}
    return known | {name: value for name, value in _stated_figures(case).items() if name not in known}


# Figures that a statement of a kill prints: message, its figure, the fact it becomes.
_STATED = (
    ("pod-limits", "limit", "limit_gib"),
    ("unit-memory", "limit", "limit_gib"),
    ("pod-evicted", "available", "available_gib"),
    ("pod-evicted", "using", "used_gib"),
    ("pod-evicted", "threshold", "threshold_gib"),
    ("unit-memory", "memory_peak", "memory_peak_gib"),
    ("unit-memory", "swap_peak", "swap_peak_gib"),
    ("ray-memory-use", "used", "used_gib"),
    ("ray-memory-use", "total", "total_ram_gib"),
    ("ray-memory-use", "threshold", "threshold"),
    ("ray-oom-kill", "used", "used_gib"),
    ("ray-oom-kill", "total", "total_ram_gib"),
    ("earlyoom-kill", "comm", "victim"),
    ("earlyoom-kill", "pid", "victim_pid"),
    ("earlyoom-kill", "rss", "resident_gib"),
    ("node-oom", "comm", "victim"),
    ("node-oom", "pid", "victim_pid"),
    ("oomd-killed", "pressure", "pressure_percent"),
    ("oomd-killed", "limit", "pressure_limit_percent"),
    ("oomd-killed", "duration", "pressure_seconds"),
    ("oomd-killed", "percent", "use_limit_percent"),
    ("oom-cgroup-stats", "shmem", "shmem_gib"),
    ("oom-cgroup-stat", "shmem", "shmem_gib"),
)  # fmt: skip


def _stated_figures(case: Case) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for code, name, as_fact in _STATED:
        values = [v for e in case.run.coded(code) if (v := fact(e, name)) is not None]
        if values:
            value = values[-1]
            found.setdefault(as_fact, in_gib(value) if isinstance(value, Amount) else value)
    users = sorted(
        {(str(fact(e, "name")), fact(e, "memory")) for e in case.run.coded("ray-memory-user")},
        key=lambda user: -user[1].bytes,
    )
    if users:
        found["largest"] = ", ".join(f"{name} {memory}" for name, memory in users[:3])
    return found
