"""What a remedy is, and what a lever may look at to compute one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from vllm_diag.causes import Finding
from vllm_diag.defects import Defect
from vllm_diag.diagnosis import Diagnosis
from vllm_diag.event_types import KvCacheTooSmall, Landmark, TorchOom
from vllm_diag.kv_arithmetic import ModelConfig
from vllm_diag.quantities import LARGEST_DEVICE, Amount
from vllm_diag.releases import Release, default_block_size

# Above this share drivers, graphs and neighbours have too little; vLLM's own default is 0.92.
HIGHEST_UTILIZATION = 0.95
Op = Literal["lower", "raise", "set", "add", "remove"]
Applicability = Literal["as-is", "choose", "situational"]


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change: which flag to which value, what it gains and costs.

    ``after`` says what the sum comes to with the change made; empty where no line gives it.
    """

    id: str
    kind: Literal["flag", "env", "command", "action"]
    flag: str | None
    op: Op
    value: str | int | float | None
    applicability: Applicability
    gain: str
    cost: str
    why: str
    after: str = ""


@dataclass(frozen=True, slots=True)
class WontHelp:
    """A change that is suggested elsewhere and does not help here."""

    flag: str
    op: Op
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one finding, best first, what not to, and what is wrong in the release itself."""

    remedies: tuple[Remedy, ...] = ()
    wont_help: tuple[WontHelp, ...] = ()
    defects: tuple[Defect, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """What a lever may look at."""

    finding: Finding
    diagnosis: Diagnosis
    config: ModelConfig | None = None

    def setting(self, name: str) -> Any:
        """Return an engine argument as far as the log tells it."""
        return self.diagnosis.run.settings.get(name)

    @property
    def release(self) -> Release | None:
        """The release the log names."""
        return self.diagnosis.run.release

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU backend is in use."""
        return self.diagnosis.run.device == "cpu"

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        hybrid = self.diagnosis.run.first("hybrid-block-size")
        if isinstance(hybrid, Landmark) and isinstance(hybrid.get("block_size"), int):
            return int(hybrid.get("block_size"))
        given = self.setting("block_size")
        return given if isinstance(given, int) else default_block_size(self.diagnosis.run.device, self.release)

    @property
    def batched_tokens(self) -> int | None:
        """Tokens of one step, given or as the engine prints its default."""
        found = self.setting("max_num_batched_tokens")
        for event in self.diagnosis.run.coded("batch-limit"):
            found = found or dict(event.values()).get("max_num_batched_tokens")
        return found if isinstance(found, int) else None

    @property
    def utilization(self) -> float | None:
        """The share in force: stated, given or the release's default."""
        return self.diagnosis.ledger.main.utilization

    @property
    def kv_cache_allocated(self) -> bool:
        """Whether the KV cache held its share when memory ran out, so that a smaller share leaves room."""
        if self.finding.code != "activation-oom" or "num_reqs" in self.finding.facts:
            return True
        return self.diagnosis.run.has("kv-cache-size", "kv-blocks", "kv-blocks-configured")

    @property
    def cache_size_given(self) -> bool:
        """Whether the KV cache was given in bytes, so that the share is not looked at."""
        return bool(self.setting("kv_cache_memory_bytes")) or self.diagnosis.run.has("kv-cache-size-set")

    @property
    def graphs_in_budget(self) -> bool:
        """Whether CUDA graphs take from the KV cache: estimated beforehand from 0.20 on."""
        counted = self.release is not None and self.release >= Release(0, 20)
        return counted or self.diagnosis.run.has("graph-memory-estimate")

    @property
    def utilization_known(self) -> bool:
        """Whether the share is stated, or the release whose default it is."""
        return self.diagnosis.ledger.main.utilization_origin == "stated" or self.release is not None

    @property
    def utilization_words(self) -> str:
        """Say which share is in force, and whether that is known."""
        if self.diagnosis.ledger.main.utilization_origin == "stated":
            return f"{self.utilization:g} is in force"
        return f"{self.utilization:g}, the default, is " + ("in force" if self.release else "assumed")

    @property
    def total(self) -> Amount | None:
        """Capacity of the device that decides."""
        entry = self.diagnosis.ledger.main.total
        return entry.amount if entry else None

    @property
    def smallest_total(self) -> int | None:
        """Return a capacity that the device has at least, in bytes.

        Where no line states it, the share holds the terms known: total x utilization >= weights
        + KV cache.
        """
        if self.total is not None:
            return self.total.low
        budget, used = self.diagnosis.ledger.main, self.utilization
        if not used or budget.weights is None or budget.kv_cache is None:
            return None
        return int((budget.weights.amount.low + max(0, budget.kv_cache.amount.low)) / used)

    @property
    def parallel(self) -> int:
        """Tensor-parallel size in force."""
        given = self.setting("tensor_parallel_size")
        ranks = [e.at.process.rank for e in self.diagnosis.run.events if e.at.process.rank is not None]
        # Ranks that printed something exist, whatever the arguments show; not all of them need have.
        seen = 1 << max(ranks, default=0).bit_length()
        return max(given if isinstance(given, int) else 1, seen)

    def refused(self) -> KvCacheTooSmall | None:
        """Return the refusal of a full-length request that the finding rests on."""
        return next((e for e in self.finding.because if isinstance(e, KvCacheTooSmall)), None)

    @property
    def absurd(self) -> bool:
        """Whether more was asked for at once than the device, or any device, has."""
        event = self.oom()
        if event is None or event.tried is None:
            return False
        return event.tried.low > (event.total.high if event.total else LARGEST_DEVICE)

    def oom(self) -> TorchOom | None:
        """Return the refused allocation that the finding rests on."""
        return next((e for e in self.finding.because if isinstance(e, TorchOom)), None)


Lever = Callable[[Context], Remedy | None]
Doubt = Callable[[Context], WontHelp | None]
