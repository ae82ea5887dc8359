"""The device's memory ran out in a dummy run: profiling, warm-up of sampler or pooler.

The dummy run feeds the largest batch: `--max-num-batched-tokens` tokens, `--max-num-seqs`
sequences, the largest images. Lower those first. When the KV cache is already allocated (the
sampler's warm-up), a lower `--gpu-memory-utilization` leaves more room outside the cache.
Raising the utilization makes it worse.
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
    arises=(
        "Before the KV cache is sized vLLM runs the model once on dummy input and measures the peak; the "
        "sampler and the pooler are tried again once the cache is there. Logits over a large vocabulary, "
        "the tokens of a step and the encoder's part of images or video make that peak. Multimodal models "
        "and the large batch defaults of data-centre cards are met most."
    ),
    verify=(
        "The next start prints `GPU KV cache size` (V0: `# GPU blocks`) and goes on to graph capture, or "
        "to the server where graphs are off."
    ),
    useless=(
        "With chunked prefill a smaller `--max-model-len` leaves the dummy batch as large as it was. "
        "Starting again repeats the same dummy run."
    ),
)
