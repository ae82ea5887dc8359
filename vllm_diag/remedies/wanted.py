"""So many full-length requests at once: what each lever reaches.

The arithmetic is the model's own where its config.json is at hand (`kv_arithmetic`), else it is
in proportion to what the log prints, which is exact for full attention and too high for windows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from vllm_diag.diagnosis import Diagnosis
from vllm_diag.event_types import KvCacheSize, KvCacheTooSmall, MaxConcurrency
from vllm_diag.kv_arithmetic import CacheDtypeError, ConfigError, Flags, Layout, LayoutRefused, ModelConfig, SplitError
from vllm_diag.releases import has_flag

# What a config or its flags can be refused for.
REFUSED = (ConfigError, SplitError, CacheDtypeError, LayoutRefused)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the reader told beside the log: a model's config.json, and how many requests at once."""

    concurrency: int | None = None
    config: ModelConfig | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """One lever and the full-length requests it makes room for, at least; ``enough`` for the wish."""

    change: str
    concurrency: float
    enough: bool
    cost: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The answer to "I need N dialogues of full length"; amounts are bytes on the fullest rank."""

    concurrency: int
    max_model_len: int
    needed: int
    available: int
    now: float
    how: str
    levers: tuple[Reach, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """How many bytes one request takes, by length: from a layout, or in proportion."""

    bytes_of_one: float
    max_model_len: int
    layout: Layout | None = None
    flags: dict[str, Any] = field(default_factory=dict)

    def concurrency(self, available: int, length: int) -> float:
        """Return how many requests of ``length`` tokens fit."""
        if self.layout is not None:
            return self.layout.concurrency(available, length)
        return available / (self.bytes_of_one * length / self.max_model_len)

    def changed(self, **flags: object) -> Demand | None:
        """Return the demand under other engine arguments; None when these are refused or not known to matter."""
        if self.layout is None:
            return None
        try:
            return replace(self, layout=Layout(self.layout.config, self.layout.release, self.layout.flags, **flags))
        except REFUSED:
            return None


def layout_of(diagnosis: Diagnosis, config: ModelConfig) -> Layout:
    """Return the KV cache layout of ``config`` under the settings of the log; raises one of `REFUSED`."""
    run = diagnosis.run
    given = {
        "tensor_parallel": run.settings.get("tensor_parallel_size"),
        "pipeline_parallel": run.settings.get("pipeline_parallel_size"),
        "decode_context_parallel": run.settings.get("decode_context_parallel_size"),
        "cache_dtype": run.settings.get("kv_cache_dtype"),
        "dtype": run.settings.get("dtype"),
        "block_size": run.settings.get("block_size"),
        "max_num_batched_tokens": run.settings.get("max_num_batched_tokens"),
        "num_gpu_blocks_override": run.settings.get("num_gpu_blocks_override"),
        "device": run.device,
        "engine": run.engine.upper() if run.engine else None,
    }
    flags = {
        name: str(v).removeprefix("torch.") if "dtype" in name else v for name, v in given.items() if v is not None
    }
    return Layout(config, run.release, Flags(), **flags)


def available_bytes(diagnosis: Diagnosis) -> int | None:
    """Return the KV cache of the rank with the least, at the low end of its rounding."""
    kv = diagnosis.ledger.main.kv_cache
    return kv.amount.low if kv and kv.amount.low > 0 else None


def _length(diagnosis: Diagnosis) -> int | None:
    run = diagnosis.run
    told: list[KvCacheTooSmall | MaxConcurrency | KvCacheSize] = [
        *run.of(KvCacheTooSmall), *run.of(MaxConcurrency), *run.of(KvCacheSize),
    ]  # fmt: skip
    for event in told:
        if event.max_model_len:
            return event.max_model_len
    given = run.settings.get("max_model_len")
    return given if isinstance(given, int) else None


def demand(diagnosis: Diagnosis, config: ModelConfig | None) -> Demand | None:
    """Return what one request takes; None when neither a config nor the log tells. Raises one of `REFUSED`."""
    length = _length(diagnosis)
    if config is not None:
        layout = layout_of(diagnosis, config)
        length = length or layout.limit
        return Demand(layout.needed(length), length, layout)
    refused = next(iter(diagnosis.run.of(KvCacheTooSmall)), None)
    if refused and refused.needed:
        return Demand(refused.needed.high, refused.max_model_len)
    available, printed = available_bytes(diagnosis), _printed(diagnosis)
    if available and printed and length:
        return Demand(available / printed, length)
    return None


def _printed(diagnosis: Diagnosis) -> float | None:
    """Return the maximum concurrency as the server printed it."""
    told: list[MaxConcurrency | KvCacheSize] = [*diagnosis.run.of(MaxConcurrency), *diagnosis.run.of(KvCacheSize)]
    for event in told:
        if event.concurrency:
            return event.concurrency
    return None


def wanted(diagnosis: Diagnosis, wish: Wish) -> Wanted | None:
    """Return what ``wish.concurrency`` full-length requests need and what reaches it; None where the log is silent.

    Raises one of `REFUSED` when the config does not go with the log's settings.
    """
    available = available_bytes(diagnosis)
    of_one = demand(diagnosis, wish.config)
    if wish.concurrency is None or available is None or of_one is None:
        return None
    length, goal = of_one.max_model_len, wish.concurrency
    needed = of_one.layout.bytes_for(goal, length) if of_one.layout else round(of_one.bytes_of_one * goal)
    return Wanted(
        concurrency=goal,
        max_model_len=length,
        needed=needed,
        available=available,
        now=of_one.concurrency(available, length),
        how="the model's config.json" if of_one.layout else "in proportion to what the log prints",
        levers=tuple(_reaches(diagnosis, of_one, available, goal)),
    )


def _reaches(diagnosis: Diagnosis, of_one: Demand, available: int, goal: int) -> list[Reach]:
    run, budget = diagnosis.run, diagnosis.ledger.main
    length = of_one.max_model_len
    found: list[Reach] = []

    def add(change: str, concurrency: float, cost: str) -> None:
        found.append(Reach(change, round(concurrency, 2), concurrency >= goal, cost))

    used = budget.utilization
    if run.device != "cpu" and used and used < 0.95 and budget.total:
        gained = int((0.95 - used) * budget.total.amount.low)
        add("--gpu-memory-utilization 0.95", of_one.concurrency(available + gained, length), "less room for peaks")
    shorter = _shorter(of_one, available, goal)
    if shorter:
        add(
            f"--max-model-len {shorter}", of_one.concurrency(available, shorter), f"no request above {shorter:,} tokens"
        )
    halved = (
        of_one.changed(cache_dtype="fp8") if of_one.layout else replace(of_one, bytes_of_one=of_one.bytes_of_one / 2)
    )
    if (
        run.device != "cpu"
        and halved
        and has_flag("--kv-cache-dtype", run.release)
        and "8" not in str(run.settings.get("kv_cache_dtype"))
    ):
        add("--kv-cache-dtype fp8", halved.concurrency(available, length), "a little accuracy")
    if budget.weights and run.settings.get("quantization") is None and run.device != "cpu":
        freed = int(budget.weights.amount.low * 0.35)
        add("--quantization fp8", of_one.concurrency(available + freed, length), "some accuracy")
    found += _more_devices(diagnosis, of_one, available, goal)
    return found


def _more_devices(diagnosis: Diagnosis, of_one: Demand, available: int, goal: int) -> list[Reach]:
    run, budget = diagnosis.run, diagnosis.ledger.main
    if run.device == "cpu" or budget.weights is None:
        return []
    given = run.settings.get("tensor_parallel_size")
    now = given if isinstance(given, int) else 1
    found: list[Reach] = []
    for size in (now * 2, now * 4):
        freed = int(budget.weights.amount.low * (1 - now / size) * 0.9) - 2**29
        split = of_one.changed(tensor_parallel=size) if of_one.layout else of_one
        if split is None:
            continue
        reached = split.concurrency(available + max(0, freed), of_one.max_model_len)
        if not split.layout:
            # Heads may not split further, so the need of a rank is not taken to shrink.
            reached = of_one.concurrency(available + max(0, freed), of_one.max_model_len)
        found.append(Reach(f"--tensor-parallel-size {size}", round(reached, 2), reached >= goal, f"{size} devices"))
    return found


def _shorter(of_one: Demand, available: int, goal: int) -> int | None:
    """Return the longest length, in steps of 128 tokens, of which ``goal`` requests fit."""
    low, high = 0, of_one.max_model_len // 128
    while low < high:
        middle = (low + high + 1) // 2
        if of_one.concurrency(available, middle * 128) >= goal:
            low = middle
        else:
            high = middle - 1
    return low * 128 if 0 < low * 128 < of_one.max_model_len else None


@dataclass(frozen=True, slots=True)
class ConfigCheck:
    """What a config.json says beside the log; ``agrees`` is None where the log prints no need."""

    bytes_per_token: int
    max_model_len: int
    needed: int
    printed: int | None
    agrees: bool | None
    longest_served: int | None


def config_check(diagnosis: Diagnosis, config: ModelConfig) -> ConfigCheck:
    """Return the model's own figures under the log's settings; raises one of `REFUSED`."""
    layout = layout_of(diagnosis, config)
    length = _length(diagnosis) or layout.limit
    needed = layout.needed(length)
    refused = next(iter(diagnosis.run.of(KvCacheTooSmall)), None)
    printed = refused.needed if refused else None
    available = available_bytes(diagnosis)
    return ConfigCheck(
        bytes_per_token=layout.bytes_per_token(),
        max_model_len=length,
        needed=needed,
        printed=printed.bytes if printed else None,
        agrees=printed.low - 1 <= needed <= printed.high + 1 if printed else None,
        longest_served=layout.longest_served(available, layout.limit) if available else None,
    )
