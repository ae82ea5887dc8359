"""Ray has too few GPUs to give, or lost a worker.

`ray-insufficient-gpus`: the placement group asks for more GPUs than the cluster has free.
`ray status` shows what is there and what is in use; nodes that joined under another address
(`VLLM_HOST_IP`) do not count. Without a second node, `--distributed-executor-backend mp`
needs no Ray at all.

`ray-worker-died`: the process of a worker is gone. The reasons Ray lists behind it, the OOM
killer first, are the same text for every death and prove nothing. The worker's own log
(`/tmp/ray/session_latest/logs/worker-*.err`) and the kernel log say what it was; a native
crash (segmentation fault, NCCL, a library put in between) is frequent. When Ray itself
killed for want of memory it says so in other words, and the cause is `host-oom-kill`.
"""

from vllm_diag.causes import Case, Cause, Finding, RuledOut
from vllm_diag.causes._stated import ECHO, EXPLAINS, MEMORY, fact, gathered, loud

# Shorter waits are met at every start.
_LONG_WAIT = 60


def _too_few(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    stated = loud(run.coded("ray-gpus-short"))
    if stated:
        facts = {k: v for k, v in gathered(stated).items() if k not in ("specs", "node")}
        summary = cause.summary
        if "world_size" in facts and "gpus" in facts:
            summary = "{world_size} GPUs were asked for, and the placement group has {gpus}."
        elif "required_gpus" in facts:
            summary = "Ray could not give {required_gpus} GPUs."
        return cause.finding(*stated[:3], facts=facts, summary=summary, missing=["ray status, ray list nodes"])
    waits = [e for e in run.coded("ray-waiting-for-gpus") if (fact(e, "seconds") or 0) >= _LONG_WAIT]
    if not waits or waits[-1].at.order < max(event.at.order for event in run.events):
        return None
    return cause.finding(
        *waits[-2:],
        verdict="likely",
        facts={"seconds": fact(waits[-1], "seconds")},
        summary="Ray has not given the GPUs that were asked for after {seconds:.0f} seconds, and the log ends there.",
        missing=["ray status, ray list nodes"],
    )


def _died(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    events = run.coded("ray-worker-gone")
    if not events or run.has(*MEMORY):
        return None
    crash = run.coded("segmentation-fault", "illegal-instruction")
    kept = ("worker_pid", "exit_type", "connection_error_code")
    facts = {k: v for k, v in gathered(events).items() if k in kept}
    return cause.finding(
        *crash[:1],
        *events[:3],
        facts=facts,
        summary="A Ray worker crashed in native code." if crash else cause.summary,
        missing=[
            "the log of the dead worker: /tmp/ray/session_latest/logs/worker-*.err and python-core-worker-*.log",
            "the kernel log of its node: dmesg -T | grep -iE 'killed process|xid|segfault'",
        ],
        ruled_out=[
            RuledOut("host-oom-kill", "Ray names the OOM killer whenever a worker is gone; nothing else here says so")
        ],
    )


CAUSES = (
    Cause(
        code="ray-insufficient-gpus",
        term="none",
        title="The Ray cluster has too few free GPUs",
        summary="The Ray cluster has fewer free GPUs than were asked for.",
        judge=_too_few,
        explains=EXPLAINS,
        arises=(
            "vLLM asks for a placement group with one GPU for each rank, and Ray gives what its nodes "
            "registered and nobody holds. A node that did not join, an actor left over, and a head node "
            "that was started before its GPUs were visible are the usual situations."
        ),
        verify="`ray status` lists as many GPUs as there are ranks, and none in use before the start.",
        useless=(
            "`ray start --num-gpus` with more than there are moves the failure to the device. A longer "
            "wait does not help where the nodes have too few."
        ),
    ),
    Cause(
        code="ray-worker-died",
        term="none",
        title="A Ray worker died",
        summary="A Ray worker is gone, and the text does not say why.",
        judge=_died,
        explains=("shm-broadcast-stall", "startup-timeout", *ECHO),
        arises=(
            "The driver notices a broken connection to the worker, whatever ended it. An assertion in "
            "native code on one rank, a library missing on one node, a node that was lost and a container "
            "that was stopped all look like this."
        ),
        verify="`ray list actors` shows every worker ALIVE through loading and a first request.",
        useless=(
            "`RAY_memory_monitor_refresh_ms=0` switches off Ray's own killer, which did not act here. A "
            "retry sends the same worker into the same end."
        ),
    ),
)
