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
    ),
    Cause(
        code="swap-space-exhausted",
        term="kv_cache",
        title="CPU swap space exhausted",
        summary="A preempted request could not be swapped out: the CPU swap space is full.",
        judge=from_messages("swap-space-exhausted"),
        explains=(*CASCADE, "kv-cache-pressure"),
    ),
)
