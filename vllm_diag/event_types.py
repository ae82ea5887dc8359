"""What was read: typed events, each with the place it was read at.

An event states what a text says and judges nothing. Fields are None where the wording
that was met does not print them. Amounts are bytes with their rounding (`Amount`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from vllm_diag.evidence import Evidence
from vllm_diag.framing import NOBODY, Process
from vllm_diag.quantities import Amount
from vllm_diag.readings import Reading


@dataclass(frozen=True, slots=True)
class Place:
    """Where and in whose name a message was printed."""

    evidence: Evidence
    order: int = 0
    time: str | None = None
    process: Process = NOBODY
    level: str | None = None
    exception: str | None = None
    frames: tuple[str, ...] = ()


_COMMON = frozenset(("code", "at", "facts", "readings"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events; ``code`` is the message's code.

    ``facts`` are figures of the text that the event has no field for; ``readings`` say what a
    figure means where that depends on the release.
    """

    code: str
    at: Place
    facts: tuple[tuple[str, Any], ...] = ()
    readings: tuple[Reading, ...] = ()

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of what the wording stated, fields first."""
        for field in fields(self):
            if field.name not in _COMMON:
                value = getattr(self, field.name)
                if value is not None and value != ():
                    yield field.name, value
        yield from self.facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Landmark(Event):
    """A message that matters by being there; its figures, if any, are in ``facts``."""

    def get(self, name: str) -> Any:
        """Return the figure called ``name``, or None."""
        return dict(self.facts).get(name)


# --- identity ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(Event):
    """A server or engine names its release."""

    version: str | None = None
    engine: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Event):
    """Engine arguments, only those in `vllm_diag.settings.KNOWN`."""

    version: str | None = None
    engine: str | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    explicit: bool = False


# --- the budget -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsLoaded(Event):
    """Device memory that the weights took on this rank."""

    weights: Amount
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheAvailable(Event):
    """What profiling left for the KV cache on this rank; may be negative."""

    available: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheSize(Event):
    """How many tokens the KV cache holds, and how many full-length requests."""

    tokens: int
    device: str | None = None
    max_model_len: int | None = None
    concurrency: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxConcurrency(Event):
    """How many requests of ``max_model_len`` tokens fit at once."""

    max_model_len: int
    concurrency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KvBlocks(Event):
    """KV cache blocks of one rank (V0), on the device and in swap space."""

    blocks: int
    device: str | None = None
    cpu_blocks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfile(Event):
    """The budget of one rank after profiling."""

    total: Amount | None = None
    utilization: float | None = None
    requested: Amount | None = None
    weights: Amount | None = None
    non_torch: Amount | None = None
    activations: Amount | None = None
    cuda_graphs: Amount | None = None
    kv_cache: Amount | None = None
    free: Amount | None = None
    consumed: Amount | None = None
    torch_peak: Amount | None = None
    used_before: Amount | None = None
    used_after: Amount | None = None
    suggested: Amount | None = None
    suggested_full: Amount | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphMemory(Event):
    """Device memory of CUDA graphs: taken, or estimated beforehand."""

    graphs: Amount | None = None
    estimate: Amount | None = None
    difference: Amount | None = None
    percent: float | None = None
    seconds: float | None = None


# --- refusals at start ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheTooSmall(Event):
    """One request of ``max_model_len`` does not fit into the KV cache.

    V1 prints needed and available memory, V0 the tokens that fit.
    """

    max_model_len: int
    needed: Amount | None = None
    available: Amount | None = None
    estimated_max_len: int | None = None
    tokens: int | None = None
    lever: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoKvMemory(Event):
    """Nothing was left for the KV cache; ``lever`` is the setting the text names."""

    lever: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSlotsTooFew(Event):
    """A hybrid model has fewer state blocks than ``max_num_seqs``."""

    max_num_seqs: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeMemoryShort(Event):
    """Less memory was free at start than the share asked for."""

    free: Amount
    total: Amount
    utilization: float
    requested: Amount
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingRace(Event):
    """Memory changed hands while vLLM measured."""

    initial_free: Amount | None = None
    current_free: Amount | None = None
    initial_used: Amount | None = None
    current_used: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuMemoryShort(Event):
    """CPU backend: the node has too little RAM for what was asked."""

    available: Amount | None = None
    total: Amount | None = None
    node: int | None = None
    utilization: float | None = None
    requested: Amount | None = None
    consumed: Amount | None = None
    wanted_kv: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuKvSpace(Event):
    """CPU backend: the size the KV cache was given."""

    kv_cache: Amount | None = None
    total: Amount | None = None
    requested: Amount | None = None
    consumed: Amount | None = None
    node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOom(Event):
    """The warm-up of sampler or pooler ran out of device memory."""

    num_reqs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapSpaceTooLarge(Event):
    """CPU swap space against the host's RAM."""

    swap: Amount
    total_ram: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmShort(Event):
    """A shared-memory file system had no room for an allocation."""

    required: Amount | None = None
    free: Amount | None = None
    path: str | None = None


# --- torch ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """A ``Process N has X memory in use`` clause (NVML; the pid is the host's)."""

    pid: int
    used: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOom(Event):
    """A device allocator refused; figures as the text gives them.

    Source: format strings of libc10_cuda, torch 1.13 to 2.14.
    """

    api: str = "CUDA"
    tried: Amount | None = None
    gpu: int | None = None
    total: Amount | None = None
    free: Amount | None = None
    allocated: Amount | None = None
    reserved: Amount | None = None
    unallocated: Amount | None = None
    private_pools: Amount | None = None
    limit: Amount | None = None
    this_process: Amount | None = None
    others: tuple[ProcessUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAllocationFailed(Event):
    """An allocation in host memory was refused."""

    tried: Amount | None = None


# --- killed -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill(Event):
    """The kernel killed a process; sizes as resident at death."""

    pid: int | None = None
    comm: str | None = None
    total_vm: Amount | None = None
    anon_rss: Amount | None = None
    file_rss: Amount | None = None
    shmem_rss: Amount | None = None
    pgtables: Amount | None = None
    score_adj: int | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OomSummary(Event):
    """The kernel's ``oom-kill:`` line: which limit was full and who died."""

    constraint: str
    comm: str
    pid: int
    memcg: str | None = None
    victim_memcg: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OomTask(Event):
    """A row of the kernel's task table: pages of 4 KiB, as on x86."""

    pid: int
    name: str
    rss: Amount
    total_vm: Amount | None = None
    swapped: Amount | None = None
    score_adj: int | None = None

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield the figures, and the pages as the table prints them."""
        yield from Event.values(self)
        for name, amount in (("rss", self.rss), ("total_vm", self.total_vm), ("swapped", self.swapped)):
            if amount is not None:
                yield f"{name}_pages", amount.bytes // 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupUse(Event):
    """Memory of a cgroup against its limit at an OOM."""

    usage: Amount
    limit: Amount
    failcnt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDied(Event):
    """A process of the server is gone; a negative exit code is a signal."""

    process: str | None = None
    exit_code: int | None = None
    status: int | None = None
    pid: int | None = None


# --- serving ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats(Event):
    """The periodic state line."""

    running: int
    waiting: int | None = None
    swapped: int | None = None
    pending: int | None = None
    preemptions: int | None = None
    kv_usage: float | None = None
    cpu_kv_usage: float | None = None
    prompt_throughput: float | None = None
    generation_throughput: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted(Event):
    """V0 tells of a preempted request (each 50th)."""

    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Event):
    """One sample of a /metrics scrape that bears on cache pressure."""

    name: str
    value: float
    engine: str | None = None
