"""The ranks could not be joined, or a collective between them failed.

`nccl-init-failed`: NCCL refused or failed. `unhandled system error` is often a full
/dev/shm or a socket, `invalid usage` two ranks on one GPU, `remote process exited` another
rank that died. `NCCL_DEBUG=INFO` prints the first WARN, and that line is the reason.

`custom-allreduce-failed`: vLLM's own all-reduce could not share buffers between the GPUs
(no peer access, containers without a common PID namespace, expandable segments).
`--disable-custom-all-reduce` uses NCCL instead.

`rendezvous-timeout`: the ranks did not meet within the time. Rank 0 was not up, the address
or the interface is wrong (`VLLM_HOST_IP`, `NCCL_SOCKET_IFNAME`, `GLOO_SOCKET_IFNAME`), or a
firewall is between; or one rank had died before, and its own log says of what.

The text of one rank is mostly the echo of another: read all ranks' output and the kernel
logs before anything is changed. No memory flag belongs here.
"""

from vllm_diag.causes import Case, Cause, Finding, Verdict
from vllm_diag.causes._stated import ECHO, MEMORY, cuda_errors, fact, gathered, loud, serving_at
from vllm_diag.causes._torch_oom import BELOW_ALLOCATOR, refusals
from vllm_diag.event_types import Event
from vllm_diag.messages.gpu_runtime import FAULTS

_VICTIM = frozenset({"remote process exited or there was a network error", "unhandled cuda error", "timeout"})


def _nccl(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    setup = run.coded("nccl-setup-error", "nccl-peer-refused", "locked-memory-refused")
    setup += [e for e in run.coded("nccl-shm-failed") if fact(e, "operation") == "attaching to"]
    failed = loud(run.coded("nccl-error"))
    if run.ready and not failed and not run.has(*ECHO):
        # A server that serves found another way.
        return None
    refused = [r.event for r in refusals(case) if r.code == cause.code]
    if refused and not run.has(*(frozenset(MEMORY) - frozenset(BELOW_ALLOCATOR))):
        return _refused(case, cause, [*failed[:2], *refused[:2]])
    if (not setup and not failed) or run.has(*MEMORY):
        return None
    others = loud(cuda_errors(case, ("peer access is not supported between these two devices",)))
    events = [*setup[:2], *failed[:3], *others[:1]]
    facts = gathered(events)
    facts = {k: v for k, v in facts.items() if k in ("error", "version", "rank_a", "rank_b", "number")}
    victim = not setup and all(fact(e, "error") in _VICTIM for e in failed)
    verdict: Verdict = "likely" if victim else "confirmed"
    summary = cause.summary
    if "rank_b" in facts:
        summary = "Ranks {rank_a} and {rank_b} use the same GPU, which NCCL refuses."
    elif "error" in facts:
        summary = "NCCL failed: {error}."
    missing = ["the first NCCL WARN of every rank, with NCCL_DEBUG=INFO"]
    if victim:
        missing.append("the output of the other ranks: this one may only have noticed that another failed")
    return cause.finding(*events, verdict=verdict, facts=facts, summary=summary, missing=missing)


def _refused(case: Case, cause: Cause, events: list[Event]) -> Finding:
    """NCCL was refused memory before anything tells what the device held."""
    return cause.finding(
        *events,
        verdict="undetermined",
        facts={k: v for k, v in gathered(events).items() if k in ("error", "version", "number", "tried_gib")},
        summary="NCCL was refused memory while the ranks were joined; nothing tells whether on the device or"
        " page-locked, and who holds it.",
        missing=[
            "nvidia-smi before the start: whether another process holds the devices",
            "the NCCL WARN lines of every rank, with NCCL_DEBUG=INFO: which allocation failed",
        ],
    )


def _custom_allreduce(case: Case, cause: Cause) -> Finding | None:
    events = [e for e in case.run.coded("custom-allreduce-error") if fact(e, "error") not in FAULTS]
    if not events:
        return None
    return cause.finding(*events[:4], facts=gathered(events))


def _rendezvous(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    events = loud(run.coded("rendezvous-failed"))
    events += [e for e in loud(run.coded("collective-timeout")) if not serving_at(case, e)]
    if not events or run.has(*MEMORY):
        return None
    kept = ("seconds", "period", "host", "port", "joined", "clients", "operation", "sequence", "timeout_ms", "ran_ms")
    facts = {k: v for k, v in gathered(events).items() if k in kept}
    if "period" in facts:
        facts["seconds"] = facts.pop("period")
    summary = cause.summary
    if "host" in facts and "port" in facts:
        summary = "A rank could not reach {host}, port {port}, where the ranks meet."
    return cause.finding(
        *events[:4],
        verdict="likely",
        facts=facts,
        summary=summary,
        missing=["the output of all ranks: one of them may have died before"],
    )


CAUSES = (
    Cause(
        code="nccl-init-failed",
        term="none",
        title="NCCL failed",
        summary="NCCL refused the way the ranks are laid out or connected.",
        judge=_nccl,
        explains=("rendezvous-timeout", "ray-worker-died", "shm-broadcast-stall", "startup-timeout", *ECHO),
        arises=(
            "The first communicator opens devices, sockets and shared segments, and each of them can be "
            "refused. Different NCCL versions on the nodes, an interface that the other node does not "
            "reach, and a low limit on locked memory with InfiniBand are the usual situations."
        ),
        verify="With `NCCL_DEBUG=INFO` every rank prints `Init COMPLETE` and no WARN before it.",
        useless=(
            "`NCCL_P2P_DISABLE`, `NCCL_IB_DISABLE` and `NCCL_SHM_DISABLE` set in turn, without the WARN "
            "line, hide the reason and leave a slower path."
        ),
    ),
    Cause(
        code="custom-allreduce-failed",
        term="none",
        title="vLLM's custom all-reduce failed",
        summary="vLLM's custom all-reduce could not share buffers between the GPUs ({error}).",
        judge=_custom_allreduce,
        explains=(
            "nccl-init-failed",
            "rendezvous-timeout",
            "ray-worker-died",
            "shm-broadcast-stall",
            "startup-timeout",
            *ECHO,
        ),
        arises=(
            "The ranks of one machine open each other's buffers through CUDA IPC and read them directly. "
            "Cards without peer access, an IOMMU or a hypervisor between them, and containers that cannot "
            "see each other's processes refuse that."
        ),
        verify=(
            "The start passes graph capture; where the feature stays on, `nvidia-smi topo -p2p r` says OK "
            "for every pair."
        ),
        useless=(
            "`NCCL_P2P_DISABLE` concerns NCCL and not this all-reduce. `VLLM_SKIP_P2P_CHECK` leaves a "
            "test out, and the refusal comes when the buffers are opened."
        ),
    ),
    Cause(
        code="rendezvous-timeout",
        term="none",
        title="The ranks did not meet in time",
        summary="The ranks did not meet within the time they wait for each other.",
        judge=_rendezvous,
        explains=("ray-worker-died", "shm-broadcast-stall", "startup-timeout", *ECHO),
        arises=(
            "Every rank connects to the address of rank 0 and waits there until all have come. Nodes "
            "started minutes apart, a host name that resolves to 127.0.0.1, several interfaces of which "
            "one is routed, and blocked ports are the usual situations."
        ),
        verify="Every rank prints its number and the world size, and weights load on all nodes.",
        useless=(
            "A longer wait (`--distributed-timeout-seconds`, 0.18 on) helps ranks that come late, not "
            "those that are gone or cannot reach each other."
        ),
    ),
)
