"""A run's memory budget per rank: capacity x utilization = weights + activations + ... .

Each figure is stated (a line), derived (a sum, with its slack) or assumed (a default, with
its reason). What the terms leave unexplained is the residual, and it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from vllm_diag.event_types import (
    CpuKvSpace,
    CpuMemoryShort,
    Event,
    FreeMemoryShort,
    GraphMemory,
    KvCacheAvailable,
    KvCacheTooSmall,
    MemoryProfile,
    TorchOom,
    WeightsLoaded,
)
from vllm_diag.evidence import Evidence
from vllm_diag.quantities import GIB, Amount
from vllm_diag.releases import default_utilization
from vllm_diag.runs import Run

Origin = Literal["stated", "derived", "assumed"]

# Context, libraries and NCCL of one process outside PyTorch's allocator: seen between 0.2 and
# 1.6 GiB; more than that is not taken for the process's own.
CONTEXT = Amount(round(0.7 * GIB), round(0.9 * GIB))


@dataclass(frozen=True, slots=True)
class Entry:
    """One figure of the budget."""

    amount: Amount
    origin: Origin
    evidence: tuple[Evidence, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory of one rank; figures nothing tells are None."""

    rank: int | None = None
    device: str | None = None
    utilization: float | None = None
    utilization_origin: Origin = "assumed"
    total: Entry | None = None
    free: Entry | None = None
    requested: Entry | None = None
    weights: Entry | None = None
    activations: Entry | None = None
    non_torch: Entry | None = None
    cuda_graphs: Entry | None = None
    kv_cache: Entry | None = None
    foreign: Entry | None = None
    own: Entry | None = None
    residual: Entry | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """The budgets of a run's ranks, the tightest first; ``base`` holds what the settings alone tell."""

    budgets: tuple[Budget, ...] = ()
    base: Budget = Budget()

    @property
    def main(self) -> Budget:
        """The budget that decides: the rank with the least KV cache, else the first."""
        return self.budgets[0] if self.budgets else self.base


def build(run: Run) -> Ledger:
    """Return the ledger of ``run``; pure, raises nothing."""
    by_rank: dict[int | None, Budget] = {}
    for event in run.events:
        rank = event.at.process.rank
        known = by_rank.get(rank, Budget(rank=rank))
        by_rank[rank] = _enter(known, event)
    common = by_rank.pop(None, Budget()) if len(by_rank) > 1 else Budget()
    budgets = [_complete(_fill(budget, common), run) for budget in by_rank.values()]
    budgets = [budget for budget in budgets if _says_anything(budget)]
    budgets.sort(key=_tightness)
    return Ledger(tuple(budgets), _complete(Budget(), run))


def _says_anything(budget: Budget) -> bool:
    return any((budget.total, budget.weights, budget.kv_cache, budget.activations, budget.foreign, budget.own))


def _tightness(budget: Budget) -> tuple[float, int]:
    kv = budget.kv_cache.amount.bytes if budget.kv_cache else float("inf")
    return kv, budget.rank or 0


def _fill(budget: Budget, common: Budget) -> Budget:
    missing = {
        name: getattr(common, name)
        for name in ("total", "free", "requested", "weights", "activations", "non_torch", "cuda_graphs",
                     "kv_cache", "foreign", "own", "utilization")
        if getattr(budget, name) is None and getattr(common, name) is not None
    }  # fmt: skip
    if "utilization" in missing:
        missing["utilization_origin"] = common.utilization_origin
    return replace(budget, **missing)


def _enter(budget: Budget, event: Event) -> Budget:
    where = (event.at.evidence,)

    def stated(amount: Amount | None) -> Entry | None:
        return None if amount is None else Entry(amount, "stated", where)

    if isinstance(event, WeightsLoaded):
        return _with(budget, weights=stated(event.weights))
    if isinstance(event, KvCacheAvailable):
        return _with(budget, kv_cache=stated(event.available))
    if isinstance(event, KvCacheTooSmall):
        return budget if budget.kv_cache else _with(budget, kv_cache=stated(event.available))
    if isinstance(event, GraphMemory):
        return _with(budget, cuda_graphs=stated(event.graphs or event.estimate))
    if isinstance(event, CpuKvSpace):
        return _with(
            budget,
            kv_cache=stated(event.kv_cache),
            total=stated(event.total),
            requested=stated(event.requested),
            device=f"node {event.node}" if event.node is not None else None,
        )
    if isinstance(event, CpuMemoryShort):
        return _with(
            budget,
            total=stated(event.total),
            free=stated(event.available),
            requested=stated(event.requested),
            device=f"node {event.node}" if event.node is not None else None,
            utilization=event.utilization,
            utilization_origin="stated" if event.utilization is not None else None,
        )
    if isinstance(event, FreeMemoryShort):
        return _with(
            budget,
            total=stated(event.total),
            free=stated(event.free),
            requested=stated(event.requested),
            utilization=event.utilization,
            utilization_origin="stated",
            device=event.device,
            foreign=Entry(event.total - event.free, "derived", where, "total - free at start"),
        )
    if isinstance(event, MemoryProfile):
        return _enter_profile(budget, event)
    if isinstance(event, TorchOom):
        return _enter_oom(budget, event)
    if event.code == "graph-memory-in-budget":
        share = dict(event.values()).get("utilization")
        return _with(budget, utilization=share, utilization_origin="stated" if share is not None else None)
    return budget


def _enter_profile(budget: Budget, event: MemoryProfile) -> Budget:
    where = (event.at.evidence,)

    def stated(amount: Amount | None) -> Entry | None:
        return None if amount is None else Entry(amount, "stated", where)

    weights = stated(event.weights)
    activations = stated(event.activations)
    if event.consumed is not None:
        weights = weights or Entry(event.consumed, "stated", where, "weights and non-torch in one figure")
    if event.torch_peak is not None and budget.weights:
        activations = Entry(event.torch_peak - budget.weights.amount, "derived", where, "torch peak - weights")
    return _with(
        budget,
        total=stated(event.total),
        free=stated(event.free),
        requested=stated(event.requested),
        weights=weights,
        activations=activations,
        non_torch=stated(event.non_torch),
        cuda_graphs=stated(event.cuda_graphs),
        kv_cache=stated(event.kv_cache),
        utilization=event.utilization,
        utilization_origin="stated" if event.utilization is not None else None,
    )


def _enter_oom(budget: Budget, event: TorchOom) -> Budget:
    where = (event.at.evidence,)
    foreign, own = foreign_memory(event), own_memory(event)
    printed = own is not None and own in (event.this_process, *[use.used for use in event.others])
    return _with(
        budget,
        device=f"GPU {event.gpu}" if event.gpu is not None else None,
        total=Entry(event.total, "stated", where) if event.total else None,
        free=Entry(event.free, "stated", where) if event.free else None,
        cuda_graphs=Entry(event.private_pools, "stated", where, "private pools") if event.private_pools else None,
        foreign=Entry(foreign, "derived", where, "total - free - this process") if foreign else None,
        own=Entry(
            own, "stated" if printed else "derived", where, "" if printed else "allocated + about 0.7 GiB of context"
        )
        if own
        else None,
    )


def own_memory(event: TorchOom) -> Amount | None:
    """Return what the failing process itself holds on the device, None when nothing tells.

    NVML lists host pids, so inside a container the failing process appears as an unknown
    ``Process N``; it is the clause whose size is closest above what its allocator holds.
    """
    held = event.allocated
    if held is not None and event.unallocated is not None:
        held = held + event.unallocated
    if event.reserved is not None:
        held = event.reserved
    if event.this_process is not None and (held is None or event.this_process.high >= held.low):
        return event.this_process
    if held is None:
        return None
    plausible = [u.used for u in event.others if held.low <= u.used.high <= (held + CONTEXT).high]
    if plausible:
        return min(plausible, key=lambda amount: amount.bytes)
    return held + CONTEXT


def foreign_memory(event: TorchOom) -> Amount | None:
    """Return what others hold on the device at a refused allocation; None when nothing tells."""
    own = own_memory(event)
    if own is None or event.total is None or event.free is None:
        return None
    rest = event.total - event.free - own
    return rest if rest.bytes > 0 else Amount(0, rest.slack)


def _with(budget: Budget, **values: object) -> Budget:
    return replace(budget, **{name: value for name, value in values.items() if value is not None})  # type: ignore[arg-type]


def _complete(budget: Budget, run: Run) -> Budget:
    """Fill in what follows from the stated figures, and the residual."""
    utilization, origin = budget.utilization, budget.utilization_origin
    if utilization is None:
        given = run.settings.get("gpu_memory_utilization")
        if isinstance(given, int | float) and 0 < given <= 1:
            utilization, origin = float(given), "stated"
        elif run.device != "cpu":
            utilization, origin = default_utilization(run.release), "assumed"
    if budget.total is None and run.device != "cpu":
        budget = replace(budget, total=_of_status_tool(run))
    requested = budget.requested
    if requested is None and budget.total and utilization and run.device != "cpu":
        why = "total x utilization" + (" (default)" if origin == "assumed" else "")
        requested = Entry(
            budget.total.amount.scaled(utilization),
            "derived" if origin == "stated" else "assumed",
            budget.total.evidence,
            why,
        )
    budget = replace(budget, utilization=utilization, utilization_origin=origin, requested=requested)
    return replace(budget, residual=_residual(budget))


# What the driver keeps of the capacity that nvidia-smi shows: 0.5 to 3 % on cards of 8 to 192 GiB.
_KEPT = 0.0175


def _of_status_tool(run: Run) -> Entry | None:
    """Return the capacity that nvidia-smi shows, less what a process cannot have of it."""
    shown = [(e, v) for e in run.coded("gpu-memory-use") if isinstance(v := dict(e.values()).get("total"), Amount)]
    if len({amount.bytes for _, amount in shown}) != 1:
        return None
    event, amount = shown[0]
    usable = Amount(round(amount.bytes * (1 - _KEPT)), round(amount.bytes * _KEPT))
    return Entry(usable, "derived", (event.at.evidence,), "nvidia-smi's figure, less what the driver keeps")


def _residual(budget: Budget) -> Entry | None:
    if not (budget.requested and budget.weights and budget.kv_cache):
        return None
    parts = [
        entry for entry in (budget.weights, budget.activations, budget.non_torch, budget.kv_cache) if entry is not None
    ]
    rest = budget.requested.amount
    for entry in parts:
        rest = rest - entry.amount
    # Since 0.27 weights and non-torch are one figure.
    parts_of = ("activations",) if budget.weights.why else ("activations", "non_torch")
    unknown = [name.replace("_", "-") for name in parts_of if getattr(budget, name) is None]
    why = "requested - the terms known" + (f"; holds {' and '.join(unknown)}" if unknown else "")
    return Entry(rest, "derived", tuple(e for entry in parts for e in entry.evidence), why)
