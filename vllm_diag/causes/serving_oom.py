"""The server was up, and a step ran out of device memory.

A batch was larger than anything the dummy run had tried: long prompts with log-probabilities,
large images, many adapters, fragmentation. Leave more room outside the KV cache (lower
`--gpu-memory-utilization`), or cap the batch (`--max-num-batched-tokens`, `--max-num-seqs`).
A restart alone will serve until the same batch comes again.
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
)
