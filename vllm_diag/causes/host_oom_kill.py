"""The machine ran out of memory and the kernel (or a daemon) killed a process of the server.

Proof is the kernel's `Killed process` line, systemd's `oom-kill` result, or the statement of
systemd-oomd, earlyoom or Ray's memory monitor. Exit code 137, a bare `Killed` or a SIGKILL
alone are not. Loading needs RAM for the weights plus 8 to 16 GB, more for each worker; CPU
swap space, offloading and pinned buffers come on top.

The victim need not be the culprit: the task table in the kernel log shows who was large.
To verify: `dmesg -T | grep -i 'killed process'` stays silent over the next start.
"""

from vllm_diag.causes import Case, Cause, Finding, RuledOut
from vllm_diag.causes import _killed as killed
from vllm_diag.event_types import OomTask


def judge(case: Case, cause: Cause) -> Finding | None:
    events = killed.evidence_of(case)
    proofs = [e for e in events if e.code not in ("oom-cgroup-use", "ray-memory-use", "oom-group-kill")]
    if killed.at_a_limit(case):
        return None
    if not proofs:
        return _table_alone(case, cause)
    facts = killed.facts(case)
    summary = cause.summary
    if "victim" not in facts:
        summary = "A process of the server was killed because the host ran out of memory."
    doubtful = killed.contradicted(case, events)
    return cause.finding(
        *events[:6],
        facts=facts,
        summary=summary + " The server's own log shows no death." if doubtful else summary,
        severity="info" if doubtful else None,
        verdict="undetermined" if doubtful else "confirmed",
        missing=()
        if case.run.has("oom-task-table", "oom-task")
        else ("the task table of the kernel log: who else was large",),
        ruled_out=[RuledOut("container-memory-limit", "no cgroup limit is named in the kill")]
        if case.run.has("oom-kill")
        else [],
    )


def _table_alone(case: Case, cause: Cause) -> Finding | None:
    """The table is printed at a kill only; without the lines behind it the victim is not known."""
    rows = case.run.of(OomTask)
    if len(rows) < 3 or case.run.ready or case.run.has("oom-kill", "oom-kill-summary"):
        return None
    return cause.finding(
        *rows[:2],
        verdict="likely",
        facts=killed.facts(case),
        summary="The kernel listed its processes, as it does when memory has run out; whom it killed is not shown.",
        missing=("the lines behind the table: oom-kill: and Killed process",),
    )


CAUSE = Cause(
    code="host-oom-kill",
    term="host_ram",
    title="The host ran out of memory",
    summary="The kernel killed {victim} (pid {victim_pid}, {resident} resident): the host was out of memory.",
    judge=judge,
    explains=killed.FOLLOWS,
)
