"""Data flows one way: no module imports one that comes after it."""

from __future__ import annotations

import ast
from pathlib import Path

import vllm_diag

PACKAGE = Path(vllm_diag.__file__).parent

# The stages in their order; modules on one line do not import each other.
ORDER = (
    ("quantities", "versions"),
    ("flags", "defects"),
    ("evidence", "wording", "settings", "releases", "readings"),
    ("kv_arithmetic", "cards"),
    ("planning",),
    ("framing",),
    ("records", "event_types"),
    ("messages",),
    ("recognise",),
    ("runs",),
    ("ledger",),
    ("host_ledger",),
    ("causes",),
    ("diagnosis",),
    ("remedies",),
    ("report",),
    ("plan_report",),
    ("render", "pipeline"),
    ("pages",),
    ("inputs",),
    ("cli",),
)
# event_types takes the process from framing and the settings' type from nowhere; recognise alone knows records.
RANK = {name: number for number, names in enumerate(ORDER) for name in names}


def stage(path: Path) -> str:
    """Return the stage a file belongs to: its module, or the package it lies in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Return the stages that a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "vllm_diag" and len(parts) > 1 and parts[1] in RANK:
                found.add(parts[1])
    return found


def files() -> list[Path]:
    """Return the package's files but for its two entrances."""
    return [p for p in sorted(PACKAGE.rglob("*.py")) if stage(p) not in ("__init__", "__main__")]


def test_every_module_has_a_place_in_the_order() -> None:
    """No module stands outside the order."""
    assert {stage(path) for path in files()} == set(RANK)


def test_no_module_imports_a_later_stage() -> None:
    """Each import goes to an earlier stage, or stays within its own."""
    wrong = [
        (str(path.relative_to(PACKAGE)), other)
        for path in files()
        for other in imports(path)
        if other != stage(path) and RANK[other] >= RANK[stage(path)]
    ]
    assert wrong == []
