"""Reads the output of a vLLM server and says what failed, where the memory went, what to change.

>>> import vllm_diag
>>> report = vllm_diag.diagnose(b"Available KV cache memory: 4.23 GiB")
>>> report.events[0]["code"], report.findings
('kv-cache-available', [])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vllm_diag.event_types import Event
    from vllm_diag.pipeline import Source
    from vllm_diag.report import Report

__all__ = ["__version__", "diagnose", "events"]


def diagnose(source: Source | list[Source]) -> Report:
    """Return the report on ``source``.

    Args:
        source: a path, bytes, text with line breaks, a binary file object, or an iterable of
            lines. Several sources as a list; a list of strings or bytes that all end in a line
            break, or of which none is an existing file, is a list of lines.

    Raises:
        OSError: a path that cannot be read.

    """
    from vllm_diag.pipeline import report_on

    return report_on(_several(source))


def events(source: Source | list[Source]) -> Iterator[Event]:
    """Yield the typed events of ``source``, in order and in constant memory.

    Raises:
        OSError: a path that cannot be read.

    """
    from vllm_diag.pipeline import events as events_of

    for one in _several(source):
        yield from events_of(one)


def _several(source: Source | list[Source]) -> list[Source]:
    import os

    if not isinstance(source, list):
        return [source]
    lines = all(isinstance(item, str | bytes) for item in source)
    paths = any(isinstance(item, str) and "\n" not in item and os.path.exists(item) for item in source)
    whole = any(isinstance(item, str | bytes) and _line_breaks(item) > 1 for item in source)
    if lines and not paths and not whole:
        return [cast("Source", source)]
    return list(source)


def _line_breaks(item: str | bytes) -> int:
    return item.count("\n") if isinstance(item, str) else item.count(b"\n")
