"""The device's memory ran out in a dummy run: profiling, warm-up of sampler or pooler.

The dummy run feeds the largest batch: `--max-num-batched-tokens` tokens, `--max-num-seqs`
sequences, the largest images. Lower those first. When the KV cache is already allocated (the
sampler's warm-up), a lower `--gpu-memory-utilization` leaves more room outside the cache.
Raising the utilization makes it worse.

To verify: the next start prints the KV cache size and goes on to graph capture.
"""

from vllm_diag.causes import Cause
from vllm_diag.causes._torch_oom import CASCADE, judge

CAUSE = Cause(
    code="activation-oom",
    term="activations",
    title="Activation memory ran out",
    summary="{tried} were refused in a dummy run with {free} free.",
    judge=judge,
    explains=CASCADE,
)
