"""The report as Markdown, for an issue or a chat. Foreign text is escaped or fenced."""

from __future__ import annotations

import re

from vllm_diag.quantities import human
from vllm_diag.render import words
from vllm_diag.report import BudgetItem, FindingItem, Report

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~-])")


def _plain(text: str) -> str:
    """Return ``text`` with every sign that Markdown or HTML would act on escaped."""
    return _SPECIAL.sub(r"\\\1", text).replace("\n", " ")


def _code(text: str) -> str:
    """Return ``text`` as inline code that nothing in it can end."""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("\n", " ")


def render(report: Report, all_runs: bool = False) -> str:
    """Return ``report`` as Markdown."""
    about = report.vllm
    lines = [
        f"**vLLM {_plain(about.version or 'release not in the log')}**"
        + (f", {about.engine.upper()} engine" if about.engine else "")
        + (f", {_code(about.model)}" if about.model else ""),
        "",
    ]
    if len(report.runs) > 1:
        lines += [f"{len(report.runs)} starts in the input; the verdict is on {words.subject(report)}.", ""]
    if all_runs:
        lines += ["| start | time | lines | outcome | causes |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| {run.index + 1} | {_plain(run.started_at or '')} | {run.lines[0]}-{run.lines[1]} | {run.outcome} |"
            f" {', '.join(run.codes)} |"
            for run in report.runs
        ]
        lines.append("")
    if not report.findings:
        title, sentence = words.headline(report)
        lines += [f"## {title.capitalize()}", "", sentence, ""]
    for finding in report.findings:
        lines += _finding(finding)
    for budget in report.budget:
        lines += _budget(budget)
    if report.wanted:
        lines += ["## Wanted", "", _plain(words.wanted(report.wanted)), ""]
        lines += [
            f"- {_code(lever.change)}: {lever.concurrency:,.2f} fit, {'enough' if lever.enough else 'not enough'}"
            for lever in report.wanted.levers
        ]
        lines.append("")
    lines += [f"{_plain(words.config(report.config))}\n"] if report.config else []
    lines += [f"{_plain(note)}.\n" for note in report.notes]
    if report.not_understood.count:
        lines += [f"{report.not_understood.count} lines look like memory messages and were not understood.", ""]
    return "\n".join(lines).rstrip()


def _finding(finding: FindingItem) -> list[str]:
    lines = [f"## {_plain(finding.title)}", "", _plain(finding.summary)]
    if words.VERDICTS[finding.verdict]:
        lines += ["", f"*{words.VERDICTS[finding.verdict]}*"]
    rows = words.facts_lines(finding)
    if rows:
        lines += ["", "| | |", "| --- | ---: |", *[f"| {_plain(label)} | {_plain(value)} |" for label, value in rows]]
    if finding.remedies:
        lines += ["", "**What to do**", ""]
        for remedy in finding.remedies:
            lines.append(
                f"- {_code(words.change(remedy))} ({remedy.applicability}): {_plain(words.benefit(remedy))}"
                f" {_plain(remedy.why)}"
            )
    if finding.wont_help:
        lines += ["", "**What will not help**", ""]
        lines += [f"- {_code(doubt.flag)} ({doubt.op}): {_plain(doubt.why)}" for doubt in finding.wont_help]
    if finding.defects:
        lines += ["", "**Known to be wrong in this release**", ""]
        lines += [f"- {_plain(item.wrong)} {_plain(item.advice)} ({_plain(item.fixed)})" for item in finding.defects]
    if finding.ruled_out:
        lines += ["", "**Ruled out**", ""]
        lines += [f"- {_plain(item.code)}: {_plain(item.why)}" for item in finding.ruled_out]
    if finding.missing:
        lines += ["", "**Not known**", "", *[f"- {_plain(item)}" for item in finding.missing]]
    if finding.evidence:
        lines += ["", "**Evidence**", ""]
        lines += [f"- {_code(words.place(item))} {_code(item.text)}" for item in finding.evidence[:4]]
    return [*lines, ""]


def _budget(budget: BudgetItem) -> list[str]:
    terms = [(label, getattr(budget, name)) for name, label in words.TERMS.items()]
    terms.append(("held by others", budget.foreign))
    known = [(label, figure) for label, figure in terms if figure is not None]
    if not known:
        return []
    equation = words.equation(budget)
    head = f"**Memory of {_plain(words.budget_title(budget))}**" + (f": {_plain(equation)}" if equation else "")
    rows = [f"| {label} | {human(f.bytes)} | {f.origin} | {_plain(words.figure_note(f))} |" for label, f in known]
    return [head, "", "| term | size | how known | |", "| --- | ---: | --- | --- |", *rows, ""]
