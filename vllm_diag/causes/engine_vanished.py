"""A process of the server disappeared without a word of its own.

Nothing was raised: the log stops in the middle of ordinary work, or others report that the
process is gone (exit code -9, `died unexpectedly`, `Failed core proc(s): {}`). That is what
SIGKILL looks like from inside, and the kernel's out-of-memory killer is its most frequent
sender. It stays "likely" until the kernel log of the host says so; `docker stop` after its
grace period, a supervisor or a person look the same. A bus error (exit code -7) points to
/dev/shm instead.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.causes._where import exit_command
from vllm_diag.causes.unrecognised_exception import UNCLEAR
from vllm_diag.event_types import Event, ProcessDied
from vllm_diag.runs import Run

# What a run can stop with in good order, or after which its end is not ours to explain.
ORDERLY = ("shutdown", "unit-stopping", "unit-stop-timeout", "container-stop-requested", "slurm-cancelled")
_ALIVE = (
    "engine-starting", "weights-loading-started", "weights-shards-progress", "weights-loaded", "kv-cache-available",
    "kv-cache-size", "kv-blocks", "cpu-kv-size-set", "graph-capture-started", "engine-init-done", "server-ready",
    "stats",
)  # fmt: skip


def judge(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    if run.has(*UNCLEAR) or run.has("bus-error", "bus-error-bare", "shm-bus-error-hint"):
        return None
    signs = _signs(run)
    killed = any(isinstance(e, ProcessDied) and e.exit_code in (-9, 137) for e in signs)
    if not signs or (_engine_spoke(run) and not killed):
        return None
    last = _last_word(run)
    doing = f" while {_DOING[last.code]}" if last and last.code in _DOING else ""
    when = last.at.time if last else run.last_time
    pid = _pid_of_engine(run)
    what = "kernel log of the host" + (f" around {when}" if when else "") + (f" (pid {pid})" if pid else "")
    return cause.finding(
        *([last] if last else []),
        *signs[:4],
        verdict="likely",
        facts={"exit_code": -9 if killed else None, "last_pid": pid, "last_time": when},
        summary=(
            "A process got SIGKILL" if killed else "A process of the server disappeared without an error of its own"
        )
        + doing
        + "; the host's out-of-memory killer is the usual sender.",
        missing=[
            what + ": dmesg -T | grep -i 'killed process'",
            exit_command(run),
        ],
    )


def _engine_spoke(run: Run) -> bool:
    """Whether the engine itself reported the exception that ended it, and no worker is in question."""
    return run.has("engine-core-failed") and not run.has("worker-failed", "worker-died")


def _pid_of_engine(run: Run) -> int | None:
    """Return the pid of the process that was most likely killed: an engine's or worker's before the front end's."""
    alive = [e.at.process for e in reversed(run.coded(*_ALIVE)) if e.at.process.pid]
    working = [p for p in alive if p.name and ("Engine" in p.name or "Worker" in p.name)]
    return next((p.pid for p in [*working, *alive]), None)


_DOING = {
    "weights-loading-started": "loading weights",
    "weights-shards-progress": "loading weights",
    "engine-starting": "starting",
    "weights-loaded": "profiling",
    "kv-cache-available": "allocating the KV cache",
    "kv-cache-size": "allocating the KV cache",
    "kv-blocks": "allocating the KV cache",
    "graph-capture-started": "capturing CUDA graphs",
    "server-ready": "serving",
    "stats": "serving",
}


def _last_word(run: Run) -> Event | None:
    alive = run.coded(*_ALIVE)
    return alive[-1] if alive else None


def _signs(run: Run) -> list[Event]:
    """Return what says that a process is gone, when nothing says why and nobody asked it to."""
    gone: list[Event] = []
    if run.has("kernel-segfault", "hardware-memory-error", "unit-crashed"):
        # The kernel or systemd says why.
        return gone
    orderly = [e.at.order for e in run.coded(*ORDERLY)]
    asked_first = min(orderly, default=None)
    for event in run.of(ProcessDied):
        if event.exit_code is not None and event.exit_code not in (-9, 137):
            continue
        if asked_first is not None and asked_first < event.at.order:
            continue
        gone.append(event)
    seen_alive = bool(run.coded(*_ALIVE))
    if not seen_alive:
        # Only the messengers speak: what they report may well stand in a part not shown.
        gone = [e for e in gone if isinstance(e, ProcessDied) and e.exit_code == -9]
    if not gone and seen_alive and not orderly and run.has("unit-restart") and not run.has(*CASCADE):
        gone = run.coded("unit-restart")
    return gone


CAUSE = Cause(
    code="engine-vanished",
    term="host_ram",
    title="A process disappeared without an error",
    summary="A process of the server disappeared without an error of its own.",
    judge=judge,
    explains=(
        *CASCADE,
        "root-cause-not-in-log",
        "unit-restart",
        "unit-killed",
        "killed",
        "killed-command",
        "exited-137",
    ),
    arises=(
        "SIGKILL leaves a process no time to write. Host memory grows fastest while weights are read, so "
        "most such ends fall into loading or shortly behind it."
    ),
    verify=(
        "The process passes the point where the log broke off, and the host's kernel log has no `Killed "
        "process` line of that time."
    ),
    useless=(
        "`VLLM_LOGGING_LEVEL=DEBUG` does not show it, as the process never gets to print. Longer timeouts "
        "wait for a process that is gone."
    ),
)
