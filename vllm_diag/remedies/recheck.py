"""Each remedy, computed once more: what is left after it, and whether the check that failed then passes.

The check is a sum: what is needed against what there is, both with the rounding they were
printed with. A remedy adds to one side or takes from the other by an interval; what is left is
an interval too. A remedy whose best case is still short is not offered by itself: such levers
are joined, the cheapest first, until the worst case of the sum is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from vllm_diag.event_types import KvCacheSize
from vllm_diag.quantities import GIB, MIB, human
from vllm_diag.remedies.model import Context, Remedy


@dataclass(frozen=True, slots=True)
class Span:
    """A number of bytes that is not exactly known: at least ``low``, at most ``high``."""

    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Span) -> Span:
        return Span(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Span) -> Span:
        """Return the product of two spans that are not negative."""
        return Span(self.low * other.low, self.high * other.high)


NOTHING, ONE = Span(0, 0), Span(1, 1)
UNKNOWN = float("inf")


@dataclass(frozen=True, slots=True)
class Change:
    """What a remedy does to a gate: memory that it frees, and what the need is multiplied by."""

    freed: Span = NOTHING
    need: Span = ONE

    def then(self, other: Change) -> Change:
        """Return both changes together."""
        return Change(self.freed + other.freed, self.need * other.need)


@dataclass(frozen=True, slots=True)
class Gate:
    """The check that failed: ``need`` must not be larger than ``there``; both in bytes."""

    name: str
    need: Span
    there: Span

    def left(self, change: Change = Change()) -> Span:
        """Return what is left after ``change``; negative is what is still missing."""
        return self.there + change.freed - self.need * change.need


def gate(context: Context) -> Gate | None:
    """Return the check that the finding is about, None where no line gives both of its sides."""
    refused, oom = context.refused(), context.oom()
    if refused and refused.needed and refused.available:
        return Gate(
            "KV cache of one request",
            Span(refused.needed.low, refused.needed.high),
            Span(refused.available.low, refused.available.high),
        )
    if oom and oom.tried and oom.free and not context.absurd:
        return Gate("the allocation", Span(oom.tried.low, oom.tried.high), Span(oom.free.low, oom.free.high))
    kv = context.diagnosis.ledger.main.kv_cache
    if context.finding.code == "no-kv-cache-memory" and kv and kv.amount.high < 0:
        return Gate("the first block of KV cache", Span(0, 0), Span(kv.amount.low, kv.amount.high))
    return None


def missing(context: Context) -> int | None:
    """Return how many bytes the check that failed is short of, at the pessimistic end; None when not stated."""
    failed = gate(context)
    return max(0, math.ceil(-failed.left(Change()).low)) if failed else None


# --- what each lever changes ------------------------------------------------------------------------

_Effect = Callable[[Context, Remedy], Change | None]


def _shorter(context: Context, remedy: Remedy) -> Change | None:
    refused = context.refused()
    if refused is None or not isinstance(remedy.value, int) or not (refused.needed and refused.available):
        return None
    # The length is the engine's own bound, or was worked out from the low end of the rounding.
    most = max(0, refused.available.low) / refused.needed.high
    return Change(need=Span(0, min(remedy.value / refused.max_model_len, most)))


def _fp8(context: Context, remedy: Remedy) -> Change | None:
    # States of recurrent layers keep their type, and some formats hold scales beside the bytes.
    return Change(need=Span(0.5, 0.5)) if context.refused() else None


def _larger_share(context: Context, remedy: Remedy) -> Change | None:
    used, least = context.utilization, context.smallest_total
    if used is None or least is None or not isinstance(remedy.value, float):
        return None
    gained = (remedy.value - used) * least
    most = (remedy.value - used) * context.total.high if context.total else UNKNOWN
    return Change(freed=Span(gained, most))


def _quantized(context: Context, remedy: Remedy) -> Change | None:
    weights = context.diagnosis.ledger.main.weights
    if weights is None or context.finding.code == "weights-do-not-fit":
        return None
    # 8 bits: embeddings and norms keep 16; 4 bits with their scales: about 0.7 of the whole.
    return Change(freed=Span(weights.amount.low * 0.35, weights.amount.high * 0.72))


def _devices(context: Context, remedy: Remedy) -> Change | None:
    if not isinstance(remedy.value, int) or context.finding.code == "weights-do-not-fit":
        return None
    share = context.parallel / remedy.value
    weights = context.diagnosis.ledger.main.weights
    if weights is None:
        return Change(Span(0, UNKNOWN), Span(share, 1))
    # A rank keeps its norms and buffers, NCCL takes about half a GiB, and KV heads that cannot be
    # split further are kept on each rank (MLA, one KV head).
    least = weights.amount.low * (1 - share) * 0.9 - GIB / 2
    return Change(Span(least, weights.amount.high * (1 - share)), Span(share, 1))


def _no_graphs(context: Context, remedy: Remedy) -> Change | None:
    graphs = context.diagnosis.ledger.main.cuda_graphs
    return Change(freed=Span(graphs.amount.low, graphs.amount.high)) if graphs else None


def _offloaded(context: Context, remedy: Remedy) -> Change | None:
    weights = context.diagnosis.ledger.main.weights
    if not isinstance(remedy.value, int):
        return None
    given = remedy.value * GIB
    return Change(freed=Span(given * 0.9, given if weights is None else min(given, weights.amount.high)))


def _smaller_share(context: Context, remedy: Remedy) -> Change | None:
    used, total = context.utilization, context.total
    if used is None or total is None or not isinstance(remedy.value, float):
        return None
    return Change(freed=Span((used - remedy.value) * total.low, (used - remedy.value) * total.high))


def _smaller_batch(context: Context, remedy: Remedy) -> Change | None:
    activations = context.diagnosis.ledger.main.activations
    current = context.batched_tokens
    if activations is None or current is None or not isinstance(remedy.value, int) or activations.amount.low <= 0:
        return None
    share = 1 - remedy.value / current
    return Change(freed=Span(activations.amount.low * share / 2, activations.amount.high * share))


_EFFECTS: dict[str, _Effect] = {
    "shorter-context": _shorter,
    "fp8-kv-cache": _fp8,
    "higher-utilization": _larger_share,
    "quantized-weights": _quantized,
    "more-devices": _devices,
    "no-cuda-graphs": _no_graphs,
    "offload-weights": _offloaded,
    "lower-utilization": _smaller_share,
    "fewer-batched-tokens": _smaller_batch,
}
# Cheapest first: what costs no accuracy and no hardware, then accuracy, then devices, then speed.
_CHEAPEST_FIRST = (
    "higher-utilization", "fewer-batched-tokens", "fp8-kv-cache", "no-cuda-graphs", "quantized-weights", "more-devices",
    "offload-weights",
)  # fmt: skip


def recheck(context: Context, remedies: Iterable[Remedy]) -> list[Remedy]:
    """Return the remedies that can pass the check, each saying what is left after it.

    Those that cannot by themselves are joined into one, behind the first that can.
    """
    remedies = list(remedies)
    failed = gate(context)
    if failed is None:
        return [_then(context, remedy) for remedy in remedies]
    kept: list[Remedy] = []
    short: list[tuple[Remedy, Change]] = []
    for remedy in remedies:
        effect = _EFFECTS.get(remedy.id)
        change = effect(context, remedy) if effect else None
        if change is None:
            kept.append(_then(context, remedy))
        elif failed.left(change).high < 0:
            short.append((remedy, change))
        else:
            kept.append(_then(context, replace(remedy, after=_words(failed, change))))
    together = _joined(failed, short)
    return [*kept, together] if together else kept


def _words(failed: Gate, change: Change) -> str:
    """Say what is left, as the pessimistic end has it."""
    left = failed.left(change)
    if 0 <= left.low < MIB:
        return f"then {failed.name} just fits"
    if left.low >= 0:
        return (
            f"then at least {human(left.low)} are left for {failed.name}"
            if left.low
            else f"just enough for {failed.name}"
        )
    if left.high == UNKNOWN:
        return f"whether that is enough for {failed.name} depends on what no line states"
    return f"between {human(-left.low)} too little and {human(left.high)} to spare for {failed.name}"


def _joined(failed: Gate, short: list[tuple[Remedy, Change]]) -> Remedy | None:
    """Return the cheapest levers that together pass in the worst case, None when not even all do."""

    def enough(levers: list[tuple[Remedy, Change]]) -> bool:
        return failed.left(_all(change for _, change in levers)).low >= 0

    known = [pair for pair in short if pair[0].id in _CHEAPEST_FIRST]
    chosen: list[tuple[Remedy, Change]] = []
    for pair in sorted(known, key=lambda pair: _CHEAPEST_FIRST.index(pair[0].id)):
        if not enough(chosen):
            chosen.append(pair)
    if not enough(chosen):
        return None
    for pair in list(chosen):
        without = [other for other in chosen if other is not pair]
        chosen = without if enough(without) else chosen
    levers = [remedy for remedy, _ in chosen]
    return Remedy(
        id="together",
        kind="action",
        flag=None,
        op="set",
        value=" ".join(f"{lever.flag} {'' if lever.value is None else lever.value}".rstrip() for lever in levers),
        applicability="choose",
        gain="none of them is enough by itself, together they are",
        cost="; ".join(lever.cost for lever in levers),
        why=f"{human(-failed.left(Change()).low)} are missing for {failed.name}",
        after=_words(failed, _all(change for _, change in chosen)),
    )


def _all(changes: Iterable[Change]) -> Change:
    total = Change()
    for change in changes:
        total = total.then(change)
    return total


# --- the next gate ------------------------------------------------------------------------------------


def _then(context: Context, remedy: Remedy) -> Remedy:
    """Return a remedy that takes memory from the KV cache with what that leaves for one request."""
    if remedy.id not in ("lower-utilization", "smaller-given-cache"):
        return remedy
    size = next((e for e in context.diagnosis.run.of(KvCacheSize)), None)
    kv, total, used = context.diagnosis.ledger.main.kv_cache, context.total, context.utilization
    length = context.setting("max_model_len") or (size.max_model_len if size else None)
    if size is None or kv is None or not isinstance(length, int) or not isinstance(remedy.value, float):
        return remedy
    if total is None or used is None or size.tokens <= 0:
        return remedy
    left = kv.amount.low - (used - remedy.value) * total.high
    tokens = int(left / (kv.amount.high / size.tokens))
    if tokens < length:
        longest = max(0, tokens // context.block_size * context.block_size)
        after = f"the KV cache then holds about {longest:,} tokens: --max-model-len {longest} goes with it"
        return (
            replace(remedy, after=after, applicability="choose")
            if longest
            else replace(remedy, applicability="situational")
        )
    return replace(
        remedy, after=f"the KV cache then holds about {tokens:,} tokens, enough for one request of {length:,}"
    )
