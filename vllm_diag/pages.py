"""The catalogue for people: a page for each cause and each message, and the lists of both.

``vllm-diag codes`` prints them, ``docs/`` holds them as Markdown. Both are made from the
records themselves; nothing is written twice.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from textwrap import shorten
from typing import Any

from vllm_diag.causes import Cause, all_causes
from vllm_diag.evidence import quote
from vllm_diag.framing import frame
from vllm_diag.messages import Message, catalogue
from vllm_diag.messages.vllm_texts import Text
from vllm_diag.pipeline import report_on
from vllm_diag.quantities import Reader
from vllm_diag.report import Report
from vllm_diag.wording import Compiled, squeeze


def index() -> str:
    """Return the list of causes and of messages, one line each."""
    causes = all_causes()
    width = max(len(code) for code in causes)
    lines = ["CAUSES (vllm-diag codes CODE prints the page)", ""]
    lines += [f"  {code:<{width}}  {cause.term:<15}  {cause.title}" for code, cause in causes.items()]
    lines += ["", "MESSAGES", ""]
    width = max(len(message.code) for message in catalogue())
    lines += [f"  {m.code:<{width}}  {m.means}" for m in sorted(catalogue(), key=lambda m: m.code)]
    return "\n".join(lines)


def page(code: str) -> str | None:
    """Return the page of a cause or message, None when there is none of that name."""
    cause = all_causes().get(code)
    message = next((m for m in catalogue() if m.code == code), None)
    parts = [*([_cause_page(cause)] if cause else []), *([_message_page(message)] if message else [])]
    return "\n\n".join(parts) or None


def nearest(code: str) -> str | None:
    """Return the known code that is most like ``code``."""
    known = [*all_causes(), *(message.code for message in catalogue())]
    found = difflib.get_close_matches(code, known, n=1, cutoff=0.5)
    return found[0] if found else None


def _cause_page(cause: Cause) -> str:
    return "\n".join([f"CAUSE {cause.code}", "", *_plain(_cause_sections(cause))]).rstrip()


def _message_page(message: Message) -> str:
    return "\n".join([f"MESSAGE {message.code}", "", *_plain(_message_sections(message))]).rstrip()


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of a page; ``verbatim`` text keeps its line breaks."""

    title: str
    text: str
    verbatim: bool = False


def _cause_sections(cause: Cause, with_wordings: bool = True) -> Iterator[_Section]:
    terms = ", ".join([cause.term, *cause.also])
    yield _Section("", f"{cause.title}. Budget term: {terms}. Severity: {cause.severity}.")
    yield _Section("", cause.page)
    yield _Section("How it comes about", cause.arises)
    example = _examples().get(cause.code, {})
    yield _Section("What fixes it", "\n".join(example.get("remedies", ())), verbatim=True)
    yield _Section("How to verify", cause.verify)
    yield _Section(
        "What does not help",
        "\n".join([*([cause.useless] if cause.useless else []), *example.get("wont_help", ())]),
        verbatim=True,
    )
    if example:
        excerpt = "\n".join([*example["excerpt"], "", f"What is said of it: {example['summary']}"])
        yield _Section(f"An example ({example['log']})", excerpt, verbatim=True)
    yield _Section("What follows from it", ", ".join(cause.explains))
    told = [m for m in catalogue() if m.code in example.get("messages", ())]
    if with_wordings:
        wordings = [line for message in told for line in (f"{message.code} ({message.releases})", *_wordings(message))]
        yield _Section("Told by, with releases and wordings", "\n".join(wordings), verbatim=True)
    else:
        links = [f"[`{m.code}`](messages.md#{m.code}) ({m.releases or 'any release'})" for m in told]
        yield _Section("Told by", ", ".join(links))


def _message_sections(message: Message) -> Iterator[_Section]:
    yield _Section("", message.means)
    yield _Section("", f"Printed by {message.emitter}. Releases: {message.releases or 'not told by release'}.")
    figures = {slot: reader.name for wording in message.compiled() for slot, reader in _read(wording)}
    yield _Section("Figures", ", ".join(f"{slot} ({name})" for slot, name in figures.items()))
    yield _Section("Wordings", "\n".join(_wordings(message)), verbatim=True)
    yield _Section("As met", "\n".join(message.samples), verbatim=True)


def _read(wording: Compiled) -> Iterator[tuple[str, Reader]]:
    for slot in wording.slots:
        yield slot, wording.readers[slot]


def _wordings(message: Message) -> list[str]:
    """Return the wordings, those whose releases are known with these."""
    told = [f"  {_span(t)}  {', '.join(t.printed_as)}\n    {t.text.strip()}" for t in message.texts]
    known = {squeeze(text.text) for text in message.texts}
    return [*told, *(f"  {wording}" for wording in message.wordings if squeeze(wording) not in known)]


def _span(text: Text) -> str:
    first, last = text.releases[0], text.releases[-1]
    return first if first == last else f"{first} - {last}"


def _plain(sections: Iterator[_Section]) -> Iterator[str]:
    for section in sections:
        if section.text:
            yield from [*([f"{section.title}:", ""] if section.title else []), section.text, ""]


def _marked(sections: Iterator[_Section]) -> Iterator[str]:
    for section in sections:
        if section.text:
            yield from [f"**{section.title}**", ""] if section.title else []
            yield from ["```text", section.text, "```", ""] if section.verbatim else [section.text, ""]


NOTATION = "`{figure}` is a value, `⟨one|other⟩` a choice, `⟦text⟧` optional, `¦` marks where a text may be cut off."


def markdown_causes() -> str:
    """Return ``docs/causes.md``: every cause with its page."""
    lines = ["# Causes", "", "Made from the records by `python -m vllm_diag.pages`; do not edit.", "", NOTATION, ""]
    lines += ["| code | budget term | what it says |", "| --- | --- | --- |"]
    causes = all_causes()
    lines += [f"| [`{code}`](#{code}) | {cause.term} | {cause.title} |" for code, cause in causes.items()]
    for code, cause in causes.items():
        lines += ["", f"## {code}", "", *_marked(_cause_sections(cause, with_wordings=False))]
    return "\n".join(lines).rstrip() + "\n"


def markdown_messages() -> str:
    """Return ``docs/messages.md``: every message with its wordings."""
    lines = ["# Messages", "", "Made from the records by `python -m vllm_diag.pages`; do not edit.", "", NOTATION]
    for message in sorted(catalogue(), key=lambda m: m.code):
        lines += ["", f"## {message.code}", "", *_marked(_message_sections(message))]
    return "\n".join(lines).rstrip() + "\n"


def as_json() -> str:
    """Return the whole catalogue as one JSON document, for other tools."""
    data: dict[str, Any] = {
        "causes": [
            {"code": c.code, "term": c.term, "also": list(c.also), "title": c.title, "severity": c.severity,
             "explains": list(c.explains), "page": c.page, "arises": c.arises, "verify": c.verify,
             "useless": c.useless, "example": _examples().get(c.code)}
            for c in all_causes().values()
        ],
        "messages": [
            {"code": m.code, "means": m.means, "emitter": m.emitter, "releases": m.releases,
             "wordings": list(m.wordings),
             "texts": [
                 {"text": t.text, "releases": _span(t), "as": list(t.printed_as), "file": t.file} for t in m.texts
             ],
             "figures": {slot: reader.name for wording in m.compiled() for slot, reader in _read(wording)},
             "event": m.event.__name__, "fatal": m.fatal}
            for m in sorted(catalogue(), key=lambda m: m.code)
        ],
    }  # fmt: skip
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


PAGES = {
    "causes.md": markdown_causes,
    "messages.md": markdown_messages,
    "catalogue.json": as_json,
}


@cache
def _examples() -> dict[str, Any]:
    """Return an example for each cause, as `examples_from` found them in the corpus."""
    return dict(json.loads(files("vllm_diag").joinpath(EXAMPLES).read_text("utf-8")))


EXAMPLES = "data/examples.json"
# Lines of a log that are shown, and the longest of them.
_EXCERPT, _WIDTH = 8, 240


def examples_from(corpus: Path) -> str:
    """Return, as JSON, what the cases in ``corpus`` show of each cause.

    The most apt log whose first finding it is gives the excerpt; remedies and what will not
    help come from all of its logs, each lever once.
    """
    logs: dict[str, list[tuple[Path, Report]]] = {}
    for log in sorted(corpus.glob("*.log"), key=lambda path: (path.stat().st_size, path.name)):
        report = report_on([log])
        if report.findings:
            logs.setdefault(report.findings[0].code, []).append((log, report))
    found = {code: _example(cases) for code, cases in sorted(logs.items())}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _example(cases: list[tuple[Path, Report]]) -> dict[str, Any]:
    log, _ = min(cases, key=lambda case: _aptness(*case))
    cases = sorted(cases, key=lambda case: case[0] != log)
    findings = [case.findings[0] for _, case in cases]
    remedies: dict[str, str] = {}
    for remedy in (remedy for finding in findings for remedy in finding.remedies):
        name = " ".join(str(part) for part in (remedy.op, remedy.flag) if part) if remedy.flag else remedy.id
        remedies.setdefault(name, f"{name}: {remedy.why or remedy.gain}")
    useless = {w.flag: f"{w.op} {w.flag}: {w.why}" for f in reversed(findings) for w in f.wont_help}
    decisive = {(e.source, e.line) for f in findings for e in f.evidence}
    told = [e["code"] for _, case in cases for e in case.events if (e["source"], e["line"]) in decisive]
    return {
        "log": log.name,
        "summary": findings[0].summary,
        "excerpt": _excerpt(log, [e.line for e in findings[0].evidence]),
        "remedies": list(remedies.values()),
        "wont_help": list(useless.values()),
        "messages": list(dict.fromkeys(told)),
    }


def _aptness(log: Path, report: Report) -> tuple[bool, bool, int]:
    """Return how well a case shows its first finding, the best lowest: sure, in its name, short."""
    finding = report.findings[0]
    sure = finding.verdict == "confirmed" and report.outcome == "failed"
    return not sure, not log.stem.startswith(finding.code), log.stat().st_size


def _excerpt(log: Path, decisive: list[int]) -> list[str]:
    lines = [line for line in frame([log.read_bytes()], log.name) if line.shown.strip()]
    last = max(decisive, default=lines[-1].number)
    shown = [line for line in lines if line.number <= last][-_EXCERPT:]
    return [shorten(quote(line.shown), _WIDTH, placeholder=" ...") for line in shown]


def main(folder: str = "docs", corpus: str = "corpus/logs") -> None:
    """Write the generated pages into ``folder``, and the examples they show into the package."""
    Path(__file__).parent.joinpath(EXAMPLES).write_text(examples_from(Path(corpus)), encoding="utf-8")
    _examples.cache_clear()
    target = Path(folder)
    target.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (target / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
