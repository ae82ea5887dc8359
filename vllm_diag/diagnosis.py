"""A run to its findings: every cause is asked, and what explains what puts them in order.

The root is the finding that no other finding explains; consequences follow it. A finding
that only says "something is gone" gives way to any that says why. A cause whose judge
raises is our own fault: it is reported as failed, never as ruled out, and the rest still
runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vllm_diag import ledger as ledgers
from vllm_diag.causes import Case, Finding, all_causes
from vllm_diag.ledger import Ledger
from vllm_diag.runs import Run

# Findings that only report an absence; they say nothing once a cause is known.
GIVES_WAY = frozenset({"root-cause-not-in-log", "unrecognised-exception", "engine-vanished"})
_RANK = {"confirmed": 0, "likely": 1, "undetermined": 2}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known of one run: its findings, root first, its ledger and its outcome."""

    run: Run
    ledger: Ledger
    findings: tuple[Finding, ...]
    outcome: str
    failed_causes: tuple[str, ...] = ()


def diagnose(run: Run, strict: bool = False) -> Diagnosis:
    """Return the diagnosis of ``run``; with ``strict`` a fault in a judge is raised."""
    ledger = ledgers.build(run)
    case = Case(run, ledger)
    findings, failed = [], []
    for cause in all_causes().values():
        try:
            finding = cause.judge(case, cause)
        except Exception:
            if strict:
                raise
            failed.append(cause.code)
            continue
        if finding is not None:
            findings.append(_settled(run, finding))
    ordered = _in_order(run, findings)
    return Diagnosis(run, ledger, tuple(ordered), _outcome(run, ordered), tuple(failed))


def _settled(run: Run, finding: Finding) -> Finding:
    """An error that the server survived is history: it came up afterwards and stayed up."""
    if finding.severity != "error":
        return finding
    up = [e.at.order for e in run.coded("server-ready", "engine-init-done")]
    if up and finding.order < max(up) and finding.because:
        return replace(finding, severity="info")
    return finding


def _in_order(run: Run, findings: list[Finding]) -> list[Finding]:
    causes = all_causes()
    errors = {f.code for f in findings if f.severity == "error"}
    known = errors - GIVES_WAY
    if known:
        findings = [f for f in findings if f.code not in GIVES_WAY]
    elif len(errors & GIVES_WAY) > 1:
        best = next(c for c in ("engine-vanished", "unrecognised-exception", "root-cause-not-in-log") if c in errors)
        findings = [f for f in findings if f.code not in GIVES_WAY or f.code == best]
    present = {f.code for f in findings}
    explained = {code for f in findings for code in causes[f.code].explains if code in present and code != f.code}
    findings = [
        replace(f, explains=tuple(c for c in causes[f.code].explains if c in present or c in run.counts))
        for f in findings
    ]
    severity = {"error": 0, "warning": 1, "info": 2}
    return sorted(
        findings,
        key=lambda f: (severity[f.severity], f.code in explained, _RANK[f.verdict], f.order, f.code),
    )


def _outcome(run: Run, findings: list[Finding]) -> str:
    if any(f.severity == "error" for f in findings):
        return "failed"
    if any(f.severity == "warning" for f in findings):
        return "degraded"
    if run.ready:
        return "healthy"
    if run.has("server-version", "engine-starting", "weights-loading-started", "weights-loaded", "kv-cache-size"):
        return "starting"
    return "unknown"


def edges() -> dict[str, tuple[str, ...]]:
    """Return what each cause explains, causes only; the graph is acyclic (tested)."""
    causes = all_causes()
    return {code: tuple(c for c in cause.explains if c in causes) for code, cause in causes.items()}
