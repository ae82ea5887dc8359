"""What is planned, and what a plan says: plain data, bytes and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vllm_diag.cards import Card
from vllm_diag.defects import Defect
from vllm_diag.kv_arithmetic import Interval, ModelConfig
from vllm_diag.releases import Release

Verdict = Literal["fits", "does-not-fit", "cannot-tell"]
Origin = Literal["stated", "derived", "assumed"]
TermName = Literal["weights", "activations", "non_torch", "cuda_graphs"]


class Refused(ValueError):
    """Settings that vLLM refuses at start whatever the memory; the message says why and what would be taken."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the server is to be started with; None stands for vLLM's default.

    ``utilization`` is --gpu-memory-utilization, ``kv_cache_memory`` the bytes set for the cache
    of a rank (--kv-cache-memory-bytes; VLLM_CPU_KVCACHE_SPACE on the CPU). ``count`` is how many
    devices there are: with it alone the model is split over as many of them as divide its heads.
    ``want_concurrency`` full-length requests are to fit at once, one where it is None.
    ``checkpoint`` is the quantization of another checkpoint of the same model, "fp8" or "awq".
    ``files`` is the folder of the checkpoint's safetensors files, for exact weights, ``model`` what
    the command line is to name. ``engine`` is chosen by the release where it is None.
    """

    release: Release | None = None
    max_model_len: int | None = None
    want_concurrency: float | None = None
    utilization: float | None = None
    quantization: str | None = None
    checkpoint: str | None = None
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    count: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    kv_cache_memory: int | None = None
    files: str | None = None
    model: str = "MODEL"
    engine: Literal["V0", "V1"] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The options with every default filled in, as that release would on that device."""

    max_model_len: int
    utilization: float
    utilization_given: bool
    tensor_parallel: int
    pipeline_parallel: int
    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def ranks(self) -> int:
        """The devices that one copy of the model takes."""
        return self.tensor_parallel * self.pipeline_parallel


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a rank's memory: at least ``amount.low`` and at most ``amount.high`` bytes.

    ``why`` says what it is derived from, or the rule by which it is assumed.
    """

    name: TermName
    amount: Interval
    origin: Origin
    why: str


@dataclass(frozen=True, slots=True)
class Assessment:
    """Whether one combination of settings fits; all amounts are bytes on the fullest rank.

    ``requested`` is what the server may take, ``available`` what it leaves for the KV cache: its
    low end with every term at its most, below zero where they alone are too much. ``outside`` is what
    lies outside of ``requested`` on the device and ``room`` what there is for it. ``needed`` is
    what the release's message would call needed for one request of full length, ``to_start`` the least
    available that the start check passes, ``served`` the least with which one such request can
    also be finished, ``goal`` the least for as many as are asked for. ``longest`` is the
    greatest length that starts and is served, at the pessimistic and the optimistic end.
    ``concurrency`` is what the log would print at both ends.
    """

    settings: Settings
    verdict: Verdict
    reasons: tuple[str, ...]
    total: Interval
    requested: Interval
    terms: tuple[Term, ...]
    outside: Interval
    room: Interval
    available: Interval
    needed: int
    to_start: int
    served: int
    goal: int
    longest: tuple[int, int]
    concurrency: tuple[float, float]
    bytes_per_token: int
    growth_per_token: int
    engine: Literal["V0", "V1"]
    weights_total: Interval
    notes: tuple[str, ...] = ()

    def term(self, name: TermName) -> Term:
        """Return the term called ``name``."""
        return next(term for term in self.terms if term.name == name)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a lever: a flag as the release spells it, or "" for what is no flag."""

    flag: str
    value: str
    text: str


@dataclass(frozen=True, slots=True)
class Lever:
    """Changes with which the plan fits at the pessimistic end, worked out anew with them.

    ``options`` are those with the changes, ``assessment`` what comes of them.
    """

    changes: tuple[Change, ...]
    cost: str
    options: Options
    assessment: Assessment


@dataclass(frozen=True, slots=True)
class Host:
    """What the machine needs beside its devices, in bytes, with the rule of each figure."""

    ram: Interval
    shm: Interval
    disk: Interval
    rules: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of one model on one kind of device.

    ``comfortable`` is a rounder length below the longest. ``levers`` make it fit where it does not
    or may not; () where it fits or nothing offered here does. ``settles`` is the figure that would
    tell, where the verdict is "cannot-tell". ``command`` starts the server as asked, or with the
    first lever where it would not fit; None where nothing fits.
    """

    config: ModelConfig
    card: Card
    options: Options
    assessment: Assessment
    comfortable: int
    levers: tuple[Lever, ...]
    settles: str | None
    defects: tuple[Defect, ...]
    command: str | None
    host: Host
