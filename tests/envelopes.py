"""What other programs wrap around a message: each form as a function from text to bytes.

An `Envelope` says for which kind of text it makes sense. Forms as listed in the docstring of
`vllm_diag.framing`; the tests hold every message of the catalogue against every one of them.
"""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from vllm_diag.messages import Message

Kind = Literal["vllm", "kernel", "host"]
EVERYBODY: frozenset[Kind] = frozenset(("vllm", "kernel", "host"))
USERLAND: frozenset[Kind] = frozenset(("vllm", "host"))
VLLM: frozenset[Kind] = frozenset(("vllm",))
KERNEL: frozenset[Kind] = frozenset(("kernel",))

# Emitters whose texts never pass through vLLM's logger: another program prints them.
_HOST = ("shell", "docker", "Docker", "systemd", "earlyoom", "Slurm", "kubelet", "df", "uvicorn access log")


def kind_of(message: Message) -> Kind:
    """Return who prints the message: the kernel, another program of the host, or vLLM."""
    if message.emitter.startswith("Linux kernel"):
        return "kernel"
    bare = message.whole_line or message.emitter.startswith(_HOST) or "/metrics" in message.emitter
    return "host" if bare else "vllm"


@dataclass(frozen=True, slots=True)
class Envelope:
    """One way in which a text reaches a log.

    ``first`` is the physical line on which the text then starts. ``alone`` is False where
    the envelope puts words before the text on its line, so that texts that must have a
    line for themselves do not count.
    """

    name: str
    around: Callable[[str], bytes]
    kinds: frozenset[Kind] = EVERYBODY
    first: int = 1
    alone: bool = True

    def excluded(self, message: Message) -> str | None:
        """Return why ``message`` is never met in this envelope, or None."""
        if kind_of(message) not in self.kinds:
            return f"texts of {message.emitter} do not come this way"
        if (message.whole_line or message.spaced) and not self.alone:
            return "nothing else may stand on the line of this text"
        return None


def prefixed(prefix: str, ending: str = "\n") -> Callable[[str], bytes]:
    """Return a function that puts ``prefix`` before each line of a text."""
    return lambda text: "".join(prefix + line + ending for line in text.split("\n")).encode()


def _first_only(prefix: str) -> Callable[[str], bytes]:
    return lambda text: (prefix + text + "\n").encode()


def _json_lines(make: Callable[[str], object]) -> Callable[[str], bytes]:
    return lambda text: "".join(json.dumps(make(line)) + "\n" for line in text.split("\n")).encode()


def _vllm_json(text: str) -> bytes:
    record = {
        "asctime": "2026-11-30 20:50:24,344", "levelname": "ERROR", "name": "vllm.v1.engine.core",
        "processName": "EngineCore_DP0", "process": 123, "message": text,
    }  # fmt: skip
    return (json.dumps(record) + "\n").encode()


def _vllm_exc_info(text: str) -> bytes:
    trace = f'Traceback (most recent call last):\n  File "/v/core.py", line 1, in run\n    f()\nValueError: {text}'
    record = {
        "asctime": "2026-11-30 20:50:24,344", "levelname": "ERROR", "name": "vllm.v1.engine.core",
        "processName": "EngineCore_DP0", "process": 123, "message": "a step failed", "exc_info": trace,
    }  # fmt: skip
    return (json.dumps(record) + "\n").encode()


def _journal_json(text: str) -> object:
    return {
        "__REALTIME_TIMESTAMP": "1764535824344278", "_TRANSPORT": "kernel", "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "kernel", "_BOOT_ID": "0f", "MESSAGE": text,
    }  # fmt: skip


def _journal_bytes(text: str) -> object:
    return {"__REALTIME_TIMESTAMP": "1764535824344278", "PRIORITY": "6", "MESSAGE": list(text.encode())}


def _docker_json(text: str) -> object:
    return {"log": text + "\n", "stream": "stderr", "time": "2024-04-25T14:44:04.498000301Z"}


def _entities(text: str) -> bytes:
    return (html.escape(text).replace("&#x27;", "&#39;") + "\n").encode()


def _coloured_012(text: str) -> bytes:
    head = (
        "\x1b[0;36m(EngineCore pid=1)\x1b[0;0m \x1b[31mERROR\x1b[0m \x1b[90m10-25 13:08:43\x1b[0m"
        " \x1b[90m[core.py:708]\x1b[0m "
    )
    return prefixed(head)(text)


_BAR = "Processed prompts:  50%|#####     | 1/2 [00:01<00:01,  1.20s/it]"
_ENGINE = "(EngineCore_DP0 pid=123) INFO 10-25 13:08:43 [gpu_worker.py:298] "
_HEADER_04 = "INFO 04-30 10:20:35 [monitor.py:33] "

ENVELOPES: tuple[Envelope, ...] = (
    Envelope("plain", prefixed("")),
    Envelope("plain-crlf", prefixed("", "\r\n")),
    Envelope("no-final-newline", lambda text: text.encode()),
    Envelope("bom", lambda text: b"\xef\xbb\xbf" + text.encode() + b"\n"),
    Envelope("utf-16", lambda text: (text + "\n").encode("utf-16")),
    # --- vLLM's own prefixes, by generation -----------------------------------------------
    Envelope("vllm-0.1.4", prefixed("INFO 01-11 15:51:18 llm_engine.py:275] "), VLLM),
    Envelope("vllm-0.4.2-worker", prefixed("(VllmWorkerProcess pid=123) INFO 01-11 15:51:18 worker.py:101] "), VLLM),
    Envelope("vllm-0.6.5-worker", prefixed("(VllmWorker rank=0 pid=123) ERROR 01-11 15:51:18 worker.py:101] "), VLLM),
    Envelope("vllm-0.8.0", prefixed(_HEADER_04), VLLM),
    Envelope("vllm-0.8.3-engine", prefixed("(EngineCore_0 pid=123) INFO 04-30 10:20:35 [core.py:33] "), VLLM),
    Envelope("vllm-0.10.1-worker", prefixed("(VllmWorker TP0 pid=216) INFO 10-25 13:08:43 [worker.py:2] "), VLLM),
    Envelope("vllm-0.10.1-pp", prefixed("(VllmWorker PP0_TP1 pid=216) INFO 10-25 13:08:43 [worker.py:2] "), VLLM),
    Envelope("vllm-0.10.1-nested", prefixed("(EngineCore_0 pid=1) (VllmWorker TP0 pid=2) INFO 10-25 13:08:43 [w.py:2] "), VLLM),
    Envelope("vllm-0.10.2", prefixed(_ENGINE), VLLM),
    Envelope("vllm-0.10.2-debug", prefixed("(Worker_TP0 pid=124) DEBUG 10-25 13:08:43 [v1/.../gpu_worker.py:298] "), VLLM),
    Envelope("vllm-0.11-coloured", prefixed("\x1b[1;36m(EngineCore_DP0 pid=1)\x1b[0;0m INFO 10-25 13:08:43 [core.py:7] "), VLLM),
    Envelope("vllm-0.12-coloured", _coloured_012, VLLM),
    Envelope("vllm-0.31-main", prefixed("(MainProcess pid=9) WARNING 10-25 13:08:43 [config.py:298] "), VLLM),
    Envelope("vllm-0.32-json", _vllm_json, VLLM),
    Envelope("vllm-0.32-exc-info", _vllm_exc_info, VLLM, alone=False),
    Envelope("newline-formatter", prefixed(_ENGINE, "\r\n"), VLLM),
    Envelope("header-on-first-line", _first_only(_ENGINE), VLLM),
    # --- prefixes of streams, which anything a process prints gets ---------------------------
    Envelope("worker-stream", prefixed("(Worker_TP1 pid=7) "), VLLM),
    Envelope("worker-stream-crlf", prefixed("(Worker_DP0_PP1_TP1_EP1 pid=7) ", "\r\n"), VLLM),
    Envelope("ray", prefixed("(RayWorkerWrapper pid=7, ip=10.0.0.1) "), VLLM),
    Envelope("ray-header", prefixed("(RayWorkerWrapper pid=7) " + _HEADER_04), VLLM),
    Envelope("torchrun", prefixed("[rank0]: "), VLLM),
    Envelope("parent-process", prefixed("(vllm-test, pid=4001) (EngineCore_0 pid=4008) "), VLLM),
    Envelope("parent-process-header", prefixed("(vllm-test, pid=4001) " + _ENGINE), VLLM),
    Envelope("stage", prefixed("(Worker pid=2291043) [Stage-0] ERROR 03-12 08:34:59 [multiproc_executor.py:800] "), VLLM),
    Envelope("srun-label", prefixed("3: " + _ENGINE), VLLM),
    Envelope("ray-logger", _first_only("2025-04-04 18:57:03,337\tERR worker.py:71 -- "), VLLM),
    Envelope("raylet", _first_only("(raylet) [2024-03-02 14:40:11,300 E 1201 1230] (raylet) node_manager.cc:3007: "), VLLM),
    Envelope("c10-logger", _first_only("[rank0]:[W502 11:47:03.150000000 ProcessGroupNCCL.cpp:1554] "), VLLM),
    Envelope("python-logging", _first_only("2000-01-02 10:00:00,723 - WARNING - autotuner.py:1315 - "), VLLM),
    Envelope("python-logging-named", _first_only("2000-01-02 10:00:00,723 - vllm.engine - ERROR - "), VLLM),
    # --- programs that start a server and pass its lines on ----------------------------------
    Envelope("dynamo", prefixed("2000-01-02T10:00:00.390Z  INFO dynamo_engine_vllm::worker: VLLM: "), VLLM),
    Envelope("dynamo-header", prefixed("2000-01-02T10:00:00.390Z  INFO dynamo_engine_vllm::worker: " + _ENGINE), VLLM),
    Envelope("launcher", prefixed("2026-05-03 11:47:02.257 [Error] (Process) (EngineCore pid=2651) "), VLLM),
    Envelope("launcher-header", prefixed("2026-05-03 11:47:02.257 [Info] (Process) " + _ENGINE), VLLM),
    Envelope("pm2", prefixed("0|vllm  | "), USERLAND),
    Envelope("foreman", prefixed("10:15:04 vllm.1 | " + _ENGINE), VLLM),
    Envelope("exception", _first_only("ValueError: "), VLLM, alone=False),
    Envelope("exception-logged", _first_only(_ENGINE.replace("INFO", "ERROR") + "RuntimeError: "), VLLM, alone=False),
    Envelope("exception-dotted", _first_only("[rank0]: torch.OutOfMemoryError: "), VLLM, alone=False),
    # --- containers ------------------------------------------------------------------------
    Envelope("compose", prefixed("vllm-1  | "), USERLAND),
    Envelope("compose-header", prefixed("vllm-1  | " + _ENGINE), VLLM),
    Envelope("kubectl-prefix", prefixed("[pod/vllm-7c9f8d6b5-x2k9p/vllm] "), USERLAND),
    Envelope("kubectl-prefix-header", prefixed("[pod/vllm-0/vllm] " + _ENGINE), VLLM),
    Envelope("kubetail", prefixed("[vllm-7c9f8d6b5-x2k9p vllm] "), USERLAND),
    Envelope("kail", prefixed("default/vllm-7c9f8d6b5-x2k9p[vllm]: "), USERLAND),
    Envelope("stern", prefixed("vllm-7c9f8d6b5-x2k9p vllm " + _ENGINE), VLLM),
    Envelope("kubectl-events", prefixed("  Warning  OOMKilling  2m13s (x4 over 5m)  kernel-monitor, gpu-3  "), KERNEL),
    Envelope("kubectl-get-events", prefixed("2m13s       Warning   OOMKilling   node/gpu-3   "), KERNEL),
    Envelope("swarm", prefixed("stack_vllm.1.x2k9p@gpu-3    | "), USERLAND),
    Envelope("docker-timestamps", prefixed("2024-04-25T14:44:04.498000301Z "), USERLAND),
    Envelope("cri", prefixed("2024-04-25T14:44:04.498000301Z stdout F "), USERLAND),
    Envelope("cri-header", prefixed("2024-04-25T14:44:04.498000301+00:00 stderr F " + _ENGINE), VLLM),
    Envelope("docker-json", _json_lines(_docker_json), USERLAND),
    Envelope("docker-json-header", _json_lines(lambda text: _docker_json(_ENGINE + text)), VLLM),
    # --- journal and syslog ------------------------------------------------------------------
    Envelope("journal-short", prefixed("Nov 30 20:50:24 gpu-3 vllm[4711]: "), USERLAND),
    Envelope("journal-short-header", prefixed("Nov  3 20:50:24 gpu-3 vllm[4711]: " + _ENGINE), VLLM),
    Envelope("journal-iso", prefixed("2026-11-30T20:50:24+0000 gpu-3 vllm[4711]: "), USERLAND),
    Envelope("journal-iso-precise", prefixed("2026-11-30T20:50:24.344278+00:00 gpu-3 systemd[1]: "), USERLAND),
    Envelope("journal-json", _json_lines(_journal_json)),
    Envelope("journal-json-bytes", _json_lines(_journal_bytes)),
    Envelope("journal-full", prefixed("Mon 2026-11-30 20:50:24 UTC gpu-3 vllm[4711]: "), USERLAND),
    Envelope("journal-monotonic", prefixed("[    7.344278] gpu-3 vllm[4711]: "), USERLAND),
    Envelope("rfc5424", prefixed("<3>1 2026-11-30T20:50:24Z gpu-3 vllm 4711 - - "), USERLAND),
    Envelope("syslog", prefixed("Aug 12 11:27:40 gpu-3 vllm: "), USERLAND),
    # --- the kernel ring buffer -----------------------------------------------------------
    Envelope("dmesg", prefixed("[    7.344278] "), KERNEL),
    Envelope("dmesg-caller", prefixed("[15180285.537297] [    T92] "), KERNEL),
    Envelope("dmesg-raw", prefixed("<4>[    7.344278] "), KERNEL),
    Envelope("dmesg-ctime", prefixed("[Mon Nov 30 20:50:24 2026] "), KERNEL),
    Envelope("dmesg-ctime-german", prefixed("[Di Aug 12 03:54:03 2025] "), KERNEL),
    Envelope("dmesg-iso", prefixed("2026-11-30T20:51:39,366461+00:00 "), KERNEL),
    Envelope("dmesg-decode", prefixed("kern  :err   : [    7.344278] "), KERNEL),
    Envelope("dmesg-decode-ctime", prefixed("kern  :warn  : [Mon Nov  2 20:50:24 2026] "), KERNEL),
    Envelope("journal-kernel", prefixed("Nov 30 20:50:24 gpu-3 kernel: "), KERNEL),
    Envelope("journal-iso-kernel", prefixed("2026-11-30T20:50:24.344278+0000 gpu-3 kernel: "), KERNEL),
    Envelope("syslog-kernel", prefixed("Aug 12 11:27:40 gpu-3 kernel: [15180285.537297] "), KERNEL),
    Envelope("rsyslog-kernel", prefixed("2026-11-30T20:50:24.344278+00:00 gpu-3 kernel: [    7.344278] "), KERNEL),
    Envelope("dmesg-human", prefixed("[Nov30 20:50] "), KERNEL),
    Envelope("dmesg-human-delta", prefixed("[  +0.000010] "), KERNEL),
    Envelope("dmesg-delta", prefixed("[<    0.000010>] "), KERNEL),
    Envelope("dmesg-ctime-delta", prefixed("[Mon Nov 30 20:50:24 2026 <    0.000010>] "), KERNEL),
    Envelope("dmesg-seconds-delta", prefixed("[    7.344278 <    0.000010>] "), KERNEL),
    Envelope("dmesg-json", lambda text: f'         "msg": "{text}"\n'.encode(), KERNEL),
    Envelope("kmsg", prefixed("3,1234,7344278,-;"), KERNEL),
    Envelope("kmsg-caller", prefixed("3,1234,7344278,-,caller=T92;"), KERNEL),
    Envelope("journal-monotonic-kernel", prefixed("[    7.344278] gpu-3 kernel: "), KERNEL),
    Envelope("journal-full-kernel", prefixed("Mon 2026-11-30 20:50:24 UTC gpu-3 kernel: "), KERNEL),
    Envelope("rfc5424-kernel", prefixed("<3>1 2026-11-30T20:50:24Z gpu-3 kernel - - - "), KERNEL),
    Envelope("serial-console", prefixed("[    7.344278] ", "\r\n"), KERNEL),
    # --- people and their tools --------------------------------------------------------------
    Envelope("quoted", prefixed("> ")),
    Envelope("quoted-twice", prefixed("> > ")),
    Envelope("commented", prefixed("# ")),
    Envelope("quoted-header", prefixed("> " + _HEADER_04), VLLM),
    Envelope("caret-colours", prefixed("^[[1;36m(EngineCore_DP0 pid=1)^[[0;0m INFO 10-25 13:08:43 [core.py:7] "), VLLM),
    Envelope("rsyslog-colours", prefixed("#033[1;36m(EngineCore_DP0 pid=1)#033[0;0m "), VLLM),
    Envelope("colour-inside", lambda text: (f"\x1b[31m{text[:7]}\x1b[0m{text[7:]}\x1b[K\n").encode()),
    Envelope("entities", _entities),
    Envelope("indented", prefixed("    ")),
    Envelope("trailing-blanks", prefixed("", "   \t\n")),
    Envelope("rich-frame", lambda text: "".join(f"│ {line}   │\n" for line in text.split("\n")).encode()),
    # --- glued to something ------------------------------------------------------------------
    Envelope("behind-bar", _first_only(_BAR + "\r"), USERLAND),
    Envelope("behind-bar-header", _first_only(_BAR + "\r" + _ENGINE), VLLM),
    Envelope("glued-header", _first_only(_BAR + _ENGINE), VLLM),
    Envelope("after-lines", lambda text: f"one\n{_HEADER_04}two\n\n{text}\n".encode(), first=4),
    Envelope("after-header", lambda text: f"{_ENGINE}one\n{_ENGINE}{text}\n".encode(), VLLM, first=2),
)  # fmt: skip


# --- wrapping -----------------------------------------------------------------------------

WIDTHS = range(12, 161)
WRAPPED_PREFIXES = (
    "",
    _HEADER_04,
    _ENGINE,
    "(Worker_TP1 pid=7) ",
    "INFO 01-11 15:51:18 llm_engine.py:275] ",
    "(VllmWorker TP0 pid=216) ERROR 10-25 13:08:43 [worker.py:2] ",
)


def hard(line: str, width: int) -> list[str]:
    """Cut a line each ``width`` characters, as a terminal does."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


def fmt(line: str, width: int) -> list[str]:
    """Break a line at blanks, as ``fmt`` does; words longer than the width stay whole."""
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]


def wrapped(text: str, prefix: str, wrap: Callable[[str, int], list[str]], width: int) -> list[str]:
    """Return the physical lines of ``text`` with ``prefix`` before each of its own lines."""
    return [part for line in text.split("\n") for part in wrap(prefix + line, width)]


def line_of(lines: list[str], squeezed_at: int) -> int:
    """Return the 1-based physical line that holds the character number ``squeezed_at``, blanks not counted."""
    seen = 0
    for number, line in enumerate(lines, 1):
        seen += len("".join(line.split()))
        if squeezed_at < seen:
            return number
    return len(lines)


def runs_of(widths: Iterator[int]) -> str:
    """Return widths for a failure message: ``12-15, 77``."""
    parts = []
    for _, group in groupby(enumerate(widths), lambda pair: pair[1] - pair[0]):
        run = [width for _, width in group]
        parts.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return ", ".join(parts)
