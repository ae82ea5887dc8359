"""The results: a JSON file that partial runs add to, and the page that is made from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Observed = Literal["healthy", "not healthy", "skipped", "no remedy", "no failure"]


@dataclass(frozen=True)
class Row:
    """One remedy on one failure of one release.

    ``role`` is "first" for the first as-is remedy, "length" for an as-is ``--max-model-len`` behind it.
    ``predicted`` and ``largest`` are lengths in tokens, for a remedy that sets one; ``largest`` is None where it was
    not settled.
    """

    release: str
    build: str
    date: str
    failure: str
    what: str
    model: str
    command: str
    cause: str
    role: Literal["first", "length"]
    remedy: str
    observed: Observed
    predicted: int | None = None
    largest: int | None = None
    full_request: str = ""
    one_block_more: str = ""
    why: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What a later run of the same replaces."""
        return self.release, self.failure, self.role

    @property
    def error(self) -> int | None:
        """Tokens between the largest length there is and the one that was advised."""
        return None if self.predicted is None or self.largest is None else self.largest - self.predicted

    @property
    def good(self) -> bool:
        """Whether what was promised is what was seen."""
        return self.observed == "healthy" and not self.why and (self.predicted is None or self.error == 0)


def read(path: Path) -> list[Row]:
    """Return the rows of the file, none when there is none."""
    if not path.exists():
        return []
    return [Row(**entry) for entry in json.loads(path.read_text())["rows"]]


def merge(rows: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Return all rows, the new ones in place of the old ones with the same key, in a fixed order."""
    merged = {row.key: row for row in [*rows, *new]}
    return sorted(merged.values(), key=lambda row: (_number(row.release), row.failure, row.role))


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows."""
    path.write_text(json.dumps({"rows": [asdict(row) for row in rows]}, indent=1) + "\n")


def page(rows: list[Row], models: dict[str, str], missing: Mapping[str, list[str]] | None = None) -> str:
    """Return the receipts as Markdown; ``missing`` are the failures that were not made, for each release."""
    tried = [row for row in rows if row.observed in ("healthy", "not healthy")]
    first = [row for row in tried if row.role == "first"]
    healthy = [row for row in first if row.observed == "healthy"]
    lengths = [row for row in tried if row.predicted is not None]
    settled = [row for row in lengths if row.error is not None]
    bad = [row for row in tried if not row.good]
    lines = [
        "# Receipts",
        "",
        "Real vLLM servers (CPU builds, small models without weights) were made to fail, `vllm-diag explain` read the",
        "log, and its first `as-is` remedy was applied literally. Made by `python -m tools.prove_remedies`, which says",
        "how; the figures are in [receipts.json](receipts.json). All servers also get `--load-format dummy",
        "--enforce-eager --dtype float32`.",
        "",
        f"- First `as-is` remedies that made the server healthy: **{len(healthy)} of {len(first)}**.",
        f"- Advised lengths that are exactly the largest: **{sum(r.error == 0 for r in settled)} of {len(settled)}**"
        + (f"; {len(lengths) - len(settled)} not settled." if len(lengths) > len(settled) else "."),
        f"- Rows where what was promised was not seen: **{len(bad)}**" + (", named below." if bad else "."),
        "",
        "Healthy: `/health` answers 200 and a completion is answered. A length is the largest when a request of that",
        "length is served to the end, and with one block more either the server does not start, or such a request is",
        "never served (to 0.28 vLLM forgets one block of its pool and starts all the same), or it is preempted though",
        "it is alone (the V0 engine, which then computes the whole prompt anew for each token).",
        "Error: the largest length less the predicted one, in tokens.",
        "",
    ]
    if bad:
        lines += ["## Not as promised", ""]
        lines += [
            f"- **{row.release}, {row.failure}**: `{row.remedy}` - {row.why or _length_words(row)}" for row in bad
        ] + [""]
    lines += ["## Remedies tried", ""]
    lines += _table(
        ["release", "model", "failure", "cause found", "remedy", "predicted", "observed", "error", "healthy"],
        [
            [
                row.release,
                row.model,
                row.failure,
                f"`{row.cause}`",
                f"`{row.remedy}`" + ("" if row.role == "first" else " (second remedy)"),
                "healthy" if row.predicted is None else f"{row.predicted:,}",
                _seen(row),
                "" if row.predicted is None else "?" if row.error is None else str(row.error),
                "yes" if row.observed == "healthy" else "**no**",
            ]
            for row in tried
        ],
    )
    if lengths:
        lines += ["", "## Lengths", ""]
        lines += _table(
            ["release", "failure", "advised", "a request of that length", "one block more"],
            [
                [row.release, row.failure, f"{row.predicted:,}", row.full_request, row.one_block_more]
                for row in lengths
                if row.predicted is not None
            ],
        )
    rest = [row for row in rows if row.observed not in ("healthy", "not healthy")]
    if rest:
        lines += ["", "## Not tried", ""]
        lines += ["Skipped: the first `as-is` remedy is a command or an act, which the tool does not carry out.", ""]
        lines += _table(
            ["release", "failure", "cause found", "remedy", "why"],
            [[r.release, r.failure, f"`{r.cause}`" if r.cause else "", r.remedy, _words(r)] for r in rest],
        )
    if missing:
        lines += ["", "## Not run", "", "Failures that the tool knows and that were not made yet on the release.", ""]
        lines += _table(["release", "failures"], [[release, ", ".join(names)] for release, names in missing.items()])
    lines += ["", "## Failures", ""]
    made = {row.failure: row for row in rows}
    lines += _table(
        ["failure", "what is wrong", "flags and variables"],
        [[name, row.what, f"`{row.command}`"] for name, row in sorted(made.items())],
    )
    lines += ["", "## Models", ""]
    lines += _table(["model", "what it is"], [[name, what] for name, what in models.items()])
    lines += ["", "## Builds", ""]
    builds = {row.release: row for row in sorted(rows, key=lambda row: row.date)}
    lines += _table(
        ["release", "build", "last run"],
        [[row.release, row.build, row.date] for _, row in sorted(builds.items(), key=lambda item: _number(item[0]))],
    )
    return "\n".join(lines) + "\n"


def _table(head: list[str], body: list[list[str]]) -> list[str]:
    rows = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in [head, *body]]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "| " + " | ".join("---" for _ in head) + " |", *lines[1:]]


def _seen(row: Row) -> str:
    if row.predicted is None:
        return row.observed
    return _length_words(row) if row.observed == "healthy" else row.observed


def _length_words(row: Row) -> str:
    if row.largest is None:
        return "not settled"
    return f"{row.largest:,}"


def _words(row: Row) -> str:
    return row.why or {"no failure": "the server starts", "no remedy": "no as-is remedy"}.get(
        row.observed, row.observed
    )


def _number(release: str) -> tuple[Any, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in release.split("."))
