"""Sources to a report: the stages, one after the other, in one pass.

bytes -> lines -> records -> events -> runs -> ledger, diagnosis -> remedies, report.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from vllm_diag import report as reports
from vllm_diag import runs as grouping
from vllm_diag.diagnosis import Diagnosis, diagnose
from vllm_diag.event_types import Event
from vllm_diag.framing import Blocks, blocks, frame
from vllm_diag.recognise import Tally, recognise
from vllm_diag.records import assemble
from vllm_diag.report import Report

Source: TypeAlias = "str | bytes | os.PathLike[str] | BinaryIO | Iterable[str] | Iterable[bytes]"

# Runs before the last are kept as a line each; a server that restarts for weeks has many.
_MAX_HISTORY = 1000


class Unreadable(OSError):
    """A source that could not be read; the text says what was tried and what to do."""


def _name_of(source: object, index: int) -> str:
    name = getattr(source, "name", None)
    if isinstance(name, str):
        return os.path.basename(name) or name
    if isinstance(source, os.PathLike) or (isinstance(source, str) and _is_path(source)):
        return os.path.basename(os.fspath(source))
    return f"input-{index}" if index else "input"


def _is_path(text: str) -> bool:
    """A text without a line break is a path; a log of one line is given as bytes or a list."""
    return "\n" not in text and len(text) < 4096


def chunks(source: Source) -> Iterator[bytes]:
    """Yield the bytes of ``source``; raises `Unreadable` when a path cannot be opened."""
    if isinstance(source, bytes | bytearray):
        yield bytes(source)
    elif isinstance(source, Blocks):
        yield from source
    elif isinstance(source, os.PathLike) or (isinstance(source, str) and _is_path(source)):
        yield from _file(Path(source))
    elif isinstance(source, str):
        yield source.encode("utf-8", "surrogateescape")
    elif hasattr(source, "read"):
        for block in blocks(cast("BinaryIO", source)):
            yield block if isinstance(block, bytes) else str(block).encode("utf-8", "surrogateescape")
    else:
        for line in source:
            data = line if isinstance(line, bytes) else str(line).encode("utf-8", "surrogateescape")
            yield data if data.endswith(b"\n") else data + b"\n"


def _file(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from blocks(file)
    except OSError as error:
        raise Unreadable(error.errno, f"cannot read {path}: {error.strerror}") from error


def events(source: Source, name: str | None = None, tally: Tally | None = None) -> Iterator[Event]:
    """Yield the events of ``source`` in order, in constant memory."""
    yield from recognise(assemble(frame(chunks(source), name or _name_of(source, 0))), tally)


def diagnose_sources(
    sources: list[Source], names: list[str] | None = None, strict: bool = False
) -> tuple[list[Diagnosis], Tally]:
    """Return the diagnosis of each run in ``sources``, in order, and what was not understood.

    A source in which only the kernel, systemd or a container runtime speaks is read as
    evidence about the last run of the others.
    """
    tally = Tally()
    found: list[grouping.Run] = []
    host: list[grouping.Run] = []
    history: list[Diagnosis] = []
    for index, source in enumerate(sources):
        name = names[index] if names else _name_of(source, index)
        for run in grouping.group(events(source, name, tally)):
            if grouping.only_host(run) and len(sources) > 1:
                host.append(run)
                continue
            found.append(run)
            if len(found) > 1:
                history.append(diagnose(found.pop(0), strict))
                del history[:-_MAX_HISTORY]
    merged = grouping.merge(found, host)
    history.extend(diagnose(run, strict) for run in merged)
    return [replace(d, run=replace(d.run, index=i)) for i, d in enumerate(history)], tally


def report_on(sources: list[Source], names: list[str] | None = None, strict: bool = False) -> Report:
    """Return the report on ``sources``, read in order."""
    diagnoses, tally = diagnose_sources(sources, names, strict)
    return reports.build(diagnoses, tally)
