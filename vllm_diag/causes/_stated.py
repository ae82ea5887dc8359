"""Judges for causes that a message states outright, and what follows from any of them.

A cause here ends a start or a step. What it drags along is the same everywhere: the cascade
of processes that die, other ranks that wait for the dead one, a compiler's advice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from vllm_diag.causes import Case, Cause, Finding, Verdict, plain_facts
from vllm_diag.causes._torch_oom import CASCADE, OOM_CODES
from vllm_diag.event_types import Event

ECHO = (*CASCADE, "engine-vanished", "unrecognised-exception", "root-cause-not-in-log")
# Causes that are often only what other processes see of one that failed; none of them
# explains a cause outside this list.
AFTERMATH = (
    "compile-cache-corrupt", "nccl-init-failed", "rendezvous-timeout", "ray-worker-died", "shm-broadcast-stall",
    "startup-timeout",
)  # fmt: skip
EXPLAINS = (*AFTERMATH, *ECHO)

# At these levels a text reports what was tried or done without.
QUIET = frozenset({"DEBUG", "INFO", "WARNING"})
# Messages of the memory causes: with one of them in the run, nobody needs to ask why a rank is gone.
MEMORY = (
    *OOM_CODES, "oom-kill", "ray-oom-kill", "container-oom-killed", "unit-oom-killed", "oomd-killed",
    "earlyoom-kill", "slurm-oom-kill", "slurm-accounting-oom", "pod-list-oom-killed", "node-oom", "oom-no-victim",
    "pod-evicted", "kv-cache-too-small", "kv-cache-below-max-len", "no-memory-for-cache-blocks",
    "free-memory-below-requested", "memory-profiling-error", "memory-profiling-error-v0", "state-slots-too-few",
    "cpu-memory-short", "shm-no-space", "shm-full", "ray-shm-short", "shm-bus-error-hint", "bus-error",
    "bus-error-bare", "no-space-left", "host-out-of-memory", "mmap-failed", "cpu-allocator-failed",
    "python-memory-error", "array-refused", "pinned-memory-failed", "swap-space-too-large",
    "kv-cache-too-small-cut",
)  # fmt: skip


def fact(event: Event, name: str) -> Any:
    """Return a figure of a message, or None."""
    return dict(event.values()).get(name)


def printed(event: Event, pattern: str) -> str | None:
    """Return what ``pattern`` captures in the quoted line, with the blanks the message has."""
    found = re.search(pattern, event.at.evidence.text)
    return found[1] if found else None


def loud(events: Iterable[Event]) -> list[Event]:
    """Return the events that were not printed as a notice or a warning."""
    return [event for event in events if event.at.level not in QUIET]


def serving_at(case: Case, event: Event) -> bool:
    """Whether the server had come up before ``event``."""
    return any(up.at.order < event.at.order for up in case.run.coded("server-ready", "stats"))


def gathered(events: Iterable[Event]) -> dict[str, Any]:
    """Return the figures of all ``events``, the first to print one decides."""
    facts: dict[str, Any] = {}
    for event in events:
        for name, value in plain_facts(event).items():
            facts.setdefault(name, value)
    return facts


def cuda_errors(case: Case, texts: Iterable[str]) -> list[Event]:
    """Return the errors of the GPU's runtime that read like one of ``texts``."""
    wanted = frozenset(texts)
    codes = ("cuda-error", "cuda-error-number", "cuda-init-error", "custom-allreduce-error")
    return [event for event in case.run.coded(*codes) if (fact(event, "error") or fact(event, "fault")) in wanted]


def from_loud(*codes: str, verdict: Verdict = "confirmed") -> Callable[[Case, Cause], Finding | None]:
    """Return a judge like `from_messages` that passes over notices and warnings."""

    def judge(case: Case, cause: Cause) -> Finding | None:
        events = loud(case.run.coded(*codes))
        if not events:
            return None
        return cause.finding(*events[:4], verdict=verdict, facts=gathered(events[:4]))

    return judge
