"""The plan as data for programs: what `vllm-diag plan --format json` prints, and what is rendered.

All sizes are bytes on one rank, the fullest; lengths are tokens. Amounts that only a start
measures are ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from vllm_diag.cards import Card
from vllm_diag.kv_arithmetic import (
    CacheDtypeError,
    ConfigError,
    Interval,
    LayoutRefused,
    MissingField,
    SplitError,
    read_config,
)
from vllm_diag.planning import Assessment, Lever, Options, Planned, Refused, Verdict, cache_alone, command_line, plan
from vllm_diag.releases import NEWEST
from vllm_diag.report import BudgetItem, Figure

Origin = Literal["stated", "derived", "assumed"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Range(_Model):
    """A figure that lies between ``low`` and ``high``."""

    low: int
    high: int
    origin: Origin = "derived"
    why: str = ""


class ChangeItem(_Model):
    """One change: ``flag`` is empty where it is none, and ``text`` says what to do."""

    flag: str
    value: str
    text: str


class LeverItem(_Model):
    """Changes with which the plan fits, worked out anew with them."""

    changes: list[ChangeItem]
    cost: str
    kv_cache: Range
    needed: int
    longest: int
    concurrency: float
    command: str


class DefectItem(_Model):
    """What is known to be wrong in that release and bears on the plan."""

    code: str
    wrong: str
    advice: str


class HostItem(_Model):
    """What the machine needs beside its devices."""

    ram: Range
    shm: Range
    disk: Range


class PlanItem(_Model):
    """The plan of one model on one kind of device; without ``budget`` where there is none to draw up."""

    config: str = Field(description="the config.json as it was named")
    model_type: str | None = None
    card: str
    vllm: str | None = Field(default=None, description="the release; null for the newest rules known")
    rules: str = Field(default=str(NEWEST), description="the release whose rules were applied")
    devices: int | None = Field(default=None, description="devices that one copy of the model takes")
    verdict: Verdict
    reasons: list[str]
    settles: str | None = Field(default=None, description="the measured figure that would settle what cannot be told")
    settings: dict[str, int | float | str] = {}
    budget: BudgetItem | None = Field(default=None, description="the middle of each range, as in a report")
    terms: dict[str, Range] = {}
    goal: int | None = Field(default=None, description="KV cache with which the requests asked for are served")
    served: int | None = Field(default=None, description="KV cache with which one request of full length is served")
    needed: int | None = Field(default=None, description="what the start's message would call needed")
    to_start: int | None = Field(default=None, description="the least KV cache that the start check passes")
    bytes_per_token: int | None = None
    longest: int | None = Field(default=None, description="the longest context that is served for certain")
    longest_possible: int | None = Field(default=None, description="the longest at the optimistic end")
    comfortable: int | None = None
    concurrency: tuple[float, float] | None = None
    levers: list[LeverItem] = []
    defects: list[DefectItem] = []
    command: str | None = None
    host: HostItem | None = None
    notes: list[str] = []


class PlanReport(_Model):
    """The plans of one call."""

    schema_version: int = 1
    plans: list[PlanItem]

    @property
    def status(self) -> int:
        """The exit status: 1 where any plan does not fit, else 2 where any cannot be told, else 0."""
        verdicts = {item.verdict for item in self.plans}
        return 1 if "does-not-fit" in verdicts else 2 if "cannot-tell" in verdicts else 0


def build(configs: Sequence[Path], cards: Sequence[Card], options: Options) -> PlanReport:
    """Return the plans of every model on every card.

    A path is a config.json or a checkpoint's folder; safetensors files or their index beside it give
    the exact weights. A model that cannot be planned has an item that says why.

    Raises:
        OSError: a config.json that cannot be read.
        ConfigError: a file that is no config.json.

    """
    return PlanReport(plans=[_planned(path, card, options) for path in configs for card in cards])


def _planned(path: Path, card: Card, options: Options) -> PlanItem:
    name = str(path)
    try:
        config = read_config(path)
    except MissingField as missing:
        return _not_planned(name, card, options, "cannot-tell", f"{missing}.")
    try:
        return plan_item(plan(config, card, _with_files(path, options)), name)
    except (Refused, SplitError, LayoutRefused) as refusal:
        return _not_planned(name, card, options, "does-not-fit", f"vLLM refuses this at start: {refusal}.")
    except (ConfigError, CacheDtypeError) as unknown:
        return _not_planned(name, card, options, "cannot-tell", f"{unknown}.", cache_alone(config, card, options))


def _with_files(path: Path, options: Options) -> Options:
    folder = path if path.is_dir() else path.parent
    index = folder / "model.safetensors.index.json"
    if path.is_dir() or path.name == "config.json":
        model = str(folder) if options.model == "MODEL" and path.is_dir() else options.model
        there = index.exists() or any(folder.glob("*.safetensors"))
        return replace(options, files=str(folder) if there else None, model=model)
    return options


def plan_item(planned: Planned, name: str) -> PlanItem:
    """Return ``planned`` as data; ``name`` is the config as the user named it."""
    now, options = planned.assessment, planned.options
    host = planned.host
    return PlanItem(
        config=name,
        model_type=planned.config.model_type,
        card=planned.card.name,
        vllm=str(options.release) if options.release else None,
        rules=str(options.release or NEWEST),
        devices=now.settings.ranks,
        verdict=now.verdict,
        reasons=list(now.reasons),
        settles=planned.settles,
        settings=_settings(options, now),
        budget=_budget(planned.card, now),
        terms=_terms(planned.card, now),
        goal=now.goal,
        served=now.served,
        needed=now.needed,
        to_start=now.to_start,
        bytes_per_token=now.bytes_per_token,
        longest=now.longest[0],
        longest_possible=now.longest[1],
        comfortable=planned.comfortable,
        concurrency=_finite(now.concurrency),
        levers=[_lever(lever, planned.card) for lever in planned.levers],
        defects=[DefectItem(code=row.code, wrong=row.wrong, advice=row.advice) for row in planned.defects],
        command=planned.command,
        host=HostItem(
            ram=_assumed(host.ram, host.rules["ram"]),
            shm=_assumed(host.shm, host.rules["shm"]),
            disk=_assumed(host.disk, host.rules["disk"]),
        ),
        notes=list(now.notes),
    )


def _not_planned(name: str, card: Card, options: Options, verdict: Verdict, *reasons: str | None) -> PlanItem:
    """Return the item of a model whose budget could not be drawn up, or whose settings vLLM refuses."""
    release = options.release
    return PlanItem(
        config=name, card=card.name, vllm=str(release) if release else None, rules=str(release or NEWEST),
        verdict=verdict, reasons=[reason for reason in reasons if reason],
    )  # fmt: skip


def _finite(pair: tuple[float, float]) -> tuple[float, float] | None:
    return None if float("inf") in pair else (round(pair[0], 2), round(pair[1], 2))


def _settings(options: Options, now: Assessment) -> dict[str, int | float | str]:
    settings = now.settings
    found: dict[str, int | float | str] = {
        "max_model_len": settings.max_model_len,
        "gpu_memory_utilization": settings.utilization,
        "tensor_parallel_size": settings.tensor_parallel,
        "pipeline_parallel_size": settings.pipeline_parallel,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "kv_cache_dtype": options.kv_cache_dtype,
        "engine": now.engine,
    }
    if options.want_concurrency:
        found["want_concurrency"] = options.want_concurrency
    return found


def _range(amount: Interval, origin: Origin, why: str = "") -> Range:
    return Range(low=amount.low, high=amount.high, origin=origin, why=why)


def _assumed(amount: Interval, why: str) -> Range:
    return _range(amount, "assumed", why)


def _terms(card: Card, now: Assessment) -> dict[str, Range]:
    return {
        "total": _range(now.total, card.origin),
        "requested": _range(now.requested, "derived", "total x utilization"),
        **{term.name: _range(term.amount, term.origin, term.why) for term in now.terms},
        "kv_cache": _range(now.available, "derived", "what the terms leave of the share"),
        "outside": _range(now.outside, "assumed", "the CUDA context, and graphs where they are not in the budget"),
        "room": _range(now.room, "derived", "total - share"),
    }


def _budget(card: Card, now: Assessment) -> BudgetItem:
    by_name: dict[str, Any] = {term.name: _figure(term.amount, term.origin, term.why) for term in now.terms}
    return BudgetItem(
        device=card.name,
        utilization=now.settings.utilization,
        utilization_origin="stated" if now.settings.utilization_given else "assumed",
        total=_figure(now.total, card.origin),
        requested=_figure(now.requested, "derived"),
        kv_cache=_figure(now.available, "derived", "what is left"),
        **by_name,
    )


def _figure(amount: Interval, origin: Origin, why: str = "") -> Figure:
    middle = (amount.low + amount.high) // 2
    return Figure(bytes=middle, slack=amount.high - middle, origin=origin, why=why)


def _lever(lever: Lever, card: Card) -> LeverItem:
    after = lever.assessment
    return LeverItem(
        changes=[ChangeItem(flag=c.flag, value=c.value, text=c.text) for c in lever.changes],
        cost=lever.cost,
        kv_cache=_range(after.available, "derived"),
        needed=after.goal,
        longest=after.longest[0],
        concurrency=round(after.concurrency[0], 2),
        command=command_line(lever.options, after, device=card.device),
    )
