"""Nothing is left for the KV cache: the other terms fill the whole share of the device.

Weights, activations and CUDA graphs together reach or exceed capacity x utilization. The
budget decides which of them is to blame; when the log does not print it, the first thing to
check is the share asked for, then a smaller format of the weights or more devices. A shorter
`--max-model-len` alone does not help: the cache of even one token has no room.
"""

from vllm_diag.causes import Case, Cause, Finding, RuledOut, in_gib, plain_facts
from vllm_diag.event_types import CpuMemoryShort, Event, KvCacheAvailable, NoKvMemory
from vllm_diag.ledger import Budget


def judge(case: Case, cause: Cause) -> Finding | None:
    refused = [e for e in case.run.of(NoKvMemory) if e.lever != "VLLM_CPU_KVCACHE_SPACE"]
    negative = [e for e in case.run.of(KvCacheAvailable) if e.available.high <= 0]
    overspent = [e for e in case.run.of(CpuMemoryShort) if share_overspent(e)]
    if overspent:
        return _cpu_share(case, cause, overspent)
    reserved = case.run.coded("frontend-reservation")
    if reserved:
        return _reserved(case, cause, reserved)
    if case.run.device == "cpu" or not (refused or negative):
        return None
    budget = case.ledger.main
    term, why = _culprit(budget)
    available = negative[0].available if negative else None
    if available is None and budget.kv_cache and budget.kv_cache.amount.high <= 0:
        available = budget.kv_cache.amount
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


def _reserved(case: Case, cause: Cause, events: list[Event]) -> Finding:
    figures = plain_facts(events[0])
    return cause.finding(
        *events[:3],
        term="gpu_budget",
        facts={**figures, "utilization": case.ledger.main.utilization},
        summary="{reserved_gib:.2f} GiB are set aside for decoding media in the API server, and only"
        " {available_gib:.2f} GiB were left for the KV cache.",
    )


def _culprit(budget: Budget) -> tuple[str, str]:
    """Return the term that ate the share, and how that is known."""
    requested = budget.requested
    if requested and budget.requested and requested.origin != "assumed":
        share = requested.amount.bytes
        if _share_is_small(budget):
            return "gpu_budget", "the share asked for is below half of the device, and what it has to hold fits on it"
        if budget.weights and budget.weights.amount.bytes >= 0.75 * share:
            return "weights", "weights take three quarters or more of the share"
        if budget.activations and budget.activations.amount.bytes >= 0.4 * share:
            return "activations", "the activation peak takes 40 % or more of the share"
        if budget.weights:
            return "weights", "weights are the largest term known"
    if _overspent_beyond_weights(budget):
        return (
            "activations",
            "so much is overspent that more than the weights is taken beside them",
        )
    asked = budget.utilization if budget.utilization_origin == "stated" else None
    if asked is not None and asked < 0.5 and not budget.weights:
        return "gpu_budget", "the share asked for is below half of the device; no line tells what it has to hold"
    return "weights", "assumed: weights are the usual reason, the log does not print the budget"


def _share_is_small(budget: Budget) -> bool:
    """Whether less than half of the device was asked for and nine tenths of it would do."""
    if budget.utilization is None or budget.utilization >= 0.5 or not (budget.total and budget.weights):
        return False
    parts = (budget.weights, budget.activations, budget.non_torch, budget.cuda_graphs)
    return sum(part.amount.bytes for part in parts if part) < 0.9 * budget.total.amount.bytes


def _overspent_beyond_weights(budget: Budget) -> bool:
    """Whether weights are the smaller part of what was taken.

    The profile run fitted on the device, so what was taken is at most its capacity, and the
    share can be overspent by (1 - utilization) of it at most: that bounds the capacity from
    below, and with it what was taken beside the weights.
    """
    if not (budget.weights and budget.kv_cache and budget.utilization) or budget.utilization >= 1:
        return False
    over = -budget.kv_cache.amount.bytes
    graphs = budget.cuda_graphs.amount.bytes if budget.cuda_graphs else 0
    least = (over - graphs) / (1 - budget.utilization)
    taken = least * budget.utilization + over
    return over > 0 and taken - budget.weights.amount.bytes > budget.weights.amount.bytes


CAUSE = Cause(
    code="no-kv-cache-memory",
    term="weights",
    also=("activations", "gpu_budget", "kv_cache", "foreign_process"),
    title="Nothing left for the KV cache",
    summary="Weights, activations and graphs fill the whole share of the device; no block of KV cache fits.",
    judge=judge,
    explains=("engine-core-failed", "engine-init-failed", "worker-failed", "worker-died", "engine-died", "engine-dead"),
    arises=(
        "The share is reckoned from the whole device, and weights, the activation peak and, from 0.20 on "
        "by default, the graphs are taken off before the cache gets anything. A share lowered for a "
        "neighbour, weights close to the size of the card, and a large image or batch in the dummy run "
        "leave zero or less."
    ),
    verify=("The next start prints `Available KV cache memory` above zero (before 0.9.1: `# GPU blocks` above zero)."),
    useless=(
        "`--kv-cache-dtype fp8` makes tokens smaller, and there is no room for any. `--swap-space` adds "
        "blocks on the host only."
    ),
)
