"""Lines to records: what belongs together, by form alone.

A record is a head line and the lines that may continue it: lines without a header of their
own, or with the very same header (vLLM's NewLineFormatter repeats level, time and place on
each line of one message). Which words continue which is decided by the recogniser.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vllm_diag.framing import NOBODY, Line, Process

# Bounds that keep memory constant; no known message comes near them.
_MAX_LINES, _MAX_TEXT = 120, 2**19
_MAX_STACKS, _MAX_FRAMES = 256, 64


@dataclass(frozen=True, slots=True)
class Record:
    """Consecutive lines of one utterance, and the stack frames printed before its end.

    ``frames[i]`` are the ``file.py:function`` frames known when line ``i`` was printed,
    innermost last, of the traceback this process is printing.
    """

    lines: tuple[Line, ...]
    frames: tuple[tuple[str, ...], ...]

    @property
    def head(self) -> Line:
        """The first line."""
        return self.lines[0]


def assemble(lines: Iterable[Line]) -> Iterator[Record]:
    """Yield records in the order of their head lines; every line is in exactly one."""
    stacks = _Stacks()
    group: list[Line] = []
    frames: list[tuple[str, ...]] = []
    length = 0
    for line in lines:
        full = len(group) >= _MAX_LINES or length > _MAX_TEXT
        if group and (full or not _continues(group[0], line)):
            yield Record(tuple(group), tuple(frames))
            group, frames, length = [], [], 0
        group.append(line)
        frames.append(stacks.after(line))
        length += len(line.text)
    if group:
        yield Record(tuple(group), tuple(frames))


def _continues(head: Line, line: Line) -> bool:
    if line.source != head.source:
        return False
    if not line.head:
        return line.process == head.process or line.process == NOBODY
    same_place = (line.level, line.time, line.emitter) == (head.level, head.time, head.emitter)
    return same_place and line.emitter is not None and line.process == head.process


# Source lines of a traceback that name what is done where the frames around them are missing.
_SOURCE_LINE = re.compile(r"^\s{2,}.*?\b(capture_end|capture_begin|cuda\.graph|profile_run|load_weights|load_model)\(")
_FRAME = re.compile(r'File "([^"\n]{1,300})", line \d{1,7}, in ([\w<>.]{1,120})')


class _Stacks:
    """The traceback each process is printing at the moment."""

    def __init__(self) -> None:
        self._open: OrderedDict[Process, list[str]] = OrderedDict()
        self._latest: list[str] | None = None

    def after(self, line: Line) -> tuple[str, ...]:
        text = line.text
        stack = self._open.get(line.process)
        if stack is None and line.process == NOBODY:
            # The last line of a traceback that lost its prefix belongs to what was just printed.
            stack = self._latest
        if "Traceback (most recent call last)" in text:
            stack = self._open[line.process] = []
            self._open.move_to_end(line.process)
            if len(self._open) > _MAX_STACKS:
                self._open.popitem(last=False)
        if 'File "' in text:
            if stack is None:
                stack = self._open[line.process] = []
            for path, function in _FRAME.findall(text):
                stack.append(f"{path.rsplit('/', 1)[-1]}:{function}")
            del stack[:-_MAX_FRAMES]
            self._latest = stack
        elif stack is not None and (source := _SOURCE_LINE.match(text)):
            stack.append(f"source:{source[1].replace('.', '_')}")
        return tuple(stack) if stack else ()
