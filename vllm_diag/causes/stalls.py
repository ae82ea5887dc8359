"""A process waited for another that was busy or hung.

`shm-broadcast-stall`: a worker no longer takes its messages (`No available shared memory
broadcast block found`, `RPC call to execute_model timed out`, a collective that timed out
while serving). While a model compiles or weights are converted the first line is ordinary;
it counts only when the server failed or the line kept coming. Look at what the workers do:
`py-spy dump --pid PID`, `nvidia-smi` (one GPU at 100 %, the others idle), Xid lines in the
kernel log. The size of /dev/shm has nothing to do with it.

`startup-timeout`: the engine was not ready within the time the front end waits. Large
weights on slow storage and long compilation take longer than the default;
`VLLM_ENGINE_READY_TIMEOUT_S` (0.14 on) raises it. When an engine process failed, its own
error comes first and this text is only the echo.
"""

from vllm_diag.causes import Case, Cause, Finding, Verdict
from vllm_diag.causes._stated import ECHO, MEMORY, gathered, loud, serving_at
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.event_types import Event

# So many lines in a row, a minute each, are more than a compilation takes.
_MANY = 5


def _stall(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    if run.has(*MEMORY):
        return None
    waits = run.coded("shm-wait")
    timeouts = [*run.coded("rpc-timeout"), *(e for e in run.coded("collective-timeout") if serving_at(case, e))]
    progress = [e.at.order for e in run.coded("engine-init-done", "server-ready", "stats")]
    waits = [e for e in waits if not any(order > e.at.order for order in progress)]
    if not timeouts and not _kept_coming(case, waits):
        return None
    events = sorted([*waits, *timeouts], key=lambda event: event.at.order)
    figures = gathered(events)
    facts = {k: v for k, v in figures.items() if k in ("seconds", "method", "operation", "timeout_ms", "ran_ms")}
    facts["waits"] = run.counts.get("shm-wait")
    verdict: Verdict = "likely" if timeouts else "undetermined"
    return cause.finding(
        *events[:4],
        verdict=verdict,
        facts=facts,
        severity="error" if timeouts or run.has(*CASCADE) else "warning",
        missing=["what the workers do: py-spy dump, nvidia-smi, Xid lines in the kernel log"],
    )


def _kept_coming(case: Case, waits: list[Event]) -> bool:
    if not waits:
        return False
    failed = [e.at.order for e in case.run.coded(*CASCADE)]
    died = any(order > waits[0].at.order for order in failed)
    return case.run.counts.get("shm-wait", 0) >= _MANY or (died and serving_at(case, waits[0]))


def _slow_start(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    events = loud(run.coded("engine-start-timeout", "frontend-timeout", "probe-restart"))
    if not events or run.has(*MEMORY):
        return None
    return cause.finding(
        *events[:3],
        verdict="likely",
        facts=gathered(events),
        summary="Kubernetes restarts the container: its {probe} probe failed." if _probed(events) else cause.summary,
        missing=["the output of the engine processes: what they were doing, or what they failed of"],
    )


def _probed(events: list[Event]) -> bool:
    return all(event.code == "probe-restart" for event in events)


CAUSES = (
    Cause(
        code="shm-broadcast-stall",
        term="none",
        title="A worker is busy or hangs",
        summary="A worker no longer takes its messages: it is busy or hangs.",
        judge=_stall,
        explains=("startup-timeout", *ECHO),
        arises=(
            "The engine hands each step to its workers through a ring in shared memory, and a worker that "
            "does not read leaves no slot free. A collective that one rank never joins, a kernel that "
            "does not end, and a lost GPU keep it from reading."
        ),
        verify=(
            "The statistics lines show tokens a second above zero, and the line about the broadcast block "
            "does not come back."
        ),
        useless=(
            "A higher `VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS` (0.9.2 on) waits longer for a worker that "
            "hangs. A larger `VLLM_MQ_MAX_CHUNK_BYTES_MB` gives the ring bytes and not a reader."
        ),
    ),
    Cause(
        code="startup-timeout",
        term="none",
        title="The engine was not ready in time",
        summary="The engine was not ready within the time the front end waits for it.",
        judge=_slow_start,
        explains=ECHO,
        arises=(
            "The clock of the front end or of a probe runs while weights are read, kernels compiled and "
            "graphs captured. Weights from the hub or from NFS, a cold compile cache and a Kubernetes "
            "probe with a short delay are the usual situations."
        ),
        verify=(
            "The start reaches `Application startup complete.`, and its timestamps lie within the limit "
            "with room to spare."
        ),
        useless=(
            "A restart throws away what was reached and begins anew. Removing caches makes the next start longer."
        ),
    ),
)
