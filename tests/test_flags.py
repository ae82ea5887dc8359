"""The data of flags and variables by release, what is asked of it, and the tool that brings in a release."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import vllm_diag
from vllm_diag import flags, releases
from vllm_diag.flags import Default, InForce, Presence
from vllm_diag.versions import Release, parse_release

PACKAGE = Path(vllm_diag.__file__).parent
ROOT = PACKAGE.parent
REFERENCE = ROOT.parent / "shared" / "reference"
FILES = (("flags.json", "flags"), ("envs.json", "variables"))
# Flags of other programs that remedies and causes name.
OTHERS = frozenset(
    ("--previous", "--ulimit", "--gpureset", "--version", "--num-gpus", "--force-download", "--gpu-reset", "--gpus", "--help", "--ipc", "--mem", "--memory", "--no-log-prefix", "--now", "--pid",
     "--shm-size", "--upgrade")
)  # fmt: skip


def at(text: str | None) -> Release | None:
    """Return a release by its number."""
    return parse_release(text)


# --- the data ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("file", "key"), FILES)
def test_rows_are_well_formed(file: str, key: str) -> None:
    """Every range and every step names releases of the data, in their order."""
    table = flags.read_table(file, key)
    allowed = {"in", "default", "also", "off", "bare", "choices", "open", "part", "forms", "in_force", "deprecated",
               "now", "instead"}  # fmt: skip
    for name, row in table.rows.items():
        assert set(row) <= allowed, name
        where = table.span(row["in"])
        assert where, name
        for held in (row.get("also", {}), row.get("off", {}), row.get("choices", {})):
            assert all(what is True or table.span(what) <= where for what in held.values()), name
        for key_ in ("bare", "open"):
            assert key_ not in row or row[key_] is True or table.span(row[key_]) <= where, name
        for key_ in ("default", "forms"):
            steps = [table.releases.index(release) for release in row.get(key_, {})]
            assert steps == sorted(steps), name
            assert set(steps) <= where, name
        assert all(table.span(ranges) & where for ranges, _, _ in row.get("in_force", ())), name
        assert "now" not in row or row["now"] in table.rows, name
        assert "deprecated" not in row or row["deprecated"] in table.releases, name


def test_both_files_know_the_same_releases_oldest_first() -> None:
    """A release is brought in with its flags and its variables."""
    one, other = (flags.read_table(*which).releases for which in FILES)
    assert one == other == flags.releases_read()
    numbers = [at(text) for text in one]
    assert numbers == sorted(set(numbers), key=lambda n: n or Release(0, 0))
    assert len(one) >= 78


@pytest.mark.parametrize(("file", "key"), FILES)
def test_the_data_is_small_and_has_one_row_a_line(file: str, key: str) -> None:
    """A difference between two releases is a few lines."""
    text = (PACKAGE / "data" / file).read_text("utf-8")
    assert len(text) < 150_000
    rows = flags.read_table(file, key).rows
    assert text.count("\n") == len(rows) + 5
    assert list(rows) == sorted(rows)


def test_importing_the_package_does_not_read_the_data() -> None:
    """The data is read when it is first asked."""
    code = "import vllm_diag, vllm_diag.flags as f; print(f._flags.cache_info().currsize, f._variables.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["0", "0"]


# --- single facts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "release", "expected"),
    [
        ("--gpu-memory-utilization", "0.19.1", 0.9),  # config/cache.py
        ("--gpu-memory-utilization", "0.20.0", 0.92),
        ("--gpu-memory-utilization", "0.33.0", 0.92),
        ("--swap-space", "0.17.1", 4),  # config/cache.py, GiB
        ("--tensor-parallel-size", "0.1.4", 1),
        ("--max-num-seqs", "0.6.4", 256),  # engine/arg_utils.py
        ("--max-num-seqs", "0.6.5", None),
        ("--kv-cache-dtype", "0.12.0", "auto"),
        ("--enforce-eager", "0.9.2", False),
        ("--kv-cache-memory-bytes", "0.10.2", None),
        ("--cpu-offload-gb", "0.11.0", 0),
    ],
)
def test_defaults_by_release(flag: str, release: str, expected: Any) -> None:
    """The parser's default of each release."""
    found = flags.default(flag, at(release))
    assert found == Default(expected, certain=True)
    assert found is not None
    assert isinstance(found.value, bool) == isinstance(expected, bool)


@pytest.mark.parametrize(
    ("flag", "release", "there"),
    [
        ("--kv-cache-memory-bytes", "0.10.1", False),
        ("--kv-cache-memory-bytes", "0.10.2", True),
        ("--swap-space", "0.17.1", True),
        ("--swap-space", "0.18.0", False),
        ("--swap-space", "0.18.1", False),
        ("--attention-backend", "0.12.0", False),
        ("--attention-backend", "0.13.0", True),
        ("--max-model-len", "0.1.7", False),
        ("--max-model-len", "0.2.0", True),
        ("--device", "0.9.2", True),
        ("--device", "0.10.0", False),
        ("--num-gpu-blocks-override", "0.4.0", False),
        ("--forced-num-gpu-blocks", "0.4.0", True),
        ("--no-enable-prefix-caching", "0.6.4", False),
        ("--no-enable-prefix-caching", "0.6.5", True),
        ("-ep", "0.13.0", False),
        ("-ep", "0.14.1", True),
        ("-tp", "0.8.5", True),
        ("--max_model_len", "0.8.5", True),
        ("--no-such-flag", "0.8.5", False),
    ],
)
def test_which_release_has_which_spelling(flag: str, release: str, there: bool) -> None:
    """A spelling is known or not; short forms and off switches have their own releases."""
    assert flags.presence(flag, at(release)) == Presence(there, True)
    assert flags.has_flag(flag, at(release)) is there


@pytest.mark.parametrize(
    ("flag", "release", "text"),
    [
        ("--num-gpu-blocks-override", "0.4.0", "--forced-num-gpu-blocks"),
        ("--num-gpu-blocks-override", "0.4.1", "--num-gpu-blocks-override"),
        ("--forced-num-gpu-blocks", "0.9.2", "--num-gpu-blocks-override"),
        ("--max-seq-len-to-capture", "0.3.0", "--max-context-len-to-capture"),
        ("--max-cudagraph-capture-size", "0.10.0", "--cuda-graph-sizes"),
        ("--preemption-mode", "0.5.0", "--preemption_mode"),
        ("--tensor-parallel-size", "0.8.5", "--tensor-parallel-size"),
        ("-tp", "0.8.5", "-tp"),
        ("-ep", "0.13.0", "--enable-expert-parallel"),
        ("--no-enable-prefix-caching", "0.33.0", "--no-enable-prefix-caching"),
        ("--no-enable-prefix-caching", "0.5.5", None),
        ("--disable-prefix-caching", "0.33.0", "--disable-prefix-caching"),
        ("--disable-prefix-caching", "0.20.2", "--no-enable-prefix-caching"),
        ("--max_model_len", "0.20.2", "--max-model-len"),
        ("--disable-log-requests", "0.33.0", "--disable-log-requests"),
        ("--swap-space", "0.20.2", None),
        ("--no-such-flag", "0.20.2", None),
    ],
)
def test_spelling_by_release(flag: str, release: str, text: str | None) -> None:
    """A flag is named as the release spells it, or not at all."""
    found = flags.spelling(flag, at(release))
    assert (found.text if found else None) == text
    assert found is None or found.certain


def test_what_switches_a_flag_off() -> None:
    """Before 0.6.5 prefix caching has no off switch; it was off."""
    found = flags.off_spelling("--enable-prefix-caching", at("0.11.0"))
    assert found is not None
    assert found.text == "--no-enable-prefix-caching"
    assert flags.off_spelling("--enable-prefix-caching", at("0.5.5")) is None
    assert flags.off_spelling("--swap-space", at("0.10.0")) is None


def test_an_unknown_release_gets_the_newest_and_is_told_so() -> None:
    """Without a release, or with one newer than the data, nothing is certain."""
    for release in (None, Release(0, 99)):
        found = flags.spelling("--num-gpu-blocks-override", release)
        assert found == flags.Spelling("--num-gpu-blocks-override", False, flags.releases_read()[-1])
        assert flags.presence("--swap-space", release) == Presence(False, False)
        assert flags.default("--gpu-memory-utilization", release) == Default(0.92, False)


def test_releases_between_two_that_were_looked_at() -> None:
    """What both neighbours say is certain; else the one of the same minor release speaks."""
    table = flags.Table(("0.1.0", "0.2.0", "0.2.2", "0.3.1"), {})
    values = {0: "a", 1: "b", 2: "b", 3: "c"}
    assert table.at(Release(0, 2, 1), values.__getitem__) == ("b", True)
    assert table.at(Release(0, 2, 2), values.__getitem__) == ("b", True)
    assert table.at(Release(0, 2, 9), values.__getitem__) == ("b", False)
    assert table.at(Release(0, 3, 0), values.__getitem__) == ("c", False)
    assert table.at(Release(0, 0, 9), values.__getitem__) == ("a", False)
    assert table.name_at(Release(0, 3, 0)) == "0.3.1"


def test_choices_by_release() -> None:
    """The KV cache's formats and the attention backends, as typed."""
    old, new = flags.choices("--kv-cache-dtype", at("0.3.0")), flags.choices("--kv-cache-dtype", at("0.20.2"))
    assert old is not None
    assert set(old.values) == {"auto", "fp8_e5m2"}
    assert new is not None
    assert {"auto", "fp8", "nvfp4"} <= set(new.values)
    backends = flags.choices("--attention-backend", at("0.20.2"))
    assert backends is not None
    assert {"FLASH_ATTN", "TRITON_ATTN"} <= set(backends.values)
    assert backends.is_open
    assert flags.choices("--max-model-len", at("0.20.2")) is None
    # engine/arg_utils.py takes it off the list before it registers the flag.
    moe = flags.choices("--all2all-backend", at("0.33.0"))
    assert moe is not None
    assert "passthrough" not in moe.values


def test_how_a_value_is_written() -> None:
    """A list of counts became JSON in 0.8.5; a length may be found automatically from 0.14.0."""
    assert flags.form("--limit-mm-per-prompt", at("0.8.4")) == "key=count,..."
    assert flags.form("--limit-mm-per-prompt", at("0.8.5")) == "JSON"
    assert "auto" not in (flags.form("--max-model-len", at("0.13.0")) or "")
    assert "auto" in (flags.form("--max-model-len", at("0.14.0")) or "")
    assert flags.env_form("VLLM_CPU_KVCACHE_SPACE", at("0.20.2")) == "whole GiB"


def test_what_is_in_force_where_the_default_is_decided_later() -> None:
    """256 sequences on most GPUs, 1024 on large ones."""
    assert flags.in_force("--max-num-seqs", at("0.6.3")) == (InForce(256, ""),)
    assert {1024, 256} <= {found.value for found in flags.in_force("--max-num-seqs", at("0.15.1"))}
    assert flags.in_force("--port", at("0.15.1")) == ()


def test_switches_deprecations_and_what_takes_their_place() -> None:
    """Facts that decide how a remedy is written."""
    assert flags.is_switch("--enforce-eager", at("0.8.5"))
    assert not flags.is_switch("--max-num-seqs", at("0.8.5"))
    assert flags.is_deprecated("--swap-space", at("0.17.1")) is False
    assert flags.is_deprecated("--calculate-kv-scales", at("0.20.2"))
    assert flags.instead("--forced-num-gpu-blocks") == "--num-gpu-blocks-override"
    assert flags.instead("--worker-use-ray") == "--distributed-executor-backend ray"
    assert flags.instead("--max-model-len") is None


def test_o_meant_the_compilation_level_before_it_meant_the_optimization_level() -> None:
    """One short form, two flags."""
    assert flags.canonical("-O") == "--optimization-level"
    assert flags.has_flag("-O", at("0.8.5"))
    assert not flags.has_flag("-O", at("0.5.5"))


@pytest.mark.parametrize(
    ("name", "release", "there", "value"),
    [
        ("VLLM_CPU_KVCACHE_SPACE", "0.9.2", True, 0),  # envs.py
        ("VLLM_CPU_KVCACHE_SPACE", "0.20.2", True, None),
        ("VLLM_USE_V1", "0.7.3", True, False),
        ("VLLM_USE_V1", "0.8.5", True, True),
        ("VLLM_USE_V1", "0.11.1", False, None),
        ("VLLM_ATTENTION_BACKEND", "0.14.1", True, None),
        ("VLLM_ATTENTION_BACKEND", "0.15.0", False, None),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "0.13.0", False, None),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "0.14.0", True, 600),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0.19.1", True, False),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0.20.0", True, True),
        ("VLLM_MAIN_CUDA_VERSION", "0.20.2", True, "13.0"),
        # Gone in between: in 0.28.0 and 0.31.0, not in 0.29.0 and 0.30.0.
        ("VLLM_ROCM_USE_AITER_FP4_ASM_GEMM", "0.28.0", True, False),
        ("VLLM_ROCM_USE_AITER_FP4_ASM_GEMM", "0.29.0", False, None),
        ("VLLM_ROCM_USE_AITER_FP4_ASM_GEMM", "0.31.0", True, False),
    ],
)
def test_variables_by_release(name: str, release: str, there: bool, value: Any) -> None:
    """A variable is read or not, and has a value when it is not set."""
    assert flags.env_presence(name, at(release)) == Presence(there, True)
    found = flags.env_default(name, at(release))
    assert (found is not None) == there
    assert found is None or found == Default(value, certain=True)


def test_variables_of_other_programs_are_beside_every_release() -> None:
    """NCCL reads its own variables whatever vLLM does."""
    assert flags.has_env("NCCL_DEBUG", at("0.1.4"))
    assert flags.has_env("CUDA_VISIBLE_DEVICES", at("0.1.4"))
    assert not flags.has_env("VLLM_NO_SUCH_THING", at("0.20.2"))
    assert flags.env_choices("VLLM_WORKER_MULTIPROC_METHOD", at("0.20.2")) == ("spawn", "fork")
    assert flags.env_instead("VLLM_ATTENTION_BACKEND") == "--attention-backend"
    assert flags.env_in_force("VLLM_CPU_KVCACHE_SPACE", at("0.12.0"))[0].value == 4


# --- what the package names -------------------------------------------------------------------


def named(pattern: str) -> set[str]:
    """Return what matches in the texts of remedies and causes."""
    found: set[str] = set()
    for path in [*(PACKAGE / "remedies").glob("*.py"), *(PACKAGE / "causes").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(re.findall(pattern, node.value))
    return found


def test_every_flag_that_is_named_exists() -> None:
    """What remedies and causes name is a flag of some release, or of another program that is listed here."""
    wanted = named(r"(?<![\w-])--[a-z][a-z0-9-]+")
    assert {flag for flag in wanted if flags.canonical(flag) is None} <= OTHERS
    assert {name for name in named(r"\bVLLM_[A-Z0-9_]+") if name not in flags.env_names()} == set()


def test_has_flag_of_releases_asks_the_data() -> None:
    """Flags and variables of vLLM by release; another program's name is in every release."""
    assert releases.has_flag("--swap-space", at("0.17.1"))
    assert not releases.has_flag("--swap-space", at("0.18.1"))
    assert not releases.has_flag("--swap-space", None)
    assert releases.has_flag("--kv-cache-memory-bytes", None)
    assert not releases.has_flag("VLLM_ATTENTION_BACKEND", at("0.20.2"))
    for other in ("--shm-size", "resources.limits.memory", "PYTORCH_CUDA_ALLOC_CONF", ""):
        assert releases.has_flag(other, at("0.20.2"))


def test_the_default_share_is_the_one_of_the_data() -> None:
    """What the ledger assumes is what the parser of that release gives."""
    for text in flags.releases_read():
        found = flags.default("--gpu-memory-utilization", at(text))
        assert found is not None
        assert releases.default_utilization(at(text)) == found.value


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference tables are not at hand")
def test_the_data_agrees_with_the_reference() -> None:
    """Every flag of every release of the reference: there or not, with the same literal default."""
    reference = json.loads((REFERENCE / "vllm-flags.json").read_text("utf-8"))
    looked_at = reference["surveyed"]
    wrong: list[tuple[str, str]] = []
    for index, release in enumerate(looked_at):
        for name, row in reference["flags"].items():
            last = row["last_version"] or looked_at[-1]
            there = looked_at.index(row["first_version"]) <= index <= looked_at.index(last)
            if flags.has_flag(name, at(release)) != there:
                wrong.append((release, name))
            for step in row["default"] if there else ():
                end = looked_at.index(step["to"] or looked_at[-1])
                if looked_at.index(step["from"]) <= index <= end and not str(step["value"]).startswith("<"):
                    found = flags.default(name, at(release))
                    if found is None or found.value != step["value"]:
                        wrong.append((release, f"{name} default"))
    # Gone as a flag of its own, it is back as what switches --enable-log-requests off.
    assert wrong == [("0.33.0", "--disable-log-requests")]


# --- the tool ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Return tools/refresh_flags.py as a module."""
    path = ROOT / "tools" / "refresh_flags.py"
    if not path.is_file():
        pytest.skip("tools/ is not part of an installed package")
    spec = importlib.util.spec_from_file_location("refresh_flags", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["refresh_flags"] = module
    spec.loader.exec_module(module)
    return module


SOURCES = {
    "vllm/config/__init__.py": '''
from dataclasses import field
from enum import Enum
from typing import Literal, Optional
KVType = Literal["auto", "fp8"]
class Backend(Enum):
    FLASH = "vllm.attention.Flash"
    OTHER = "vllm.attention.Other"
class CacheConfig:
    gpu_memory_utilization: float = 0.92
    cache_dtype: KVType = "auto"
    prefix: bool | None = None
    backend: Backend | None = None
    sizes: list[int] = field(default_factory=list)
    space: float = 2 * 2
    when: str = compute()
''',
    "vllm/engine/arg_utils.py": '''
import argparse
from vllm.config import CacheConfig
def get_kwargs(cls): ...
class EngineArgs:
    model: str = "m"
    @staticmethod
    def add_cli_args(parser):
        cache = get_kwargs(CacheConfig)
        group = parser.add_argument_group("x")
        group.add_argument("--model", default=EngineArgs.model)
        group.add_argument("--gpu-memory-utilization", **cache["gpu_memory_utilization"])
        group.add_argument("--kv-cache-dtype", **cache["cache_dtype"])
        group.add_argument("--enable-prefix-caching", "-pc", **cache["prefix"])
        group.add_argument("--attention-backend", **cache["backend"])
        group.add_argument("--max-num-seqs", **{**cache["space"], "default": None})
        group.add_argument("--sizes", **cache["sizes"])
        group.add_argument("--when", **cache["when"])
        if something():
            group.add_argument("--enforce-eager", action="store_true")
        return parser
class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--enable-log-requests", action=argparse.BooleanOptionalAction, default=False)
        return parser
''',
    "vllm/entrypoints/openai/cli_args.py": '''
from vllm.engine.arg_utils import AsyncEngineArgs, get_kwargs
class FrontendArgs:
    host: str | None = None
    port: int = 8000
    origins: list[str] = ["*"]
    @staticmethod
    def add_cli_args(parser):
        own = get_kwargs(FrontendArgs)
        del own["origins"]["nargs"]
        own["origins"]["default"] = []
        for key, value in own.items():
            parser.add_argument(f"--{key.replace('_', '-')}", **value)
        return parser
def make_arg_parser(parser):
    parser.add_argument("model_tag")
    parser.add_argument("--headless", action="store_true", default=False)
    parser = FrontendArgs.add_cli_args(parser)
    parser = AsyncEngineArgs.add_cli_args(parser)
    return parser
''',
    "vllm/envs.py": '''
import os
def maybe_int(value):
    if value is None:
        return None
    return int(value)
def chosen(name, default, choices):
    def read():
        value = os.getenv(name)
        if value is None:
            return default
        return value
    return read
environment_variables = {
    "VLLM_ON": lambda: bool(int(os.getenv("VLLM_ON", "1"))),
    "VLLM_OFF": lambda: os.getenv("VLLM_OFF", "False").lower() in ("true", "1"),
    "VLLM_NUMBER": lambda: maybe_int(os.getenv("VLLM_NUMBER")),
    "VLLM_PORT": lambda: int(os.getenv("VLLM_PORT", "0")) if "VLLM_PORT" in os.environ else None,
    "VLLM_WORD": chosen("VLLM_WORD", "a", ["a", "b"]),
    "VLLM_PATH": lambda: os.path.expanduser("~"),
    "VLLM_OTHER": lambda: val if (val := float(os.getenv("VLLM_OTHER", "0"))) > 0 else 10.0,
}
''',
}  # fmt: skip


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """Return a folder with the sources of a small vLLM."""
    for name, text in SOURCES.items():
        path = tmp_path / "unpacked" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "unpacked" / "vllm" / "__init__.py").write_text("")
    return tmp_path / "unpacked"


def test_the_tool_reads_flags_without_running_them(tool: ModuleType, unpacked: Path) -> None:
    """Dataclass fields, loops, changed defaults, conditions and enumerations."""
    found = tool.read_flags(tool.Sources(unpacked))
    assert set(found) == {
        "--model", "--gpu-memory-utilization", "--kv-cache-dtype", "--enable-prefix-caching", "--attention-backend",
        "--max-num-seqs", "--sizes", "--when", "--enforce-eager", "--enable-log-requests", "--host", "--port",
        "--origins", "--headless",
    }  # fmt: skip
    flag = tool.Flag
    assert found["--gpu-memory-utilization"] == flag(0.92)
    assert found["--kv-cache-dtype"] == flag("auto", choices=("auto", "fp8"))
    assert found["--enable-prefix-caching"] == flag(also=("-pc",), off=("--no-enable-prefix-caching",), bare=True)
    assert found["--attention-backend"] == flag(choices=("FLASH", "OTHER"), open=True)
    assert found["--max-num-seqs"].default is None
    assert found["--when"].default is tool.UNKNOWN
    assert found["--enforce-eager"] == flag(False, bare=True)
    assert found["--origins"] == flag([], part="frontend")
    assert found["--headless"] == flag(False, bare=True, part="serve")
    assert found["--port"] == flag(8000, part="frontend")


def test_the_tool_reads_what_holds_when_a_variable_is_not_set(tool: ModuleType, unpacked: Path) -> None:
    """The reading code is followed with nothing set."""
    found = {name: v.default for name, v in tool.read_variables(tool.Sources(unpacked)).items()}
    assert found == {
        "VLLM_ON": True, "VLLM_OFF": False, "VLLM_NUMBER": None, "VLLM_PORT": None, "VLLM_WORD": "a",
        "VLLM_PATH": tool.UNKNOWN, "VLLM_OTHER": 10.0,
    }  # fmt: skip


def test_the_tool_says_what_is_new_gone_renamed_and_changed(tool: ModuleType) -> None:
    """One line each."""
    flag = tool.Flag
    before = {"--a": flag(1), "--max-context-len": flag(5), "--same": flag(0), "--old": flag("x")}
    after = {"--a": flag(2, also=("-a",)), "--max-content-len": flag(5), "--same": flag(0), "--new": flag(None)}
    assert tool.differences(before, after) == [
        "renamed?  --max-context-len is gone, --max-content-len is new and like it",
        "gone      --old",
        "new       --new, default null",
        "changed   --a: default 1 -> 2",
        "changed   --a: also +-a",
    ]


@pytest.mark.parametrize(("file", "key"), FILES)
def test_the_data_is_in_the_form_that_the_tool_writes(tool: ModuleType, file: str, key: str) -> None:
    """Reading the data release by release and writing it again changes nothing."""
    table = flags.read_table(file, key)
    known = tool.expand(table, tool.flag_at if key == "flags" else tool.variable_at)
    packer = tool.Packer(table.releases)
    rows = {name: packer.row(facts, table.rows[name]) for name, facts in known.items()}
    assert tool.dump(table.releases, key, rows) == (PACKAGE / "data" / file).read_text("utf-8")


def test_the_tool_adds_a_release(tool: ModuleType, unpacked: Path, tmp_path: Path) -> None:
    """What is gone ends with the release before; what is new begins; a second run finds nothing."""
    for file, _ in FILES:
        (tmp_path / file).write_text((PACKAGE / "data" / file).read_text("utf-8"), encoding="utf-8")
    newest = flags.releases_read()[-1]
    heading, lines = tool.refresh(unpacked, "0.99.0", True, tmp_path)
    assert heading.startswith("0.99.0: 14 flags, 7 variables;")
    assert heading.endswith(f"differences from {newest}")
    assert "gone      --tensor-parallel-size" in lines
    assert "new       --sizes, default []" in lines
    table = flags.read_table("flags.json", "flags", tmp_path)
    assert table.releases[-1] == "0.99.0"
    assert table.rows["--tensor-parallel-size"]["in"] == f"0.1.4 - {newest}"
    assert table.rows["--sizes"]["in"] == "0.99.0 -"
    assert table.rows["--gpu-memory-utilization"]["in"] == "0.1.4 -"
    assert table.rows["--max-num-seqs"]["in_force"]
    assert tool.refresh(unpacked, "0.99.0", False, tmp_path)[1] == []


def test_the_tool_replaces_what_the_data_says_of_a_release(tool: ModuleType, unpacked: Path, tmp_path: Path) -> None:
    """A release in the middle keeps its place, and its neighbours what they had."""
    for file, _ in FILES:
        (tmp_path / file).write_text((PACKAGE / "data" / file).read_text("utf-8"), encoding="utf-8")
    tool.refresh(unpacked, "0.12.0", True, tmp_path)
    table = flags.read_table("flags.json", "flags", tmp_path)
    assert table.releases == flags.releases_read()
    assert table.rows["--tensor-parallel-size"]["in"] == "0.1.4 - 0.11.2, 0.13.0 -"
    assert table.rows["--sizes"]["in"] == "0.12.0"


def test_the_tool_refuses_what_it_cannot_read(tool: ModuleType, tmp_path: Path) -> None:
    """A folder without a server is an error, not an empty release."""
    with pytest.raises(ValueError, match="no make_arg_parser"):
        tool.refresh(tmp_path, "0.99.0", False)
    with pytest.raises(ValueError, match="--release"):
        tool.refresh(tmp_path, None, False)
