"""The device's memory ran out while CUDA graphs were captured.

Up to 0.19 graphs are captured after the KV cache was sized and are not part of the share
(`gpu_memory_utilization`); from 0.20 on they are estimated beforehand. What helps: a lower
utilization (more room outside the cache), fewer capture sizes (`--max-num-seqs`), or none
(`--enforce-eager`, at a cost in speed for small batches).
"""

from vllm_diag.causes import Cause
from vllm_diag.causes._torch_oom import CASCADE, judge

CAUSE = Cause(
    code="cuda-graph-oom",
    term="cuda_graphs",
    title="Memory ran out while CUDA graphs were captured",
    summary="{tried} were refused while capturing CUDA graphs with {free} free.",
    judge=judge,
    explains=CASCADE,
    arises=(
        "Captured graphs keep their buffers in a private pool for the life of the process, and each batch "
        "size adds some. Capture comes when the KV cache is already allocated, so a share close to the "
        "whole card or a long list of capture sizes leaves too little."
    ),
    verify="The next start prints `Graph capturing finished`, from 0.6.4 on with the memory it took.",
    useless=(
        "A shorter `--max-model-len` frees next to nothing here: the KV cache takes what the share gives "
        "it, whatever the length."
    ),
)
