"""Lines to records: what belongs together, by form alone.

A record is a head line and the lines that may continue it: lines without a header of their
own, or with the very same header (vLLM's NewLineFormatter repeats level, time and place on
each line of one message). Which words continue which is decided by the recogniser.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from vllm_diag.framing import Line, Process

# Bounds that keep memory constant; no known message comes near them.
_MAX_LINES, _MAX_TEXT = 120, 2**19
_MAX_STACKS, _MAX_FRAMES = 256, 64
# So many lines of other services may stand between two lines of one record.
_MAX_IDLE = 40


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
    """Yield records in the order of their head lines; every line is in exactly one.

    Services that print into one stream cut into each other's records; each is put together by
    itself, as long as it goes on soon.
    """
    stacks, prompts = _Stacks(), _Prompts()
    waiting: deque[_Group] = deque()
    open_: dict[str | None, _Group] = {}
    latest: tuple[str, str | None] | None = None
    for number, line in enumerate(lines):
        service = line.process.service
        if service is None and not line.head and line.process.unnamed and latest and latest[0] == line.source:
            # A line without a prefix goes on with what was just printed.
            service = latest[1]
        if latest is not None and latest[1] != service:
            _close(open_, None)
        latest = (line.source, service)
        line = prompts.without(line, service)
        group = open_.get(service)
        if group is None or not group.takes(line):
            _close(open_, service)
            group = open_[service] = _Group()
            waiting.append(group)
        group.add(line, stacks.after(line), number)
        for idle in [key for key, other in open_.items() if number - other.last > _MAX_IDLE]:
            _close(open_, idle)
        while waiting and waiting[0].closed:
            yield waiting.popleft().record()
    yield from (group.record() for group in waiting)


# A request log whose prompt begins, and what the server prints behind the end of one.
_OPENS = re.compile(
    r"(?:Received request|Added request|Generated response)\b.{0,2000}?\b(?:prompt|output)s?(?:: |=)['\"]"
)
_CLOSES = re.compile(r"\b(?:params|sampling_params|prompt_token_ids|prompt_embeds|lora_request|finish_reason)(?:: |=)")
_MAX_PROMPTS = 256


class _Prompts:
    """Prompts that a request log holds over several lines: what a client wrote, not the server."""

    def __init__(self) -> None:
        self._open: dict[str | None, tuple[str | None, str | None]] = {}

    def without(self, line: Line, service: str | None) -> Line:
        """Return ``line``, without its text if that is the rest of a prompt."""
        place = (line.emitter, line.time)
        begun = self._open.get(service)
        if begun is not None:
            goes_on = not line.head or place == begun
            if not goes_on or _CLOSES.search(line.text):
                del self._open[service]
            if goes_on:
                return replace(line, text="")
        opens = _OPENS.search(line.text) if "equest" in line.text or "esponse" in line.text else None
        if opens is not None and not _is_closed(line.text, opens.end()) and len(self._open) < _MAX_PROMPTS:
            self._open[service] = place
        return line


def _is_closed(text: str, start: int) -> bool:
    """Whether a quoted text that begins before ``start`` ends on its line."""
    return _CLOSES.search(text, start) is not None or text.rstrip().endswith(text[start - 1])


def _close(open_: dict[str | None, _Group], service: str | None) -> None:
    group = open_.pop(service, None)
    if group is not None:
        group.closed = True


class _Group:
    """A record in the making."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._frames: list[tuple[str, ...]] = []
        self._length = 0
        self.last = 0
        self.closed = False

    def takes(self, line: Line) -> bool:
        full = len(self._lines) >= _MAX_LINES or self._length > _MAX_TEXT
        return not full and _continues(self._lines[0], line)

    def add(self, line: Line, frames: tuple[str, ...], number: int) -> None:
        self.last = number
        self._lines.append(line)
        self._frames.append(frames)
        self._length += len(line.text)

    def record(self) -> Record:
        return Record(tuple(self._lines), tuple(self._frames))


def _continues(head: Line, line: Line) -> bool:
    if line.source != head.source:
        return False
    same_process = _who(line.process) == _who(head.process)
    if not line.head:
        return same_process or line.process.unnamed
    same_place = (line.level, line.time, line.emitter) == (head.level, head.time, head.emitter)
    return same_place and line.emitter is not None and same_process


def _who(process: Process) -> tuple[str | None, int | None, int | None, str | None]:
    return process.name, process.pid, process.rank, process.host


# Source lines of a traceback that name what is done where the frames around them are missing.
_SOURCE_LINE = re.compile(
    r"^\s{2,}.*?\b(?:(capture_end|capture_begin|cuda\.graph|profile_run|load_weights|load_model)\(|(pin_memory)(?:\(|\s?=\s?True))"
)
_FRAME = re.compile(r'File "([^"\n]{1,300})", line \d{1,7}, in ([\w<>.]{1,120})')


class _Stacks:
    """The traceback each process is printing at the moment."""

    def __init__(self) -> None:
        self._open: OrderedDict[Process, list[str]] = OrderedDict()
        self._latest: dict[str | None, list[str]] = {}

    def after(self, line: Line) -> tuple[str, ...]:
        text = line.text
        stack = self._open.get(line.process)
        if stack is None and line.process.unnamed:
            # The last line of a traceback that lost its prefix belongs to what was just printed.
            stack = self._latest.get(line.process.service)
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
            if len(self._latest) < _MAX_STACKS or line.process.service in self._latest:
                self._latest[line.process.service] = stack
        elif stack is not None and (source := _SOURCE_LINE.match(text)):
            stack.append(f"source:{(source[1] or source[2]).replace('.', '_')}")
        return tuple(stack) if stack else ()
