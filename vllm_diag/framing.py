"""Bytes to lines: what other programs wrapped around a message comes off, and is kept.

One `Line` is one physical line (or one part of it, where a carriage return or a lost line
break glued several together). Nothing here knows any message.

The envelopes, and where they come from:

* vLLM's own ``INFO 01-11 15:51:18 llm_engine.py:275]`` (to 0.7.3), ``[monitor.py:33]``
  (0.8.0 on) and ``(EngineCore_DP0 pid=123)`` (0.8.3 on), coloured into files to 0.15.1;
* Ray's ``(RayWorkerWrapper pid=7, ip=10.0.0.1)``, torchrun's ``[rank0]:``;
* docker compose's ``name-1  | ``, ``[pod/name/container] `` of kubectl, ``pod container `` of
  stern, ``==> file <==`` of tail, Kubernetes and journal times, syslog, dmesg in its forms;
* launchers and loggers around them: dynamo's ``INFO crate::module: ``, ``[Error] (Process) ``,
  Ray's and PyTorch's own, ``time - LEVEL - ``, ``(parent, pid=1) ``, srun's, pm2's, foreman's;
* JSON lines of container runtimes, journald and vLLM 0.32's own formatter;
* quoting by people (``> ``, ``# ``), terminal frames, HTML entities, escaped escapes.
"""

from __future__ import annotations

import codecs
import html
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import regex

# A physical line longer than this is cut into pieces that share its number, so that one
# endless line cannot fill the memory.
MAX_LINE = 2**18
_BLOCK = 2**18


@dataclass(frozen=True, slots=True)
class Process:
    """Who printed a line: ``EngineCore_DP0``, ``Worker_TP1``, ``kernel``; pid and rank if told.

    ``service`` names the container, pod or unit that the line came from, where several are read
    in one stream; from a journal it is ``ident[pid]``.
    """

    name: str | None = None
    pid: int | None = None
    rank: int | None = None
    host: str | None = None
    service: str | None = None

    @property
    def unnamed(self) -> bool:
        """Whether no process is told, whatever the service."""
        return self.name is None and self.pid is None and self.rank is None and self.host is None


NOBODY = Process()


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its envelope, and what the envelope said.

    ``text`` is the message part; ``shown`` the whole line as a person sees it (no control
    characters), for quoting. ``head`` tells that a new record starts here.
    """

    source: str
    number: int
    text: str
    shown: str
    time: str | None = None
    process: Process = NOBODY
    level: str | None = None
    emitter: str | None = None
    head: bool = False


# --- bytes to physical lines ------------------------------------------------------------


def physical_lines(stream: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Yield (1-based number, text) for each line of ``stream``, decoded leniently.

    A byte-order mark chooses UTF-8 or UTF-16; without one UTF-8 is assumed. Bytes that are
    invalid become U+FFFD and NULs vanish: a damaged line is still a line.
    """
    decode: codecs.IncrementalDecoder | None = None
    rest, number = "", 1
    for block in stream:
        if decode is None:
            decode = codecs.getincrementaldecoder(_encoding(block))("replace")
        parts = (rest + decode.decode(block)).split("\n")
        rest = parts.pop()
        for part in parts:
            if len(part) <= MAX_LINE:
                yield number, part
            else:
                yield from _pieces(number, part)
            number += 1
        while len(rest) > MAX_LINE:
            yield number, rest[:MAX_LINE]
            rest = rest[MAX_LINE:]
    rest += decode.decode(b"", True) if decode else ""
    if rest:
        yield from _pieces(number, rest)


def _encoding(start: bytes) -> str:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


def _pieces(number: int, text: str) -> Iterator[tuple[int, str]]:
    for start in range(0, len(text) or 1, MAX_LINE):
        yield number, text[start : start + MAX_LINE]


class Blocks:
    """Bytes in blocks cut anywhere, to be told from an iterable of lines."""

    def __init__(self, source: Iterable[bytes]) -> None:
        self._source = source

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._source)


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield ``file`` in blocks as they become available."""
    read = getattr(file, "read1", file.read)
    while block := read(_BLOCK):
        yield block


# --- cleaning ---------------------------------------------------------------------------

# ESC sequences, and the same as written by tools that escape them: ^[[1;36m (cat -v),
# #033[2m (rsyslog), \x1b[ and \u001b[ (JSON, repr).
_ANSI = re.compile(
    r"(?:\x1b|\^\[|#033|\\x1b|\\u001b|\\033)"
    r"(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[()][0-9A-Za-z])"
    r"|\x9b[0-?]{0,40}[@-~]"
)
_ESCAPES = ("\x1b", "\x9b", "^[", "#033", "\\x1b", "\\u001b", "\\033")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_ENTITY = re.compile(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,6}|quot|amp|lt|gt|apos|nbsp|middot);")
_FRAME = re.compile(r"^\s*[│┃║]\s?|\s*[│┃║]\s*$")


def clean(text: str) -> str:
    """Return ``text`` without colours, control characters, entities and terminal frames."""
    if any(mark in text for mark in _ESCAPES):
        text = _ANSI.sub("", text)
    if not text.isprintable():
        text = _CONTROL.sub("", text)
    if "&" in text and ";" in text:
        text = _ENTITY.sub(lambda m: html.unescape(m[0]), text)
    if "│" in text or "┃" in text or "║" in text:
        text = _FRAME.sub("", text)
    return text


# --- envelopes --------------------------------------------------------------------------

_LEVELS = r"DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_ISO = r"\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:\s?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_CTIME = r"\S{1,9}\.?\s+\S{2,9}\.?\s+\d{1,2}\s\d\d:\d\d:\d\d\s\d{4}"

# "host ident[pid]: " behind a time; believed only there, since "ValueError: " looks the same.
# A syslog time always has it. Behind an ISO time, which containers print without it, the
# process id must be there: "non-default args: " and "CUDA error: " look the same as well.
_TAG = r"(?:(?P<host>[\w.-]{1,80})\s(?P<ident>kernel(?=:)|[\w./@-]{1,60}(?=\[))(?:\[(?P<identpid>\d{1,10})\])?:\s)?"
_TAG2 = r"(?:(?P<host2>[\w.-]{1,80})\s(?P<log>[\w./@-]{1,60})(?:\[(?P<logpid>\d{1,10})\])?:\s)?"

# A pod of a deployment, stateful set or job, by the ending that is made for it.
_POD = r"[a-z0-9][a-z0-9.-]{0,200}-(?:[a-z0-9]{5,10}-[a-z0-9]{5}|[a-z0-9]{5}|\d{1,4})"

_AGE = r"(?:<unknown>|(?:\d{1,5}[smhdy]){1,4}(?:\s\(x\d{1,6}\sover\s[\dsmhdy]{1,12}\))?)"

# One alternative is taken off at a time, from the left, until none fits. A line may also be
# the rest of one that a terminal broke, so what looks like a mark of quoting need not be one:
# "=", ":" or nothing behind a ">" and "1/4" behind a "|" belong to the message.
_LAYERS = re.compile(
    rf"""
    (?P<process>\(\s*(?P<name>[A-Za-z_][\w:.-]*(?:[ ](?:[A-Z]{{2,4}}\d+_?)+)?),?\s*
        (?:rank=\s*(?P<rank>\d{{1,6}})\s*)?pid=\s*(?P<pid>\d{{1,10}})\s*
        (?:,\s*ip=\s*(?P<ip>[\w.:]{{1,45}})\s*)?\)\s?)
  | (?P<ray>\((?:raylet|gcs_server|autoscaler|pid=\d{{1,10}})(?:,\ ?ip=[\w.:]{{1,45}})?\)\s?)
  | (?P<header>(?P<level>{_LEVELS})\s+
        (?:(?P<date>\d\d-\d\d\s\d\d:\d\d(?::\d\d)?(?:[.,]\d{{1,6}})?)\s*)?
        \[?(?P<file>[\w./-]{{1,200}}\.(?:py|cc|cpp|rs)(?::\s?\d{{1,6}}|(?=\])))\]\s?)
  | (?P<bare>(?P<level2>{_LEVELS})(?::\s{{1,12}}|:[\w.]{{1,120}}:
        |\s+\d\d-\d\d\s\d\d:\d\d(?::\d\d)?\s+|\s+(?=[A-Z\#(\[])))
  | (?P<logger>(?:INFO|WARN|WARNING|ERR|ERROR|DEBUG|SUCC)\s{{1,4}}[\w./]{{1,120}}\.py:\d{{1,6}}\s--\s)
  | (?P<rust>(?:TRACE|DEBUG|INFO|WARN|ERROR)\s{{1,4}}\w{{1,60}}(?:::\w{{1,60}}){{1,8}}:\s(?:VLLM:\s)?)
  | (?P<glog>\[(?:(?P<letter>[IWEF])\d{{3,4}}\s\d\d:\d\d:\d\d\.\d{{6,9}}(?:\s\d{{1,10}})?
        |(?P<glogtime>{_ISO})\s(?P<letter2>[DIWEF])\s\d{{1,10}}\s\d{{1,10}})\]?\s
        (?:\(\w{{1,40}}\)\s)?(?:[\w./-]{{1,120}}\.(?:cpp|cc|h|hpp):\d{{1,6}}[\]:]\s)?)
  | (?P<launcher>\[(?:[Ii]nfo|[Ee]rror|[Ww]arn|[Ww]arning|[Dd]ebug|[Nn]otice|[Tt]race)\]\s{{1,4}}
        (?:\([A-Z][A-Za-z]{{1,30}}\)\s)?)
  | (?P<dashed>-\s(?:[\w.]{{1,80}}\s-\s)?(?P<level4>{_LEVELS})\s-\s
        (?:[\w./-]{{1,120}}\.py:\d{{1,6}}\s-\s)?(?:[\w.]{{1,80}}:\s(?=\[))?)
  | (?P<stage>\[Stage[-_ ]?\d{{1,4}}\]\s?)
  | (?P<label>\d{{1,5}}:\s(?=\(\w[\w ]{{0,40}}\spid=|(?:{_LEVELS})\s\d|\[rank\d))
  | (?P<stamp>\[(?P<stamped>\d\d-\d\d\s\d\d:\d\d:\d\d)\]\s)
  | (?P<kernelname>kernel:\s)
  | (?P<kmsg>\d{{1,4}},\d{{1,10}},(?P<ktime3>\d{{1,16}}),[-c](?:,\w{{1,20}}=\w{{1,20}}){{0,4}};)
  | (?P<rfc5424><\d{{1,3}}>1\s(?P<isotime2>{_ISO})\s[\w.-]{{1,80}}\s(?P<ident5>[\w./@-]{{1,60}})\s
        (?P<pid5>\d{{1,10}}|-)\s
        (?:-|\S{{1,60}})\s(?:-|\[[^\]]{{0,400}}\])\s)
  | (?P<weekday>[A-Z][a-z]{{2}}\s(?=\d{{4}}-\d\d-\d\d\s\d\d:\d\d:\d\d(?:\.\d{{1,6}})?\s[A-Z]{{2,5}}\s))
  | (?P<monotonic>\[\s{{0,12}}(?P<ktime4>\d{{1,12}}\.\d{{6}})\]\s(?P<host3>[\w.-]{{1,80}})\s
        (?P<ident3>kernel(?=:)|[\w./@-]{{1,60}}(?=\[))(?:\[(?P<identpid3>\d{{1,10}})\])?:\s)
  | (?P<reltime>\[(?:[A-Z][a-z]{{2}}\s{{0,2}}\d{{1,2}}\s\d\d:\d\d|\s{{1,8}}\+\s{{0,8}}\d{{1,8}}\.\d{{6}}
        |(?:{_CTIME}\s|\s{{0,8}}\d{{1,12}}\.\d{{6}}\s)?<\s{{0,8}}\d{{1,8}}\.\d{{6}}>)\]\s)
  | (?P<filetag>\[(?P<file2>[\w./-]{{1,120}}\.py:\d{{1,6}})\]\s?)
  | (?P<rankline>\[(?:rank|default)(?P<rank2>\d{{1,6}})\]:(?:\[rank\d{{1,6}}\]:)?\s?
        |\[\d+,(?P<rank3>\d{{1,6}})\]<std(?:err|out)>:\s?)
  | (?P<iso>[\[(]?(?P<isotime>{_ISO})[\])]?(?::|,)?(?:\s+(?:stdout|stderr)\s+[FP])?(?:\s+|$){_TAG})
  | (?P<syslog>(?P<logtime>(?!pid)[^\W\d]{{3,5}}\.?\s{{1,2}}\d{{1,2}}\s\d\d:\d\d:\d\d(?:\.\d{{1,6}})?)\s{_TAG2})
  | (?P<decode>(?:kern|user|daemon|syslog)\s{{0,6}}:\w{{3,6}}\s{{0,6}}:\s)
  | (?P<kernel>\[\s{{0,12}}(?P<ktime>\d{{1,12}}\.\d{{6}})\](?:\s?\[\s{{0,8}}[TC]\d{{1,8}}\])?\s?)
  | (?P<ctime>\[(?P<ktime2>{_CTIME})\]\s?)
  | (?P<pri><\d{{1,3}}>(?=[\[\w]))
  | (?P<kube>\[pod/(?P<pod>[a-z0-9][\w.-]{{0,200}})/(?P<container>[\w.-]{{1,80}})\](?:\s|$)
        |\[(?P<pod2>{_POD})\s(?P<container2>[a-z0-9][a-z0-9-]{{0,62}})\](?:\s|$)
        |[a-z0-9-]{{1,63}}/(?P<pod3>{_POD})\[(?P<container3>[a-z0-9-]{{1,63}})\]:\s)
  | (?P<pm2>\d{{1,3}}\|(?P<service2>[\w.-]{{1,40}})\s{{1,40}}\|\s)
  | (?P<foreman>\d\d:\d\d:\d\d\s(?P<service3>[\w.-]{{1,40}})\s{{1,40}}\|\s)
  | (?P<compose>(?P<service>[A-Za-z0-9][\w./@-]{{0,80}})(?:\s{{2,60}}|(?<=[\d])\s)\|(?:\s|$)
        |\s{{1,8}}\|(?!.*\|\s*$)(?:\s(?!\d+/\d)|$))
  | (?P<kubeevent>\s{{0,8}}(?:Warning|Normal)\s{{2,12}}[A-Z][A-Za-z]{{2,40}}\s{{2,40}}{_AGE}\s{{2,40}}
            \S{{1,80}}(?:\s\S{{1,80}})?\s{{2,40}}
        |{_AGE}\s{{2,40}}(?:Warning|Normal)\s{{2,12}}[A-Z][A-Za-z]{{2,40}}\s{{2,40}}[a-z]{{2,30}}/\S{{1,200}}\s{{2,40}})
  | (?P<jsonmsg>\s{{0,24}}"msg":\s")
  | (?P<console>\w{{2,40}}\[(?:info|error|warning|debug)\])
  | (?P<quoted>(?:>(?![=:]|$)\s?|\#\s(?!HELP\s|TYPE\s|\w{{2,12}}\sblocks:|[A-Za-z]{{1,5}}\s?b?l?o?c?k?s?$)){{1,6}})
    """,
    re.VERBOSE,
)
_HEADS = frozenset({
    "header", "bare", "kernel", "ctime", "filetag", "stamp", "logger", "glog", "dashed", "kmsg", "reltime",
})  # fmt: skip
_OUTER = frozenset({
    "iso", "syslog", "compose", "kube", "quoted", "rankline", "launcher", "rust", "stage", "label", "rfc5424",
    "weekday", "pm2", "foreman",
})  # fmt: skip
# Levels that a wrapper gives to whatever it passes on say nothing of the line, those of the program that wrote it do.
_SHORT = {"WARN": "WARNING", "FATAL": "CRITICAL", "ERR": "ERROR"}
_LETTERS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
# What the journal and syslog name besides servers.
_SYSTEM_IDENTS = re.compile(
    r"kernel$|systemd|dockerd?$|containerd|kubelet$|crio|k3s|earlyoom|oomd|sudo|su$|cron|sshd|dbus|NetworkManager|nvidia-"
    r"|rsyslogd|audit|logger$|cloud-init|snapd|podman$|rtkit|udev",
    re.IGNORECASE,
)
_MAX_LAYERS = 10
_JSON_END = re.compile(r'",?\s*$')


def strip_envelope(line: Line) -> Line:
    """Return ``line`` with every envelope taken off the front of its text."""
    text, at = line.text, 0
    time, level, emitter, head = line.time, line.level, line.emitter, line.head
    process = line.process
    for _ in range(_MAX_LAYERS):
        found = _LAYERS.match(text, at)
        if not found or found.end() == at:
            break
        kind = found.lastgroup or ""
        if kind == "quoted" and head:
            # People quote whole lines; behind a header "# GPU blocks" is the message.
            break
        at = found.end()
        if kind == "jsonmsg":
            text = _JSON_END.sub("", text)
        head = head or kind in _HEADS
        level = _level(found) or level
        emitter = found["file"] or found["file2"] or emitter
        stamp = (
            found["date"]
            or found["stamped"]
            or found["isotime"]
            or found["logtime"]
            or found["ktime"]
            or found["ktime2"]
            or found["ktime4"]
            or found["isotime2"]
            or found["glogtime"]
        )
        time = stamp or time
        process = _process(found, process)
    if at == 0:
        return line
    return replace(line, text=text[at:], time=time, process=process, level=level, emitter=emitter, head=head)


def _level(found: re.Match[str]) -> str | None:
    letter = found["letter"] or found["letter2"]
    return _LETTERS[letter] if letter else _full(found["level"] or found["level2"] or found["level4"])


def _full(level: str | None) -> str | None:
    return _SHORT.get(level, level) if level else None


_RANK_IN_NAME = re.compile(r"(?:^|[_ ])TP(\d{1,6})")


def _process(found: re.Match[str], before: Process) -> Process:
    """Merge what this layer says about the process into what outer layers said."""
    if found["name"]:
        rank = found["rank"]
        in_name = _RANK_IN_NAME.search(found["name"])
        return Process(
            name=found["name"],
            pid=int(found["pid"]),
            rank=int(rank) if rank else int(in_name[1]) if in_name else before.rank,
            host=found["ip"] or before.host,
            service=before.service,
        )
    rank = found["rank2"] or found["rank3"]
    if rank:
        return replace(before, rank=int(rank))
    ident = found["ident"] or found["log"] or found["ident3"] or found["ident5"]
    if ident:
        pid = found["identpid"] or found["logpid"] or found["identpid3"] or found["pid5"]
        pid = None if pid == "-" else pid
        unit = None if _SYSTEM_IDENTS.match(ident) else f"{ident}[{pid}]" if pid else ident
        return replace(before, name=ident, pid=int(pid) if pid else before.pid, service=before.service or unit)
    if found.lastgroup in ("kernel", "ctime", "kernelname", "kmsg", "reltime"):
        return replace(before, name="kernel")
    service = found["service"] or found["service2"] or found["service3"]
    if service:
        return replace(before, service=service)
    pod = found["pod"] or found["pod2"] or found["pod3"]
    if pod:
        return replace(before, service=f"{pod}/{found['container'] or found['container2'] or found['container3']}")
    return before


# --- JSON lines -------------------------------------------------------------------------

_MESSAGE_KEYS = ("message", "MESSAGE", "log", "msg", "text", "textPayload", "line")
_CLIENT_KEYS = frozenset({
    "role", "prompt", "messages", "content", "completion", "user", "user_id", "username", "question", "answer", "query",
    "conversation", "conversation_id", "session_id", "instruction", "feedback", "comment",
})  # fmt: skip
_TIME_KEYS = ("asctime", "timestamp", "time", "ts", "@timestamp", "__REALTIME_TIMESTAMP")
_LEVEL_KEYS = ("levelname", "level", "severity")


def _from_json(line: Line) -> list[Line] | None:
    """Read a line that is one JSON object with a message in it; None when it is not."""
    try:
        data: Any = json.loads(line.text, parse_int=_bounded_int)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    if _CLIENT_KEYS & data.keys() or ("text" in data and "record" not in data):
        # A record of what somebody said to a model, not of what the server did.
        return [replace(line, text="", head=True)]
    message = next((data[k] for k in _MESSAGE_KEYS if k in data), None)
    if isinstance(message, list) and all(isinstance(b, int) and 0 <= b < 256 for b in message):
        message = bytes(message).decode("utf-8", "replace")
    if not isinstance(message, str):
        return None
    texts = message.split("\n")
    trace = data.get("exc_info") or data.get("exc_text")
    if isinstance(trace, str):
        texts += trace.split("\n")
    time = next((str(data[k]) for k in _TIME_KEYS if data.get(k)), line.time)
    level = next((_full(data[k].upper()) for k in _LEVEL_KEYS if isinstance(data.get(k), str)), None)
    process = Process(
        name=_text_or_none(data.get("processName") or data.get("SYSLOG_IDENTIFIER")) or line.process.name,
        pid=data["process"] if isinstance(data.get("process"), int) else line.process.pid,
        service=_service_of(data) or line.process.service,
    )
    # A logger that states the level wrote a whole record; runtimes wrap each line by itself.
    head = level is not None
    level = level or line.level
    return [
        replace(
            line, text=clean(text), shown=clean(text), time=time, level=level, process=process, head=head and i == 0
        )
        for i, text in enumerate(texts)
        if text or i == 0
    ]


_UNIT_KEYS = ("CONTAINER_NAME", "container_name", "_SYSTEMD_UNIT", "UNIT", "pod", "pod_name")


def _service_of(data: dict[str, Any]) -> str | None:
    """Return the container, pod or unit that a record names; the kernel's and systemd's own are none."""
    inner = data.get("kubernetes")
    if isinstance(inner, dict) and isinstance(inner.get("pod_name"), str):
        return f"{inner['pod_name']}/{inner.get('container_name') or ''}".rstrip("/")
    named = next((data[k] for k in _UNIT_KEYS if isinstance(data.get(k), str) and data[k]), None)
    if named is None or _SYSTEM_IDENTS.match(named) or named == "init.scope":
        return None
    return str(named)


def _bounded_int(text: str) -> int:
    return int(text[:40])


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# --- lines glued together, and headers cut apart ------------------------------------------

_INNER_HEADER = re.compile(
    rf"(?:\((?:[A-Za-z_][\w ]{{0,40}}) pid=\d{{1,10}}\) ?)?"
    rf"(?:{_LEVELS}) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]{{1,200}}:\d{{1,6}}\]"
)
# Text that clients can put into a log is never cut at what looks like a header in it.
CLIENT_TEXT = re.compile(
    r"Received request|Added request|prompt: |prompt=|Namespace\(|args: |messages=|template="
    r"|[\"'](?:role|content|prompt)[\"']\s*:"
)


def _split_glued(line: Line) -> list[Line]:
    """Cut a line at each vLLM header inside it (progress bars, lost line breaks)."""
    found = [m.start() for m in _INNER_HEADER.finditer(line.text)]
    if found and (client := CLIENT_TEXT.search(line.text)):
        found = [start for start in found if start < client.start()]
    if not found:
        return [line]
    edges = sorted({0, *found, len(line.text)})
    return [
        strip_envelope(replace(line, text=line.text[a:b], head=a > 0 or line.head))
        for a, b in itertools.pairwise(edges)
        if line.text[a:b].strip()
    ]


# vLLM's prefix and header without blanks; any start of it can be what a narrow terminal left
# on a line. The blank before "TP0" in a name has to be put back.
_HEADER = regex.compile(
    r"(?P<process>\([A-Za-z_]\w{0,60}?(?:rank=\d{1,6})?pid=\d{1,10}(?:,ip=[\w.:]{1,45})?\)){0,2}"
    rf"(?:(?P<level>{_LEVELS})(?P<date>\d\d-\d\d)(?P<time>\d\d:\d\d:\d\d)(?P<file>\[?[\w./-]{{1,200}}:\d{{1,6}}\]))?"
)
_NAME_AND_RANK = re.compile(r"\(VllmWorker(?=[A-Z]{2,4}\d)")
# What a header begins with, and what it can end in when it is cut off: its own signs and
# capitals, or a word behind a bracket or a blank.
_HALF_START = re.compile(r"[(DIWECF]")
_HALF_END = re.compile(r"(?:[A-Z0-9:. -]|[([ :][\w./-]{0,60}|pid=\d{0,10}|ip=[\w.:]{0,40})$")
_MAX_HALF, _MAX_PARTS, _MAX_PREFIX = 160, 16, 80


def _rejoin_headers(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Put back together a header that a narrow terminal broke over several lines."""
    waiting: list[tuple[int, str]] = []
    for number, text in lines:
        if waiting:
            if len(waiting) < _MAX_PARTS and len(text) <= _MAX_HALF and _is_half([*waiting, (number, text)]):
                waiting.append((number, text))
                continue
            together = _together(waiting, text)
            if together is not None:
                yield waiting[0][0], together
                waiting = []
                continue
            yield from _given_up(waiting)
            waiting = []
        if len(text) <= _MAX_HALF and _may_be_half(text) and _is_half([(number, text)]):
            waiting = [(number, text)]
        else:
            yield number, text
    yield from _given_up(waiting)


def _given_up(waiting: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield lines that no header follows: as they are, or as the process prefix that they make up."""
    together = _together(waiting[:-1], waiting[-1][1]) if len(waiting) > 1 else None
    if together is None:
        yield from waiting
    else:
        yield waiting[0][0], together


def _may_be_half(text: str) -> bool:
    # A line of a file written on Windows, or by vLLM's formatter, still has its CR.
    text = text.rstrip("\r")
    return _HALF_END.search(text, max(0, len(text) - 64)) is not None or _is_cut_behind_process(text)


def _is_cut_behind_process(text: str) -> bool:
    """Whether the line is a process prefix and nothing else; one that is printed before nothing ends in a blank."""
    return text.endswith(")") and "pid=" in text and len(text) < _MAX_PREFIX


def _is_half(lines: list[tuple[int, str]]) -> bool:
    """Whether a header begins on the first line and has not ended on the last."""
    _, header = _outer_and_inner(lines[0][1])
    joined = _squeezed(header, *(text for _, text in lines[1:]))
    found = _HEADER.fullmatch(joined, partial=True)
    if not joined or found is None:
        return False
    return found.partial or (found["level"] is None and lines[-1][1].rstrip("\r").endswith(")"))


def _together(waiting: list[tuple[int, str]], text: str) -> str | None:
    """Return one line made of ``waiting`` and ``text`` if a header ends within ``text``."""
    outer, header = _outer_and_inner(waiting[0][1])
    before = _squeezed(header, *(part for _, part in waiting[1:]))
    found = _HEADER.match(before + _squeezed(text))
    if not found or found.end() <= len(before):
        return None
    processes = [
        _NAME_AND_RANK.sub("(VllmWorker ", part.replace("pid=", " pid=")) for part in found.captures("process")
    ]
    named = [found[name] for name in ("level", "date", "time", "file") if found[name]]
    rest = clean(text)[_position(clean(text), found.end() - len(before)) :]
    return outer + " ".join([*processes, *named]) + " " + rest.lstrip()


def _outer_and_inner(text: str) -> tuple[str, str]:
    """Cut ``text`` behind what containers, journals and people put before vLLM's own prefix."""
    text = clean(text)
    at = 0
    if not _HALF_START.match(text):
        while (found := _LAYERS.match(text, at)) and found.lastgroup in _OUTER and found.end() > at:
            at = found.end()
    return text[:at], text[at:]


def _squeezed(*texts: str) -> str:
    return "".join("".join(clean(text).split()) for text in texts)


def _position(text: str, squeezed_at: int) -> int:
    seen = 0
    for index, char in enumerate(text):
        if seen == squeezed_at:
            return index
        seen += not char.isspace()
    return len(text)


# --- all of it --------------------------------------------------------------------------

# An access line: nearly all that a running server prints, and nothing but that it runs.
_ACCESS = re.compile(r'INFO:?\s+[\w.:\[\]-]{3,60} - "[A-Z]{3,7} /[^"]{0,400} HTTP/1\.[01]" \d{3}')
_ACCESS_REACH = 200
_SERVICE_START = re.compile(r"[A-Za-z0-9][\w./@-]{0,80}\s{1,60}\||\[pod/[\w./-]{1,200}\]")
_MAX_STREAMS = 256


def _is_access_line(text: str) -> bool:
    # Two searches for a constant cost less than one match; they settle nearly every line.
    return " HTTP/1." in text and ' - "' in text and _ACCESS.search(text) is not None


def _without_routine(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Let one access line through, which tells that the server answers, and drop the others."""
    seen: set[str] = set()
    for number, text in lines:
        if len(text) < _ACCESS_REACH + 400 and _is_access_line(text):
            service = _SERVICE_START.match(text)
            key = service[0] if service and len(seen) < _MAX_STREAMS else ""
            if key in seen:
                continue
            seen.add(key)
        yield number, text


# A pod and a container in front of each line, told from two words by what is behind them.
_STERN = re.compile(rf"(?P<prefix>(?P<pod>{_POD})\s(?P<container>[a-z0-9][a-z0-9-]{{0,62}}))(?:\s|$)")
_SURE = re.compile(rf"(?:{_ISO}|\(\w[\w ]{{0,40}} pid=|(?:{_LEVELS})\s|(?:{_LEVELS}):\s)")
_SECTION = re.compile(r"==> (?P<name>\S.{0,300}?) <==\s*$")


class _Streams:
    """Which of several logs in one stream a line is from, where only what came before tells."""

    def __init__(self) -> None:
        self._pods: set[str] = set()
        self._section: str | None = None

    def cut(self, text: str) -> tuple[str | None, str]:
        """Return the service of a line, if one is named, and the line without its name."""
        if text.startswith("==> ") and (section := _SECTION.match(text)):
            self._section = section["name"].rsplit("/", 1)[-1]
            return self._section, ""
        found = _STERN.match(text) if "-" in text[:210] else None
        if found is None:
            return self._section, text
        rest = text[found.end() :]
        if found["prefix"] not in self._pods:
            if not _SURE.match(rest) or len(self._pods) >= _MAX_STREAMS:
                return self._section, text
            self._pods.add(found["prefix"])
        return f"{found['pod']}/{found['container']}", rest


def frame(stream: Iterable[bytes], source: str) -> Iterator[Line]:
    """Yield the lines of ``stream``, in order, each without its envelope.

    ``source`` names the input in evidence. Reads once, keeps one line; raises whatever
    reading ``stream`` raises.
    """
    streams = _Streams()
    for number, text in _rejoin_headers(_without_routine(physical_lines(stream))):
        yield from _frame_one(source, number, text, streams)


def _frame_one(source: str, number: int, text: str, streams: _Streams) -> Iterator[Line]:
    if text.endswith("\\n") and "\\n" not in text[:-2]:
        text = text[:-2]
    for part in text.split("\r") if "\r" in text else (text,):
        shown = clean(part)
        if not shown and part is not text:
            continue
        service, rest = streams.cut(shown)
        process = NOBODY if service is None else Process(service=service)
        line = strip_envelope(Line(source, number, rest, shown.strip(), process=process))
        inner = line.text.lstrip()
        if inner.startswith("{") and inner.rstrip().endswith("}"):
            for entry in _from_json(line) or [line]:
                yield from _split_glued(strip_envelope(entry))
            continue
        yield from _split_glued(line)
