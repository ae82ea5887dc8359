"""A disk (or a quota on one) is full: downloads, caches or temporary files had no room.

`No space left on device` names a path or is raised from one: the model cache
(`~/.cache/huggingface`), the compile cache, `/tmp`. Paths under /dev/shm are shared memory,
which is `shm-too-small`.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.causes.shm_too_small import _in_shm


def judge(case: Case, cause: Cause) -> Finding | None:
    events = [e for e in case.run.coded("no-space-left") if not _in_shm(e)]
    if not events:
        return None
    paths = [dict(e.values()).get("path") for e in events]
    named = next((path for path in paths if path), None)
    return cause.finding(
        *events[:3],
        verdict="confirmed" if named else "likely",
        facts={"path": named},
        summary="No space is left on the device that holds {path}." if named else cause.summary,
        missing=["df -h, and df -i for inodes"],
    )


CAUSE = Cause(
    code="disk-full",
    term="disk",
    title="A disk is full",
    summary="No space is left on a device.",
    judge=judge,
    explains=(*CASCADE, "root-cause-not-in-log", "unrecognised-exception", "checkpoint-corrupt"),
)
