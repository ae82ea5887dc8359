"""What shells, systemd and the user-space killers say about the end of a process.

Containers, Kubernetes and Slurm are in `containers`, Ray in `ray`, full file systems and
refused host memory in `host_limits`.
"""

from __future__ import annotations

import re

from vllm_diag.event_types import ProcessDied
from vllm_diag.messages import Message
from vllm_diag.messages._readers import phrases
from vllm_diag.quantities import Reader, count, integer, mib_2dp, number, raw_bytes, size, words

_unit = Reader("unit", r"[\w@:.\\-]{1,120}?\.(?:service|scope|slice)", str, ("vllm.service",))
# systemd writes 123.9G for GiB, and a time as 5h 17min 34.893s.
_short_size = Reader(
    "short_size", r"\d{1,6}(?:\.\d{1,3})?[BKMGT]", lambda text: size.read(text if text[-1] == "B" else text + "B"),
    ("123.9G", "512B"),
)  # fmt: skip
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "month": 2629800.0,
            "y": 31557600.0}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|month|min|[shdwy])")


def _duration(text: str) -> float:
    return round(sum(float(amount) * _SECONDS[unit] for amount, unit in _PART.findall(text)), 6)


_time = Reader(
    "time", r"(?:\d{1,6}(?:\.\d{1,6})?(?:us|ms|month|min|[shdwy])){1,8}", _duration, ("5h 17min 34.893s", "20s")
)
_cgroup = Reader("cgroup", r"/[^\s'\"<>,]{0,300}?", str, ("/system.slice/vllm.service",))
_signal = Reader("signal", r"SIG(?:TERM|KILL)", str, ("SIGTERM", "SIGKILL"))
# At a wrap the mark ">" can begin a line, where people's quoting is taken off.
_OOMD_REASON = (
    "pressure for {limit_cgroup} being {pressure}% ⟦> ⟧{limit}% for ⟦> ⟧{duration}",
    "used ({used}) / total ({total}) and swap used ({swap_used}) / total ({swap_total}) being more than {percent}%",
)

MESSAGES = (
    # --- shells -------------------------------------------------------------------------------
    Message(
        code="killed",
        event=ProcessDied,
        emitter="shell",
        always={"exit_code": -9},
        whole_line=True,
        fatal=True,
        wordings=("Killed",),
        samples=("Killed",),
        means="A process got SIGKILL; not by whom.",
    ),
    Message(
        code="killed-command",
        event=ProcessDied,
        emitter="shell",
        always={"exit_code": -9},
        fatal=True,
        reads={"script": words, "line": count, "pid": count, "job": count, "command": words},
        wordings=("{script}: line {line}: {pid} Killed", "[{job}]⟨+|-⟩⟦ {pid}⟧ Killed", "zsh: killed {command}"),
        samples=(
            "./entrypoint.sh: line 28:     7 Killed                  python3 server.py",
            "[1]+  Killed                  ./serve.sh",
            "[1]+  4711 Killed                  ./serve.sh",
            "zsh: killed     ./serve.sh",
        ),
        means="A command of a script got SIGKILL; not by whom.",
    ),
    Message(
        code="bus-error",
        event=ProcessDied,
        emitter="shell, faulthandler",
        always={"exit_code": -7},
        fatal=True,
        reads={"pid": count, "script": words, "line": count},
        wordings=(
            "Bus error (core dumped)",
            "Fatal Python error: Bus error",
            "{script}: line {line}: {pid} Bus error",
        ),
        samples=(
            "Bus error (core dumped)",
            "Fatal Python error: Bus error",
            "run.sh: line 12:  4711 Bus error               (core dumped) ./serve.sh",
        ),
        means="A process touched a mapped page that could not be provided: full /dev/shm, or a truncated file.",
    ),
    Message(
        code="bus-error-bare",
        event=ProcessDied,
        emitter="shell",
        always={"exit_code": -7},
        fatal=True,
        whole_line=True,
        wordings=("Bus error",),
        samples=("Bus error",),
        means="A process touched a mapped page that could not be provided.",
    ),
    # --- systemd ------------------------------------------------------------------------------
    Message(
        code="unit-oom-killed",
        emitter="systemd",
        fatal=True,
        reads={"unit": _unit, "kills": Reader("kills", r"[1-9]\d{0,6}", int, ("1", "2"))},
        wordings=(
            "{unit}: A process of this unit has been killed by the OOM killer",
            "{unit}: The kernel OOM killer killed some processes in this unit",
            "{unit}: Failed with result 'oom-kill'",
            "Active: failed (Result: oom-kill)",
            "Result=oom-kill",
            "OOMKills={kills}",
        ),
        samples=(
            "vllm.service: A process of this unit has been killed by the OOM killer.",
            "vllm.service: The kernel OOM killer killed some processes in this unit.",
            "vllm.service: Failed with result 'oom-kill'.",
            "     Active: failed (Result: oom-kill) since Mon 2026-11-30 20:50:24 UTC; 2min ago",
            "Result=oom-kill",
            "OOMKills=1",
        ),
        means="systemd saw a process of the unit killed for want of memory.",
    ),
    Message(
        code="unit-memory",
        emitter="systemd",
        seen="systemd 255 - 258 (peaks)",
        reads={
            "unit": _unit,
            "cpu_seconds": _time,
            "seconds": _time,
            "memory": _short_size,
            "memory_peak": _short_size,
            "swap_peak": _short_size,
            "limit": _short_size,
            "limits": Reader("limits", r"[^()]{0,80}?", str, ("available: 16G ",)),
        },
        wordings=(
            "{unit}: Consumed {cpu_seconds} CPU time¦⟦ over {seconds} wall clock time⟧⟦, {memory_peak} memory peak⟧"
            "⟦, {swap_peak} memory swap peak⟧",
            "Memory: {memory} (⟦max: {limit} ⟧{limits}peak: {memory_peak}¦⟦ swap peak: {swap_peak}⟧",
            "Mem peak: {memory_peak}",
        ),
        samples=(
            "vllm.service: Consumed 5h 17min 34.893s CPU time.",
            "vllm.service: Consumed 3min 2.118s CPU time over 6min 11.402s wall clock time, 62.4G memory peak, 512K"
            " memory swap peak.",
            "     Memory: 12.3G (max: 64.0G available: 51.7G peak: 62.4G)",
            "   Mem peak: 62.4G",
        ),
        means="What a unit used at most (its page cache included), as systemd counted it; G is GiB.",
    ),
    Message(
        code="unit-killed",
        event=ProcessDied,
        emitter="systemd",
        always={"exit_code": -9},
        fatal=True,
        reads={"unit": _unit},
        wordings=("{unit}: Main process exited, code=killed, status=9/KILL",),
        samples=("vllm.service: Main process exited, code=killed, status=9/KILL",),
        means="The unit's main process got SIGKILL; not by whom.",
    ),
    Message(
        code="unit-crashed",
        event=ProcessDied,
        emitter="systemd",
        fatal=True,
        reads={
            "unit": _unit,
            "exit_code": Reader("exit_code", r"(?!9/)\d{1,2}", lambda text: -int(text), ("11", "6", "7", "15")),
            "name": Reader("name", r"[A-Z]{2,8}\d?", str, ("SEGV", "ABRT")),
        },
        wordings=("{unit}: Main process exited, code=⟨killed|dumped⟩, status={exit_code}/{name}",),
        samples=("vllm.service: Main process exited, code=dumped, status=11/SEGV",),
        means="The unit's main process ended by a signal: 6 aborted, 7 bus error, 11 crash, 15 asked to stop.",
    ),
    Message(
        code="unit-exited",
        event=ProcessDied,
        emitter="systemd",
        reads={"unit": _unit, "exit_code": count, "name": Reader("name", r"[A-Za-z/]{2,20}", str, ("FAILURE", "n/a"))},
        wordings=("{unit}: Main process exited, code=exited, status={exit_code}/{name}",),
        samples=("vllm.service: Main process exited, code=exited, status=1/FAILURE",),
        means="The unit's main process ended by itself with this status.",
    ),
    Message(
        code="unit-failed",
        emitter="systemd",
        reads={
            "unit": _unit,
            "result": phrases(
                "result", "exit-code", "signal", "core-dump", "timeout", "watchdog", "start-limit-hit", "resources"
            ),
        },
        wordings=("{unit}: Failed with result '{result}'",),
        samples=("vllm.service: Failed with result 'signal'.",),
        means="The unit failed, and not for want of memory as far as systemd saw; signal leaves that open.",
    ),
    Message(
        code="unit-stop-timeout",
        emitter="systemd",
        reads={"unit": _unit},
        wordings=(
            "{unit}: State ⟨'stop-sigterm'|'final-sigterm'|'stop-watchdog'|'final-watchdog'⟩ timed out",
            "{unit}: Stopping timed out",
        ),
        samples=(
            "vllm.service: State 'stop-sigterm' timed out. Killing.",
            "vllm.service: Stopping timed out. Killing.",
        ),
        means="The unit was asked to stop and was too slow, so systemd kills it: an ordinary origin of 9/KILL.",
    ),
    Message(
        code="unit-kills",
        emitter="systemd",
        reads={"unit": _unit, "pid": count, "comm": Reader("comm", r"[^()]{1,64}", str, ("VLLM::Worker_TP",))},
        wordings=("{unit}: Killing process {pid} ({comm}) with signal SIGKILL",),
        samples=("vllm.service: Killing process 4711 (VLLM::Worker_TP) with signal SIGKILL.",),
        means="systemd itself ends what is left of the unit.",
    ),
    Message(
        code="unit-restart",
        emitter="systemd",
        reads={"unit": _unit, "restarts": count},
        wordings=("{unit}: Scheduled restart job, restart counter is at {restarts}",),
        samples=("vllm.service: Scheduled restart job, restart counter is at 3.",),
        means="systemd restarts the unit.",
    ),
    Message(
        code="unit-started",
        emitter="systemd",
        reads={"unit": words},
        wordings=("Started {unit}.service",),
        samples=("Started vllm.service - vLLM server.",),
        means="systemd started the unit.",
    ),
    Message(
        code="unit-stopping",
        emitter="systemd",
        reads={"unit": words},
        wordings=("Stopping {unit}.service", "Stopped {unit}.service"),
        samples=("Stopping vllm.service - vLLM server...", "Stopped vllm.service - vLLM server."),
        means="The unit is stopped on request.",
    ),
    # --- killers in user space ------------------------------------------------------------------
    Message(
        code="oomd-killed",
        emitter="systemd-oomd",
        fatal=True,
        reads={
            "unit": _unit,
            "processes": count,
            "cgroup": _cgroup,
            "limit_cgroup": _cgroup,
            "pressure": number,
            "limit": number,
            "duration": _time,
            "percent": number,
            "used": raw_bytes,
            "total": raw_bytes,
            "swap_used": raw_bytes,
            "swap_total": raw_bytes,
        },
        wordings=(
            "{unit}: systemd-oomd killed ⟨some|{processes}⟩ process(es) in this unit",
            f"Killed {{cgroup}} due to memory ⟨{_OOMD_REASON[0]}|{_OOMD_REASON[1]}⟩",
            f"Marked {{cgroup}} for killing due to memory ¦⟨{_OOMD_REASON[0]}|{_OOMD_REASON[1]}⟩",
        ),
        samples=(
            "vllm.service: systemd-oomd killed some process(es) in this unit.",
            "vllm.service: systemd-oomd killed 12 process(es) in this unit.",
            "Killed /user.slice/user-1000.slice/app.slice/vllm.service due to memory pressure for /user.slice being"
            " 61.52% > 50.00% for > 20s with reclaim activity",
            "Killed /system.slice/vllm.service due to memory used (66571993088) / total (67108864000) and swap used"
            " (8160437862) / total (8589934592) being more than 90.00%",
            "Marked /system.slice/vllm.service for killing due to memory pressure for /system.slice being 71.40% >"
            " 60.00% for > 30s with reclaim activity",
        ),
        means="The user-space daemon systemd-oomd killed the unit; the kernel log is silent about it."
        " Pressure is a share of time lost to waiting for memory, not of memory.",
    ),
    Message(
        code="oomd-note",
        emitter="systemd-oomd",
        reads={
            "cgroups": count,
            "rule": Reader("rule", r"[^']{1,80}", str, ("default",)),
            "cgroup": _cgroup,
            "duration": _time,
            "action": Reader("action", r"[\w-]{1,40}", str, ("kill",)),
            "path": _cgroup,
            "usage": size,
        },
        wordings=(
            "Considered {cgroups} cgroups for killing, top candidates were:",
            "Rule '{rule}' conditions met for cgroup {cgroup} for {duration}, taking action {action}",
            "Current Memory Usage: {usage}",
        ),
        samples=(
            "Considered 12 cgroups for killing, top candidates were:",
            "Rule 'default' conditions met for cgroup /system.slice/vllm.service for 30s, taking action kill",
            "Current Memory Usage: 51.4G",
        ),
        means="What systemd-oomd looked at before it killed.",
    ),
    Message(
        code="earlyoom-kill",
        emitter="earlyoom",
        fatal=True,
        reads={
            "signal": _signal,
            "pid": count,
            "uid": count,
            "comm": Reader("comm", r'[^"]{1,64}', str, ("VLLM::EngineCor",)),
            "score": integer,
            "score_adj": integer,
            "rss": mib_2dp,
        },
        wordings=(
            'sending {signal} to process {pid}¦ uid {uid} "{comm}": ⟨oom_score|badness⟩ {score}⟦,'
            " oom_score_adj {score_adj}⟧, VmRSS {rss} MiB",
        ),
        samples=(
            'sending SIGTERM to process 14822 uid 0 "VLLM::EngineCor": oom_score 1210, oom_score_adj 0, VmRSS 30473'
            ' MiB, cmdline "VLLM::EngineCore"',
            'sending SIGKILL to process 14822 uid 0 "python3": badness 812, VmRSS 30473 MiB',
        ),
        means="The daemon earlyoom ends a process because memory is low; after SIGTERM that looks like an orderly stop.",
    ),
    Message(
        code="earlyoom-dryrun",
        emitter="earlyoom",
        wordings=("dryrun, not actually sending any signal",),
        samples=("dryrun, not actually sending any signal",),
        means="earlyoom only says what it would do.",
    ),
    Message(
        code="earlyoom-note",
        emitter="earlyoom",
        reads={
            "signal": _signal,
            "memory_percent": number,
            "swap_percent": number,
            "available": mib_2dp,
            "total": mib_2dp,
            "free_swap": mib_2dp,
            "total_swap": mib_2dp,
            "pid": count,
            "seconds": number,
        },
        wordings=(
            "low memory! at or below {signal} limits: mem {memory_percent}%, swap {swap_percent}%",
            "mem avail: {available} of {total} MiB ({memory_percent}%), swap free: {free_swap} of {total_swap} MiB"
            " ({swap_percent}%)",
            "process {pid} exited after {seconds} seconds",
            "escalating to SIGKILL after {seconds} seconds",
            "process {pid} did not exit",
            "Could not find a process to kill.",
            "memory situation has recovered while selecting victim",
        ),
        samples=(
            "low memory! at or below SIGTERM limits: mem 10.00%, swap 10.00%",
            "mem avail: 2841 of 64301 MiB ( 4.42%), swap free:    0 of    0 MiB ( 0.00%)",
            "process 14822 exited after 0.3 seconds",
            "escalating to SIGKILL after 0.5 seconds",
            "process 14822 did not exit",
            "Could not find a process to kill. Sleeping 1 second.",
            "memory situation has recovered while selecting victim",
        ),
        means="earlyoom's own account: what is left, and what became of a process it ended. The first figures of"
        " its low-memory line are its limits.",
    ),
)
