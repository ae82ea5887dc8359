"""The library as the README shows it, in one process."""

from __future__ import annotations

from pathlib import Path

import vllm_diag

LOG = Path(__file__).parent.parent / "corpus" / "logs" / "kv-cache-too-small-24gb-card.log"


def test_the_readme_snippet_runs() -> None:
    """`diagnose` and `events` can be called one after the other, and again."""
    report = vllm_diag.diagnose(str(LOG))
    assert (report.outcome, report.findings[0].code) == ("failed", "kv-cache-too-small")
    assert report.findings[0].remedies[0].flag == "--max-model-len"
    for _ in range(2):
        with LOG.open("rb") as file:
            assert any(event.code == "kv-cache-too-small" for event in vllm_diag.events(file))


def test_every_kind_of_source_gives_the_same_verdict() -> None:
    """A path, bytes, text, a binary file and lines are read alike."""
    data = LOG.read_bytes()
    sources = [LOG, data, data.decode(), data.splitlines(keepends=True), iter(data.splitlines())]
    assert {vllm_diag.diagnose(source).findings[0].code for source in sources} == {"kv-cache-too-small"}
