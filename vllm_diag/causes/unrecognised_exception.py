"""An exception ended the start or a step, and the catalogue does not know it.

It is quoted as printed. It is no statement that memory was short: nothing in its text says so.
"""

import signal

from vllm_diag.causes import Case, Cause, Finding, plain_facts
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.event_types import Event, ProcessDied

# Texts that are known, and of which no cause of memory follows: what they say, and where to look.
_KNOWN = {
    "out-of-fork-limits": (
        "A limit on threads or processes was reached, not one on memory.",
        "ulimit -u, and the pids limit of the container",
    ),
    "shm-object-refused": (
        "An object in /dev/shm was refused, and not for its size: {error}.",
        "id, ls -ld /dev/shm, ulimit -n",
    ),
    "static-tls-full": (
        "A library was loaded too late for its thread-local data; no lack of RAM.",
        "the order in which the libraries are loaded (LD_PRELOAD)",
    ),
    "workspace-too-small": (
        "A work area of the attention kernels is too small for this batch: {size:,} bytes asked for, {free:,} left.",
        "the batch: --max-num-seqs, --max-num-batched-tokens",
    ),
    "file-refused": (
        "A file could not be written, and room is not why: {error}.",
        "mount, ls -ld of the directory",
    ),
    "kernel-segfault": (
        "The process crashed in native code, as the kernel records; that is no kill for memory.",
        "the library that the kernel names; a core dump (coredumpctl info)",
    ),
    "unit-crashed": (
        "The process crashed ({name}), as systemd records; that is no kill for memory.",
        "coredumpctl info, and the kernel's line about the same moment (journalctl -k)",
    ),
    "hardware-memory-error": (
        "The RAM of the machine is faulty and the kernel killed who used it; no memory is short.",
        "the memory errors in the kernel log (edac, mcelog), and the module they name",
    ),
    "math-library-error": (
        "A matrix library failed ({status}): an earlier fault, a shape or a type.",
        "the same with CUDA_LAUNCH_BLOCKING=1",
    ),
}
# Exceptions that the catalogue does not know, or whose text leaves the cause open.
UNCLEAR = ("exception", "missing-key", "shapes-differ", "bare-assertion", *_KNOWN)


def _asked(event: Event) -> bool:
    """Whether the process ended by a signal that asks it to stop."""
    return isinstance(event, ProcessDied) and event.exit_code == -signal.SIGTERM


def judge(case: Case, cause: Cause) -> Finding | None:
    events = [e for e in case.run.coded(*UNCLEAR) if e.at.level not in ("WARNING", "INFO", "DEBUG") and not _asked(e)]
    if not events or not (case.run.has(*CASCADE) or not case.run.ready):
        return None
    if (known := _KNOWN.get(events[0].code)) is not None:
        summary, where = known
        return cause.finding(
            *events[:3],
            verdict="undetermined",
            facts=plain_facts(events[0]),
            summary=summary,
            title="Refused by the system or a library, not for memory",
            missing=[where],
        )
    name = plain_facts(events[0]).get("exception") or (events[0].at.exception or "").rsplit(".", 1)[-1]
    return cause.finding(*events[:3], verdict="undetermined", facts={"exception": name or "An exception"})


CAUSE = Cause(
    code="unrecognised-exception",
    term="none",
    title="An exception that the catalogue does not know",
    summary="{exception} ended the run; its text is not in the catalogue.",
    judge=judge,
    explains=(*CASCADE, "root-cause-not-in-log"),
    arises=(
        "The model's own Python, a plug-in, a library or the system raised during a start or a step. The "
        "text is printed by none of the surveyed releases in this form, or it leaves the reason open."
    ),
    verify="The call at the bottom of the traceback runs through, and the exception is not printed again.",
    useless=(
        "Memory settings changed on suspicion cost capacity and leave the exception. A search for the "
        "wrapper in the last line finds less than one for the exception's own words."
    ),
)
