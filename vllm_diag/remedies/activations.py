"""Levers on what runs out outside the KV cache: activations, graphs, fragmentation."""

from __future__ import annotations

import math
from dataclasses import replace

from vllm_diag.quantities import GIB, MIB, human
from vllm_diag.remedies.model import HIGHEST_UTILIZATION, Context, Remedy, WontHelp
from vllm_diag.remedies.recheck import missing


def _half(current: object, default: int, floor: int) -> int:
    number = current if isinstance(current, int) and current > 0 else default
    # The largest power of two that is at most half.
    return max(floor, 1 << (max(2, number).bit_length() - 2))


def shorter_profile(context: Context) -> Remedy | None:
    """Shorten the context where a request larger than any device shows that its cost is quadratic."""
    if not context.absurd:
        return None
    current = context.setting("max_model_len")
    return Remedy(
        id="shorter-profile",
        kind="flag",
        flag="--max-model-len",
        op="lower",
        value=min(8192, current // 4) if isinstance(current, int) and current >= 2048 else 8192,
        applicability="choose",
        gain="an attention matrix grows with the square of the length: a quarter of it takes a sixteenth",
        cost="longer requests are refused",
        why="more was asked for at once than the device has; a backend without full matrices is the other way",
    )


def _enough_tokens(context: Context, current: object) -> int | None:
    """Return the batch, in steps of 256 tokens, whose activations leave what is missing; None where no line tells.

    Activations grow with the tokens of a step, but for a part that does not: half is taken for sure.
    """
    activations, short = context.diagnosis.ledger.main.activations, missing(context)
    if not isinstance(current, int) or activations is None or not short or activations.amount.low <= 0:
        return None
    value = int(current * (1 - 2 * short / activations.amount.low)) // 256 * 256
    return value if 512 <= value < current else None


def fewer_batched_tokens(context: Context) -> Remedy | None:
    """Lower the tokens of one step."""
    if context.absurd:
        return None
    current = context.batched_tokens
    value = _enough_tokens(context, current) or _half(current, 4096, 512)
    length = context.setting("max_model_len")
    if context.diagnosis.run.engine == "v0" and isinstance(length, int):
        # V0 without chunked prefill refuses a batch below the context length, its default.
        if not isinstance(current, int):
            return None
        value = max(value, length)
    if isinstance(current, int) and value >= current:
        return None
    return Remedy(
        id="fewer-batched-tokens",
        kind="flag",
        flag="--max-num-batched-tokens",
        op="lower",
        value=value,
        applicability="choose",
        gain="activations of a step shrink with the tokens in it",
        cost="longer time to the first token for long prompts",
        why=f"{current} in force" if current else "the value in force is not in the log; it is 2048 or more by default",
    )


def fewer_batched_tokens_first(context: Context) -> Remedy | None:
    """Lower the tokens of one step where activations are what ate the share."""
    return fewer_batched_tokens(context) if context.finding.term == "activations" else None


def _most_running(context: Context) -> int | None:
    run = context.diagnosis.run
    seen = run.pressure.peak_running or run.metrics.get("num_requests_running")
    return int(seen) if seen else None


def _only_waiting(context: Context) -> bool:
    """Whether requests wait for room in the cache and none was pushed out: fewer at once gain nothing."""
    return context.finding.code == "kv-cache-pressure" and not context.finding.facts.get("preemptions")


def fewer_sequences(context: Context) -> Remedy | None:
    """Lower the number of sequences of one step."""
    if context.absurd:
        return None
    current = context.finding.facts.get("num_reqs") or context.setting("max_num_seqs")
    value = _half(current, 256, 8)
    running = _most_running(context) if context.finding.code == "kv-cache-pressure" else None
    if running and running > 1:
        # A cap above what ran at once changes nothing.
        value = min(value, max(1, int(running * 0.8)))
    if isinstance(current, int) and value >= current:
        return None
    stated = "num_reqs" in context.finding.facts
    return Remedy(
        id="fewer-sequences",
        kind="flag",
        flag="--max-num-seqs",
        op="lower",
        value=value,
        applicability="as-is" if stated else "situational" if _only_waiting(context) else "choose",
        gain="logits, sampler and graphs shrink with the number of sequences"
        if context.finding.term != "kv_cache"
        else "fewer requests share the cache, so that those running can finish",
        cost="fewer requests at once; the others wait",
        why=f"{current} in force" if current else "256 to 1024 are the defaults",
    )


def lower_utilization(context: Context) -> Remedy | None:
    """Leave more of the device outside the KV cache."""
    event, used, total = context.oom(), context.utilization, context.total
    if context.on_cpu or used is None or context.absurd or context.cache_size_given or not context.kv_cache_allocated:
        return None
    missing = None
    if event and event.tried and event.free and total:
        missing = max(event.tried.high - event.free.low, 256 * MIB)
        if missing > total.low / 3:
            return None
    step = (missing / total.low) if missing and total else 0.04
    value = math.floor((used - step - 0.005) * 100) / 100
    if value < 0.3:
        return None
    return Remedy(
        id="lower-utilization",
        kind="flag",
        flag="--gpu-memory-utilization",
        op="lower",
        value=value,
        applicability="as-is" if missing and context.utilization_known else "choose",
        gain=f"{human((used - value) * total.low)} outside the KV cache" if total else "room outside the KV cache",
        cost="as much less KV cache",
        why=(f"{human(missing)} are missing, with a margin; " if missing else "") + context.utilization_words,
    )


def ask_for_less_of_shared_memory(context: Context) -> Remedy | None:
    """Ask for less where the device's memory is the host's, so that what is free is not all to be had."""
    event = context.oom()
    if event is None or event.api == "CUDA" or event.total is None or event.allocated is None:
        return None
    if event.allocated.bytes < event.total.bytes * 0.75:
        return None
    remedy = lower_utilization(context)
    return remedy and replace(
        remedy,
        id="less-of-shared-memory",
        applicability="situational",
        why="on devices that share the host's memory the free figure is a ceiling that the kernel need not honour",
    )


def no_lower_utilization_before_the_cache(context: Context) -> WontHelp | None:
    """Say that the share bounds nothing while there is no KV cache yet."""
    if context.kv_cache_allocated or context.on_cpu:
        return None
    return WontHelp(
        "--gpu-memory-utilization",
        "lower",
        "the dummy run comes before the KV cache is sized; a smaller share frees nothing for it",
    )


def smaller_given_cache(context: Context) -> Remedy | None:
    """Lower a KV cache size that was given in bytes."""
    given = context.setting("kv_cache_memory_bytes")
    event = context.oom()
    if given is None and not context.diagnosis.run.has("kv-cache-size-set"):
        return None
    value = None
    if isinstance(given, int) and event and event.tried and event.free:
        value = max(0, given - max(event.tried.high - event.free.low, 0) - GIB) or None
    return Remedy(
        id="smaller-given-cache",
        kind="flag",
        flag="--kv-cache-memory-bytes",
        op="lower",
        value=value,
        applicability="as-is" if value else "choose",
        gain="what was given is more than the device has left",
        cost="as much less KV cache",
        why="the size was given by hand, so nothing measured whether it fits",
    )


def no_higher_utilization_for_peaks(context: Context) -> WontHelp | None:
    """Say why a larger share makes a peak worse."""
    return WontHelp(
        "--gpu-memory-utilization", "raise", "what ran out is outside the KV cache; a larger share leaves it less room"
    )


def no_defragmentation(context: Context) -> WontHelp | None:
    """Say how little expandable segments could gain."""
    event = context.oom()
    if event is None or event.unallocated is None or event.tried is None:
        return None
    if event.unallocated.high >= event.tried.low:
        return None
    return WontHelp(
        "PYTORCH_CUDA_ALLOC_CONF",
        "set",
        f"only {event.unallocated} is reserved and unused, and {event.tried} was asked for",
    )


def expandable_segments(context: Context) -> Remedy | None:
    """Let the allocator join its pieces, where much lies unused in them."""
    event = context.oom()
    if event is None or event.unallocated is None or event.tried is None or event.tried.bytes <= 0:
        return None
    if event.unallocated.low < event.tried.high:
        return None
    return Remedy(
        id="expandable-segments",
        kind="env",
        flag="PYTORCH_CUDA_ALLOC_CONF",
        op="set",
        value="expandable_segments:True",
        # A share above what any device can spare is the first thing to change.
        applicability="choose" if _share_too_high(context) else "as-is",
        gain=f"up to {event.unallocated} that is reserved in pieces",
        cost="none known for serving; not with sleep mode's allocator",
        why=f"{event.unallocated} is reserved and unused, more than the {event.tried} asked for",
    )


def _share_too_high(context: Context) -> bool:
    return context.utilization_known and (context.utilization or 0) > HIGHEST_UTILIZATION


def fewer_images(context: Context) -> Remedy | None:
    """Limit what one request may bring to a multimodal model."""
    run = context.diagnosis.run
    event = context.oom()
    absurd = event and event.tried and event.total and event.tried.low > event.total.high
    frames = " ".join(event.at.frames) if event else ""
    if not (run.has("encoder-budget") or "multimodal" in frames or "vit" in frames or "vision" in frames):
        return None
    return Remedy(
        id="smaller-media",
        kind="flag",
        flag="--limit-mm-per-prompt",
        op="lower",
        value=None,
        applicability="choose" if not absurd else "as-is",
        gain="the encoder's activations shrink with the number and size of media",
        cost="requests with more or larger media are refused",
        why="the dummy run feeds the encoder with the largest media allowed",
    )
