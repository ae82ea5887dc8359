"""The report for a terminal: readable at 80 columns, without colour, through a pipe.

What happened, where the memory went, what to do, what not to do, what is unknown. Foreign
text is only ever put into `rich.text.Text`: as markup, ``[gpu_worker.py:298]`` would vanish.
"""

from __future__ import annotations

import io
import os
import sys

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vllm_diag.quantities import human
from vllm_diag.render import words
from vllm_diag.report import BudgetItem, Figure, FindingItem, HostBudgetItem, Report

_BAR = 40
# A fact longer than this is no figure and gets a line of its own.
_FIGURE = 18
_TERM_STYLE = {
    "weights": ("W", "blue"),
    "activations": ("A", "magenta"),
    "non_torch": ("N", "cyan"),
    "cuda_graphs": ("G", "yellow"),
    "kv_cache": ("K", "green"),
    "own": ("P", "blue"),
    "foreign": ("F", "red"),
}
_SEVERITY_STYLE = {"error": "bold red", "warning": "bold yellow", "info": "bold"}


def print_report(report: Report, color: str = "auto", all_runs: bool = False) -> None:
    """Print ``report`` to standard output, as wide as the terminal (at most 100 columns)."""
    forced = {"always": True, "never": False}.get(color)
    console = Console(
        file=sys.stdout,
        force_terminal=forced,
        no_color=True if forced is False or (forced is None and "NO_COLOR" in os.environ) else None,
        color_system="standard" if forced else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )
    if not console.is_terminal:
        # A pipe or a file: no colours, no padding, and a width that fits everywhere.
        sys.stdout.write(render(report, width=80, all_runs=all_runs))
        return
    console.width = min(console.width, 100)
    console.print(document(report, all_runs, console.width))


def render(report: Report, width: int = 80, color: bool = False, all_runs: bool = False) -> str:
    """Return ``report`` as text of ``width`` columns, with escape codes only when ``color``."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, no_color=not color, highlight=False, markup=False, emoji=False,
        color_system="standard" if color else None, legacy_windows=False,
    )  # fmt: skip
    console.print(document(report, all_runs, width))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def document(report: Report, all_runs: bool, width: int) -> RenderableType:
    """Return the whole report as one renderable."""
    parts: list[RenderableType] = [_identity(report)]
    if all_runs or len(report.runs) > 1:
        parts.append(_history(report, all_runs))
    if not report.findings:
        title, sentence = words.headline(report)
        parts += [_title(title, "bold green" if report.outcome == "healthy" else "bold", "", width), Text(sentence)]
    for index, finding in enumerate(report.findings):
        if index == 0 or finding.severity != "info":
            parts += _finding(finding, width, full=index == 0)
        else:
            parts.append(_note(finding))
    one_source = len({event["source"] for event in report.events}) <= 1
    parts += [part for budget in report.budget[:8] for part in _budget(budget, one_source)]
    if len(report.budget) > 8:
        parts.append(Text(f"... and {len(report.budget) - 8} more ranks (--format json shows all)"))
    if report.host_budget and (not report.findings or report.findings[0].term in words.HOST_TERMS):
        parts += _host(report.host_budget, one_source)
    parts += _wanted(report, width)
    parts += _unknown(report)
    return Group(*(part for part in parts if part is not None))


def _identity(report: Report) -> RenderableType:
    about = report.vllm
    said = [f"vLLM {about.version}" if about.version else "vLLM (release not in the log)"]
    if about.engine:
        said.append(f"{about.engine.upper()} engine")
    if about.model:
        said.append(about.model)
    if about.devices:
        said.append(", ".join(about.devices[:2]))
    return Text(" | ".join(said), style="dim")


def _history(report: Report, every: bool) -> RenderableType:
    starts = len(report.runs)
    causes = {tuple(run.codes[:1]) for run in report.runs}
    first, last = report.runs[0].started_at, report.runs[-1].started_at
    span = f" ({first} to {last})" if first and last and first != last else ""
    same = f", all with the same result: {(report.runs[-1].codes or [report.outcome])[0]}" if len(causes) == 1 else ""
    count = f"{starts} start{'s' if starts > 1 else ''} in the input"
    line = Text(f"{count}{span}{same}; the verdict is on {words.subject(report)}.")
    if not every:
        return line
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for run in report.runs:
        lines = f":{run.lines[0]}-{run.lines[1]}"
        table.add_row(
            Text(f"  {run.index + 1}"), Text(run.service or ""), Text(run.started_at or ""), Text(lines),
            Text(run.outcome), Text(", ".join(run.codes[:3])),
        )  # fmt: skip
    return Group(line, table)


def _title(title: str, style: str, where: str, width: int) -> RenderableType:
    most = width - len(title) - 6
    if len(where) > most:
        where = "..." + where[3 - most :] if most > 16 else ""
    room = max(1, width - len(title) - len(where) - (2 if where else 1))
    return Group(Text(), Text.assemble((title, style), " ", ("-" * room, "dim"), (f" {where}" if where else "", "dim")))


def _finding(finding: FindingItem, width: int, full: bool) -> list[RenderableType]:
    where = words.place(finding.evidence[0]) if finding.evidence else ""
    parts: list[RenderableType] = [
        _title(finding.title.upper(), _SEVERITY_STYLE[finding.severity], where, width),
        Text(finding.summary),
    ]
    if words.VERDICTS[finding.verdict]:
        parts.append(Text(words.VERDICTS[finding.verdict], style="italic"))
    rows = words.facts_lines(finding)
    if full and rows:
        parts += [Text(), _facts(rows)]
    advice = _advice(finding)
    if advice is not None:
        parts += [Text(), advice]
    if full and finding.evidence:
        parts += [Text(), *_quotes(finding)]
    return parts


def _facts(rows: list[tuple[str, str]]) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=22)
    table.add_column(justify="right", no_wrap=True)
    words_in_full = [(label, value) for label, value in rows if len(value) > _FIGURE]
    for label, value in rows[:12]:
        if len(value) <= _FIGURE:
            table.add_row(Text(f"    {label}"), Text(value))
    long = [Padding(Text(f"{label}: {value}"), (0, 0, 0, 4)) for label, value in words_in_full]
    return Group(*([table] if table.row_count else []), *long)


def _advice(finding: FindingItem) -> RenderableType | None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=10)
    table.add_column(ratio=1)
    rows = 0
    for index, remedy in enumerate(finding.remedies):
        label = words.strength(remedy, index == 0)
        style = "bold green" if label == "try" else "green" if label == "or" else ""
        body = Text.assemble((words.change(remedy), "bold" if index == 0 else ""))
        body.append("\n" + words.benefit(remedy, with_cost=index < 3))
        if remedy.why and index == 0:
            body.append(f"\nBecause: {remedy.why}.", style="dim")
        table.add_row(Text(label, style=style), body)
        rows += 1
    for doubt in finding.wont_help:
        text = Text.assemble(doubt.flag, f" ({doubt.op})", "\n", doubt.why + ".")
        table.add_row(Text("won't help", style="red"), text)
        rows += 1
    for defect in finding.defects:
        text = Text.assemble(f"{defect.wrong} {defect.advice} ", (f"({defect.fixed})", "dim"))
        table.add_row(Text("this release", style="yellow"), text)
        rows += 1
    for item in finding.ruled_out:
        table.add_row(Text("ruled out", style="dim"), Text(f"{item.code}: {item.why}."))
        rows += 1
    for missing in finding.missing:
        table.add_row(Text("not known", style="dim"), Text(missing))
        rows += 1
    if finding.explains:
        table.add_row(Text("explains", style="dim"), Text(", ".join(finding.explains)))
        rows += 1
    return table if rows else None


def _quotes(finding: FindingItem) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for item in finding.evidence[:4]:
        text = item.text if len(item.text) <= 560 else item.text[:560] + " ..."
        quoted = Text.assemble((f"{words.place(item)}  ", "dim"), text)
        parts.append(Padding(quoted, (0, 0, 0, 2)))
    return parts


def _note(finding: FindingItem) -> RenderableType:
    where = f" ({words.place(finding.evidence[0])})" if finding.evidence else ""
    return Group(Text(), Text.assemble(("note  ", "bold"), f"{finding.code}: {finding.summary}{where}"))


def _budget(budget: BudgetItem, one_source: bool) -> list[RenderableType]:
    equation = words.equation(budget)
    terms = [(name, getattr(budget, name)) for name in words.TERMS if getattr(budget, name) is not None]
    if not terms and budget.foreign is None:
        return []
    head = Text.assemble(("MEMORY", "bold"), f"  {words.budget_title(budget)}", f": {equation}" if equation else "")
    table = _figures()
    for name, figure in [*terms, *([("foreign", budget.foreign)] if budget.foreign else [])]:
        letter, style = _TERM_STYLE.get(name, ("", ""))
        label = words.TERMS.get(name, "held by others")
        _add_figure(table, Text.assemble("    ", (letter or " ", style), f" {label}"), figure, one_source)
    parts: list[RenderableType] = [Text(), head]
    bar = _bar(budget)
    if bar is not None:
        parts.append(bar)
    return [*parts, table]


def _host(budget: HostBudgetItem, one_source: bool) -> list[RenderableType]:
    """Return the ledger of host memory, against the limit where there is one, else against the machine."""
    whole = budget.limit or budget.total
    against = f": {human(whole.bytes)} {'limit' if budget.limit else 'RAM'}" if whole else ""
    table = _figures()
    for name, label in words.HOST_ROWS.items():
        figure = getattr(budget, name)
        if figure is not None:
            _add_figure(table, f"    {label}", figure, one_source)
    return [Text(), Text.assemble(("HOST MEMORY", "bold"), against), table]


def _figures() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=22)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    return table


def _add_figure(table: Table, label: Text | str, figure: Figure, one_source: bool) -> None:
    table.add_row(
        label,
        Text(human(figure.bytes)),
        Text(figure.origin, style="dim"),
        Text(words.figure_note(figure, one_source), style="dim"),
    )


def _bar(budget: BudgetItem) -> RenderableType | None:
    """Draw the device as a bar: a letter for each term, dots for what nothing tells."""
    whole = budget.total or budget.requested
    if whole is None or whole.bytes <= 0:
        return None
    bar = Text("    [")
    used = 0
    # What the failing process held contains its weights and the rest; drawn once.
    whole_process = budget.own is not None
    for name, (letter, style) in _TERM_STYLE.items():
        figure = getattr(budget, name)
        if figure is None or figure.bytes <= 0 or (whole_process and name not in ("own", "foreign")):
            continue
        cells = min(_BAR - used, max(1, round(figure.bytes / whole.bytes * _BAR)))
        bar.append(letter * cells, style=style)
        used += cells
    if not used:
        return None
    bar.append("." * (_BAR - used), style="dim")
    bar.append("]")
    return bar


def _wanted(report: Report, width: int) -> list[RenderableType]:
    """Answer ``--want-concurrency`` and say what ``--config`` gives."""
    parts: list[RenderableType] = []
    if report.wanted:
        title = f"FOR {report.wanted.concurrency} REQUESTS OF {report.wanted.max_model_len:,} TOKENS"
        parts += [_title(title, "bold", "", width), Text(words.wanted(report.wanted))]
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        for lever in report.wanted.levers:
            table.add_row(
                Text(f"    {lever.change}"), Text(f"{lever.concurrency:,.2f} fit"),
                Text("enough" if lever.enough else "not enough"), Text(f"costs {lever.cost}"),
            )  # fmt: skip
        parts.append(table)
    if report.config:
        parts += [Text(), Text(words.config(report.config))]
    parts += [Text(f"{note[0].upper()}{note[1:]}.") for note in report.notes]
    return parts


def _unknown(report: Report) -> list[RenderableType]:
    parts: list[RenderableType] = []
    ignored = report.not_understood
    if ignored.count:
        where = f", the first at {words.place(ignored.first)}" if ignored.first else ""
        one = ignored.count == 1
        parts += [
            Text(),
            Text(
                f"{ignored.count} {'line looks' if one else 'lines look'} like a memory message and"
                f" {'was' if one else 'were'} not understood{where}.",
                style="dim",
            ),
        ]
    if report.failed_causes:
        parts += [
            Text(),
            Text("The check for these causes failed (a fault of vllm-diag): " + ", ".join(report.failed_causes)),
        ]
    return parts
