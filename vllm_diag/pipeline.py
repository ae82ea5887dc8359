"""Sources to a report: the stages, one after the other, in one pass.

bytes -> lines -> records -> events -> runs -> ledger, diagnosis -> remedies, report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from vllm_diag import report as reports
from vllm_diag import runs as grouping
from vllm_diag.diagnosis import GIVES_WAY, Diagnosis, diagnose
from vllm_diag.event_types import Event
from vllm_diag.framing import Blocks, blocks, frame
from vllm_diag.recognise import Tally, recognise
from vllm_diag.records import assemble
from vllm_diag.remedies.wanted import Wish
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
    """Return the diagnosis of each run in ``sources``, and what was not understood.

    The one that the report is about stands last: the last run of the service that failed, or of
    the one that printed last. Where only the kernel, systemd or a container runtime speaks, that
    is read as evidence about it.
    """
    tally = Tally()
    pending: dict[tuple[str, str | None], grouping.Run] = {}
    host: list[grouping.Run] = []
    history: list[Diagnosis] = []
    for index, source in enumerate(sources):
        name = names[index] if names else _name_of(source, index)
        for run in grouping.group(events(source, name, tally)):
            if grouping.only_host(run):
                host.append(run)
                continue
            key = (_ROTATED.sub("", name), run.service)
            if key in pending:
                history.append(diagnose(pending.pop(key), strict))
                del history[:-_MAX_HISTORY]
            pending[key] = run
    if not pending:
        # Nobody but the host speaks: each of its runs is one of the input.
        history = [diagnose(run, strict) for run in host]
    else:
        history += _settle(list(pending.values()), host, strict)
    return [replace(d, run=replace(d.run, index=i)) for i, d in enumerate(history)], tally


# "server.log.1" and "server.log-20261130" go on in "server.log".
_ROTATED = re.compile(r"(?:[.-]\d{1,8})?(?:\.gz)?$")


def _settle(runs: list[grouping.Run], host: list[grouping.Run], strict: bool) -> list[Diagnosis]:
    """Return the diagnoses of the last runs of all services, the one that matters most at the end."""
    found = sorted((diagnose(run, strict) for run in runs), key=_weight)
    if host:
        target = next((d for d in reversed(found) if _lacks_a_cause(d)), found[-1])
        (merged,) = grouping.merge([target.run], host)
        found = [d for d in found if d is not target]
        found = sorted([*found, diagnose(merged, strict)], key=_weight)
    return found


def _weight(diagnosis: Diagnosis) -> tuple[int, bool]:
    """Order runs of different services: failures last, and last of them those whose cause is known."""
    rank = {"failed": 2, "degraded": 1}.get(diagnosis.outcome, 0)
    return rank, rank == 2 and not _lacks_a_cause(diagnosis)


def _lacks_a_cause(diagnosis: Diagnosis) -> bool:
    """Whether the run failed, and its own log does not say of what."""
    return diagnosis.outcome == "failed" and diagnosis.findings[0].code in GIVES_WAY


def report_on(
    sources: list[Source], names: list[str] | None = None, strict: bool = False, wish: Wish | None = None
) -> Report:
    """Return the report on ``sources``, read in order, with an answer to ``wish``."""
    diagnoses, tally = diagnose_sources(sources, names, strict)
    return reports.build(diagnoses, tally, wish or Wish())
