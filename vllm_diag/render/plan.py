"""The plan for a terminal: what fits, the numbers it follows from, what would make it fit, what to type."""

from __future__ import annotations

import io
import os
import sys
from pathlib import PurePath

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vllm_diag.plan_report import LeverItem, PlanItem, PlanReport, Range
from vllm_diag.quantities import human
from vllm_diag.render.text import _TERM_STYLE, _bar, _title
from vllm_diag.render.words import TERMS, equation

_TITLES = {
    "fits": ("FITS", "bold green"),
    "does-not-fit": ("DOES NOT FIT", "bold red"),
    "cannot-tell": ("CANNOT TELL", "bold yellow"),
}
_SHORT = {"fits": "fits", "does-not-fit": "does not", "cannot-tell": "unsure"}
_TERM_ROWS = ("weights", "activations", "non_torch", "cuda_graphs", "kv_cache")


def print_plan(report: PlanReport, color: str = "auto") -> None:
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
        sys.stdout.write(render(report))
        return
    console.width = min(console.width, 100)
    console.print(document(report, console.width))


def render(report: PlanReport, width: int = 80, color: bool = False) -> str:
    """Return ``report`` as text of ``width`` columns, with escape codes only when ``color``."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, no_color=not color, highlight=False, markup=False, emoji=False,
        color_system="standard" if color else None, legacy_windows=False,
    )  # fmt: skip
    console.print(document(report, width))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def document(report: PlanReport, width: int) -> RenderableType:
    """Return one plan in full, or a table over several."""
    if len(report.plans) == 1:
        return Group(*_one(report.plans[0], width))
    return Group(*_table(report))


def _one(item: PlanItem, width: int) -> list[RenderableType]:
    title, style = _TITLES[item.verdict]
    parts: list[RenderableType] = [_identity(item), _title(title, style, "", width)]
    parts += [Text(reason) for reason in item.reasons]
    if item.terms:
        parts += [Text(), _facts(item)]
    advice = _advice(item)
    if advice is not None:
        parts += [Text(), advice]
    parts += _memory(item)
    parts += _host(item)
    return parts


def _identity(item: PlanItem) -> RenderableType:
    release = f"vLLM {item.vllm}" if item.vllm else f"vLLM {item.rules} (the newest known; --vllm says which)"
    said = [release]
    if "engine" in item.settings:
        said.append(f"{item.settings['engine']} engine")
    said.append(f"{item.config}" + (f" ({item.model_type})" if item.model_type else ""))
    said.append(f"{item.devices} x {item.card}" if item.devices else item.card)
    return Text(" | ".join(said), style="dim")


def _between(amount: Range) -> str:
    low, high = human(amount.low), human(amount.high)
    if low == high:
        return low
    unit = f" {low.split()[-1]}"
    return f"{low.removesuffix(unit) if high.endswith(unit) else low} to {high}"


def _facts(item: PlanItem) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=22)
    table.add_column(justify="right", no_wrap=True)
    for label, value in _fact_rows(item):
        table.add_row(Text(f"    {label}"), Text(value))
    return table


def _fact_rows(item: PlanItem) -> list[tuple[str, str]]:
    rows = [("max model len", f"{item.settings['max_model_len']:,}")]
    wanted = item.settings.get("want_concurrency")
    if item.served is not None and item.goal is not None and item.bytes_per_token is not None:
        rows.append(("one request takes", human(item.served)))
        if wanted:
            rows.append((f"{wanted:g} requests take", human(item.goal)))
        rows.append(("left for the KV cache", _between(item.terms["kv_cache"])))
        rows.append(("one token takes", human(item.bytes_per_token)))
    if item.concurrency is not None:
        low, high = item.concurrency
        rows.append(("requests at once", f"{low:,.2f} to {high:,.2f}" if low != high else f"{low:,.2f}"))
    if item.longest is not None and item.longest_possible is not None:
        same = item.longest == item.longest_possible
        shown = f"{item.longest:,}" if same else f"{item.longest:,} to {item.longest_possible:,}"
        rows.append(("longest that is served", shown))
        if not same and item.comfortable:
            rows.append(("a rounder choice", f"{item.comfortable:,}"))
    return rows


def _advice(item: PlanItem) -> RenderableType | None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=10)
    table.add_column(ratio=1)
    for index, lever in enumerate(item.levers):
        label, style = ("try", "bold green") if index == 0 else ("or", "green")
        body = Text.assemble((_changes(lever), "bold" if index == 0 else ""), "\n", _benefit(item, lever))
        table.add_row(Text(label, style=style), body)
    if not item.levers and item.verdict != "fits" and item.terms:
        table.add_row(Text("no lever"), Text("no setting, precision or number of devices up to 16 makes it certain."))
    if item.command:
        table.add_row(Text("run", style="bold"), Text(item.command))
    if item.settles:
        table.add_row(Text("not known", style="dim"), Text(item.settles))
    for defect in item.defects:
        table.add_row(Text("defect", style="dim"), Text(f"{defect.code}: {defect.wrong} {defect.advice}"))
    for note in item.notes:
        table.add_row(Text("note", style="dim"), Text(f"{note}."))
    return table if table.row_count else None


def _changes(lever: LeverItem) -> str:
    parts = []
    for change in lever.changes:
        joiner = "=" if change.flag.isupper() else " "
        typed = f"{change.flag}{joiner if change.value else ''}{change.value}"
        parts.append(typed or change.text)
    return ", ".join(parts) if any(not change.flag for change in lever.changes) else " ".join(parts)


def _benefit(item: PlanItem, lever: LeverItem) -> str:
    said = f"{_between(lever.kv_cache)} for the KV cache, {human(lever.needed)} needed."
    extra = [change.text for change in lever.changes if change.flag and change.text]
    if extra:
        said += f" {'; '.join(extra)}."
    return f"{said} Cost: {lever.cost}." if lever.cost else said


def _memory(item: PlanItem) -> list[RenderableType]:
    if item.budget is None:
        return []
    whose = "the device" if item.devices == 1 else f"each of {item.devices} devices"
    head = Text.assemble(("MEMORY", "bold"), f"  {whose}: {equation(item.budget)}")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=22)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for name in _TERM_ROWS:
        letter, style = _TERM_STYLE[name]
        label = Text.assemble("    ", (letter, style), f" {TERMS[name]}")
        table.add_row(label, Text(_between(item.terms[name])), Text(item.terms[name].origin, style="dim"))
    beside = Text("      beside the share")
    table.add_row(beside, Text(_between(item.terms["outside"])), Text("assumed", style="dim"))
    parts: list[RenderableType] = [Text(), head]
    bar = _bar(item.budget)
    if bar is not None:
        parts.append(bar)
    rules = [
        Padding(Text(f"{TERMS[name]}: {item.terms[name].why}.", style="dim"), (0, 0, 0, 4))
        for name in _TERM_ROWS
        if item.terms[name].why
    ]
    return [*parts, table, *rules]


def _host(item: PlanItem) -> list[RenderableType]:
    if item.host is None:
        return []
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=22)
    table.add_column(justify="right", no_wrap=True)
    rules: list[RenderableType] = []
    for label, figure in (("RAM", item.host.ram), ("/dev/shm", item.host.shm), ("disk", item.host.disk)):
        table.add_row(Text(f"      {label}"), Text(_between(figure)))
        rules.append(Padding(Text(f"{label}: {figure.why}.", style="dim"), (0, 0, 0, 4)))
    whose = "  rules of thumb" + (", for the command above" if item.command else "")
    return [Text(), Text.assemble(("MACHINE", "bold"), whose), table, *rules]


def _table(report: PlanReport) -> list[RenderableType]:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("model", overflow="fold", min_width=12)
    table.add_column("devices", no_wrap=True)
    for heading in ("weights", "KV cache", "needed", "at once", "longest"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("fits?", no_wrap=True)
    notes: list[RenderableType] = []
    for item in report.plans:
        style = _TITLES[item.verdict][1]
        table.add_row(*(Text(cell) for cell in _cells(item)), Text(_SHORT[item.verdict], style=style))
        tip = _tip(item)
        if tip:
            where = Text.assemble((f"{_label(item)} on {item.card}: ", "bold"), tip)
            notes.append(Padding(where, (0, 0, 0, 2)))
    rules = {item.vllm or f"{item.rules} (the newest known; --vllm says which)" for item in report.plans}
    head = Text(f"vLLM {', '.join(sorted(rules))}; GiB on one device, at the pessimistic end", style="dim")
    return [head, Text(), table, *([Text(), *notes] if notes else [])]


def _label(item: PlanItem) -> str:
    """Return the name of the model: its folder's, or the file's where it is not called config.json."""
    path = PurePath(item.config)
    return (path.parent.name if path.name == "config.json" else path.name.removesuffix(".json")) or item.config


def _cells(item: PlanItem) -> tuple[str, ...]:
    devices = item.card if item.devices in (1, None) else f"{item.devices} x {item.card}"
    if not item.terms or item.goal is None:
        return (_label(item), devices, "-", "-", "-", "-", "-")
    at_once = f"{item.concurrency[0]:,.2f}" if item.concurrency else "-"
    kv = max(0, item.terms["kv_cache"].low)
    figures = (f"{size / 2**30:,.2f}" for size in (item.terms["weights"].high, kv, item.goal))
    return (_label(item), devices, *figures, at_once, f"{item.longest or 0:,}")


def _tip(item: PlanItem) -> str:
    if item.verdict == "fits":
        return ""
    if item.levers:
        return f"{_changes(item.levers[0])} makes it fit."
    return " ".join(item.reasons)
