"""Only consequences are in the log; what caused them stands elsewhere.

`See root cause above`, `Worker proc died unexpectedly` and their like report that a process
is gone. The reason was printed by that process: further up, in another container's or rank's
output, in the kernel log, or not at all. The report names where to look.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.causes._where import kernel_command, log_command, whose_output
from vllm_diag.causes.engine_vanished import ORDERLY
from vllm_diag.causes.unrecognised_exception import UNCLEAR
from vllm_diag.event_types import Event, ProcessDied


def judge(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    reports = run.coded(*CASCADE)
    orderly = [e.at.order for e in run.coded(*ORDERLY)]
    reports = [e for e in reports if not any(order < e.at.order for order in orderly)]
    reports = [e for e in reports if e.code != "utility-call-failed" and not _asked_to_stop(e)]
    if not reports or run.has(*UNCLEAR) or _only_farewell(reports):
        return None
    where = [whose_output(run, reports), log_command(run)]
    if run.has("ray-worker-gone") or any("Ray" in str(e.at.process.name) for e in reports):
        where.append("/tmp/ray/session_latest/logs/worker-*.err on the node of the worker")
    if any(isinstance(e, ProcessDied) for e in reports):
        where.append(kernel_command(run, reports[0].at.time))
    return cause.finding(*reports[:4], verdict="undetermined", missing=where)


def _asked_to_stop(event: Event) -> bool:
    """A process that ends with 0 or by SIGTERM was stopped by others of its server."""
    return isinstance(event, ProcessDied) and event.exit_code in (0, -15)


def _only_farewell(reports: list[Event]) -> bool:
    """A server that is stopped prints EngineDeadError; alone it is no failure."""
    return {e.code for e in reports} <= {"engine-dead"}


CAUSE = Cause(
    code="root-cause-not-in-log",
    term="none",
    title="The root cause is not in this log",
    summary="The log holds only consequences: a process of the server is gone, and what ended it is not printed here.",
    judge=judge,
    explains=CASCADE,
    arises=(
        "Each process writes to a stream of its own, and a collector keeps one, cuts long lines or starts "
        "behind the failure. The log of one rank, of the API server alone or of the last restart holds "
        "what others noticed."
    ),
    verify=("With the missing output beside this log another run of vllm-diag names a cause in place of this one."),
    useless=(
        "A search for `EngineDeadError` or `Engine core initialization failed` finds other people's "
        "causes, because these texts are the same for every one."
    ),
)
