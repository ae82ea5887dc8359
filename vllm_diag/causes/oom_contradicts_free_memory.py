"""The allocator refused less than was free: capacity is not the reason.

A limit inside the process (a memory fraction), a driver or platform fault (seen with ROCm,
XPU and unified memory), or an address-space limit refuses what the figures say would fit.
No memory flag of vLLM is known to help; driver and PyTorch release are the place to look.
"""

from vllm_diag.causes import Cause
from vllm_diag.causes._torch_oom import CASCADE, judge

CAUSE = Cause(
    code="oom-contradicts-free-memory",
    term="none",
    title="Refused although enough was free",
    summary="{tried} were refused although {free} were free.",
    judge=judge,
    explains=CASCADE,
    arises=(
        "The free figure is the device's, and the refusal comes from something narrower: a fraction set "
        "for the process, the pool of an APU, a quota of MPS or of a virtual GPU, or a piece larger than "
        "the platform maps at once."
    ),
    verify="The step in the traceback runs through with the same figure free, or less.",
    useless=(
        "Allocator settings against fragmentation do not apply, because the memory is free on the device "
        "and not inside PyTorch's pool. A shorter context moves the refusal at most."
    ),
)
