"""The host's RAM: who holds it, against the machine and against the container's limit.

Weights pass through the page cache on their way to the device; workers, page-locked swap and
offload buffers and /dev/shm stay. Each term is stated (a line), derived (settings x ranks) or
assumed (a rule, named); what the terms leave of a stated use is the residual.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vllm_diag.event_types import CgroupUse, CpuKvSpace, Event, Landmark, OomKill, ShmShort, SwapSpaceTooLarge
from vllm_diag.evidence import Evidence
from vllm_diag.ledger import Entry, Ledger
from vllm_diag.quantities import GIB, Amount
from vllm_diag.releases import has_flag
from vllm_diag.runs import Run


@dataclass(frozen=True, slots=True)
class HostLedger:
    """The terms of host memory that a log tells, each None where it does not."""

    total: Entry | None = None
    limit: Entry | None = None
    used: Entry | None = None
    killed: Entry | None = None
    kv_cache: Entry | None = None
    checkpoint: Entry | None = None
    swap_space: Entry | None = None
    offloaded_weights: Entry | None = None
    offload_buffers: Entry | None = None
    shm: Entry | None = None
    residual: Entry | None = None


TERMS = ("killed", "kv_cache", "checkpoint", "swap_space", "offloaded_weights", "offload_buffers", "shm", "residual")
# Up to 0.17 the V0 engine takes 4 GiB of page-locked swap for each rank (--swap-space).
_DEFAULT_SWAP = 4 * GIB


def build(run: Run, ledger: Ledger) -> HostLedger | None:
    """Return the host's ledger of ``run``; None where no line and no setting tells of host memory."""
    found = HostLedger(
        total=_total(run),
        limit=_limit(run),
        used=_used(run),
        killed=_killed(run),
        kv_cache=_kv_cache(run),
        checkpoint=_checkpoint(run, ledger),
        swap_space=_swap_space(run),
        offloaded_weights=_offloaded(run),
        offload_buffers=_offload_buffers(run),
        shm=_shm(run),
    )
    told = (found.total, found.limit, found.used, found.killed, found.swap_space, found.offloaded_weights, found.shm)
    if not any(told) and not found.offload_buffers:
        return None
    return HostLedger(**{**{n: getattr(found, n) for n in found.__dataclass_fields__}, "residual": _residual(found)})


def _stated(amount: Amount | None, event: Event, why: str = "") -> Entry | None:
    return None if amount is None else Entry(amount, "stated", (event.at.evidence,), why)


def _first(entries: Iterable[Entry | None]) -> Entry | None:
    return next((entry for entry in entries if entry is not None), None)


def _figure(run: Run, code: str, name: str) -> Iterable[Entry | None]:
    for event in run.coded(code):
        value = dict(event.values()).get(name)
        if isinstance(value, Amount):
            yield _stated(value, event)
        elif isinstance(value, float) and code == "ray-memory-use":
            yield _stated(Amount(round(value * GIB), GIB // 200), event, "as Ray counts it")


def _total(run: Run) -> Entry | None:
    of_swap = [_stated(e.total_ram, e) for e in run.of(SwapSpaceTooLarge)]
    of_cpu = [_stated(e.total, e, "one node") for e in run.of(CpuKvSpace)]
    return _first([*of_swap, *_figure(run, "ray-memory-use", "total"), *of_cpu])


def _limit(run: Run) -> Entry | None:
    return _first([*(_stated(e.limit, e) for e in run.of(CgroupUse)), *_figure(run, "cgroup-headroom", "limit")])


def _used(run: Run) -> Entry | None:
    stated = [_stated(e.usage, e) for e in run.of(CgroupUse)]
    return _first([*stated, *_figure(run, "cgroup-headroom", "usage"), *_figure(run, "ray-memory-use", "used")])


def _killed(run: Run) -> Entry | None:
    """Return what the killed process had resident: anonymous, file and shared pages."""
    for event in reversed(run.of(OomKill)):
        parts = [part for part in (event.anon_rss, event.file_rss, event.shmem_rss) if part is not None]
        if parts:
            whole = Amount(sum(part.bytes for part in parts), sum(part.slack for part in parts))
            return Entry(
                whole, "derived", (event.at.evidence,), "anonymous + file + shared pages of the process killed"
            )
    return None


def _kv_cache(run: Run) -> Entry | None:
    return _first(_stated(event.kv_cache, event, "each rank") for event in run.of(CpuKvSpace))


def _checkpoint(run: Run, ledger: Ledger) -> Entry | None:
    stated = _first(_figure(run, "checkpoint-size", "checkpoint"))
    weights = ledger.main.weights
    if stated or weights is None or run.device == "cpu":
        return stated
    ranks = _ranks(run)
    return Entry(
        weights.amount.scaled(ranks), "assumed", weights.evidence,
        f"weights of a rank x {ranks}: read through the page cache while loading, given back under pressure",
    )  # fmt: skip


def _ranks(run: Run) -> int:
    sizes = [run.settings.get(name) for name in ("tensor_parallel_size", "pipeline_parallel_size")]
    product = 1
    for size in sizes:
        product *= size if isinstance(size, int) and size > 0 else 1
    return product


def _setting_gib(run: Run, name: str, why: str, ranks: int) -> Entry | None:
    given = run.settings.get(name)
    if not isinstance(given, int | float) or given <= 0:
        return None
    evidence: tuple[Evidence, ...] = ()
    return Entry(Amount(round(given * GIB * ranks)), "derived", evidence, why)


def _swap_space(run: Run) -> Entry | None:
    asked = _first(_stated(event.swap, event, "all ranks") for event in run.of(SwapSpaceTooLarge))
    if asked or run.engine == "v1" or not has_flag("--swap-space", run.release):
        return asked
    ranks = _ranks(run)
    given = _setting_gib(run, "swap_space", f"--swap-space x {ranks} ranks, page-locked", ranks)
    if given or run.engine != "v0" or run.device == "cpu" or "swap_space" in run.settings:
        return given
    return Entry(Amount(_DEFAULT_SWAP * ranks), "assumed", (), f"--swap-space: 4 GiB a rank by default, x {ranks}")


def _offloaded(run: Run) -> Entry | None:
    stated = _first(_figure(run, "weights-cpu-offload", "offloaded"))
    ranks = _ranks(run)
    return stated or _setting_gib(run, "cpu_offload_gb", f"--cpu-offload-gb x {ranks} ranks, page-locked", ranks)


def _offload_buffers(run: Run) -> Entry | None:
    for name in ("cpu_capacity", "offload_capacity", "total_size"):
        stated = _first(_figure(run, "kv-offload-host-pool", name))
        if stated:
            return stated
    return _setting_gib(run, "kv_offloading_size", "--kv-offloading-size", 1)


def _shm(run: Run) -> Entry | None:
    short = _first(_stated(event.required, event, "asked for") for event in run.of(ShmShort))
    size = _first(
        _stated(value, event, "size of /dev/shm")
        for event in run.coded("shm-size")
        if isinstance(event, Landmark) and isinstance(value := event.get("size"), Amount)
    )
    return short or size


def _residual(found: HostLedger) -> Entry | None:
    """Return what a stated use holds beside the terms; page cache is no part of it."""
    if found.used is None:
        return None
    parts = [e for e in (found.killed, found.swap_space, found.offloaded_weights, found.offload_buffers) if e]
    rest = found.used.amount
    for entry in parts:
        rest = rest - entry.amount
    if rest.high < 0:
        return None
    return Entry(rest, "derived", found.used.evidence, "in use - the terms known; other processes and page cache")
