"""Where to look next when a log does not hold the cause: which process, which log, which command."""

from __future__ import annotations

import re

from vllm_diag.event_types import Event, ProcessDied
from vllm_diag.runs import Run

_JOURNAL = re.compile(r"(?P<ident>.{1,120})\[\d{1,10}\]$")


def whose_output(run: Run, reports: list[Event]) -> str:
    """Name the processes whose own words are missing, and from when."""
    gone = [_named(e.process, e.pid) for e in reports if isinstance(e, ProcessDied) and e.process]
    if not gone:
        gone = [_named(e.at.process.name, e.at.process.pid) for e in reports if _is_worker(e.at.process.name)]
    if not gone and any(e.code in ("engine-init-failed", "engine-died", "engine-dead") for e in reports):
        gone = ["the engine core process (EngineCore, or EngineCore_DP0 and on)"]
    if not gone and any(e.code == "worker-failed" for e in reports):
        gone = ["the worker processes, rank by rank"]
    named = ", ".join(dict.fromkeys(gone)) or "the engine and worker processes"
    first = min(reports, key=lambda e: e.at.order) if reports else None
    when = f" before {first.at.time}" if first is not None and first.at.time else ""
    return f"the output of {named}{when}: the first error in it"


def _named(name: str | None, pid: int | None) -> str:
    return f"{name} (pid {pid})" if pid else str(name)


def _is_worker(name: str | None) -> bool:
    return name is not None and ("Worker" in name or "Engine" in name)


def log_command(run: Run) -> str:
    """Name the command that shows the whole log of this service."""
    service = run.service
    if service is None:
        return "the log from its beginning: docker logs NAME, kubectl logs POD --previous, journalctl -u UNIT"
    if "/" in service:
        pod, _, container = service.partition("/")
        return f"kubectl logs {pod} -c {container} --previous" if container else f"kubectl logs {pod} --previous"
    if (journal := _JOURNAL.match(service)) is not None:
        return f"journalctl -u {journal['ident']} from the start of the unit on"
    if service.endswith((".service", ".scope")):
        return f"journalctl -u {service} from the start of the unit on"
    if "." in service:
        return f"{service} from its beginning"
    return f"docker compose logs --no-log-prefix {re.sub(r'[-_][0-9]{1,4}$', '', service)}"


def kernel_command(run: Run, when: str | None = None) -> str:
    """Name the command that shows whether the kernel killed a process or lost a GPU."""
    around = f" around {when}" if when else ""
    return f"the kernel log of the host{around}: dmesg -T | grep -iE 'killed process|xid|segfault'"


def exit_command(run: Run) -> str:
    """Name the command that shows how the service ended, and at which limit."""
    service = run.service
    if service is None:
        return "exit code and limits of the container, if there is one"
    if "/" in service:
        return f"kubectl describe pod {service.partition('/')[0]}: Last State, Reason, Exit Code, Limits"
    if (journal := _JOURNAL.match(service)) is not None or service.endswith((".service", ".scope")):
        unit = journal["ident"] if journal else service
        return f"systemctl show {unit} -p Result -p ExecMainStatus -p MemoryMax -p MemoryPeak"
    return f"docker inspect {service}: State.OOMKilled, State.ExitCode, HostConfig.Memory"
