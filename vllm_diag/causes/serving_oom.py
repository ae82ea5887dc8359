"""The server was up, and a step ran out of device memory.

A batch was larger than anything the dummy run had tried: long prompts with log-probabilities,
large images, many adapters, fragmentation. Leave more room outside the KV cache (lower
`--gpu-memory-utilization`), or cap the batch (`--max-num-batched-tokens`, `--max-num-seqs`).
"""

from vllm_diag.causes import Cause
from vllm_diag.causes._torch_oom import CASCADE, judge

CAUSE = Cause(
    code="serving-oom",
    term="activations",
    title="Memory ran out while serving",
    summary="{tried} were refused while serving with {free} free.",
    judge=judge,
    explains=CASCADE,
    arises=(
        "Profiling measures one dummy batch, and requests may need more: `logprobs` of whole prompts, "
        "several images at once, a work area that is made at first use. Pieces too small for the next "
        "tensor add up over hours of mixed lengths."
    ),
    verify=(
        "The requests that failed are answered when they are sent again, and the device's free memory "
        "stays level over a day of load."
    ),
    useless=(
        "A restart alone will serve until the same batch comes again. `--swap-space` holds KV blocks on "
        "the host and frees nothing outside the cache."
    ),
)
