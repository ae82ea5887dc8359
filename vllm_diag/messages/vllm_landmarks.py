"""What vLLM prints on its way that a reader of logs wants named, and that needs no event of its own.

The wordings, figures and releases of these messages are all in the data (`vllm_texts`); here
stands what they say. Adding one is a line here and its texts there.
"""

from __future__ import annotations

from vllm_diag.messages import Message
from vllm_diag.messages.vllm_texts import texts_by_message
from vllm_diag.wording import render

_MEANS = {
    # --- who starts, and with what --------------------------------------------------------------
    "engine-fallback-v0": "A feature that was asked for keeps the V1 engine out; the V0 engine and its memory model run.",
    "engine-process-pid": "The engine runs in a process of its own; this is its number.",
    "model-runner-v2": "Which of vLLM's two GPU model runners is at work.",
    "model-architecture": "The model class that config.json resolved to.",
    "attention-backend": "The attention kernels that were chosen; they fix which block sizes and cache types are possible.",
    "attention-backend-rejected": "A faster attention backend cannot be used here; another one is.",
    "dtype-cast": "The weights are converted to another type while loading.",
    "quantization-notice": "The quantization method works, but is slow.",
    "prefill-chunking": "Whether long prompts are split over several steps.",
    "parallel-layout": "Which rank this process is, and of which group.",
    "nccl-version": "The NCCL library that was found.",
    "nccl-cumem-kept": "NCCL_CUMEM_ENABLE was set from outside and is left alone; it can cost memory with CUDA graphs.",
    "triton-unavailable": "Triton cannot be used; with 0 active drivers the process sees no GPU.",
    "custom-all-reduce-off": "Ranks exchange data through NCCL and not through the faster custom kernel.",
    "cuda-reinit-spawn": "Worker processes are spawned and not forked, because CUDA is in use already.",
    "ulimit-low": "Few files may be open at once; many connections can fail.",
    "port-in-use": "The port that was tried first belongs to another process; the next one is tried.",
    "startup-timeout": "The front end still waits for engine processes to report.",
    # --- weights ----------------------------------------------------------------------------------
    "weights-peak-debug": "The highest use of device memory while the weights were loaded.",
    "weights-page-cache": "The checkpoint is larger than a share of the free RAM, so it is not read ahead.",
    "weights-external": "The weights are held by another process; only the rest of the share is this engine's.",
    "offloader-selected": "How weights are kept in host RAM, if at all.",
    "weights-cpu-offload": "How much of the weights stays in host RAM.",
    # --- the budget -------------------------------------------------------------------------------
    "profile-report": "What one rank used while it was profiled.",
    "profile-free-debug": "Free device memory before and after profiling.",
    "memory-snapshot": "Device memory at one moment, as the worker sees it.",
    "memory-grew-rocm": "More memory was free after profiling than before; torch's own figure is used instead.",
    "long-context-warning": "The profiling run uses the whole context length, which may not fit.",
    "mm-profile-too-short": "The profiling run has no room for the largest multimodal input.",
    "workspace-resize": "A kernel wanted more scratch memory after its size had been fixed.",
    "startup-plan": "Sizes found by an earlier start are used again, or are not because less memory is free now.",
    "uma-release": "Cached device memory was given back, since the system runs low.",
    # --- KV cache ---------------------------------------------------------------------------------
    "kv-context-parallel": "The printed KV cache size holds for all context-parallel ranks together.",
    "kv-hybrid-waste": "Chunked local attention is stored like full attention, which takes more KV cache.",
    "kv-mamba-state-dtype": "The state of recurrent layers is kept in float32, which takes twice the memory.",
    "kv-dtype-fp8": "The KV cache holds one byte a value.",
    "kv-block-size-forced": "The attention backend dictates the block size.",
    "kv-sliding-window-cap": "Sliding windows are not supported here, so the context length is cut to the window.",
    "kv-frontend-reservation": "Device memory set aside for decoding images and video in the front end.",
    "kv-offload-host-pool": "Host memory for KV cache blocks that are moved off the device.",
    "kv-offload-pin-failed": "Host memory could not be pinned; transfers are slower.",
    "hisparse-host": "The host part of a sparse KV cache and its size.",
    # --- CUDA graphs ------------------------------------------------------------------------------
    "graph-memory-hint": "General advice that is printed before graphs are captured; nothing has failed.",
    "graph-capture-skipped": "No CUDA graphs are captured.",
    "graph-disabled": "This platform or model runs without CUDA graphs.",
    "graph-mode-unsupported": "The attention backend cannot do the CUDA graph mode that was asked for.",
    "graph-encoder": "CUDA graphs of a multimodal encoder and their memory.",
    # --- host -------------------------------------------------------------------------------------
    "pin-memory": "Host memory cannot be pinned here; transfers are slower.",
    "mm-cache-full": "An input is larger than the cache of processed inputs and is not kept.",
    "shm-queue-handle": "The shared-memory queue between the processes of an engine.",
    "cpu-threads-binding": "Which cores the workers of the CPU backend are bound to.",
    "cpu-warmup": "The CPU backend compiles and warms up.",
    "cpu-feature-off": "A feature that the CPU backend does without.",
    "sleep-mode": "More memory was in use after falling asleep than before; another process is at work.",
    # --- checks -----------------------------------------------------------------------------------
    "batched-tokens-check": "max_num_batched_tokens is larger than any batch can be.",
    "spec-decode-limits": "Speculative decoding leaves too few tokens a step.",
}  # fmt: skip


MESSAGES = tuple(
    Message(
        code=code,
        wordings=(),
        samples=tuple(dict.fromkeys(render(text.text, text.readers({}))[0] for text in texts_by_message()[code])),
        means=means,
        emitter="vLLM",
    )
    for code, means in _MEANS.items()
)
