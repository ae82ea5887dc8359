"""Only consequences are in the log; what caused them stands elsewhere.

`See root cause above`, `Worker proc died unexpectedly` and their like report that a process
is gone. The reason was printed by that process: further up, in another container's or rank's
output, in the kernel log, or not at all. The report names where to look.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.causes.unrecognised_exception import UNCLEAR
from vllm_diag.event_types import Event


def judge(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    reports = run.coded(*CASCADE)
    orderly = [e.at.order for e in run.coded("shutdown", "unit-stopping")]
    reports = [e for e in reports if not any(order < e.at.order for order in orderly)]
    reports = [e for e in reports if e.code != "utility-call-failed"]
    if not reports or run.has(*UNCLEAR) or _only_farewell(reports):
        return None
    where = ["the output above the first line of this log", "the output of the engine and worker processes"]
    where.append("the kernel log of the host: dmesg -T | grep -iE 'killed process|xid'")
    return cause.finding(*reports[:4], verdict="undetermined", missing=where)


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
)
