"""A hybrid model (Mamba, linear attention) has fewer state blocks than `--max-num-seqs`.

Each sequence holds one block of recurrent state, whatever its length; graphs of a batch
larger than the number of blocks cannot be captured. The text prints both numbers: set
`--max-num-seqs` to at most the blocks. A shorter `--max-model-len` does not help.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.event_types import StateSlotsTooFew


def judge(case: Case, cause: Cause) -> Finding | None:
    events = case.run.of(StateSlotsTooFew)
    if not events:
        return None
    facts = {"max_num_seqs": events[0].max_num_seqs, "blocks": events[0].blocks}
    return cause.finding(*events[:3], facts=facts)


CAUSE = Cause(
    code="recurrent-state-slots-too-few",
    term="kv_cache",
    title="More sequences than state blocks",
    summary="max_num_seqs is {max_num_seqs:,}, and only {blocks:,} blocks of recurrent state fit.",
    judge=judge,
    explains=CASCADE,
    arises=(
        "The number of blocks follows from the memory of the KV cache, while the default for sequences "
        "(256, on large cards up to 1,024) was chosen for models without state. Large states, a small "
        "share, and prefix caching, which keeps more than one block for a request, make them few."
    ),
    verify="Graph capture runs to its end with no text that compares `max_num_seqs` and blocks.",
    useless=(
        "`--kv-cache-dtype fp8` shrinks the cache of the attention layers and leaves the recurrent state as it is."
    ),
)
