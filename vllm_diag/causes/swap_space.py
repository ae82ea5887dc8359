"""vLLM's CPU swap space (V0, `--swap-space` GiB for each GPU, to 0.17).

`swap-space-too-large`: the space asked for is more than 70 % of the host's RAM, and the
start is refused; it is page-locked, so it must really be there. `swap-space-exhausted`: a
preempted request could not be swapped out because the space is full; fewer sequences, or
recomputation instead of swapping, help more than a larger space.
"""

from vllm_diag.causes import Cause, from_messages
from vllm_diag.causes._torch_oom import CASCADE

CAUSES = (
    Cause(
        code="swap-space-too-large",
        term="host_ram",
        title="CPU swap space larger than the host allows",
        summary="{swap} of swap space were asked for, and the host has {total_ram} of RAM.",
        judge=from_messages("swap-space-too-large"),
        explains=CASCADE,
        arises=(
            "The figure counts for each rank and not in total, so 4 GiB by default become 32 GiB with "
            "eight ranks. A virtual machine or WSL with little RAM, and a total given where a GPU's part "
            "is meant, are the usual situations."
        ),
        verify="The start passes the check, and `# CPU blocks` is lower in proportion to the space.",
        useless=(
            "The system's swap is not counted as RAM in this check. A lower `--gpu-memory-utilization` "
            "leaves the space as it is."
        ),
    ),
    Cause(
        code="swap-space-exhausted",
        term="kv_cache",
        title="CPU swap space exhausted",
        summary="A preempted request could not be swapped out: the CPU swap space is full.",
        judge=from_messages("swap-space-exhausted"),
        explains=(*CASCADE, "kv-cache-pressure"),
        arises=(
            "V0 swaps out a request that has several sequences (beam search, `n` above 1) when the "
            "device's blocks run out, and here the host's blocks had run out as well. With "
            "`--preemption-mode swap` every preempted request goes that way."
        ),
        verify="The statistics line shows `CPU KV cache usage` well below 100 % under the same load.",
        useless=(
            "The operating system's swap is no part of this space, which is locked memory. A restart "
            "empties the space until the same load comes."
        ),
    ),
)
