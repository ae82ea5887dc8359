"""One request of the longest allowed length needs more KV cache than the device has left.

vLLM refuses to start rather than accept a request that could never be served. The KV cache
gets what the share of the device (`gpu_memory_utilization`) leaves after weights,
activations and CUDA graphs; one request of `max_model_len` tokens must fit into it.

What fixes it: a shorter `--max-model-len`, fewer bytes a token (`--kv-cache-dtype fp8`),
smaller weights, more devices. Raising the utilization helps only when what is missing is
less than the share still unused, and a tenth of a card is rarely enough.

On the CPU backend the same text belongs to `cpu-kv-space-too-small`.
"""

from vllm_diag.causes import Case, Cause, Finding, RuledOut, in_gib, plain_facts
from vllm_diag.event_types import FreeMemoryShort, GraphMemory, KvCacheTooSmall, MemoryProfile, TorchOom, WeightsLoaded
from vllm_diag.quantities import GIB
from vllm_diag.releases import Release


def judge(case: Case, cause: Cause) -> Finding | None:
    events = case.run.of(KvCacheTooSmall)
    if not events and case.run.has("kv-cache-too-small-cut"):
        return cause.finding(
            *case.run.coded("kv-cache-too-small-cut")[:2],
            summary="One request of the longest allowed length does not fit; the log is cut off inside that message.",
            missing=["the rest of that line: what is needed, what is available, the length that fits"],
        )
    if not events and case.run.has("prompt-exceeds-cache"):
        return _dropped(case, cause)
    if not events or case.run.device == "cpu" or events[-1].lever == "VLLM_CPU_KVCACHE_SPACE":
        return None
    event = events[0]
    if is_cpu_default(case, event):
        return None
    facts = kv_facts(event)
    summary = cause.summary
    if event.needed is None or event.available is None:
        summary = "One request of {max_model_len:,} tokens does not fit into the KV cache; the figures are cut off."
    if event.tokens is not None:
        summary = "One request of {max_model_len:,} tokens does not fit: the KV cache holds {tokens:,} tokens."
    ruled_out = []
    if case.run.of(KvCacheTooSmall) and not case.run.of(FreeMemoryShort):
        ruled_out.append(RuledOut("weights-do-not-fit", "profiling finished and left memory for the KV cache"))
    missing = [] if case.ledger.main.total else ["the device's memory (a line with total, or nvidia-smi)"]
    return cause.finding(*events[:3], facts=facts, summary=summary, missing=missing, ruled_out=ruled_out)


# What the CPU backend gives its KV cache when nobody says otherwise, up to this release.
_CPU_DEFAULT = 4 * GIB
_CPU_DEFAULT_UNTIL = Release(0, 12, 99)


def is_cpu_default(case: Case, event: KvCacheTooSmall) -> bool:
    """Whether exactly the CPU backend's default was there, and nothing in the log speaks of a device.

    What profiling leaves on a device is no round number: of some thousand values one is 4.00 GiB.
    """
    run = case.run
    if event.available is None or event.available.bytes != _CPU_DEFAULT or event.needed is None:
        return False
    if run.settings.get("kv_cache_memory_bytes") or run.device not in (None, "cpu"):
        return False
    seen = any(isinstance(e, MemoryProfile | GraphMemory | WeightsLoaded | TorchOom) for e in run.events)
    return not seen and (run.release is None or run.release <= _CPU_DEFAULT_UNTIL)


def _dropped(case: Case, cause: Cause) -> Finding:
    """Before 0.2.7 nothing checks at start: the prompt that does not fit is dropped instead."""
    events = case.run.coded("prompt-exceeds-cache")
    facts = plain_facts(events[0])
    return cause.finding(
        *events[:3],
        facts={**facts, "max_model_len": case.run.settings.get("max_model_len")},
        summary="A prompt of {prompt_tokens} tokens is larger than the whole KV cache, and was dropped."
        if "prompt_tokens" in facts
        else "A request is larger than the whole KV cache, and was dropped.",
        severity="warning",
    )


def kv_facts(event: KvCacheTooSmall) -> dict[str, object]:
    short = event.needed - event.available if event.needed and event.available else None
    per_token = None
    if event.needed is not None and event.max_model_len:
        per_token = round(event.needed.bytes / event.max_model_len / 1024, 2)
    return {
        "max_model_len": event.max_model_len,
        "needed_gib": in_gib(event.needed),
        "available_gib": in_gib(event.available),
        "short_by_gib": in_gib(short),
        "kib_per_token": per_token,
        "estimated_max_len": event.estimated_max_len,
        "tokens": event.tokens,
    }


CAUSE = Cause(
    code="kv-cache-too-small",
    term="kv_cache",
    title="KV cache too small for one request",
    summary="One request of {max_model_len:,} tokens needs {needed} of KV cache; {available} is left for it.",
    judge=judge,
    explains=("engine-core-failed", "engine-init-failed", "worker-failed", "worker-died", "engine-died", "engine-dead"),
    arises=(
        "Without `--max-model-len` the length comes from config.json, often 128k tokens or more, and a "
        "single request of it has to fit. Large weights on one card leave little; from 0.26 on models "
        "with sliding windows need more for the tokens in flight."
    ),
    verify="The next start prints the cache size and a maximum concurrency of at least 1.00x.",
    useless=(
        "A lower `--max-num-seqs` does not shorten that one request and frees only some activation "
        "memory. `--swap-space` and host RAM add no block on the device."
    ),
)
