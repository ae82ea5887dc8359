"""A disk (or a quota on one) is full: downloads, caches or temporary files had no room.

`No space left on device` names a path or is raised from one: the model cache
(`~/.cache/huggingface`), the compile cache, `/tmp`. Paths under /dev/shm are shared memory,
which is `shm-too-small`. A warning of the hub or of Ray that a disk is nearly full is no
failure by itself; Ray's monitor watches the disk of its session, not memory.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._stated import fact, gathered
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.causes.shm_too_small import _SHM_VOLUME, _in_shm
from vllm_diag.event_types import Event


def judge(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    full = [e for e in run.coded("no-space-left") if not _in_shm(e)]
    full += run.coded("filesystem-full")
    full += [e for e in run.coded("pod-volume-over-limit") if not _SHM_VOLUME.search(str(fact(e, "volume") or ""))]
    full += [e for e in run.coded("pod-evicted") if _for_disk(e)]
    if not full:
        return _nearly_full(case, cause)
    facts = {k: v for k, v in gathered(full).items() if k in _FACTS}
    named = facts.get("path")
    stated = any(e.code != "no-space-left" for e in full)
    summary = "No space is left on the device that holds {path}." if named else cause.summary
    if run.has("pod-evicted", "pod-volume-over-limit"):
        summary = "The kubelet evicted the pod: its files outgrew the disk or their limit."
    only_kernel = all(e.code == "filesystem-full" for e in full)
    return cause.finding(
        *full[:3],
        # What the kernel could not write need not be the server's.
        severity="warning" if only_kernel and run.ready and not run.has(*CASCADE) else None,
        verdict="confirmed" if named or stated else "likely",
        facts=facts,
        summary=summary,
        missing=["df -h, and df -i for inodes"],
    )


_FACTS = (
    "path", "errno", "device", "volume", "resource", "percent", "capacity_gib", "available_gib", "using_gib",
    "request_gib", "limit_gib", "threshold_gib", "expected_mb", "free_mb",
)  # fmt: skip


def _for_disk(event: Event) -> bool:
    return (fact(event, "resource") or fact(event, "condition")) in ("ephemeral-storage", "inodes", "DiskPressure")


def _nearly_full(case: Case, cause: Cause) -> Finding | None:
    """A disk that is nearly full, told as a warning: the download that fills it comes next, or never."""
    run = case.run
    warned = run.coded("disk-space-warned") or run.coded("ray-disk-nearly-full")
    if not warned or run.ready:
        return None
    facts = {k: v for k, v in gathered(warned).items() if k in _FACTS}
    summary = "The disk that holds {path} is nearly full."
    if "expected_mb" in facts:
        summary = "A download of {expected_mb:,.0f} MB is larger than the {free_mb:,.0f} MB left for it."
    return cause.finding(
        *warned[:2], verdict="undetermined", severity="warning", facts=facts, summary=summary, missing=["df -h"]
    )


CAUSE = Cause(
    code="disk-full",
    term="disk",
    title="A disk is full",
    summary="No space is left on a device.",
    judge=judge,
    explains=(*CASCADE, "root-cause-not-in-log", "unrecognised-exception", "checkpoint-corrupt"),
    arises=(
        "Weights of tens or hundreds of GB go into the home directory's cache by default, and compiled "
        "kernels and temporary files beside them. A small root disk, a quota, the ephemeral-storage limit "
        "of a pod and a file system without free inodes are the usual situations."
    ),
    verify=(
        "The download ends with all files, and `df -h` and `df -i` show room left on that file system after the start."
    ),
    useless=(
        "Removing the links of a snapshot frees nothing, for the blobs beside them hold the bytes. A "
        "larger /dev/shm or more RAM gives a disk no room."
    ),
)
