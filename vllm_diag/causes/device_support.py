"""The GPU lacks what the model, its weights or a kernel ask for.

`dtype-unsupported-by-gpu`: bfloat16 needs compute capability 8.0 (Ampere); on older GPUs
`--dtype half` runs, in a smaller range of numbers.

`quantization-unsupported`: the kernel for this kind of quantized weights or 8-bit cache
needs a newer GPU, or there is none for the platform. Another quantization of the same model
is the way; AWQ and GPTQ run from 7.5 on, FP8 from 8.9 on (weights only from 7.5 or 8.0 on).

`attention-backend-invalid`: the attention backend that was forced (flag or
VLLM_ATTENTION_BACKEND) cannot do this model, cache type, block size or GPU. The text lists
the reasons. Take the choice away, and vLLM picks one that can.

`sm-shared-memory-limit`: a kernel wants more on-chip shared memory than one multiprocessor
of this GPU has (figures in bytes: 65536 on Turing, 101376 on consumer Ampere and Ada,
232448 on Hopper). It is neither VRAM nor /dev/shm; another attention backend, another
kernel or a smaller tile helps, no memory flag does.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._stated import EXPLAINS, cuda_errors, gathered, loud, printed
from vllm_diag.messages.gpu_runtime import TOO_LARGE


def _dtype(case: Case, cause: Cause) -> Finding | None:
    events = loud(case.run.coded("dtype-refused"))
    if not events:
        return None
    facts = gathered(events)
    facts["gpu"] = printed(events[0], r"Your (.{2,80}?) GPU")
    summary = cause.summary if "capability" in facts else "bfloat16 needs a GPU of a newer generation."
    return cause.finding(*events[:3], facts=facts, summary=summary)


def _quantization(case: Case, cause: Cause) -> Finding | None:
    events = loud(case.run.coded("quantization-refused", "fp8-type-refused"))
    if not events:
        return None
    facts = {k: v for k, v in gathered(events).items() if k != "platform"}
    summary = cause.summary
    if "required_capability" in facts:
        summary = "These quantized weights need compute capability {required_capability}, and the GPU has {capability}."
    elif "type" in facts:
        summary = "The GPU has no arithmetic for the 8-bit float type {type}."
    return cause.finding(*events[:4], facts=facts, summary=summary)


def _attention(case: Case, cause: Cause) -> Finding | None:
    events = loud(case.run.coded("attention-backend-refused"))
    if not events:
        return None
    facts = gathered(events)
    facts["reason"] = printed(events[0], r"Reason: \['([^'\]]+)")
    summary = cause.summary
    if "backend" in facts:
        summary = "The attention backend {backend} does not work with this model or GPU."
    return cause.finding(*events[:4], facts=facts, summary=summary)


def _on_chip(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    # While kernels are tried out such a candidate is dropped and the next one taken.
    tried = loud(run.coded("triton-out-of-resources"))
    tried = [event for event in tried if "Ignoring this choice" not in event.at.evidence.text]
    events = [*tried, *run.coded("on-chip-memory-refused"), *loud(cuda_errors(case, TOO_LARGE))]
    if not events:
        return None
    found = gathered(events)
    facts = {
        "resource": found.get("resource"),
        "required_bytes": found.get("required"),
        "limit_bytes": found.get("limit"),
        "error": found.get("error"),
    }
    summary = cause.summary
    if found.get("limit"):
        summary = "A kernel wants {required_bytes:,} bytes of on-chip {resource}, and the GPU has {limit_bytes:,}."
    return cause.finding(*events[:4], facts=facts, summary=summary)


CAUSES = (
    Cause(
        code="dtype-unsupported-by-gpu",
        term="none",
        title="The GPU has no bfloat16",
        summary="bfloat16 needs compute capability {required_capability}, and the GPU has {capability}.",
        judge=_dtype,
        explains=(*EXPLAINS, "invalid-config"),
    ),
    Cause(
        code="quantization-unsupported",
        term="none",
        title="No kernel for this quantization on this GPU",
        summary="There is no kernel for these quantized weights on this device.",
        judge=_quantization,
        explains=(*EXPLAINS, "invalid-config"),
    ),
    Cause(
        code="attention-backend-invalid",
        term="none",
        title="The attention backend does not work here",
        summary="No attention backend works with this model, these settings and this GPU.",
        judge=_attention,
        explains=(*EXPLAINS, "invalid-config"),
    ),
    Cause(
        code="sm-shared-memory-limit",
        term="none",
        title="A kernel wants more on-chip memory than the GPU has",
        summary="A kernel wants more on-chip resources than one multiprocessor of this GPU has.",
        judge=_on_chip,
        explains=EXPLAINS,
    ),
)
