"""Files and standard input, opened, and what to say when one cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vllm_diag.framing import Blocks, blocks

if TYPE_CHECKING:
    from vllm_diag.report import Report


class Problem(Exception):
    """An input that cannot be used: what was tried, what was seen, what to do."""

    def __init__(self, seen: str, hint: str) -> None:
        super().__init__(f"{seen}\n           {hint}")


@dataclass(slots=True)
class Input:
    """One source: its name in evidence, its bytes, and what was seen of them."""

    name: str
    stream: Blocks
    seen: _Seen

    def problem(self, report: Report) -> Problem | None:
        """Return what to say when nothing in the input was recognised."""
        if report.events:
            return None
        if not self.seen.bytes:
            return Problem(f"{self.name} is empty", "was the output redirected? vllm serve ... > server.log 2>&1")
        if self.seen.binary:
            return Problem(
                f"{self.name} is not text ({self.seen.bytes:,} bytes read)",
                "give the log itself, not a core or an archive",
            )
        return Problem(
            f"nothing in {self.name} was recognised ({self.seen.lines:,} lines read)",
            "is this the output of vLLM, the kernel log or a /metrics scrape? It needs the part where it failed",
        )


@dataclass(slots=True)
class _Seen:
    bytes: int = 0
    lines: int = 0
    binary: bool = False


def open_inputs(files: Sequence[Path] | None) -> list[Input]:
    """Return the inputs named by ``files``; raises `Problem` for one that cannot be opened."""
    names = list(files or [Path("-")])
    return [_standard_input() if str(name) == "-" else _file(name) for name in names]


def _standard_input() -> Input:
    seen = _Seen()
    return Input("stdin", Blocks(_watched(blocks(sys.stdin.buffer), seen)), seen)


def _file(path: Path) -> Input:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise Problem(
            f"there is no file {path}", "check the path, or pipe the log in: journalctl -u vllm | vllm-diag"
        ) from None
    except IsADirectoryError:
        raise Problem(f"{path} is a directory", "name the log file in it") from None
    except OSError as error:
        raise Problem(f"cannot read {path}: {error.strerror}", "check its permissions") from None
    seen = _Seen()
    return Input(path.name, Blocks(_closing(file, seen)), seen)


def _closing(file: BinaryIO, seen: _Seen) -> Iterator[bytes]:
    with file:
        yield from _watched(blocks(file), seen)


def _watched(stream: Iterator[bytes], seen: _Seen) -> Iterator[bytes]:
    for block in stream:
        if not seen.bytes:
            seen.binary = _looks_binary(block)
        seen.bytes += len(block)
        seen.lines += block.count(b"\n")
        yield block


def _looks_binary(block: bytes) -> bool:
    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    head = block[:4096]
    odd = sum(head.count(byte) for byte in range(9)) + sum(head.count(byte) for byte in range(14, 27))
    return odd > len(head) // 20
