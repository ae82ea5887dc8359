"""The labelled cases beside the repository, where they are at hand: no alarm, no fault of our own.

How many are right is counted by the scoring tool of the cases; here stands what must never
happen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_diag.pipeline import diagnose_sources

CASES = Path(__file__).parent.parent.parent / "shared" / "cases"
LOGS = sorted(CASES.rglob("*.log")) if CASES.is_dir() else []

pytestmark = pytest.mark.skipif(not LOGS, reason="the labelled cases are not beside this repository")


def label_of(log: Path) -> dict[str, Any]:
    """Return the label of a log: NAME.yaml, or one for all renderings of NAME."""
    own = log.with_suffix(".yaml")
    path = own if own.exists() else log.with_name(log.name.split(".")[0] + ".yaml")
    label: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    return label


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.parent.name}/{log.stem}")
def test_no_judge_fails_and_no_healthy_log_gets_an_error(log: Path) -> None:
    """Every check runs on every case, and a case that is healthy gets no error."""
    diagnoses, _ = diagnose_sources([log], strict=True)
    errors = [f.code for f in diagnoses[-1].findings if f.severity == "error"] if diagnoses else []
    if (label_of(log).get("root_cause") or "healthy") == "healthy":
        assert errors == []
