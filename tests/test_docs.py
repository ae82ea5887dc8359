"""The pages in docs/ and the README are what the code makes of its own records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vllm_diag.pages import EXAMPLES, PAGES, examples_from
from vllm_diag.pipeline import report_on
from vllm_diag.render.text import render

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_fresh(name: str) -> None:
    """Each generated page equals what `python -m vllm_diag.pages` writes."""
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name]()


def test_examples_are_what_the_corpus_shows() -> None:
    """The examples on the pages of causes are those that the corpus logs give."""
    kept = ROOT / "vllm_diag" / EXAMPLES
    assert kept.read_text(encoding="utf-8") == examples_from(ROOT / "corpus" / "logs"), "python -m vllm_diag.pages"


def test_readme_example_is_what_the_command_prints() -> None:
    """The example in the README is the rendering of the corpus log that its first command explains."""
    log = re.search(r"vllm-diag explain (corpus/logs/\S+\.log)", README)
    shown = re.search(r"<!-- example -->\n+```text\n(.*?)```", README, re.DOTALL)
    assert log is not None
    assert shown is not None
    assert shown[1] == render(report_on([ROOT / log[1]]))


def test_readme_holds_its_two_commands() -> None:
    """The commands that CI runs stand in the README behind their marks."""
    for name in ("explain", "test"):
        assert re.search(rf"<!-- {name} -->\n+```console\n\$ .*?```", README, re.DOTALL), name
