"""What makes a plan fit, the cheapest first; every lever is assessed anew with its changes.

Settings cost least, then precision of the cache, a shorter context, precision of the weights,
and devices most. Where one change is not enough, two are tried together, then three and four.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from vllm_diag.cards import Card
from vllm_diag.flags import choices, spelling
from vllm_diag.kv_arithmetic import CacheDtypeError, ConfigError, LayoutRefused, ModelConfig
from vllm_diag.planning.assess import Planner, longest_where
from vllm_diag.planning.defaults import tensor_sizes
from vllm_diag.planning.model import Assessment, Change, Lever, Options, Refused
from vllm_diag.quantities import GIB, human
from vllm_diag.releases import NEWEST, Release

_HIGHEST_UTILIZATION = 0.95
_FEW_REQUESTS = 64
_FEW_TOKENS = 2048
_MOST_LEVERS = 6
_MOST_RANKS = 16
_NOT_HERE = (Refused, ConfigError, LayoutRefused, CacheDtypeError)


@dataclass(frozen=True, slots=True)
class _Step:
    """One change: ``kind`` tells those apart that exclude each other, ``weight`` orders them."""

    kind: str
    weight: float
    change: Change
    cost: str
    changed: tuple[tuple[str, object], ...]

    def on(self, options: Options) -> Options:
        return replace(options, **dict(self.changed))  # type: ignore[arg-type]


def levers(planner: Planner, options: Options, now: Assessment) -> tuple[Lever, ...]:
    """Return up to six levers with which the plan fits at the pessimistic end, the cheapest first.

    () where nothing offered here does. A lever holds another only where that one is not enough.
    """
    steps = tuple(_steps(planner, options, now))
    found: list[tuple[float, Lever, frozenset[_Step]]] = []
    for size in range(1, 5):
        for chosen in _sets(steps, size):
            if len(found) >= _MOST_LEVERS or any(_dominated(chosen, held) for _, _, held in found):
                continue
            lever = _lever(planner, options, chosen)
            if lever is not None:
                found.append((_weight(chosen), lever, frozenset(chosen)))
        if size > 1 and len(found) > 1:
            break
    shorter = _shorter(planner, options, now)
    if shorter is not None:
        # A length that was asked for is given up last.
        found.append((3.0 if options.max_model_len is None else 8.0, shorter, frozenset()))
    found.sort(key=lambda entry: entry[0])
    return tuple(lever for _, lever, _ in found)


def _weight(chosen: Sequence[_Step]) -> float:
    return sum(step.weight for step in chosen) + 0.5 * (len(chosen) - 1)


def _sets(steps: Sequence[_Step], size: int) -> list[tuple[_Step, ...]]:
    sets = [s for s in combinations(steps, size) if len({step.kind for step in s}) == size]
    return sorted(sets, key=lambda chosen: sum(step.weight for step in chosen))


def _dominated(chosen: Sequence[_Step], held: frozenset[_Step]) -> bool:
    """Whether a lever at hand is a part of ``chosen``, or the same with a smaller step of a kind."""
    here = {step.kind: step.weight for step in chosen}
    return all(here.get(step.kind, -1.0) >= step.weight for step in held)


def _lever(planner: Planner, options: Options, chosen: Sequence[_Step]) -> Lever | None:
    changed = options
    for step in chosen:
        changed = step.on(changed)
    try:
        assessment = planner.assess(changed)
    except _NOT_HERE:
        return None
    if assessment.verdict != "fits":
        return None
    cost = "; ".join(dict.fromkeys(step.cost for step in chosen if step.cost))
    return Lever(tuple(step.change for step in chosen), cost, changed, assessment)


def _shorter(planner: Planner, options: Options, now: Assessment) -> Lever | None:
    """Return a shorter context by itself: the longest that is served, for as many requests as asked."""

    def fits(length: int) -> bool:
        return planner.assess(replace(options, max_model_len=length)).verdict == "fits"

    longest = longest_where(fits, now.settings.max_model_len - 1)
    if longest < 1024:
        return None
    length = round_down(longest)
    changed = replace(options, max_model_len=length)
    exact = f"{longest:,} is the longest that fits for certain" if length != longest else ""
    change = _flag("--max-model-len", str(length), options.release, exact)
    return Lever((change,), "longer requests are refused", changed, planner.assess(changed))


def round_down(length: int) -> int:
    """Return the largest multiple of 1024 (below 4096 of 128) that is not above ``length``."""
    step = 1024 if length >= 4096 else 128
    return length // step * step or length


def _flag(flag: str, value: str, release: Release | None, text: str = "") -> Change:
    found = spelling(flag, release or NEWEST)
    return Change(found.text if found else flag, value, text)


def _steps(planner: Planner, options: Options, now: Assessment) -> Iterator[_Step]:
    card, config, release = planner.card, planner.config, options.release or NEWEST
    if card.device != "cpu" and options.kv_cache_memory is None:
        yield from _utilization(card, options, now, release)
    if card.device == "cpu":
        yield from _cpu_space(card, options, now)
    yield from _smaller_steps(options, now, release)
    if card.device != "cpu" and not options.enforce_eager:
        change = _flag("--enforce-eager", "", release)
        yield _Step("eager", 2.4, change, "no CUDA graphs: slower decoding", (("enforce_eager", True),))
    yield from _eight_bits(card, config, options, release)
    yield from _fewer_bits(card, config, options, release)
    yield from _devices(config, options, now, release)


def _utilization(card: Card, options: Options, now: Assessment, release: Release) -> Iterator[_Step]:
    outside = now.outside.high if now.outside.high else GIB // 4
    value = min(_HIGHEST_UTILIZATION, math.floor((1 - outside / card.low) * 100) / 100)
    too_high = now.room.low < now.outside.high
    if value > now.settings.utilization or (too_high and value > 0):
        change = _flag("--gpu-memory-utilization", f"{value:g}", release)
        cost = "a smaller KV cache" if too_high else "less room for other processes on the device"
        yield _Step("share", 1.0, change, cost, (("utilization", value),))


def _cpu_space(card: Card, options: Options, now: Assessment) -> Iterator[_Step]:
    value = -(-now.goal // GIB)
    if value * now.settings.ranks * GIB < card.low:
        change = Change("VLLM_CPU_KVCACHE_SPACE", str(value), "")
        cost = f"{value} GiB of host memory for each rank"
        yield _Step("space", 1.0, change, cost, (("kv_cache_memory", value * GIB),))


def _smaller_steps(options: Options, now: Assessment, release: Release) -> Iterator[_Step]:
    least = max(_FEW_REQUESTS, math.ceil(options.want_concurrency or 0))
    if now.settings.max_num_seqs > least:
        change = _flag("--max-num-seqs", str(least), release)
        yield _Step("requests", 1.5, change, f"at most {least} requests in one step", (("max_num_seqs", least),))
    tokens = now.settings.max_num_batched_tokens
    if tokens > _FEW_TOKENS and now.engine == "V1":
        change = _flag("--max-num-batched-tokens", str(_FEW_TOKENS), release)
        cost = "long prompts take more steps"
        yield _Step("tokens", 1.6, change, cost, (("max_num_batched_tokens", _FEW_TOKENS),))


def _eight_bits(card: Card, config: ModelConfig, options: Options, release: Release) -> Iterator[_Step]:
    known = choices("--kv-cache-dtype", release)
    if options.kv_cache_dtype != "auto" or config.attention_free or not known or "fp8" not in known.values:
        return
    change = _flag("--kv-cache-dtype", "fp8", release)
    cost = "some accuracy"
    if card.has_fp8 is False:
        cost += "; before Ada only with a backend that converts fp8 itself (FlashInfer)"
    yield _Step("cache", 2.0 if card.has_fp8 is not False else 3.5, change, cost, (("kv_cache_dtype", "fp8"),))


def _fewer_bits(card: Card, config: ModelConfig, options: Options, release: Release) -> Iterator[_Step]:
    if config.quantization or options.quantization or options.checkpoint:
        return
    old = card.device == "cpu" or (card.capability is not None and card.capability < 80)
    known = choices("--quantization", release)
    if known and "fp8" in known.values and not old:
        change = _flag("--quantization", "fp8", release)
        yield _Step("weights", 3.0, change, "some accuracy", (("quantization", "fp8"),))
        prepared = Change("", "", "a checkpoint in FP8")
        yield _Step("weights", 3.2, prepared, "some accuracy; another checkpoint", (("checkpoint", "fp8"),))
    if known and "awq" in known.values:
        change = Change("", "", "a 4-bit checkpoint (AWQ, GPTQ)")
        yield _Step(
            "weights", 4.5, change, "more accuracy than 8 bits do; another checkpoint", (("checkpoint", "awq"),)
        )


def _devices(config: ModelConfig, options: Options, now: Assessment, release: Release) -> Iterator[_Step]:
    pipeline, ranks = now.settings.pipeline_parallel, now.settings.ranks
    if pipeline > 1 and ranks in tensor_sizes(config, release, ranks):
        change = _flag("--tensor-parallel-size", str(ranks), release, f"without pipeline stages, on the same {ranks}")
        changed: tuple[tuple[str, object], ...] = (("tensor_parallel", ranks), ("pipeline_parallel", 1))
        yield _Step("devices", 1.7, change, "more traffic between the devices", changed)
    for size in tensor_sizes(config, release, _MOST_RANKS // pipeline):
        if size <= now.settings.tensor_parallel or size & (size - 1):
            continue
        ranks = size * pipeline
        spare = options.count is not None and ranks <= options.count
        change = _flag("--tensor-parallel-size", str(size), release)
        cost = "devices that are there" if spare else f"{ranks} devices"
        changed = (("tensor_parallel", size), ("count", max(ranks, options.count) if options.count else None))
        yield _Step("devices", 1.8 if spare else 5.0 + size, change, cost, changed)


def describe(lever: Lever) -> str:
    """Return the changes as one types them, and what is left: for logs and tables."""
    changes = " ".join(f"{c.flag} {c.value}".strip() or c.text for c in lever.changes)
    return f"{changes}: {human(lever.assessment.available.low)} for the KV cache at least"
