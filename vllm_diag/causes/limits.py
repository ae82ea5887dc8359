"""A setting passes a limit of the model or of another setting. Nothing was allocated yet.

`max-model-len-over-limit`: a longer context was asked for than the model's configuration
gives. Lower `--max-model-len` to the figure in the text; more needs rope scaling that the
model is made for. VLLM_ALLOW_LONG_MAX_MODEL_LEN only silences the check, and positions
beyond the limit come out as nonsense.

`max-batched-tokens-too-small`: without chunked prefill one step must hold a whole prompt, an
image or every running sequence; raise `--max-num-batched-tokens` to the larger figure, or
lower the other setting. The larger batch takes more activation memory.

`tp-indivisible`: attention heads, or the blocks in which the weights are quantized, cannot
be cut into that many equal parts. Use a tensor-parallel size that divides them; with
quantized experts, expert parallelism cuts between experts instead of inside them.

`lora-rank-too-large`: the adapter's rank is above `--max-lora-rank` (default 16).
"""

from vllm_diag.causes import Case, Cause, Finding, Severity
from vllm_diag.causes._stated import ECHO, fact, gathered, loud, serving_at
from vllm_diag.event_types import Event


def _model_len(case: Case, cause: Cause) -> Finding | None:
    # With VLLM_ALLOW_LONG_MAX_MODEL_LEN the same text is a warning.
    events = loud(case.run.coded("model-len-over-limit"))
    if not events:
        return None
    found = gathered(events)
    limits = [n for n in (found.get("derived_max_model_len"), found.get("model_max_length")) if isinstance(n, int)]
    facts = {k: v for k, v in found.items() if k in ("max_model_len", "derived_max_model_len", "model_max_length")}
    facts["limit"] = min(limits, default=None)
    summary = "A context of {max_model_len:,} tokens was asked for, and the model has {limit:,}."
    return cause.finding(*events[:3], facts=facts, summary=summary if limits else cause.summary)


def _batched_tokens(case: Case, cause: Cause) -> Finding | None:
    events = loud(case.run.coded("batched-tokens-too-few"))
    if not events:
        return _prompt_dropped(case, cause)
    facts = gathered(events)
    others = ("max_model_len", "max_num_seqs", "tokens_per_item", "block_size")
    needed = [facts[name] for name in others if isinstance(facts.get(name), int)]
    if needed:
        facts["needed"] = max(needed)
    summary = cause.summary
    if needed and "max_num_batched_tokens" in facts:
        summary = "A step may hold {max_num_batched_tokens:,} tokens, and {needed:,} are needed."
    return cause.finding(*events[:3], facts=facts, summary=summary)


def _prompt_dropped(case: Case, cause: Cause) -> Finding | None:
    """V0's scheduler drops a prompt that is longer than a step and cannot be cut."""
    length = case.run.settings.get("max_model_len")
    events = [e for e in case.run.coded("prompt-exceeds-batch") if fact(e, "limit") != length]
    if not events:
        return None
    facts = gathered(events)
    facts["needed"] = max(fact(event, "prompt_tokens") for event in events)
    return cause.finding(
        *events[:3],
        severity="warning",
        verdict="confirmed" if isinstance(length, int) else "likely",
        facts=facts,
        summary="A prompt of {needed:,} tokens was dropped: without chunked prefill a step may hold {limit:,}.",
        missing=[] if length else ["max_model_len and max_num_batched_tokens in force: the limit is the smaller one"],
    )


def _is_split(event: Event) -> bool:
    """Two bare numbers are only meant when an assertion failed."""
    return fact(event, "numerator") is None or str(event.at.exception or "").endswith("AssertionError")


def _indivisible(case: Case, cause: Cause) -> Finding | None:
    events = [e for e in loud(case.run.coded("parallel-size-indivisible")) if _is_split(e)]
    if not events:
        return None
    facts = gathered(events[:1])
    facts.setdefault("tensor_parallel_size", case.run.settings.get("tensor_parallel_size"))
    summary = cause.summary
    if "attention_heads" in facts:
        summary = "{attention_heads} attention heads cannot be cut into {tensor_parallel_size} equal parts."
    elif "layers" in facts:
        summary = "{layers} layers cannot be cut into {pipeline_parallel_size} equal parts."
    elif any(name.startswith(("block_", "min_thread", "group")) for name in facts):
        part = next((facts[n] for n in facts if n.startswith(("input_size", "output_size"))), None)
        unit = next(facts[n] for n in facts if n.startswith(("block_", "min_thread", "group")))
        summary = f"One rank's share of a weight is {part}, which is no multiple of the quantization's {unit}."
    elif "numerator" in facts:
        summary = "{numerator} of something in the model cannot be cut into {denominator} equal parts."
    return cause.finding(*events[:4], facts=facts, summary=summary)


def _lora_rank(case: Case, cause: Cause) -> Finding | None:
    events = loud(case.run.coded("lora-rank-over-limit"))
    if not events:
        return None
    facts = gathered(events)
    facts["rank"] = max(fact(event, "rank") for event in events)
    severity: Severity = "warning" if all(serving_at(case, event) for event in events) else "error"
    return cause.finding(*events[:3], facts=facts, severity=severity)


CAUSES = (
    Cause(
        code="max-model-len-over-limit",
        term="none",
        title="A longer context than the model has",
        summary="A longer context was asked for than the model has.",
        judge=_model_len,
        explains=("invalid-config", *ECHO),
        arises=(
            "The limit is derived from config.json (`max_position_embeddings` and its relatives, times "
            "the rope factor) and from the tokenizer's `model_max_length`. A length taken over from "
            "another model or from its long-context variant is the usual situation."
        ),
        verify=(
            "The engine's configuration line shows the length as `max_seq_len`, and nothing above it "
            "speaks of the derived length."
        ),
        useless=(
            "A larger figure written into config.json silences the check too and teaches the model "
            "nothing. More KV cache does not lengthen what the model was trained for."
        ),
    ),
    Cause(
        code="max-batched-tokens-too-small",
        term="none",
        title="A step of the scheduler may hold too few tokens",
        summary="A step of the scheduler may hold fewer tokens than the other settings need.",
        judge=_batched_tokens,
        explains=("invalid-config", *ECHO),
        arises=(
            "The tokens of a step are compared with what cannot be split: a prompt without chunked "
            "prefill, one image, one token of each sequence, in hybrid models a block. A low figure "
            "chosen to save memory, beside lengths and sequences left at their defaults, is the usual "
            "situation."
        ),
        verify=("The start passes the configuration, and a prompt of full length or the largest image is answered."),
        useless="More memory on the device, or another share of it, changes neither of the two numbers.",
    ),
    Cause(
        code="tp-indivisible",
        term="none",
        title="The model cannot be cut into that many parts",
        summary="The model cannot be cut into that many equal parts.",
        judge=_indivisible,
        explains=("invalid-config", "nccl-init-failed", "rendezvous-timeout", "ray-worker-died", *ECHO),
        arises=(
            "Each rank gets an equal number of heads and an equal slice of every matrix, and quantized "
            "matrices are cut only at their blocks or groups. Sizes such as 3, 6 or 7 for as many GPUs, "
            "head counts that are no power of two, and block-FP8 weights at a high size are the usual "
            "situations."
        ),
        verify="The start passes the configuration, and weights load on every rank.",
        useless=(
            "Another number of heads written into config.json does not agree with the checkpoint. Context "
            "length and memory share do not change the shape of the model."
        ),
    ),
    Cause(
        code="lora-rank-too-large",
        term="none",
        title="An adapter's rank is above the limit",
        summary="An adapter has rank {rank}, and the engine was set up for {max_lora_rank} at most.",
        judge=_lora_rank,
        explains=ECHO,
        arises=(
            "The slots for adapters are allocated at start for one largest rank, and `r` in the adapter's "
            "adapter_config.json is above it. It is met at start with `--lora-modules` and, while "
            "serving, with adapters that are loaded by request."
        ),
        verify="`/v1/models` lists the adapter, and a request to it is answered.",
        useless=(
            "`--max-loras` and `--max-cpu-loras` say how many adapters are held, not how large. Another "
            "`r` written into the file leaves the tensors at their rank."
        ),
    ),
)
