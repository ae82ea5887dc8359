"""The catalogue for people: a page for each cause and each message, and the lists of both.

``vllm-diag codes`` prints them, ``docs/`` holds them as Markdown. Both are made from the
records themselves; nothing is written twice.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

from vllm_diag.causes import Cause, all_causes
from vllm_diag.messages import Message, catalogue


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
    terms = ", ".join([cause.term, *cause.also])
    lines = [
        f"CAUSE {cause.code}",
        "",
        f"{cause.title}.",
        "",
        f"Budget term: {terms}.  Severity: {cause.severity}.",
        "",
    ]
    lines.append(cause.page)
    if cause.explains:
        lines += ["", "What follows from it: " + ", ".join(cause.explains) + "."]
    return "\n".join(lines)


def _message_page(message: Message) -> str:
    lines = [f"MESSAGE {message.code}", "", message.means, "", f"Printed by: {message.emitter}"]
    if message.seen:
        lines.append(f"Releases:   {message.seen}")
    if message.reads:
        figures = ", ".join(f"{name} ({reader.name})" for name, reader in message.reads.items())
        lines.append(f"Figures:    {figures}")
    lines += ["", "Wordings ({figure}, ⟨one|other⟩, ⟦optional⟧, ¦ may be cut off from here):", ""]
    lines += [f"  {wording}" for wording in message.wordings]
    lines += ["", "As met:", "", *[f"  {sample}".replace("\n", "\n  ") for sample in message.samples]]
    return "\n".join(lines)


def markdown_causes() -> str:
    """Return ``docs/causes.md``: every cause with its page."""
    lines = ["# Causes", "", "Made from the records by `python -m vllm_diag.pages`; do not edit.", ""]
    lines += ["| code | budget term | what it says |", "| --- | --- | --- |"]
    causes = all_causes()
    lines += [f"| [`{code}`](#{code}) | {cause.term} | {cause.title} |" for code, cause in causes.items()]
    for code, cause in causes.items():
        lines += ["", f"## {code}", "", f"**{cause.title}.** Budget term: {', '.join([cause.term, *cause.also])}.", ""]
        lines.append(cause.page)
        if cause.explains:
            lines += ["", "What follows from it: " + ", ".join(f"`{c}`" for c in cause.explains) + "."]
    return "\n".join(lines) + "\n"


def markdown_messages() -> str:
    """Return ``docs/messages.md``: every message with its wordings."""
    lines = ["# Messages", "", "Made from the records by `python -m vllm_diag.pages`; do not edit.", ""]
    lines.append(
        "`{figure}` is a value, `⟨one|other⟩` a choice, `⟦text⟧` optional, `¦` marks where a text may be cut off."
    )
    for message in sorted(catalogue(), key=lambda m: m.code):
        seen = f" ({message.seen})" if message.seen else ""
        lines += [
            "",
            f"## {message.code}",
            "",
            message.means,
            "",
            f"Printed by {message.emitter}{seen}.",
            "",
            "```text",
        ]
        lines += [*message.wordings, "```"]
    return "\n".join(lines) + "\n"


def as_json() -> str:
    """Return the whole catalogue as one JSON document, for other tools."""
    data: dict[str, Any] = {
        "causes": [
            {"code": c.code, "term": c.term, "also": list(c.also), "title": c.title, "severity": c.severity,
             "explains": list(c.explains), "page": c.page}
            for c in all_causes().values()
        ],
        "messages": [
            {"code": m.code, "means": m.means, "emitter": m.emitter, "seen": m.seen, "wordings": list(m.wordings),
             "figures": {name: reader.name for name, reader in m.reads.items()}, "event": m.event.__name__,
             "fatal": m.fatal}
            for m in sorted(catalogue(), key=lambda m: m.code)
        ],
    }  # fmt: skip
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


PAGES = {
    "causes.md": markdown_causes,
    "messages.md": markdown_messages,
    "catalogue.json": as_json,
}


def main(folder: str = "docs") -> None:
    """Write the generated pages into ``folder``."""
    from pathlib import Path

    target = Path(folder)
    target.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (target / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
