"""Records to events: which known message stands where.

A message is looked for where one can begin: at the start of a line (behind its envelope and
behind an exception's class), behind ``SomeError:`` inside a line, and, for the few texts
that wrappers quote, anywhere. Each candidate is tried against the rest of the record with
all blanks removed (see `vllm_diag.wording`), so that no wrap can hide it. The reading with
most figures wins, then the longest.

What a client wrote is not the server's word: behind the marks of a request log or an
argument dump no message begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any

import regex
from ahocorasick_rs import AhoCorasick

from vllm_diag.event_types import Event, Landmark, Place, Settings, Version
from vllm_diag.evidence import Evidence, quote
from vllm_diag.messages import Message, catalogue
from vllm_diag.readings import readings_of
from vllm_diag.records import Record
from vllm_diag.versions import Release, parse_release
from vllm_diag.wording import Compiled, position_in, squeeze

# Seconds one pattern may take on one record; all wordings are linear in practice.
_TIMEOUT = 1.0
# How far before an anchor a text can begin.
_BEFORE_ANCHOR = 200
# Occurrences of one anchor that are looked at in one record; hostile text repeats it for ever.
_MAX_OCCURRENCES = 256
# No terminal is wider than this, so a longer line was not wrapped.
_MAX_WIDTH = 400
# The longest stretch of squeezed text one message can cover.
_REACH = 20_000

_EXCEPTION = regex.compile(
    r"(?:(?:[\w.]{1,120}\.)?\w{0,60}(?:Error|Exception|OutOfResources|Fault)\w{0,40}(?:\([\w.]{1,80}\))?:"
    r"|Valueerror,|\[(?:info|error|warn|warning|debug)\]|-ERROR-|-)"
)
# "RuntimeError: Worker failed with error ...: ValueError: ": so many may stand in a row.
_MAX_EXCEPTIONS = 4
_INNER_EXCEPTION = regex.compile(r"[A-Z]\w{0,60}(?:Error|Exception|OutOfResources)(?:\([\w.]{1,80}\))?:")
CLIENT_TEXT = regex.compile(
    r"Receivedrequest|Addedrequest|Generatedresponse|output:['\"]|prompt:|prompt=|Namespace\(|^args:|non-defaultargs:|messages=|template="
    r"|withconfig:|[\"'](?:role|content|prompt|text)[\"']:|Dumpinginputdata"
)


@dataclass(frozen=True, slots=True)
class _Candidate:
    message: Message
    wording: Compiled
    required: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Index:
    by_start: dict[str, tuple[_Candidate, ...]]
    lengths: tuple[int, ...]
    by_anchor: tuple[tuple[str, _Candidate], ...]
    anchors: AhoCorasick


@cache
def _index() -> _Index:
    by_start: dict[str, list[_Candidate]] = {}
    by_anchor: list[tuple[str, _Candidate]] = []
    for message in catalogue():
        for wording in message.compiled():
            candidate = _Candidate(message, wording, _required(message))
            if message.anywhere or not wording.keys:
                by_anchor.append((wording.anchor, candidate))
            else:
                for key in wording.keys:
                    by_start.setdefault(key, []).append(candidate)
    lengths = tuple(sorted({len(key) for key in by_start}, reverse=True))
    return _Index(
        {k: tuple(v) for k, v in by_start.items()},
        lengths,
        tuple(by_anchor),
        AhoCorasick([anchor for anchor, _ in by_anchor]),
    )


def _required(message: Message) -> frozenset[str]:
    if message.event is Landmark:
        return frozenset()
    return frozenset(
        f.name
        for f in fields(message.event)
        if f.default is MISSING and f.name not in ("code", "at") and f.name not in message.always
    )


@dataclass(frozen=True, slots=True)
class _Hit:
    candidate: _Candidate
    start: int
    end: int
    found: dict[str, str]
    match: regex.Match[str]


@dataclass(slots=True)
class Tally:
    """Lines that looked like memory messages and were not understood."""

    count: int = 0
    first: Evidence | None = None


@dataclass(slots=True)
class _Told:
    """What was said before and decides how a figure is meant."""

    release: Release | None = None


def recognise(records: Iterable[Record], tally: Tally | None = None) -> Iterator[Event]:
    """Yield the events of ``records`` in order; counts what looked alike into ``tally``."""
    order = 0
    told = _Told()
    for record in records:
        for event in _events_of(record, order, told):
            order += 1
            yield event
        if tally is not None:
            _count_unknown(record, tally)


class _Text:
    """A record without blanks, and where each of its lines begins in it."""

    def __init__(self, record: Record) -> None:
        self.lines = record.lines
        pieces = [squeeze(line.text) for line in record.lines]
        self.joined = "".join(pieces)
        self.edges = []
        at = 0
        for piece in pieces:
            self.edges.append(at)
            at += len(piece)
        self.edges.append(at)
        # Asked again and again where many messages stand in one record.
        self._starts: dict[int, list[int]] = {}
        self._client: dict[int, int] = {}
        self.begins: dict[int, bool] = {}

    def line_at(self, position: int) -> int:
        low, high = 0, len(self.edges) - 2
        while low < high:
            middle = (low + high + 1) // 2
            if self.edges[middle] <= position:
                low = middle
            else:
                high = middle - 1
        return low

    def starts(self, line: int) -> list[int]:
        """Return where a message can begin on a line: at its start, behind each exception's class."""
        known = self._starts.get(line)
        if known is not None:
            return known
        found = self._starts[line] = [self.edges[line]]
        while len(found) <= _MAX_EXCEPTIONS and (exception := _EXCEPTION.match(self.joined, found[-1])):
            found.append(exception.end())
        return found

    def as_printed(self, start: int, end: int) -> str:
        """Return what stands between two squeezed positions with its blanks, lines joined by one."""
        parts = []
        for number in range(self.line_at(start), self.line_at(end - 1) + 1):
            edge, line = self.edges[number], self.lines[number].text
            first = position_in(line, max(0, start - edge))
            last = position_in(line, min(end, self.edges[number + 1]) - edge - 1)
            parts.append(" ".join(line[first : last + 1].split()))
        return " ".join(parts)

    def is_clients(self, position: int) -> bool:
        """Whether what stands here on its line was written by a client."""
        line = self.line_at(position)
        if line not in self._client:
            mark = CLIENT_TEXT.search(self.joined, self.edges[line], self.edges[line + 1])
            self._client[line] = mark.start() if mark else len(self.joined) + 1
        return self._client[line] < position

    def goes_on(self, number: int, width: int) -> bool:
        """Whether the line behind ``number`` can be the rest of it, cut off by a narrow terminal.

        A wrapped line has no envelope, and there was no room for its first word before the break:
        ``width`` is the length of the longest line behind the first, which may hold a header put
        together from several.
        """
        if number + 1 >= len(self.lines):
            return False
        line, following = self.lines[number], self.lines[number + 1]
        words = following.shown.split(None, 1)
        if following.head or not following.process.unnamed or not words or len(line.shown) > _MAX_WIDTH:
            return False
        return len(line.shown) + 1 + len(words[0]) >= max(width, len(following.shown))


def _events_of(record: Record, order: int, told: _Told) -> Iterator[Event]:
    text = _Text(record)
    hits = sorted(_best_of_each(_hits(text)), key=lambda hit: (hit.start, -hit.end))
    covered = 0
    for hit in hits:
        if hit.start < covered:
            continue
        event = _event(record, text, hit, order, told)
        if event is not None:
            covered = hit.end
            order += 1
            if isinstance(event, Version | Settings):
                told.release = parse_release(event.version) or told.release
            yield event
    if not hits:
        yield from _unknown_exception(record, text, order)


def _best_of_each(hits: Iterable[_Hit]) -> Iterable[_Hit]:
    """Return for each message the best reading of it at each place."""
    best: dict[tuple[int, str], _Hit] = {}
    for hit in hits:
        key = (hit.start, hit.candidate.message.code)
        if key not in best or _weight(hit) > _weight(best[key]):
            best[key] = hit
    return best.values()


def _hits(text: _Text) -> Iterator[_Hit]:
    index = _index()
    for number, start in enumerate(text.edges[:-1]):
        end = text.edges[number + 1]
        if end == start:
            continue
        for begin in text.starts(number):
            yield from _hits_at(index, text, begin, max(end, begin))
    if "Error:" in text.joined or "Exception:" in text.joined or "OutOfResources:" in text.joined:
        for inner in _INNER_EXCEPTION.finditer(text.joined):
            if not text.is_clients(inner.start()):
                yield from _hits_at(index, text, inner.end(), text.edges[text.line_at(inner.end()) + 1])
    for number in sorted({found[0] for found in index.anchors.find_matches_as_indexes(text.joined, overlapping=True)}):
        yield from _hits_around(text, *index.by_anchor[number])


def _hits_at(index: _Index, text: _Text, start: int, line_end: int) -> Iterator[_Hit]:
    best: _Hit | None = None
    for length in index.lengths:
        for candidate in index.by_start.get(text.joined[start : start + length], ()):
            hit = _match(candidate, text, start, line_end)
            if hit and (best is None or _weight(hit) > _weight(best)):
                best = hit
    if best:
        yield best


def _weight(hit: _Hit) -> tuple[int, int, int]:
    """Return what makes a reading the better one: its figures, its length, how much of it is literal."""
    return len(hit.found), hit.end - hit.start, -sum(map(len, hit.found.values()))


def _match(candidate: _Candidate, text: _Text, start: int, line_end: int) -> _Hit | None:
    """Match on the line alone and on the whole record; more figures justify the longer reach."""
    pattern, joined = candidate.wording.pattern, text.joined
    if candidate.message.spaced:
        return _match_row(candidate, text, start)
    try:
        alone = pattern.match(joined, start, line_end, timeout=_TIMEOUT)
        whole = None
        if line_end < len(joined):
            whole = pattern.match(joined, start, start + _REACH, timeout=_TIMEOUT)
    except TimeoutError:
        return None
    one = _hit(candidate, alone)
    if candidate.message.whole_line:
        return one if one and one.end == line_end else None
    return _longer(text, one, _hit(candidate, whole))


def _match_row(candidate: _Candidate, text: _Text, start: int) -> _Hit | None:
    """Match a table's row on its line as it is; blanks are all that tells its figures apart."""
    number = text.line_at(start)
    if start != text.edges[number]:
        return None
    try:
        row = candidate.wording.pattern.fullmatch(text.lines[number].text.strip(), timeout=_TIMEOUT)
    except TimeoutError:
        return None
    found = _hit(candidate, row)
    return found and replace(found, start=start, end=text.edges[number + 1])


def _longer(text: _Text, one: _Hit | None, two: _Hit | None) -> _Hit | None:
    if one and (two is None or len(two.found) <= len(one.found)):
        return _completed(text, one)
    return two


def _completed(text: _Text, hit: _Hit) -> _Hit:
    """Return ``hit`` with its last figure read to its end, where a terminal broke the line inside it.

    It covers no more than before: what a dump of settings runs into may be a message.
    """
    first = text.line_at(hit.end - 1)
    if hit.end == hit.start or hit.end != text.edges[first + 1] or _is_closed(text.joined[hit.start : hit.end]):
        return hit
    last, width = first, 0
    try:
        while text.goes_on(last, width) and not _begins(text, last + 1):
            last += 1
            width = max(width, len(text.lines[last].shown))
        if last == first:
            return hit
        pattern = hit.candidate.wording.pattern
        longer = _hit(hit.candidate, pattern.match(text.joined, hit.start, text.edges[last + 1], timeout=_TIMEOUT))
    except TimeoutError:
        return hit
    if longer is None or len(longer.found) < len(hit.found):
        return hit
    return replace(longer, end=hit.end)


def _is_closed(text: str) -> bool:
    return text[-1] in ")]}" and all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))


def _begins(text: _Text, line: int) -> bool:
    """Whether a message begins with this line."""
    known = text.begins.get(line)
    if known is None:
        index, end = _index(), text.edges[line + 1]
        known = text.begins[line] = any(
            candidate.wording.pattern.match(text.joined, begin, end, timeout=_TIMEOUT)
            for begin in text.starts(line)
            for length in index.lengths
            for candidate in index.by_start.get(text.joined[begin : begin + length], ())
        )
    return known


def _hit(candidate: _Candidate, match: regex.Match[str] | None) -> _Hit | None:
    if match is None:
        return None
    found = {name: value for name, value in match.groupdict().items() if value}
    if not candidate.required <= found.keys():
        return None
    return _Hit(candidate, match.start(), match.end(), found, match)


def _hits_around(text: _Text, anchor: str, candidate: _Candidate) -> Iterator[_Hit]:
    at = text.joined.find(anchor)
    done = 0
    for _ in range(_MAX_OCCURRENCES):
        if at < 0:
            return
        hit = _hit_around(text, at, candidate, done)
        if hit:
            yield hit
            done = hit.end
        at = text.joined.find(anchor, max(at + len(anchor), done))


def _hit_around(text: _Text, at: int, candidate: _Candidate, done: int) -> _Hit | None:
    """Return the hit that holds the anchor at ``at``, begun on its line or, if wrapped, before.

    Text before ``done`` is part of another.
    """
    anchor_line = text.line_at(at)
    best: _Hit | None = None
    for line in range(anchor_line, -1, -1):
        if at - text.edges[line + 1] > _BEFORE_ANCHOR:
            break
        if candidate.message.anywhere:
            hit = _search(candidate, text, max(text.edges[line], done), at)
        else:
            hit = (
                None if CLIENT_TEXT.search(text.joined, text.edges[line], at) else _match_on(candidate, text, line, at)
            )
        if hit and (best is None or len(hit.found) > len(best.found)):
            best = hit
        # One that begins where a line does may have begun on the line before.
        if text.lines[line].head or (best and best.start > text.edges[line]):
            break
    return best


def _match_on(candidate: _Candidate, text: _Text, line: int, at: int) -> _Hit | None:
    """Match at the starts of a line; behind an exception's class if that loses no figure."""
    best: _Hit | None = None
    for begin in text.starts(line):
        hit = _match(candidate, text, begin, max(begin, text.edges[line + 1]))
        if hit and hit.start <= at < hit.end and (best is None or len(hit.found) >= len(best.found)):
            best = hit
    return best


def _search(candidate: _Candidate, text: _Text, begin: int, at: int) -> _Hit | None:
    """Return the first hit on the line of ``begin`` that holds the anchor at ``at``."""
    if CLIENT_TEXT.search(text.joined, max(begin, at - _REACH), at):
        return None
    end = text.edges[text.line_at(begin) + 1]
    starts = list(_possible_starts(candidate.wording, text.joined, max(begin, at - _BEFORE_ANCHOR), at))
    try:
        alone = _first(candidate, text, starts, at, end)
        whole = _first(candidate, text, starts, at, at + _REACH)
    except TimeoutError:
        return None
    best = _longer(text, alone, whole)
    return best if best and best.start <= at < best.end else None


def _possible_starts(wording: Compiled, joined: str, lead: int, at: int) -> Iterator[int]:
    """Yield where a text can begin that holds the anchor at ``at``.

    A search would go on behind the anchor, to no end and at great cost.
    """
    if not wording.keys:
        yield from range(lead, at + 1)
        return
    for start in range(lead, at + 1):
        if joined.startswith(wording.keys, start):
            yield start


def _first(candidate: _Candidate, text: _Text, starts: list[int], at: int, end: int) -> _Hit | None:
    for start in starts:
        match = candidate.wording.pattern.match(text.joined, start, end, timeout=_TIMEOUT)
        if match and match.end() > at:
            return _hit(candidate, match)
    return None


def _event(record: Record, text: _Text, hit: _Hit, order: int, told: _Told) -> Event | None:
    message = hit.candidate.message
    values = {**message.always, **_values(text, hit)}
    number = text.line_at(hit.start)
    line = record.lines[number]
    last = text.line_at(max(hit.start, hit.end - 1))
    shown = " ".join([line.shown, *(part.text for part in record.lines[number + 1 : last + 1])])
    place = Place(
        evidence=Evidence(line.source, line.number, quote(shown, _offset_in(shown, text, hit, number))),
        order=order,
        time=line.time,
        process=line.process,
        level=line.level,
        exception=_exception(text, hit, number),
        frames=record.frames[number],
    )
    names = {f.name for f in fields(message.event)} - {f.name for f in fields(Event)}
    stated = {k: v for k, v in values.items() if k in names}
    others = tuple((k, v) for k, v in values.items() if k not in names)
    readings = readings_of(message.code, frozenset(values), hit.candidate.wording.releases, told.release)
    try:
        return message.event(code=message.code, at=place, facts=others, readings=readings, **stated)
    except TypeError:
        return None


def _values(text: _Text, hit: _Hit) -> dict[str, Any]:
    """Return the figures of a hit as its readers read them; what they refuse is left out."""
    values: dict[str, Any] = {}
    for name, printed in hit.found.items():
        reader = hit.candidate.wording.readers[name]
        if reader.verbatim and not hit.candidate.message.spaced:
            printed = text.as_printed(*hit.match.span(name))
        try:
            values[name] = reader.read(printed)
        except (ValueError, OverflowError):
            continue
    return values


# Exceptions that only report that somebody else has failed, or that the server is stopping.
_MESSENGERS = regex.compile(
    r"EngineDead|AsyncEngineDead|CancelledError|KeyboardInterrupt|SystemExit|BrokenPipe|ConnectionReset"
)


def _unknown_exception(record: Record, text: _Text, order: int) -> Iterator[Event]:
    """Yield the exception that a traceback ends in when no message of the catalogue matches it."""
    for number, line in enumerate(record.lines):
        if line.level in ("INFO", "WARNING", "DEBUG") or not record.frames[number]:
            continue
        found = _EXCEPTION.match(text.joined, text.edges[number], text.edges[number + 1])
        name = found[0].rstrip(":") if found else ""
        if not found or not name.endswith(("Error", "Exception")) or _MESSENGERS.search(name):
            continue
        told = text.joined[found.end() : text.edges[number + 1]]
        if told in ("", "cancelled"):
            continue
        place = Place(
            evidence=Evidence(line.source, line.number, quote(line.shown)),
            order=order,
            time=line.time,
            process=line.process,
            level=line.level,
            exception=name,
            frames=record.frames[number],
        )
        yield Landmark(code="exception", at=place, facts=(("exception", name.rsplit(".", 1)[-1]),))
        return


def _offset_in(shown: str, text: _Text, hit: _Hit, number: int) -> int:
    """Return about where in ``shown`` the message begins (only long lines need it)."""
    if len(shown) < 400:
        return 0
    return int(len(shown) * (hit.start - text.edges[number]) / max(1, len(text.joined)))


def _exception(text: _Text, hit: _Hit, number: int) -> str | None:
    lead = text.joined[text.edges[number] : hit.start]
    return lead.rstrip(":")[-60:] if lead.endswith(":") else None


_MEMORY_WORDS = (
    "out of memory", "OutOfMemory", "OOM", "not enough memory", "insufficient memory",
    "Cannot allocate memory", "No available memory", "memory limit",
)  # fmt: skip


def _count_unknown(record: Record, tally: Tally) -> None:
    for line in record.lines:
        if line.level in ("INFO", "DEBUG") or not any(w in line.text for w in _MEMORY_WORDS):
            continue
        if line.text[:2].isspace():
            # Source lines of a traceback, and continued text.
            continue
        text = _Text(Record((line,), ((),)))
        if CLIENT_TEXT.search(text.joined) or next(_hits(text), None):
            continue
        tally.count += 1
        tally.first = tally.first or Evidence(line.source, line.number, quote(line.shown))
