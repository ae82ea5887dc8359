"""CPU backend: the space set aside for the KV cache does not hold one full request.

The CPU backend gives the KV cache `VLLM_CPU_KVCACHE_SPACE` GiB (4 by default to 0.12, half a
NUMA node's memory in 0.13 - 0.19); from 0.20 on, when that is not set, a share of the node's
memory (`--gpu-memory-utilization`, despite its name). The refusal reads as on a GPU.

What fixes it: a larger `VLLM_CPU_KVCACHE_SPACE`, as far as the host has the memory, or a
shorter `--max-model-len`.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes.kv_cache_too_small import is_cpu_default, kv_facts
from vllm_diag.event_types import CpuKvSpace, KvCacheTooSmall, NoKvMemory


def judge(case: Case, cause: Cause) -> Finding | None:
    refused: list[KvCacheTooSmall | NoKvMemory] = [*case.run.of(KvCacheTooSmall), *case.run.of(NoKvMemory)]
    on_cpu = case.run.device == "cpu"
    assumed = [e for e in case.run.of(KvCacheTooSmall) if not on_cpu and is_cpu_default(case, e)]
    refused = [e for e in refused if on_cpu or e.lever == "VLLM_CPU_KVCACHE_SPACE" or e in assumed]
    if not refused:
        return None
    event = refused[0]
    if isinstance(event, NoKvMemory):
        return cause.finding(event, summary="The CPU KV cache space is too small for a single block.")
    facts = kv_facts(event)
    given = case.run.of(CpuKvSpace)
    if given and given[-1].kv_cache:
        facts["kv_space_gib"] = round(given[-1].kv_cache.gib, 4)
    summary = cause.summary
    if event.needed is None:
        summary = "One request of {max_model_len:,} tokens does not fit: the CPU KV cache holds {tokens:,} tokens."
    missing = []
    if assumed:
        summary += " 4.00 GiB is that backend's default, and nothing here speaks of a device."
        missing.append("whether this server runs on the CPU: the lines of its start")
    return cause.finding(
        *refused[:3], facts=facts, summary=summary, verdict="likely" if assumed else "confirmed", missing=missing
    )


CAUSE = Cause(
    code="cpu-kv-space-too-small",
    term="cpu_kv_space",
    title="CPU KV cache space too small",
    summary="One request of {max_model_len:,} tokens needs {needed} of KV cache; the CPU backend has"
    " {available} for it.",
    judge=judge,
    explains=("engine-core-failed", "engine-init-failed", "worker-failed", "worker-died", "engine-died", "engine-dead"),
    arises=(
        "One request of full length takes 2 x layers x KV heads x head size x bytes a value for each of "
        "its tokens. A model that allows 128k tokens, started without a length of its own, meets a space "
        "that was left at its default."
    ),
    verify="The next start prints a maximum concurrency of 1.00x or more.",
    useless=(
        "`--swap-space` and `--cpu-offload-gb` give this backend's KV cache nothing. A lower "
        "`--max-num-seqs` leaves the longest request as long."
    ),
)
