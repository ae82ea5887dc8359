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
)
