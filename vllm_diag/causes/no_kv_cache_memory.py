"""Nothing is left for the KV cache: the other terms fill the whole share of the device.

Weights, activations and CUDA graphs together reach or exceed capacity x utilization. The
budget decides which of them is to blame; when the log does not print it, the first thing to
check is the share asked for, then a smaller format of the weights or more devices. A shorter
`--max-model-len` alone does not help: the cache of even one token has no room.

To verify: the next start prints `Available KV cache memory` above zero.
"""

from vllm_diag.causes import Case, Cause, Finding, RuledOut, in_gib
from vllm_diag.events import CpuMemoryShort, KvCacheAvailable, NoKvMemory
from vllm_diag.ledger import Budget


def judge(case: Case, cause: Cause) -> Finding | None:
    refused = [e for e in case.run.of(NoKvMemory) if e.lever != "VLLM_CPU_KVCACHE_SPACE"]
    negative = [e for e in case.run.of(KvCacheAvailable) if e.available.high <= 0]
    overspent = [e for e in case.run.of(CpuMemoryShort) if share_overspent(e)]
    if overspent:
        return _cpu_share(case, cause, overspent)
    if case.run.device == "cpu" or not (refused or negative):
        return None
    budget = case.ledger.main
    term, why = _culprit(budget)
    available = negative[0].available if negative else None
    summary = cause.summary
    if available is not None:
        summary = "The budget is overspent: {available} would be left for the KV cache."
    missing = []
    if not budget.weights:
        missing.append("the line 'Model loading took ... GiB' of the same start")
    if not budget.total:
        missing.append("the device's memory (nvidia-smi)")
    facts = {
        "available_gib": in_gib(available),
        "total_gib": in_gib(budget.total.amount) if budget.total else None,
        "utilization": budget.utilization,
        "requested_gib": in_gib(budget.requested.amount) if budget.requested else None,
        "weights_gib": in_gib(budget.weights.amount) if budget.weights else None,
        "activations_gib": in_gib(budget.activations.amount) if budget.activations else None,
        "term_because": why,
    }
    ruled_out = [RuledOut("kv-cache-too-small", "not the length of a request is refused: no block fits at all")]
    events = [*negative[:1], *refused[:2]]
    return cause.finding(*events, facts=facts, summary=summary, term=term, missing=missing, ruled_out=ruled_out)


def share_overspent(event: CpuMemoryShort) -> bool:
    """Whether the worker's share of the node is used up before the KV cache gets anything."""
    return event.consumed is not None or (event.wanted_kv is not None and event.wanted_kv.high <= 0)


def _cpu_share(case: Case, cause: Cause, events: list[CpuMemoryShort]) -> Finding:
    event = events[0]
    left = event.wanted_kv
    consumed = event.consumed
    if consumed is None and left is not None and event.requested is not None:
        consumed = event.requested - left
    return cause.finding(
        *events[:3],
        term="gpu_budget",
        facts={
            "available_gib": in_gib(left),
            "requested_gib": in_gib(event.requested),
            "consumed_gib": in_gib(consumed),
            "node_available_gib": in_gib(event.available),
            "total_gib": in_gib(event.total),
        },
        summary="The worker uses {consumed} already, and its share of the node is {requested}:"
        " nothing is left for the KV cache.",
    )


def _culprit(budget: Budget) -> tuple[str, str]:
    """Return the term that ate the share, and how that is known."""
    requested = budget.requested
    if requested and budget.requested and requested.origin != "assumed":
        share = requested.amount.bytes
        if budget.weights and budget.weights.amount.bytes >= 0.75 * share:
            return "weights", "weights take three quarters or more of the share"
        if budget.activations and budget.activations.amount.bytes >= 0.4 * share:
            return "activations", "the activation peak takes 40 % or more of the share"
        if budget.utilization is not None and budget.utilization < 0.5:
            return "gpu_budget", "the share asked for is below half of the device"
        if budget.weights:
            return "weights", "weights are the largest term known"
    if budget.weights and budget.kv_cache and budget.kv_cache.amount.bytes < -2 * budget.weights.amount.bytes:
        return "activations", "more is overspent than the weights could explain"
    return "weights", "assumed: weights are the usual reason, the log does not print the budget"


CAUSE = Cause(
    code="no-kv-cache-memory",
    term="weights",
    also=("activations", "gpu_budget", "kv_cache", "foreign_process"),
    title="Nothing left for the KV cache",
    summary="Weights, activations and graphs fill the whole share of the device; no block of KV cache fits.",
    judge=judge,
    explains=("engine-core-failed", "engine-init-failed", "worker-failed", "worker-died", "engine-died", "engine-dead"),
)
