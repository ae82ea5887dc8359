"""The report: what a diagnosis says, as data with a published schema.

`Report` is the promise to the outside (JSON, library); the renderers read nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from vllm_diag import host_ledger, remedies
from vllm_diag.causes import Finding
from vllm_diag.diagnosis import Diagnosis
from vllm_diag.event_types import Event, KvBlocks, ProcessUse, Settings
from vllm_diag.evidence import Evidence
from vllm_diag.ledger import Budget, Entry
from vllm_diag.quantities import Amount
from vllm_diag.recognise import Tally
from vllm_diag.releases import default_block_size
from vllm_diag.remedies.wanted import REFUSED, Wish, config_check, wanted
from vllm_diag.runs import Run

Outcome = Literal["failed", "degraded", "healthy", "starting", "unknown"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class EvidenceItem(_Model):
    """A quoted line of the input."""

    source: str
    line: int
    text: str


class Figure(_Model):
    """One figure of the budget, in bytes."""

    bytes: int
    origin: Literal["stated", "derived", "assumed"]
    slack: int = Field(default=0, description="the true value lies within bytes +/- slack")
    why: str = Field(default="", description="how a derived or assumed figure comes about")
    evidence: list[EvidenceItem] = []


class BudgetItem(_Model):
    """The memory of one rank: total x utilization = weights + ... + residual."""

    device: str | None = None
    rank: int | None = None
    utilization: float | None = None
    utilization_origin: Literal["stated", "derived", "assumed"] | None = None
    total: Figure | None = None
    free: Figure | None = None
    requested: Figure | None = None
    weights: Figure | None = None
    activations: Figure | None = None
    non_torch: Figure | None = None
    cuda_graphs: Figure | None = None
    kv_cache: Figure | None = None
    foreign: Figure | None = None
    own: Figure | None = Field(
        default=None, description="what the failing process itself held, at a refused allocation"
    )
    residual: Figure | None = None


class HostBudgetItem(_Model):
    """Host memory: what the machine and the container have, and who holds it."""

    total: Figure | None = None
    limit: Figure | None = None
    used: Figure | None = None
    killed: Figure | None = None
    kv_cache: Figure | None = None
    checkpoint: Figure | None = None
    swap_space: Figure | None = None
    offloaded_weights: Figure | None = None
    offload_buffers: Figure | None = None
    shm: Figure | None = None
    residual: Figure | None = None


class RemedyItem(_Model):
    """One change to make; ``after`` says what the sum comes to with it, where the log gives the terms."""

    id: str
    kind: Literal["flag", "env", "command", "action"]
    flag: str | None
    op: Literal["lower", "raise", "set", "add", "remove"]
    value: str | int | float | None
    applicability: Literal["as-is", "choose", "situational"]
    gain: str
    cost: str
    why: str
    after: str = ""


class DefectItem(_Model):
    """What is known to be wrong in the log's release and bears on a finding."""

    code: str
    wrong: str
    advice: str
    fixed: str
    source: str


class WontHelpItem(_Model):
    """A change that is suggested elsewhere and does not help."""

    flag: str
    op: Literal["lower", "raise", "set", "add", "remove"]
    why: str


class RuledOutItem(_Model):
    """A cause that was considered and is not the one."""

    code: str
    why: str


class FindingItem(_Model):
    """One cause that was found."""

    code: str
    term: str
    severity: Literal["error", "warning", "info"]
    verdict: Literal["confirmed", "likely", "undetermined"]
    title: str
    summary: str
    facts: dict[str, Any]
    evidence: list[EvidenceItem]
    explains: list[str]
    remedies: list[RemedyItem]
    wont_help: list[WontHelpItem]
    defects: list[DefectItem] = []
    ruled_out: list[RuledOutItem]
    missing: list[str]


class VllmItem(_Model):
    """What the log says about the server."""

    version: str | None = None
    engine: Literal["v0", "v1"] | None = None
    args: dict[str, Any] = {}
    model: str | None = None
    devices: list[str] = []


class RunItem(_Model):
    """One launch found in the input."""

    index: int
    outcome: Outcome
    started_at: str | None = None
    lines: tuple[int, int]
    codes: list[str]
    summary: str | None = None
    service: str | None = Field(default=None, description="the container, pod or unit, where the input names one")


class NotUnderstood(_Model):
    """Lines that looked like memory messages and matched nothing in the catalogue."""

    count: int = 0
    first: EvidenceItem | None = None


class ReachItem(_Model):
    """A lever, and how many full-length requests it makes room for, at least."""

    change: str
    concurrency: float
    enough: bool
    cost: str


class WantedItem(_Model):
    """The answer to ``--want-concurrency``; amounts are bytes on the fullest rank."""

    concurrency: int
    max_model_len: int
    needed: int
    available: int
    now: float
    how: str
    levers: list[ReachItem]


class ConfigItem(_Model):
    """What the model's config.json (``--config``) says beside the log."""

    bytes_per_token: int
    max_model_len: int
    needed: int
    printed: int | None
    agrees: bool | None
    longest_served: int | None


class Report(_Model):
    """The diagnosis of an input; the verdict is on its last run."""

    schema_version: Literal[1] = 1
    outcome: Outcome
    vllm: VllmItem
    runs: list[RunItem]
    events: list[dict[str, Any]]
    budget: list[BudgetItem]
    findings: list[FindingItem]
    host_budget: HostBudgetItem | None = None
    wanted: WantedItem | None = None
    config: ConfigItem | None = None
    notes: list[str] = Field(default=[], description="what was asked for beside the log and could not be answered")
    not_understood: NotUnderstood = NotUnderstood()
    failed_causes: list[str] = Field(
        default=[], description="causes whose check itself failed: a fault of vllm-diag, not of the server"
    )


def build(diagnoses: list[Diagnosis], tally: Tally, wish: Wish = Wish()) -> Report:  # noqa: B008 - frozen
    """Return the report on ``diagnoses``, one for each run, the last one in full."""
    if not diagnoses:
        return Report(
            outcome="unknown", vllm=VllmItem(), runs=[], events=[], budget=[], findings=[],
            not_understood=_tally(tally),
        )  # fmt: skip
    last = diagnoses[-1]
    run = last.run
    devices = [d for d in dict.fromkeys([run.device, *[b.device for b in last.ledger.budgets]]) if d]
    return Report.model_validate(
        {
            "outcome": last.outcome,
            "vllm": {
                "version": run.version,
                "engine": run.engine,
                "args": run.settings,
                "model": run.model,
                "devices": devices,
            },
            "runs": [_run(diagnosis) for diagnosis in diagnoses],
            "events": [{**event_item(event), **_derived(event, run)} for event in run.events],
            "budget": [_budget(budget) for budget in last.ledger.budgets],
            "host_budget": _host(last),
            "findings": [_finding(finding, last, wish) for finding in last.findings],
            **_answers(last, wish),
            "not_understood": _tally(tally),
            "failed_causes": list(last.failed_causes),
        }
    )


def _answers(diagnosis: Diagnosis, wish: Wish) -> dict[str, Any]:
    """Answer what was asked beside the log, or say why it cannot be."""
    try:
        answer = wanted(diagnosis, wish) if wish.concurrency else None
        check = config_check(diagnosis, wish.config) if wish.config else None
    except REFUSED as refused:
        return {"notes": [f"the config.json does not go with this log: {refused}"]}
    notes = []
    if wish.concurrency and answer is None:
        notes.append("how many full-length requests fit is not known: no line gives the KV cache and what one takes")
    if check and check.agrees is False:
        notes.append("the config.json is not that of the model in the log: it needs another amount of KV cache")
    return {"wanted": answer and asdict(answer), "config": check and asdict(check), "notes": notes}


def _tally(tally: Tally) -> NotUnderstood:
    return NotUnderstood(count=tally.count, first=_quoted(tally.first) if tally.first else None)


def _quoted(evidence: Evidence) -> EvidenceItem:
    return EvidenceItem(source=evidence.source, line=evidence.line, text=evidence.text)


def _run(diagnosis: Diagnosis) -> dict[str, Any]:
    run = diagnosis.run
    return {
        "index": run.index,
        "outcome": diagnosis.outcome,
        "started_at": run.started_at,
        "lines": (run.first_line, run.last_line),
        "codes": [finding.code for finding in diagnosis.findings],
        "summary": diagnosis.findings[0].summary if diagnosis.findings else None,
        "service": run.service,
    }


def _figure(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {
        "bytes": entry.amount.bytes,
        "slack": entry.amount.slack,
        "origin": entry.origin,
        "why": entry.why,
        "evidence": [_quoted(e) for e in dict.fromkeys(entry.evidence)],
    }


_TERMS = (
    "total", "free", "requested", "weights", "activations", "non_torch", "cuda_graphs", "kv_cache", "foreign", "own",
    "residual",
)  # fmt: skip


def _budget(budget: Budget) -> dict[str, Any]:
    return {
        "device": budget.device,
        "rank": budget.rank,
        "utilization": budget.utilization,
        "utilization_origin": budget.utilization_origin if budget.utilization is not None else None,
        **{term: _figure(getattr(budget, term)) for term in _TERMS},
    }


def _host(diagnosis: Diagnosis) -> dict[str, Any] | None:
    found = host_ledger.build(diagnosis.run, diagnosis.ledger)
    return {name: _figure(getattr(found, name)) for name in found.__dataclass_fields__} if found else None


def _finding(finding: Finding, diagnosis: Diagnosis, wish: Wish) -> dict[str, Any]:
    plan = remedies.plan(finding, diagnosis, wish.config)
    return {
        "code": finding.code,
        "term": finding.term,
        "severity": finding.severity,
        "verdict": finding.verdict,
        "title": finding.title,
        "summary": finding.summary,
        "facts": finding.facts,
        "evidence": [_quoted(e) for e in finding.evidence],
        "explains": list(finding.explains),
        "remedies": [_plain(remedy) for remedy in plan.remedies],
        "wont_help": [_plain(doubt) for doubt in plan.wont_help],
        "defects": [
            {"code": d.code, "wrong": d.wrong, "advice": d.advice, "fixed": d.fixed_words, "source": d.source}
            for d in plan.defects
        ],
        "ruled_out": [_plain(item) for item in finding.ruled_out],
        "missing": list(finding.missing),
    }


def _plain(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


def event_item(event: Event) -> dict[str, Any]:
    """Return ``event`` as a JSON object: code, place, and its fields in plain units."""
    process = event.at.process
    item: dict[str, Any] = {
        "code": event.code,
        "source": event.at.evidence.source,
        "line": event.at.evidence.line,
        "time": event.at.time,
        "process": {"name": process.name, "pid": process.pid, "rank": process.rank},
    }
    for name, value in event.values():
        item.update(_value(name, value))
    if isinstance(event, Settings):
        item["settings"] = dict(event.settings)
    if event.readings:
        item["readings"] = [asdict(reading) for reading in event.readings]
    return item


def _derived(event: Event, run: Run) -> dict[str, Any]:
    """What the text leaves to the reader: blocks as tokens."""
    if not isinstance(event, KvBlocks):
        return {}
    given = run.settings.get("block_size")
    block = given if isinstance(given, int) else default_block_size(run.device, run.release)
    return {"derived_block_size": block, "derived_tokens": event.blocks * block}


def _value(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Amount):
        return [(f"{name}_bytes", value.bytes)]
    if isinstance(value, tuple) and value and isinstance(value[0], ProcessUse):
        return [(name, [{"pid": use.pid, "used_bytes": use.used.bytes} for use in value])]
    if isinstance(value, str | int | float | bool):
        return [(name, value)]
    return [(name, str(value))]
