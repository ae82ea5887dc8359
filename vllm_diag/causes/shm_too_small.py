"""/dev/shm is too small for what the processes of the server share through it.

Docker gives a container 64 MiB. vLLM's message queues take 160 MiB and more per queue, NCCL
its own segments, Ray its object store. From 0.27 on vLLM checks and prints both figures;
before, the sign is a bus error (exit code -7, `Bus error`), NCCL's or PyTorch's `No space
left on device`, or a worker that dies right after start without a word.

What fixes it: `--shm-size=16g` or `--ipc=host` for Docker, a memory-backed emptyDir for
Kubernetes.
"""

import re

from vllm_diag.causes import Case, Cause, Finding, in_mib
from vllm_diag.causes._stated import fact
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.event_types import Event, Landmark, ProcessDied, ShmShort
from vllm_diag.quantities import MIB

# Names of shared-memory files and of the modules that make them; /torch_compile_cache is on disk.
_SHM_VOLUME = re.compile(r"shm|shared", re.IGNORECASE)
_SHM_PLACE = re.compile(r"/dev/shm|/psm_|/torch_\d|/sem\.|shared_memory\.py|heap\.py:|synchronize\.py")


def judge(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    stated = run.of(ShmShort)
    hinted = run.coded("shm-bus-error-hint", "bus-error", "bus-error-bare")
    buses = [e for e in run.of(ProcessDied) if e.exit_code == -7 and e not in hinted]
    if run.has("hardware-memory-error"):
        # A broken memory module ends a process by the same signal.
        hinted, buses = run.coded("shm-bus-error-hint"), []
    space = [e for e in run.coded("no-space-left") if _in_shm(e)]
    space += [e for e in run.coded("pod-volume-over-limit") if _SHM_VOLUME.search(str(fact(e, "volume") or ""))]
    if not (stated or hinted or buses or space):
        return _segment_refused(case, cause) or _only_its_size(case, cause)
    figures = stated[0] if stated else None
    sized = [e.get("size") for e in run.coded("shm-size") if isinstance(e, Landmark)]
    certain = bool(stated or space or run.has("shm-bus-error-hint"))
    facts = {
        "required_mib": in_mib(figures.required) if figures else None,
        "free_mib": in_mib(figures.free) if figures else None,
        "required_bytes": figures.required.bytes if figures and figures.required else None,
        "shm_size_mib": in_mib(sized[0]) if sized and sized[0] else None,
    }
    summary = cause.summary
    if facts["required_mib"] is None or facts["free_mib"] is None:
        summary = "/dev/shm is full." if certain else "A bus error: a full /dev/shm is the usual reason."
    missing = [] if stated else ["df -h /dev/shm inside the container"]
    return cause.finding(
        *stated[:2],
        *space[:1],
        *hinted[:2],
        *buses[:2],
        verdict="confirmed" if certain else "likely",
        facts=facts,
        summary=summary,
        missing=missing,
    )


def _segment_refused(case: Case, cause: Cause) -> Finding | None:
    """NCCL's `unhandled system error` beside a segment it could not create; room is the usual reason."""
    run = case.run
    refused = [e for e in run.coded("nccl-shm-failed") if fact(e, "operation") == "creating" and not fact(e, "errno")]
    if not refused or run.has("cuda-error") or not (run.has("nccl-error", *CASCADE) or not run.ready):
        return None
    size = fact(refused[0], "size")
    return cause.finding(
        *refused[:2],
        *run.coded("nccl-error")[:1],
        verdict="likely",
        facts={"required_mib": in_mib(size), "required_bytes": size.bytes if size else None},
        summary="NCCL could not create a segment of {required} in /dev/shm; that it is full is the usual reason.",
        missing=["df -h /dev/shm inside the container", "the rest of NCCL's line: error 28 is a full /dev/shm"],
    )


def _only_its_size(case: Case, cause: Cause) -> Finding | None:
    """Docker's default of 64 MiB, looked up by somebody, and no sign that the server is up."""
    shown = [e for e in case.run.coded("shm-size") if isinstance(e, Landmark)]
    sizes = [e.get("size") for e in shown]
    if not sizes or case.run.ready or not sizes[0] or sizes[0].bytes > 64 * MIB:
        return None
    return cause.finding(
        shown[0],
        verdict="undetermined",
        facts={"shm_size_mib": in_mib(sizes[0])},
        summary="/dev/shm has {shm_size}, Docker's default: too little for several GPUs.",
        missing=["the output of the server: whether it died of this"],
    )


def _in_shm(event: Event) -> bool:
    path = str(event.get("path") or "") if isinstance(event, Landmark) else ""
    places = (path, *event.at.frames[-3:])
    return any(_SHM_PLACE.search(text) for text in places)


CAUSE = Cause(
    code="shm-too-small",
    term="shm",
    title="/dev/shm is too small",
    summary="/dev/shm has {free} free, and {required} are needed.",
    judge=judge,
    explains=(
        *CASCADE,
        "engine-vanished",
        "root-cause-not-in-log",
        "unrecognised-exception",
        "nccl-init-failed",
        "disk-full",
    ),
    arises=(
        "The processes share messages and tensors through files in /dev/shm, which is a small mount of "
        "its own in a container and half of the RAM on a bare machine. Tensor parallelism, caches for "
        "images and Ray under default settings of Docker or Kubernetes are where it happens."
    ),
    verify="`df -h /dev/shm` inside the container shows the new size, and the workers start.",
    useless=(
        "More RAM, or a higher limit of the container, does not enlarge the mount. `kernel.shmmax` and "
        "`ulimit` concern other kinds of memory."
    ),
)
