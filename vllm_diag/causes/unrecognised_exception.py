"""An exception ended the start or a step, and the catalogue does not know it.

It is quoted as printed. It is no statement that memory was short: nothing in its text says so.
"""

from vllm_diag.causes import Case, Cause, Finding, plain_facts
from vllm_diag.causes._torch_oom import CASCADE

# Exceptions that the catalogue does not know, or whose text leaves the cause open.
UNCLEAR = ("exception", "missing-key", "shapes-differ", "bare-assertion", "out-of-fork-limits")


def judge(case: Case, cause: Cause) -> Finding | None:
    events = [e for e in case.run.coded(*UNCLEAR) if e.at.level not in ("WARNING", "INFO", "DEBUG")]
    if not events or not (case.run.has(*CASCADE) or not case.run.ready):
        return None
    name = plain_facts(events[0]).get("exception") or (events[0].at.exception or "").rsplit(".", 1)[-1]
    return cause.finding(*events[:3], verdict="undetermined", facts={"exception": name or "An exception"})


CAUSE = Cause(
    code="unrecognised-exception",
    term="none",
    title="An exception that the catalogue does not know",
    summary="{exception} ended the run; its text is not in the catalogue.",
    judge=judge,
    explains=(*CASCADE, "root-cause-not-in-log"),
)
