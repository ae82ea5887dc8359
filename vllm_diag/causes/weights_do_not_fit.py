"""The device's memory ran out while the weights were loaded.

Before anything else is allocated the whole of a rank's weights must fit. vLLM's own hint
(lower `gpu_memory_utilization`) does not help: the weights are loaded first, whatever the
share is. What does: fewer bytes a weight (a quantized checkpoint), more devices
(`--tensor-parallel-size`), or `--cpu-offload-gb` at a high cost in speed.
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
    arises=(
        "A rank holds its part of the parameters times the bytes of each, and that is more than the "
        "device has free. Models with experts count with all of them, and repacking quantized weights "
        "takes more for a moment."
    ),
    verify="The next start prints `Model loading took ... GiB` (before 0.8: `Loading model weights took`).",
    useless=(
        "`--enforce-eager`, fewer sequences or an fp8 KV cache concern what comes after the weights. Data "
        "parallelism puts the whole of them on each device."
    ),
)
