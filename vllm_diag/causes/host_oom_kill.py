"""The machine ran out of memory and the kernel (or a daemon) killed a process of the server.

Proof is the kernel's `Killed process` line, systemd's `oom-kill` result, or the statement of
systemd-oomd, earlyoom or Ray's memory monitor. Exit code 137, a bare `Killed` or a SIGKILL
alone are not. Loading needs RAM for the weights plus 8 to 16 GB, more for each worker; CPU
swap space, offloading and pinned buffers come on top.

The victim need not be the culprit: the task table in the kernel log shows who was large.
"""

from vllm_diag.causes import Case, Cause, Finding, RuledOut
from vllm_diag.causes import _killed as killed
from vllm_diag.causes._stated import fact
from vllm_diag.event_types import Event, OomTask


def judge(case: Case, cause: Cause) -> Finding | None:
    events = killed.evidence_of(case)
    proofs = [e for e in events if e.code not in _NO_PROOF]
    if killed.at_a_limit(case):
        return None
    if not proofs:
        return _table_alone(case, cause)
    facts = killed.facts(case)
    summary = cause.summary
    if "victim" not in facts:
        summary = _who_says(case)
    elif "resident_gib" not in facts:
        summary = "{victim} (pid {victim_pid}) was killed: the host was out of memory."
    elif case.run.has("earlyoom-kill") and not case.run.has("oom-kill"):
        summary = "earlyoom ended {victim} (pid {victim_pid}, {resident} resident): the host was nearly out of memory."
    doubtful = killed.contradicted(case, events)
    asked, far = killed.asked_for(case), _far_above(proofs)
    if asked:
        summary = (
            "The kernel killed {victim} (pid {victim_pid}) because it was asked to; memory need not have been short."
        )
    return cause.finding(
        *events[:6],
        facts=facts,
        summary=summary + " The server's own log shows no death." if doubtful else summary,
        severity="info" if doubtful else None,
        verdict="undetermined" if doubtful else "likely" if asked or far else "confirmed",
        missing=()
        if case.run.has("oom-task-table", "oom-task")
        else ("the task table of the kernel log: who else was large",),
        ruled_out=[RuledOut("container-memory-limit", "no cgroup limit is named in the kill")]
        if case.run.has("oom-kill")
        else [],
    )


# Printed around a kill, and no proof of one.
_NO_PROOF = ("oom-cgroup-use", "ray-memory-use", "oom-group-kill", "oom-cgroup-limit")


def _who_says(case: Case) -> str:
    run = case.run
    if run.has("oom-no-victim"):
        return "The host ran out of memory, and the kernel found nobody to kill or stopped the machine."
    if run.has("oomd-killed"):
        return "systemd-oomd killed the unit because its processes waited for memory; much of it can have been free."
    if run.has("ray-oom-kill"):
        return "Ray's memory monitor killed a worker because the node was nearly out of memory."
    if run.has("pod-evicted"):
        return "The kubelet evicted the pod because the node was short of memory."
    return "A process of the server was killed because the host ran out of memory."


def _far_above(proofs: list[Event]) -> bool:
    """Whether all that speaks is a slice, below which anything can have been killed."""
    units = [str(fact(e, "unit") or "") for e in proofs]
    return all(unit.endswith(".slice") for unit in units)


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
    arises=(
        "All processes together touched more memory than there is, and the one with the highest score is "
        "ended, mostly an engine or worker for its size. Several ranks that load at once, .bin "
        "checkpoints that every rank reads whole, and swap space or offloading beside another large "
        "program are the usual situations."
    ),
    verify=(
        "`dmesg -T | grep -i 'killed process'` stays silent over the next start, and `free -g` keeps some "
        "GiB available while weights load."
    ),
    useless=(
        "A lower `oom_score_adj` for the server makes the kernel take another victim while memory stays as short."
    ),
)
