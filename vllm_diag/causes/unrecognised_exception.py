"""An exception ended the start or a step, and the catalogue does not know it.

It is quoted as printed. It is no statement that memory was short: nothing in its text says so.
"""

from vllm_diag.causes import Case, Cause, Finding, plain_facts
from vllm_diag.causes._torch_oom import CASCADE


def judge(case: Case, cause: Cause) -> Finding | None:
    events = case.run.coded("exception")
    if not events or not (case.run.has(*CASCADE) or not case.run.ready):
        return None
    facts = plain_facts(events[0])
    return cause.finding(*events[:3], verdict="undetermined", facts={"exception": facts.get("exception")})


CAUSE = Cause(
    code="unrecognised-exception",
    term="none",
    title="An exception that the catalogue does not know",
    summary="{exception} ended the run; its text is not in the catalogue.",
    judge=judge,
    explains=(*CASCADE, "root-cause-not-in-log"),
)
