"""The conformance table: for each release, how many of its texts are read back, with all figures.

``python -m tests.conformance`` writes it to ``docs/conformance.md``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.vllm_values import check
from vllm_diag.messages.vllm_texts import all_releases, texts

PAGE = Path(__file__).parents[1] / "docs" / "conformance.md"
# One fixed draw a text and release; the property test draws others.
_SEED = 33

_HEAD = """# Conformance

For each release: how many texts its sources hold that matter for start-up and memory, how many figures and
words stand in them, and how many of these texts are read back as the same event with the same values, from a
line with that release's own prefix. Written by `python -m tests.conformance`; the tests fail below 100 %.

| vLLM | texts | figures and words | read back | |
|---|---:|---:|---:|---:|
"""


def failures() -> list[tuple[str, str]]:
    """Return (release, what is wrong) of each text that is not read back."""
    return [(release, wrong) for text in texts() for release in text.releases if (wrong := check(text, release, _SEED))]


def table(failed: list[tuple[str, str]]) -> str:
    """Return the page, given what failed."""
    held = Counter(release for text in texts() for release in text.releases)
    slots = Counter({release: sum(len(t.slots) for t in texts() if release in t.releases) for release in held})
    lost = Counter(release for release, _ in failed)
    rows = [(r, held[r], slots[r], held[r] - lost[r]) for r in all_releases()]
    rows.append(("all", sum(held.values()), sum(slots.values()), sum(held.values()) - len(failed)))
    return _HEAD + "".join(f"| {r} | {n:,} | {s:,} | {ok:,} | {ok / n:.0%} |\n" for r, n, s, ok in rows)


if __name__ == "__main__":
    PAGE.write_text(table(failures()), encoding="utf-8")
