"""The server runs, but the KV cache is full: requests are preempted and computed again.

V0 prints a warning for each 50th preemption. V1 says nothing per request; from 0.11.1 the
statistics line ends in `Preemptions: N` when there were any, and /metrics counts them
(`vllm:num_preemptions_total`). A cache near 100 % with requests waiting is the same state.

What helps: fewer sequences at once (`--max-num-seqs`), shorter ones (`--max-model-len`), more
cache (`--gpu-memory-utilization`, fp8 KV cache, tensor parallelism). It is no failure: answers
are right, only late.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.event_types import Metric, Preempted

# Statistics lines with a full cache and waiting requests before it is called pressure: one
# such line is a burst.
_ENOUGH_LINES = 3


def judge(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    v0 = run.of(Preempted)
    counted = run.metrics.get("num_preemptions", 0.0)
    pressure = run.pressure
    dropped = run.coded("prompt-exceeds-cache")
    if not (v0 or counted > 0 or pressure.preemptions or pressure.full_and_waiting >= _ENOUGH_LINES):
        return None
    events = [*v0[:2], *[m for m in run.of(Metric) if "preemptions" in m.name and m.value > 0][:1], *dropped[:1]]
    preemptions = max(counted, pressure.preemptions, *[e.total or 0 for e in v0], 0)
    usage = run.metrics.get("kv_cache_usage")
    facts = {
        "preemptions": int(preemptions) or None,
        "kv_cache_usage": usage,
        "peak_usage_percent": pressure.peak_usage,
        "peak_waiting": pressure.peak_waiting,
    }
    missing = ["a second /metrics scrape: the rate"] if run.metrics and not pressure.lines else []
    idle = not pressure.lines and not v0 and usage is not None and usage < 0.5
    if idle:
        return cause.finding(
            *events,
            facts=facts,
            severity="info",
            verdict="undetermined",
            summary="Requests were preempted at some time; the KV cache is not full now.",
            title="Preemptions in the past",
            missing=missing,
        )
    return cause.finding(
        *events,
        facts=facts,
        evidence=pressure.evidence,
        severity="warning",
        summary=cause.summary if preemptions else "The KV cache is full and requests are waiting.",
        missing=missing,
    )


CAUSE = Cause(
    code="kv-cache-pressure",
    term="kv_cache",
    title="The KV cache is full and requests are preempted",
    summary="The KV cache is full; requests were preempted and computed again.",
    severity="warning",
    judge=judge,
    explains=("preempted",),
    arises=(
        "Each running sequence grows by a token a step, and when no block is free the scheduler takes "
        "those of the one that came last. Long answers and many sequences beside a small cache bring it "
        "about."
    ),
    verify=(
        "Under the same load the statistics lines carry no `Preemptions` (V0: no warning of a "
        "preemption), and `vllm:num_preemptions_total` is the same in two scrapes."
    ),
    useless=(
        "A larger `--max-num-batched-tokens` makes prefill faster and the cache smaller. Prefix caching "
        "saves only what requests have in common."
    ),
)
