"""Levers on the KV cache and on what leaves room for it."""

from __future__ import annotations

import math
import re

from vllm_diag.event_types import KvCacheTooSmall
from vllm_diag.quantities import GIB, human
from vllm_diag.releases import counts_null_block
from vllm_diag.remedies.model import HIGHEST_UTILIZATION, Applicability, Context, Remedy, WontHelp
from vllm_diag.remedies.recheck import missing


def longest_length(context: Context) -> int | None:
    """Return the largest max_model_len that starts and can be served, None when not certain.

    Uses the bound the engine printed where there is one, else available / (needed / length)
    at the pessimistic end of both roundings. To 0.28 the start check forgets the null block,
    so one block is taken off.
    """
    event = context.refused()
    if event is None:
        return None
    block = context.block_size
    spare = 0 if context.release and counts_null_block(context.release) else block
    if event.tokens is not None:
        # V0 wants a free block beside the last, partly filled one (can_append_slots): a request that
        # fills the cache is preempted and computed anew at each token.
        length = event.tokens - block if event.tokens > 2 * block else event.tokens
        return length if length < event.max_model_len else None
    if event.estimated_max_len is not None and estimate_is_whole(event):
        return max(event.estimated_max_len - spare, 0) or None
    if event.needed is None or event.available is None or event.needed.high <= 0:
        return None
    fits = event.available.low * event.max_model_len // event.needed.high
    if counts_null_block(context.release):
        spare = block
    length = int(fits) // block * block - spare
    return length if length >= block else None


def estimate_is_whole(event: KvCacheTooSmall) -> bool:
    """Return whether the printed bound can be the whole number, and not one cut off at a log's end.

    Windows and states make the bound of a hybrid model larger or smaller than in proportion,
    by a factor of a few; a lost digit makes it ten times smaller.
    """
    if event.estimated_max_len is None:
        return False
    if event.needed is None or event.available is None or event.needed.low <= 0 or event.available.low <= 0:
        return True
    in_proportion = event.available.low * event.max_model_len / event.needed.high
    return event.estimated_max_len * 8 > in_proportion or event.needed.bytes < GIB // 8


def shorter_context(context: Context) -> Remedy | None:
    """Lower max_model_len to what fits."""
    event, length = context.refused(), longest_length(context)
    if event is None or length is None or length >= event.max_model_len:
        return None
    return Remedy(
        id="shorter-context",
        kind="flag",
        flag="--max-model-len",
        op="lower",
        value=length,
        applicability="as-is" if length >= 256 else "situational",
        gain=f"starts with room for one request of {length:,} tokens; {_round_down(length):,} is a rounder choice",
        cost=f"requests longer than {length:,} tokens are refused",
        why=_how_known(context, event, length),
    )


def _how_known(context: Context, event: KvCacheTooSmall, length: int) -> str:
    """Say where an advised length comes from."""
    bound = (event.estimated_max_len if estimate_is_whole(event) else None) or event.tokens
    if bound is None:
        return (
            f"{event.available} / ({event.needed} / {event.max_model_len:,} tokens) at the low end of the rounding,"
            f" less one block of {context.block_size}"
        )
    if bound == length:
        return f"the engine printed this bound, {bound:,}"
    taken = f"the engine printed {bound:,}; one block of {bound - length} tokens is taken off, since "
    if event.tokens is not None:
        return taken + "a request that fills the cache is preempted again and again"
    return taken + "no request may use it and this release does not count it"


def _round_down(length: int) -> int:
    """Return the largest multiple of 1024 (or of 128, when small) that is not above ``length``."""
    step = 1024 if length >= 4096 else 128
    return max(length // step * step, min(length, 128))


def fp8_kv_cache(context: Context) -> Remedy | None:
    """Store the KV cache in 8 bits: half the bytes of a token."""
    current = str(context.setting("kv_cache_dtype") or "auto")
    if context.on_cpu or "8" in current or "4" in current:
        return None
    event = context.refused()
    gain = "halves what a token takes: twice as many tokens in the same memory"
    applicability: Applicability = "choose"
    if event and event.needed and event.available:
        half = event.needed.high // 2
        if half <= event.available.low:
            gain = f"one request then needs about {human(half)}, and {event.available} is there"
        else:
            gain = f"one request then needs about {human(half)}; not enough by itself"
            applicability = "situational"
    return Remedy(
        id="fp8-kv-cache",
        kind="flag",
        flag="--kv-cache-dtype",
        op="set",
        value="fp8",
        applicability=applicability,
        gain=gain,
        cost="a little accuracy; needs a GPU and an attention backend that support it",
        why="8 bits instead of 16 for each key and value",
    )


def higher_utilization(context: Context) -> Remedy | None:
    """Raise gpu_memory_utilization, where the share still unused is enough."""
    used = context.utilization
    if context.on_cpu or used is None or used >= HIGHEST_UTILIZATION:
        return None
    value = _enough_utilization(context)
    if value is None:
        return None
    total, free = context.total, context.diagnosis.ledger.main.free
    if free and total and free.amount.low < total.low * value:
        return None
    least = context.smallest_total
    return Remedy(
        id="higher-utilization",
        kind="flag",
        flag="--gpu-memory-utilization",
        op="raise",
        value=value,
        applicability="as-is" if total else "choose",
        gain=f"at least {human((value - used) * least)} more for the KV cache"
        if least
        else "a larger share of the device",
        cost="less room for graphs, peaks and other processes",
        why=context.utilization_words,
    )


def _enough_utilization(context: Context) -> float | None:
    """Return the utilization that closes the gap, None when none up to 0.95 does for certain."""
    used, least = context.utilization or 0.9, context.smallest_total
    event = context.refused()
    if event is None:
        short = _overspent(context)
        if short and least and short > (HIGHEST_UTILIZATION - used) * least:
            return None
        return HIGHEST_UTILIZATION
    if event.needed is None or event.available is None or not least:
        return None
    short = event.needed.high - event.available.low
    value = math.ceil((used + short / least) * 100) / 100
    return value if value <= HIGHEST_UTILIZATION else None


def _overspent(context: Context) -> int:
    """Return by how many bytes the budget is overspent, 0 when that is not printed."""
    kv = context.diagnosis.ledger.main.kv_cache
    return max(0, -kv.amount.bytes) if kv else 0


def no_higher_utilization_overspent(context: Context) -> WontHelp | None:
    """Say with the sum why a larger share does not bring the KV cache above zero."""
    used, least, short = context.utilization, context.smallest_total, _overspent(context)
    if context.on_cpu or used is None or not short or not least or short <= (HIGHEST_UTILIZATION - used) * least:
        return None
    gain = human((HIGHEST_UTILIZATION - used) * least)
    return WontHelp(
        "--gpu-memory-utilization",
        "raise",
        f"from {used:g} to {HIGHEST_UTILIZATION} frees about {gain} on a device that its known terms fill;"
        f" {human(short)} are overspent",
    )


# Without a stated capacity: a larger device than this, or than twice what the terms known fill,
# is not taken for possible.
_LARGE_DEVICE = 128 * GIB


def no_higher_utilization(context: Context) -> WontHelp | None:
    """Say with the sum why a higher utilization does not close the gap."""
    used, total, event = context.utilization, context.total, context.refused()
    if context.on_cpu or event is None or used is None or event.needed is None or event.available is None:
        return None
    short = event.needed - event.available
    if total is not None:
        most = human((1 - used) * total.bytes)
        return WontHelp(
            "--gpu-memory-utilization",
            "raise",
            f"even 1.00 frees {most} of the {short} missing ({total} device at {used:g})",
        )
    if used >= HIGHEST_UTILIZATION:
        return WontHelp("--gpu-memory-utilization", "raise", f"{used:g} is in force; there is nothing left to take")
    size = short.low / (HIGHEST_UTILIZATION - used)
    known = context.smallest_total
    if size < (2 * known if known else _LARGE_DEVICE):
        return None
    why = f"from {used:g} to {HIGHEST_UTILIZATION} frees the missing {short} only on a device of {human(size)} or more"
    if known:
        why += f"; weights and KV cache fill one of about {human(known)}"
    return WontHelp("--gpu-memory-utilization", "raise", why)


# What is missing below this share of the need is closed by a shorter context; a smaller format
# or more devices would be out of proportion.
_SMALL_GAP = 0.05


def small_gap(context: Context) -> bool:
    """Return whether so little is missing that only cheap levers are worth it."""
    event = context.refused()
    if event is None:
        return False
    if event.needed is not None and event.available is not None and event.needed.bytes > 0:
        return event.available.bytes >= (1 - _SMALL_GAP) * event.needed.bytes
    return event.tokens is not None and event.tokens >= (1 - _SMALL_GAP) * event.max_model_len


def quantized_weights(context: Context) -> Remedy | None:
    """Use a checkpoint with fewer bits a weight."""
    if _quantized_already(context) or small_gap(context) or context.absurd:
        return None
    if context.finding.term == "gpu_budget":
        # The share is what is too small, not the device.
        return None
    weights = context.diagnosis.ledger.main.weights
    gain = "a half (8 bits) to three quarters (4 bits) of the weights' memory"
    if weights:
        half, most = human(weights.amount.bytes / 2), human(weights.amount.bytes * 0.7)
        gain = f"about {half} (8 bits) to {most} (4 bits) on each rank"
    return Remedy(
        id="quantized-weights",
        kind="flag",
        flag="--quantization",
        op="set",
        value="fp8" if not context.on_cpu else None,
        applicability="choose",
        gain=gain,
        cost="some accuracy; for 4 bits another checkpoint (AWQ, GPTQ)",
        why="16-bit weights are the largest term of most budgets",
    )


# Names of formats in a model's name, and of the modules that load such weights.
_QUANTIZED = re.compile(
    r"awq|gptq|marlin|fp[48]\b|fp4|fp8|nvfp4|mxfp\d|int[48]|w\da\d|gguf|bnb|bitsandbytes|[48]-?bit|exl2|compressed_tensors"
    r"|modelopt|quark",
    re.IGNORECASE,
)


def _quantized_already(context: Context) -> bool:
    if context.setting("quantization") not in (None, "None"):
        return True
    event = context.oom()
    loading = " ".join(event.at.frames[-4:]) if event else ""
    return bool(_QUANTIZED.search(f"{context.diagnosis.run.model or ''} {loading}"))


def shorter_than_dropped(context: Context) -> Remedy | None:
    """Refuse requests as long as the one that no cache could hold."""
    tokens = context.finding.facts.get("prompt_tokens")
    if not isinstance(tokens, int) or context.refused() is not None:
        return None
    value = (tokens - 1) // context.block_size * context.block_size
    return Remedy(
        id="shorter-than-dropped",
        kind="flag",
        flag="--max-model-len",
        op="lower",
        value=value or None,
        applicability="choose",
        gain="such a request is refused with an error instead of dropped without a word",
        cost=f"requests of {tokens:,} tokens stay impossible; how many fit is not in the log",
        why=f"the whole cache holds fewer than {tokens:,} tokens",
    )


# No machine has more devices than this for one model.
_MOST_DEVICES = 64


def _next_split(context: Context) -> int | None:
    """Return the next larger number of devices: twice as many, or the least that divides the heads where known."""
    heads = context.config.attention_heads if context.config else None
    if not heads:
        return context.parallel * 2
    sizes = range(context.parallel + 1, _MOST_DEVICES + 1)
    return next((size for size in sizes if heads % size == 0), None)


def more_devices(context: Context) -> Remedy | None:
    """Share the model among more devices."""
    if context.on_cpu or small_gap(context) or context.absurd or context.finding.term == "gpu_budget":
        return None
    value = _next_split(context)
    if value is None:
        return None
    return Remedy(
        id="more-devices",
        kind="flag",
        flag="--tensor-parallel-size",
        op="raise",
        value=value,
        applicability="choose",
        gain=f"weights and KV cache of a rank shrink to about {context.parallel}/{value}",
        cost=f"{value} devices" + ("" if context.config else "; the number must divide the attention heads"),
        why=f"{context.parallel} in force",
    )


def eager(context: Context) -> Remedy | None:
    """Capture no CUDA graphs."""
    if context.on_cpu or context.setting("enforce_eager") is True or context.diagnosis.run.has("eager-mode"):
        return None
    if context.finding.code in ("kv-cache-too-small", "no-kv-cache-memory") and not context.graphs_in_budget:
        return None
    if context.finding.code == "activation-oom" and not context.kv_cache_allocated:
        # The dummy run comes before any graph is captured.
        return None
    graphs = context.diagnosis.ledger.main.cuda_graphs
    return Remedy(
        id="no-cuda-graphs",
        kind="flag",
        flag="--enforce-eager",
        op="add",
        value=None,
        applicability="situational",
        gain=f"{graphs.amount} of CUDA graphs" if graphs else "the memory of CUDA graphs, mostly 0.5 to 3 GiB",
        cost="slower decoding, most of all with small batches",
        why="graphs are kept in device memory for each batch size",
    )


def offload_weights(context: Context) -> Remedy | None:
    """Keep part of the weights in host memory."""
    weights = context.diagnosis.ledger.main.weights
    if context.on_cpu or context.setting("cpu_offload_gb") or small_gap(context):
        return None
    if context.oom() is None and weights is None:
        return None
    short = missing(context)
    # What is offloaded comes in whole modules, and one of them is on its way at any time.
    value = max(4, math.ceil((short or 0) / 0.9 / GIB) + 1)
    if weights and value * GIB > weights.amount.high * 0.6:
        # Most of the model on the other side of the bus is no way to serve it.
        return None
    return Remedy(
        id="offload-weights",
        kind="flag",
        flag="--cpu-offload-gb",
        op="set",
        value=value,
        applicability="situational",
        gain=f"{value} GiB of weights on each rank",
        cost="every step moves them over the bus: many times slower; takes as much host RAM",
        why="the last resort when neither devices nor a smaller format are at hand",
    )
