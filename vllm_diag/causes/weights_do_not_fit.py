"""The device's memory ran out while the weights were loaded.

Before anything else is allocated the whole of a rank's weights must fit. vLLM's own hint
(lower `gpu_memory_utilization`) does not help: the weights are loaded first, whatever the
share is. What does: fewer bytes a weight (a quantized checkpoint), more devices
(`--tensor-parallel-size`), or `--cpu-offload-gb` at a high cost in speed.

To verify: the next start prints `Model loading took ... GiB`.
"""

from vllm_diag.causes import Cause
from vllm_diag.causes._torch_oom import CASCADE, judge

CAUSE = Cause(
    code="weights-do-not-fit",
    term="weights",
    title="Weights do not fit on the device",
    summary="{tried} were refused while loading weights with {free} free.",
    judge=judge,
    explains=CASCADE,
)
