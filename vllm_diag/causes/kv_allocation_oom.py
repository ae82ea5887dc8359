"""The KV cache was sized, and then could not be allocated.

The measurement promised more than the device could give a moment later: another process
took memory meanwhile, `--kv-cache-memory-bytes` was set by hand, the share is too close to
the whole card, or (V0) the CPU swap space could not be pinned. Lower
`--gpu-memory-utilization`, or find who else uses the device.
"""

from vllm_diag.causes import Cause
from vllm_diag.causes._torch_oom import CASCADE, judge

CAUSE = Cause(
    code="kv-allocation-oom",
    term="kv_cache",
    also=("gpu_budget", "foreign_process", "host_ram"),
    title="The KV cache could not be allocated",
    summary="{tried} were refused while allocating the KV cache with {free} free.",
    judge=judge,
    explains=CASCADE,
    arises=(
        "Profiling computes what the cache may take, and the allocation comes a little later, in large "
        "pieces. A neighbour that starts in between, `--num-gpu-blocks-override`, and buffers that are "
        "made after the measurement use up what was promised."
    ),
    verify="The next start passes from the KV cache to graph capture or the warm-up of the sampler.",
    useless=(
        "A larger share asks for a larger cache on the same device. A shorter `--max-model-len` does not "
        "shrink it, because its size comes from the share or from the figure given."
    ),
)
