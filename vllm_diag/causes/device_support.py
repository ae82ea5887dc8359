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
        arises=(
            "Most newer models say bfloat16 in config.json, and `--dtype auto` follows it; from 0.9.1 on "
            "it falls back to float16 with a warning, but a type that is given outright is refused. "
            "Pascal, Volta and Turing cards (P100, V100, T4, RTX 20xx) are where it happens."
        ),
        verify="The engine's configuration line shows `dtype=torch.float16`, and weights are loaded.",
        useless=(
            "`--quantization` leaves the type of the activations as it is. A newer driver does not add "
            "bfloat16 to a GPU."
        ),
    ),
    Cause(
        code="quantization-unsupported",
        term="none",
        title="No kernel for this quantization on this GPU",
        summary="There is no kernel for these quantized weights on this device.",
        judge=_quantization,
        explains=(*EXPLAINS, "invalid-config"),
        arises=(
            "Each method states a lowest compute capability and its platforms, and this is checked before "
            "weights are read. FP8 and FP4 checkpoints on cards from before these types, AWQ on Volta, "
            "and formats with CUDA kernels only on other platforms are the usual pairs."
        ),
        verify=(
            "The engine's configuration line shows the method as `quantization`, and `Model loading took` follows."
        ),
        useless=(
            "`--dtype` sets the type of activations and not of the packed weights. Another name after "
            "`--quantization` does not convert a checkpoint."
        ),
    ),
    Cause(
        code="attention-backend-invalid",
        term="none",
        title="The attention backend does not work here",
        summary="No attention backend works with this model, these settings and this GPU.",
        judge=_attention,
        explains=(*EXPLAINS, "invalid-config"),
        arises=(
            "Each backend has its own list of head sizes, cache types, block sizes, kinds of attention "
            "(MLA, sliding window, sinks) and compute capabilities. A backend carried over from another "
            "model or machine meets a combination that is not on its list; without a choice the refusal "
            "comes only when no backend is left."
        ),
        verify="The start prints the backend it took (`Using ... backend`) and goes on to load weights.",
        useless=(
            "More attention packages change nothing where the reason given is the model, the cache type "
            "or the compute capability. VLLM_ATTENTION_BACKEND is not read any more from 0.15 on, where "
            "only `--attention-backend` chooses."
        ),
    ),
    Cause(
        code="sm-shared-memory-limit",
        term="none",
        title="A kernel wants more on-chip memory than the GPU has",
        summary="A kernel wants more on-chip resources than one multiprocessor of this GPU has.",
        judge=_on_chip,
        explains=EXPLAINS,
        arises=(
            "A kernel's tile is chosen by head size, type and number of stages, mostly for data-centre "
            "cards, and a smaller card cannot hold it. Turing and the consumer cards of later "
            "generations, with large head sizes or new kernels, are where it happens."
        ),
        verify="Profiling and graph capture run through, and no line says `out of resource`.",
        useless=(
            "A shorter context or a smaller model with the same head size takes the same tile. More GPUs "
            "leave each multiprocessor as it is."
        ),
    ),
)
