"""Memory changed hands while vLLM measured: more was free after profiling than before.

Another process let go of memory during the profile run, so the measurement is worthless and
vLLM stops. Nothing is short. Start again when the other process has settled, or give the
KV cache a size (`--kv-cache-memory-bytes`, 0.10.2 on), which skips the measurement.
"""

from vllm_diag.causes import Case, Cause, Finding, in_gib
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.event_types import ProfilingRace


def judge(case: Case, cause: Cause) -> Finding | None:
    events = case.run.of(ProfilingRace)
    if not events:
        return None
    event = events[0]
    released = event.current_free - event.initial_free if event.current_free and event.initial_free else None
    grew = released is not None and released.bytes > 0
    return cause.finding(
        *events[:3],
        term="foreign_process" if grew or released is None else "none",
        facts={
            "initial_free_gib": in_gib(event.initial_free),
            "current_free_gib": in_gib(event.current_free),
            "initial_free_bytes": event.initial_free.bytes if event.initial_free else None,
            "current_free_bytes": event.current_free.bytes if event.current_free else None,
            "released_gib": in_gib(released) if grew else None,
        },
        summary=cause.summary if grew else "vLLM measured its own memory and found none taken; the profile is void.",
        missing=["nvidia-smi during the start: which process let go of memory"],
    )


CAUSE = Cause(
    code="memory-profiling-race",
    term="foreign_process",
    also=("none",),
    title="Memory changed hands during profiling",
    summary="{released} became free while vLLM was measuring, so the measurement is void.",
    judge=judge,
    explains=CASCADE,
    arises=(
        "Free memory is read before and after the dummy run, and the difference counts as this server's "
        "own. Two servers that start together on one card, an earlier one that is still ending, and a "
        "restart loop without a pause are the usual situations."
    ),
    verify=(
        "The start passes profiling and prints `Available KV cache memory` (V0: `# GPU blocks`), while "
        "the figures of other processes in `nvidia-smi` stand still."
    ),
    useless=(
        "Another `--gpu-memory-utilization` changes the share and not the two readings. A smaller model "
        "is measured in the same way."
    ),
)
