"""vLLM's memory budget: what it prints of it, and how it refuses to start.

Forms read from the sources of the releases named in ``seen``.
"""

from __future__ import annotations

from vllm_diag.event_types import (
    CpuKvSpace,
    CpuMemoryShort,
    FreeMemoryShort,
    GraphMemory,
    KvBlocks,
    KvCacheAvailable,
    KvCacheSize,
    KvCacheTooSmall,
    MaxConcurrency,
    MemoryProfile,
    NoKvMemory,
    ProfilingRace,
    SamplerOom,
    ShmShort,
    StateSlotsTooFew,
    SwapSpaceTooLarge,
    WeightsLoaded,
)
from vllm_diag.messages import Message
from vllm_diag.quantities import (
    Reader,
    count,
    gib_2dp,
    integer,
    mib_fixed,
    number,
    raw_bytes,
    size,
    word,
    words,
)

_device = Reader("device", r"[A-Za-z]{2,12}", str, ("GPU", "CPU", "XPU", "TPU", "cuda"))
_lever = Reader(
    "lever",
    r"gpu_memory_utilization|VLLM_CPU_KVCACHE_SPACE",
    str,
    ("gpu_memory_utilization", "VLLM_CPU_KVCACHE_SPACE"),
)
_cuda_device = Reader("cuda_device", r"[a-z]{2,8}:\d{1,4}", str, ("cuda:0", "xpu:1"))

MESSAGES = (
    Message(
        code="weights-loaded",
        event=WeightsLoaded,
        emitter="vLLM model runners",
        seen="0.4.0 - 0.33.0",
        reads={"weights": gib_2dp, "seconds": number},
        wordings=(
            # "GB" up to 0.8.2 is bytes / 2**30 as well.
            "Loading model weights took {weights} ⟨GiB|GB⟩",
            "Model loading took {weights} ⟨GiB|GB⟩⟦ memory⟧¦ and {seconds} seconds",
        ),
        samples=(
            "Loading model weights took 14.9888 GB",
            "Model loading took 14.96 GiB and 3.21 seconds",
            "Model loading took 8.4897 GiB memory and 4.475500 seconds",
        ),
        means="Device memory that the weights took on one rank.",
    ),
    Message(
        code="weights-loading-started",
        emitter="vLLM model runners",
        seen="0.5.3 - 0.33.0",
        reads={"model": Reader("model", r"[^.\s][^\s]{0,300}?", str, ("Qwen/Qwen2.5-7B",))},
        wordings=("Starting to load model {model}...",),
        samples=("Starting to load model Qwen/Qwen2.5-7B-Instruct...",),
        means="Weight loading begins; an out-of-memory error from here to the next phase is one of weights.",
    ),
    Message(
        code="weights-shards-progress",
        emitter="vLLM weight loader (tqdm, stderr)",
        reads={
            "format": Reader("format", r"safetensors|pt|bin|np_cache", str, ("safetensors", "pt")),
            "percent": integer,
            "done": count,
            "all": count,
        },
        wordings=("Loading {format} checkpoint shards⟦ (eager)⟧: {percent}% Completed | {done}/{all}",),
        samples=("Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.2s/it]",),
        means="Progress of reading the checkpoint.",
    ),
    Message(
        code="weights-out-of-memory",
        emitter="vLLM model runner",
        seen="0.10.0 - 0.33.0",
        wordings=(
            "Failed to load model - not enough GPU memory.",
            "Unable to load model, a likely reason is the model is too large for the current device's HBM memory.",
            "Failed to create unquantized linear weights",
        ),
        samples=(
            "Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization to free memory"
            " for weights, increasing --tensor-parallel-size, or using --quantization.",
            "Unable to load model, a likely reason is the model is too large for the current device's HBM memory."
            " Consider switching to a smaller model",
            "Failed to create unquantized linear weights. This may be caused by insufficient memory to allocate",
        ),
        means="The weights did not fit on the device.",
        fatal=True,
    ),
    Message(
        code="kv-cache-available",
        event=KvCacheAvailable,
        emitter="vLLM gpu_worker",
        seen="0.9.1 - 0.33.0",
        reads={"available": gib_2dp},
        wordings=("Available KV cache memory: {available} GiB",),
        samples=("Available KV cache memory: 4.23 GiB", "Available KV cache memory: -0.61 GiB"),
        means="Memory that profiling left for the KV cache on one rank; negative means the budget is overspent.",
    ),
    Message(
        code="kv-cache-size",
        event=KvCacheSize,
        emitter="vLLM kv_cache_utils",
        seen="0.8.0 - 0.33.0",
        reads={"device": _device, "tokens": count, "max_model_len": count, "concurrency": number},
        wordings=(
            "{device}⟦ + host⟧ KV cache size: {tokens} tokens"
            "¦, Maximum concurrency for {max_model_len} tokens¦ per request: {concurrency}x",
        ),
        samples=(
            "GPU KV cache size: 34,608 tokens",
            "CPU KV cache size: 65,536 tokens, Maximum concurrency for 32,768 tokens per request: 2.00x",
        ),
        means="How many tokens the KV cache of one engine holds.",
    ),
    Message(
        code="kv-max-concurrency",
        event=MaxConcurrency,
        emitter="vLLM kv_cache_utils",
        seen="0.6.3 - 0.27.1",
        reads={"max_model_len": count, "concurrency": number},
        wordings=("Maximum concurrency for {max_model_len} tokens per request: {concurrency}x",),
        samples=("Maximum concurrency for 8,192 tokens per request: 4.22x",),
        means="How many requests of the full length fit at once.",
    ),
    Message(
        code="kv-blocks",
        event=KvBlocks,
        emitter="vLLM V0 executors, early V1",
        seen="0.1.4 - 0.10.2",
        reads={"device": _device, "blocks": count, "cpu_blocks": count},
        wordings=(
            "# {device} blocks: {blocks}¦, # CPU blocks: {cpu_blocks}",
            # A page that takes "# " for a heading.
            "{device} blocks: {blocks}, # CPU blocks: {cpu_blocks}",
        ),
        samples=(
            "# GPU blocks: 2163, # CPU blocks: 2048",
            "# cuda blocks: 2163, # CPU blocks: 2048",
            "# cpu blocks: 4096, # CPU blocks: 0",
            "# GPU blocks: 9000",
            "GPU blocks: 2163, # CPU blocks: 2048",
        ),
        means="Number of KV cache blocks of one rank, each of block_size tokens (16 unless set).",
    ),
    Message(
        code="kv-blocks-configured",
        event=KvBlocks,
        emitter="vLLM V1 engine",
        seen="0.9.0 - 0.33.0",
        reads={"blocks": count, "engine": count, "engines": count},
        wordings=(
            "⟦Engine {engine}: ⟧vllm cache_config_info with initialization after num_gpu_blocks is: {blocks}",
            "{engines} Engines: vllm cache_config_info with initialization after num_gpu_blocks is: {blocks}",
        ),
        samples=(
            "Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 2163",
            "vllm cache_config_info with initialization after num_gpu_blocks is: 2163",
            "2 Engines: vllm cache_config_info with initialization after num_gpu_blocks is: 2163",
        ),
        means="Number of KV cache blocks of one rank.",
    ),
    Message(
        code="hybrid-block-size",
        emitter="vLLM V1 (hybrid models)",
        seen="0.10.0 - 0.33.0",
        reads={"block_size": count},
        wordings=("Setting attention block size to {block_size} tokens",),
        samples=(
            "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.",
        ),
        means="Attention and state layers of a hybrid model share pages, so a block holds more tokens than usual.",
    ),
    Message(
        code="kv-blocks-overridden",
        emitter="vLLM V1 engine",
        seen="0.4.1 - 0.33.0",
        reads={"profiled": count, "blocks": count},
        wordings=(
            "Overriding num_gpu_blocks={profiled} with num_gpu_blocks_override={blocks}",
            "Replacing profiled num_gpu_blocks={profiled} with forced_num_gpu_blocks={blocks}",
        ),
        samples=(
            "Overriding num_gpu_blocks=2163 with num_gpu_blocks_override=512",
            "Replacing profiled num_gpu_blocks=2163 with forced_num_gpu_blocks=512",
        ),
        means="The block count was set by hand, so the cache may be far smaller than the memory.",
    ),
    Message(
        code="kv-auto-fit",
        emitter="vLLM kv_cache_utils",
        seen="0.14.1 - 0.33.0",
        reads={"original": count, "reduced": count, "available": gib_2dp},
        wordings=(
            "Auto-fit max_model_len: reduced from {original} to {reduced} to fit in available"
            " ⟨GPU memory|KV cache memory⟩ ({available} GiB",
            "Auto-fit max_model_len: full model context length {original} fits in available",
        ),
        samples=(
            "Auto-fit max_model_len: reduced from 131072 to 81904 to fit in available GPU memory"
            " (10.0 GiB available for KV cache)",
            "Auto-fit max_model_len: full model context length 32768 fits in available GPU memory",
        ),
        means="The context length was chosen to fit (max_model_len -1 or auto).",
    ),
    Message(
        code="max-model-len-used",
        emitter="vLLM model config",
        seen="0.9.2 - 0.33.0",
        reads={"max_model_len": count},
        wordings=("Using max model len {max_model_len}",),
        samples=("Using max model len 131072",),
        means="The context length in force.",
    ),
    Message(
        code="kv-cache-too-small",
        event=KvCacheTooSmall,
        emitter="vLLM V1 kv_cache_utils",
        seen="0.7.0 - 0.33.0",
        reads={
            "max_model_len": count,
            "needed": gib_2dp,
            "available": gib_2dp,
            "estimated_max_len": count,
        },
        wordings=(
            # "models's" to 0.21.0; the bracket is never closed; "GB" to 0.8.2 means GiB.
            "To serve at least one request with the ⟨models's|model's⟩ max seq len ({max_model_len})¦,"
            "⟦ (⟧{needed} ⟨GiB|GB⟩ KV cache is needed¦, which is larger than the available KV cache memory"
            " ({available} ⟨GiB|GB⟩)¦.⟦ Based on the available memory,⟧⟦...⟧⟦⟦ the⟧ estimated maximum model"
            " length is {estimated_max_len}⟧",
        ),
        samples=(
            "To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed,"
            " which is larger than the available KV cache memory (4.23 GiB). Based on the available memory, the"
            " estimated maximum model length is 34640. Try increasing `gpu_memory_utilization` or decreasing"
            " `max_model_len` when initializing the engine.",
            "To serve at least one request with the models's max seq len (131072), (16.00 GB KV cache is needed,"
            " which is larger than the available KV cache memory (4.23 GB). Try increasing",
            "To serve at least one request with the model's max seq len (131072), (2.0 GiB KV cache is needed,"
            " which is larger than the available KV cache memory (1.0 GiB). Based on the available memory, the"
            " estimated maximum model length is 65408. Try increasing",
        ),
        means="One request of the longest allowed length needs more KV cache than there is.",
        fatal=True,
    ),
    Message(
        code="kv-cache-too-small-cut",
        emitter="vLLM V1 kv_cache_utils, V0 workers",
        wordings=(
            "To serve at least one request with the ⟨models's|model's⟩ max seq len",
            "The model's max seq len",
        ),
        samples=(
            "To serve at least one request with the model's max seq len (1310",
            "The model's max seq len (13",
        ),
        means="The same refusal, cut off before its first figure ends.",
        fatal=True,
    ),
    Message(
        code="kv-cache-below-max-len",
        event=KvCacheTooSmall,
        emitter="vLLM V0 workers",
        seen="0.2.7 - 0.10.2",
        reads={"max_model_len": count, "tokens": count, "lever": _lever},
        wordings=(
            "The model's max seq len ({max_model_len})¦ is larger than the maximum number of tokens that can be"
            " stored in KV cache ({tokens})¦. Try increasing `{lever}`",
        ),
        samples=(
            "The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in"
            " KV cache (65536). Try increasing `VLLM_CPU_KVCACHE_SPACE` or decreasing `max_model_len`",
        ),
        means="One request of the longest allowed length does not fit into the blocks (V0 engine).",
        fatal=True,
    ),
    Message(
        code="no-memory-for-cache-blocks",
        event=NoKvMemory,
        emitter="vLLM",
        seen="0.1.4 - 0.33.0",
        reads={"lever": _lever},
        wordings=("No available memory for the cache blocks¦. Try increasing `{lever}`",),
        samples=(
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when"
            " initializing the engine.",
            "No available memory for the cache blocks. Try increasing `VLLM_CPU_KVCACHE_SPACE` when"
            " initializing the engine.",
        ),
        means="Nothing is left for the KV cache.",
        fatal=True,
    ),
    Message(
        code="cannot-auto-fit",
        event=NoKvMemory,
        emitter="vLLM V1 kv_cache_utils",
        seen="0.14.1 - 0.33.0",
        wordings=("Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",),
        samples=(
            "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. Try"
            " increasing `gpu_memory_utilization`.",
        ),
        means="Nothing is left for the KV cache, not even for one token.",
        fatal=True,
    ),
    Message(
        code="state-slots-too-few",
        event=StateSlotsTooFew,
        emitter="vLLM V1 (hybrid models)",
        seen="0.20.2 - 0.33.0",
        reads={"max_num_seqs": count, "blocks": count},
        wordings=("max_num_seqs ({max_num_seqs}) exceeds available Mamba cache blocks ({blocks})",),
        samples=(
            "max_num_seqs (1024) exceeds available Mamba cache blocks (658). Each decode sequence requires one"
            " Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most 658",
        ),
        means="There are fewer state blocks than max_num_seqs.",
        fatal=True,
    ),
    Message(
        code="free-memory-below-requested",
        event=FreeMemoryShort,
        emitter="vLLM V1 worker",
        seen="0.9.1 - 0.33.0",
        reads={
            "device": _cuda_device,
            "free": gib_2dp,
            "total": gib_2dp,
            "utilization": number,
            "requested": gib_2dp,
        },
        wordings=(
            "Free memory on device ⟦{device} ⟧({free}/{total} GiB) on startup is less than ⟨desired GPU memory"
            " utilization|the engine's budget after excluding external process's weights⟩ ({utilization},"
            " {requested} GiB)",
        ),
        samples=(
            "Free memory on device (0.49/79.32 GiB) on startup is less than desired GPU memory utilization"
            " (0.6, 47.59 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
            "Free memory on device cuda:0 (31.44/47.38 GiB) on startup is less than desired GPU memory utilization"
            " (0.95, 45.01 GiB).",
        ),
        means="At start less memory is free on the device than the share asked for.",
        fatal=True,
    ),
    Message(
        code="memory-profiling-error",
        event=ProfilingRace,
        emitter="vLLM worker",
        seen="0.9.1 - 0.33.0",
        reads={"initial_free": gib_2dp, "current_free": gib_2dp},
        wordings=(
            "Error in memory profiling. Initial free memory {initial_free} GiB, current free memory {current_free} GiB",
        ),
        samples=(
            "Error in memory profiling. Initial free memory 82.94 GiB, current free memory 90.17 GiB. This happens"
            " when other processes sharing the same container release GPU memory while vLLM is profiling",
        ),
        means="More memory is free after profiling than before it: somebody else released some.",
        fatal=True,
    ),
    Message(
        code="memory-profiling-error-v0",
        event=ProfilingRace,
        emitter="vLLM worker",
        seen="0.4.0 - 0.15.1",
        reads={
            "initial_free": raw_bytes,
            "current_free": raw_bytes,
            "initial_used": raw_bytes,
            "current_used": raw_bytes,
        },
        wordings=(
            "Error in memory profiling. Initial free memory {initial_free}, current free memory {current_free}.",
            "Error in memory profiling. Initial used memory {initial_used}, currently used memory {current_used}.",
            "Error in memory profiling. This happens when the GPU memory was not properly cleaned up",
        ),
        samples=(
            "Error in memory profiling. Initial free memory 25220743168, current free memory 25220743168. This"
            " happens when the GPU memory was not properly cleaned up before initializing the vLLM instance.",
            "Error in memory profiling. Initial used memory 1054867456, currently used memory 1054867456. This",
            "Error in memory profiling. This happens when the GPU memory was not properly cleaned up before",
        ),
        means="Profiling saw no memory being taken: another process released memory meanwhile.",
        fatal=True,
    ),
    Message(
        code="memory-profile",
        event=MemoryProfile,
        emitter="vLLM V0 worker",
        seen="0.6.5 - 0.10.2",
        reads={
            "seconds": number,
            "total": gib_2dp,
            "utilization": number,
            "requested": gib_2dp,
            "weights": gib_2dp,
            "non_torch": gib_2dp,
            "activations": gib_2dp,
            "kv_cache": gib_2dp,
        },
        wordings=(
            "⟦Memory profiling takes {seconds} seconds⟧ the current vLLM instance can use total_gpu_memory"
            " ({total}GiB) x gpu_memory_utilization ({utilization}) = {requested}GiB¦ model weights take"
            " {weights}GiB; non_torch_memory takes {non_torch}GiB; PyTorch activation peak memory takes"
            " {activations}GiB; the rest of the memory reserved for KV Cache is {kv_cache}GiB",
            "model weights take {weights}GiB; non_torch_memory takes {non_torch}GiB; PyTorch activation peak memory"
            " takes {activations}GiB; the rest of the memory reserved for KV Cache is {kv_cache}GiB",
        ),
        samples=(
            "Memory profiling takes 0.75 seconds\nthe current vLLM instance can use total_gpu_memory (79.22GiB) x"
            " gpu_memory_utilization (0.90) = 71.29GiB\nmodel weights take 14.96GiB; non_torch_memory takes"
            " 1.79GiB; PyTorch activation peak memory takes 1.26GiB; the rest of the memory reserved for KV Cache"
            " is 53.29GiB.",
            "model weights take 14.96GiB; non_torch_memory takes 1.79GiB; PyTorch activation peak memory takes"
            " 1.26GiB; the rest of the memory reserved for KV Cache is -3.29GiB.",
        ),
        means="The whole budget of one rank after profiling (V0 engine).",
    ),
    Message(
        code="memory-profile-keys",
        event=MemoryProfile,
        emitter="vLLM V0 worker",
        seen="0.6.4",
        reads={
            "total": gib_2dp,
            "used_before": gib_2dp,
            "torch_peak": gib_2dp,
            "used_after": gib_2dp,
            "non_torch": gib_2dp,
            "kv_cache": gib_2dp,
            "utilization": number,
        },
        wordings=(
            "Memory profiling results: total_gpu_memory={total}GiB¦ initial_memory_usage={used_before}GiB¦"
            " peak_torch_memory={torch_peak}GiB memory_usage_post_profile={used_after}GiB"
            " non_torch_memory={non_torch}GiB kv_cache_size={kv_cache}GiB"
            " gpu_memory_utilization={utilization}",
        ),
        samples=(
            "Memory profiling results: total_gpu_memory=23.65GiB initial_memory_usage=15.31GiB"
            " peak_torch_memory=16.17GiB memory_usage_post_profile=15.36GiB non_torch_memory=0.33GiB"
            " kv_cache_size=3.81GiB gpu_memory_utilization=0.86",
        ),
        means="The budget of one rank after profiling; the torch peak holds the weights.",
    ),
    Message(
        code="memory-profile-table",
        event=MemoryProfile,
        emitter="vLLM V0 worker (development builds near 0.6.5)",
        reads={
            "seconds": number,
            "total": gib_2dp,
            "utilization": Reader("utilization", r"\d\.\d{1,4}", float, ("0.90",)),
            "requested": gib_2dp,
            "weights": gib_2dp,
            "non_torch": gib_2dp,
            "activations": gib_2dp,
            "kv_cache": gib_2dp,
        },
        wordings=(
            "Memory profiling results: duration {seconds} seconds total_gpu_memory {total}GiB"
            " gpu_memory_utilization {utilization} the current vLLM instance can use {requested}GiB"
            " model weights take {weights}GiB non_torch_memory {non_torch}GiB PyTorch activation peak memory"
            " {activations}GiB available_kv_cache_memory {kv_cache}GiB",
        ),
        samples=(
            "Memory profiling results:\nduration\t0.75 seconds\ntotal_gpu_memory\t79.22GiB\n"
            "gpu_memory_utilization\t0.90\nthe current vLLM instance can use\t71.29GiB\nmodel weights take\t"
            "14.96GiB\nnon_torch_memory\t1.79GiB\nPyTorch activation peak memory\t1.26GiB\n"
            "available_kv_cache_memory\t53.29GiB",
        ),
        means="The whole budget of one rank after profiling, one term a line.",
    ),
    Message(
        code="budget-summary",
        event=MemoryProfile,
        emitter="vLLM V1 gpu_worker",
        seen="0.10.2 - 0.33.0 (DEBUG in 0.11.0 - 0.25.1)",
        reads={
            "free": gib_2dp,
            "total": gib_2dp,
            "utilization": number,
            "requested": gib_2dp,
            "weights": gib_2dp,
            "consumed": gib_2dp,
            "activations": gib_2dp,
            "non_torch": gib_2dp,
            "cuda_graphs": gib_2dp,
            "suggested": raw_bytes,
            "suggested_full": raw_bytes,
            "kv_cache": Reader("kv_in_use", r"[\d.]{1,30}(?:GiB|bytes)", size.read, ("12.26GiB", "100bytes")),
            "suggested_rounded": gib_2dp,
            "suggested_full_rounded": gib_2dp,
        },
        wordings=(
            "Free memory on device ({free}/{total} GiB) on startup. Desired GPU memory utilization is"
            " ({utilization}, {requested} GiB)¦. Actual usage is ⟨{weights} GiB for weight|{consumed} GiB for"
            " consumed memory (weights + non-torch)⟩, {activations} GiB for peak activation,⟦ {non_torch} GiB for"
            " non-torch memory,⟧ and {cuda_graphs} GiB for CUDAGraph memory¦. Replace gpu_memory_utilization config"
            " with `--kv-cache-memory={suggested}`⟦ ({suggested_rounded} GiB)⟧ to fit into requested memory, or"
            " `--kv-cache-memory={suggested_full}`⟦ ({suggested_full_rounded} GiB)⟧ to fully utilize gpu memory. Current kv cache"
            " memory in use is {kv_cache}",
        ),
        samples=(
            "Free memory on device (30.27/31.4 GiB) on startup. Desired GPU memory utilization is (0.92, 28.88 GiB)."
            " Actual usage is 15.03 GiB for consumed memory (weights + non-torch), 1.59 GiB for peak activation,"
            " and 0.09 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with"
            " `--kv-cache-memory=12917635953` (12.03 GiB) to fit into requested memory, or"
            " `--kv-cache-memory=14405811712` (13.42 GiB) to fully utilize gpu memory. Current kv cache memory in"
            " use is 12.26 GiB.",
            "Free memory on device (23.22/23.65 GiB) on startup. Desired GPU memory utilization is (0.9, 21.28 GiB)."
            " Actual usage is 14.99 GiB for weight, 1.22 GiB for peak activation, 0.07 GiB for non-torch memory,"
            " and 0.61 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with"
            " `--kv-cache-memory=4555079680` to fit into requested memory, or `--kv-cache-memory=6000000000` to"
            " fully utilize gpu memory. Current kv cache memory in use is 5367275520 bytes.",
        ),
        means="Every term of one rank's budget after graph capture; an INFO line, not an error.",
    ),
    Message(
        code="kv-cache-size-set",
        emitter="vLLM V1 gpu_worker",
        seen="0.10.2 - 0.33.0",
        reads={"free": gib_2dp, "kv_cache": gib_2dp},
        wordings=("Initial free memory {free} GiB, reserved {kv_cache} GiB memory for KV Cache as specified by",),
        samples=(
            "Initial free memory 23.22 GiB, reserved 4.0 GiB memory for KV Cache as specified by"
            " kv_cache_memory_bytes config and skipped memory profiling.",
        ),
        means="The KV cache size was given in bytes; gpu_memory_utilization is not looked at.",
    ),
    Message(
        code="graph-capture-started",
        emitter="vLLM model runners",
        seen="0.2.6 - 0.33.0",
        wordings=(
            "Capturing the model for CUDA graphs.",
            "Capturing cudagraphs for decoding.",
            "Capturing CUDA graph",
            "Capturing CUDA graph⟦s⟧⟦ shapes⟧⟦ ({kind}⟦, {mode}⟧)⟧: {percent}%|{bar}| {captured}/{graphs}",
        ),
        reads={
            "kind": Reader("kind", r"[\w-]{2,60}", str, ("mixed prefill-decode",)),
            "mode": Reader("mode", r"[\w.-]{2,60}", str, ("PIECEWISE",)),
            "percent": integer,
            "bar": Reader("bar", r"[^|]{0,80}", str, ("#   ",)),
            "captured": count,
            "graphs": count,
        },
        samples=(
            "Capturing the model for CUDA graphs. This may lead to unexpected consequences",
            "Capturing cudagraphs for decoding. This may lead to unexpected consequences",
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  10%|#         | 7/67",
            "Capturing CUDA graph shapes:  34%|",
        ),
        means="CUDA graph capture begins; an out-of-memory error from here on is one of graphs.",
    ),
    Message(
        code="graph-capture-done",
        event=GraphMemory,
        emitter="vLLM model runners",
        seen="0.2.6 - 0.33.0",
        reads={"seconds": number, "graphs": gib_2dp},
        wordings=("Graph capturing finished in {seconds} secs¦, took {graphs} GiB",),
        samples=("Graph capturing finished in 12 secs, took 0.61 GiB", "Graph capturing finished in 5 secs."),
        means="Graph capture is done, with the device memory it took.",
    ),
    Message(
        code="graph-memory-estimate",
        event=GraphMemory,
        emitter="vLLM V1 model runner",
        seen="0.18.1 - 0.33.0",
        reads={"estimate": gib_2dp},
        wordings=("Estimated CUDA graph memory: {estimate} GiB",),
        samples=("Estimated CUDA graph memory: 0.54 GiB total",),
        means="What CUDA graphs are expected to take, measured before the KV cache is sized.",
    ),
    Message(
        code="graph-memory-actual",
        event=GraphMemory,
        emitter="vLLM V1 gpu_worker",
        seen="0.18.1 - 0.33.0",
        reads={"graphs": gib_2dp, "estimate": gib_2dp, "difference": gib_2dp, "percent": number},
        wordings=(
            "CUDA graph pool memory: {graphs} GiB (actual), {estimate} GiB (estimated)¦, difference: {difference} GiB"
            " ({percent}%)",
        ),
        samples=("CUDA graph pool memory: 0.09 GiB (actual), 0.13 GiB (estimated), difference: 0.04 GiB (51.1%).",),
        means="Graph memory as taken, against the estimate.",
    ),
    Message(
        code="graph-memory-in-budget",
        emitter="vLLM V1 gpu_worker",
        seen="0.18.1 - 0.33.0",
        reads={"utilization": number, "equivalent": number, "suggested": number},
        wordings=(
            "CUDA graph memory profiling is enabled (⟨default since v0.21.0|VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1⟩)."
            "⟦ This will become the default in v0.19.⟧¦ The current --gpu-memory-utilization={utilization} is equivalent to"
            " --gpu-memory-utilization={equivalent} without CUDA graph memory profiling. To maintain the same effective KV"
            " cache size as before, increase --gpu-memory-utilization to {suggested}.",
            "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0)¦. Without it, CUDA graph"
            " memory is not accounted for during KV cache allocation, which may require lowering --gpu-memory-utilization to"
            " avoid OOM. Consider re-enabling it (the default as of v0.21.0) and increasing --gpu-memory-utilization from"
            " {utilization} to {suggested}.",
            "In v0.19, CUDA graph memory profiling will be enabled by default¦"
            " (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1), which more accurately accounts for CUDA graph memory during KV"
            " cache allocation. To try it now, set VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1 and increase"
            " --gpu-memory-utilization from {utilization} to {suggested} to maintain",
        ),
        samples=(
            "CUDA graph memory profiling is enabled (default since v0.21.0). The current"
            " --gpu-memory-utilization=0.9200 is equivalent to --gpu-memory-utilization=0.9012 without CUDA graph"
            " memory profiling. To maintain the same effective KV cache size as before, increase"
            " --gpu-memory-utilization to 0.9388. To disable, set",
            "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0).",
            "In v0.19, CUDA graph memory profiling will be enabled by default (",
        ),
        means="A notice on every start: whether graph memory counts inside gpu_memory_utilization.",
    ),
    Message(
        code="eager-mode",
        emitter="vLLM config",
        seen="0.10.1 - 0.33.0",
        wordings=(
            "Cudagraph is disabled under eager mode",
            "Enforce eager set, ⟨disabling torch.compile|overriding optimization level⟩",
        ),
        samples=(
            "Cudagraph is disabled under eager mode",
            "Enforce eager set, disabling torch.compile and CUDAGraphs. This is equivalent to setting",
        ),
        means="No CUDA graphs are captured, so their term is zero.",
    ),
    Message(
        code="sampler-warmup-oom",
        event=SamplerOom,
        emitter="vLLM V1 model runner",
        seen="0.8.0 - 0.33.0",
        reads={
            "num_reqs": count,
            "task": Reader("task", r"'?[\w.-]{1,60}'?", lambda text: text.strip("'"), ("'embed'", "classify")),
        },
        wordings=(
            "⟨CUDA|HIP|XPU⟩ out of memory occurred when warming up ⟨sampler|pooler⟩⟦ (task={task})⟧ with {num_reqs}"
            " dummy requests",
        ),
        samples=(
            "CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering"
            " `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
            "CUDA out of memory occurred when warming up pooler (task=embed) with 256 dummy requests.",
        ),
        means="The warm-up of the sampler ran out of device memory, after the KV cache was allocated.",
        fatal=True,
    ),
    Message(
        code="encoder-budget",
        emitter="vLLM V1 model runner",
        seen="0.7.0 - 0.33.0",
        reads={
            "encoder_budget": count,
            "items": count,
            "modality": Reader("modality", r"\w{2,40}?", str, ("video", "image")),
        },
        wordings=(
            "Encoder cache will be initialized with a budget of {encoder_budget} tokens, and profiled with {items}"
            " {modality} items of the maximum feature size",
        ),
        samples=(
            "Encoder cache will be initialized with a budget of 62720 tokens, and profiled with 1 video items of the"
            " maximum feature size.",
        ),
        means="What the profiling run feeds the multimodal encoder with.",
    ),
    Message(
        code="engine-init-done",
        emitter="vLLM engine",
        seen="0.6.5 - 0.33.0",
        reads={"seconds": number},
        wordings=("init engine (profile, create kv cache, warmup model) took {seconds} s",),
        samples=(
            "init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            "init engine (profile, create kv cache, warmup model) took 12.3 s (compilation: 4.1 s)",
        ),
        means="Profiling, cache creation and warm-up are over.",
    ),
    Message(
        code="frontend-reservation",
        emitter="vLLM V1",
        seen="0.25.1 - 0.33.0",
        reads={"reserved": gib_2dp, "raw": gib_2dp, "decoder": gib_2dp, "available": gib_2dp},
        wordings=(
            "frontend multimodal GPU decoding reserves {reserved} GiB ({raw} GiB raw-frame budget, {decoder} GiB"
            " decoder cache budget), but only {available} GiB is available for the KV cache",
        ),
        samples=(
            "frontend multimodal GPU decoding reserves 4.0 GiB (3.0 GiB raw-frame budget, 1.0 GiB decoder cache"
            " budget), but only 3.2 GiB is available for the KV cache.",
        ),
        means="Memory set aside for decoding media in the API server is more than the KV cache has.",
        fatal=True,
    ),
    # --- host side ----------------------------------------------------------------------
    Message(
        code="swap-space-too-large",
        event=SwapSpaceTooLarge,
        emitter="vLLM config",
        seen="0.1.4 - 0.17.1",
        reads={"swap": gib_2dp, "total_ram": gib_2dp},
        wordings=("Too large swap space. {swap} GiB out of the {total_ram} GiB total CPU memory",),
        samples=(
            "Too large swap space. 16.00 GiB out of the 15.50 GiB total CPU memory is allocated for the swap space.",
        ),
        means="The CPU swap space asked for is over 70 % of the host's RAM.",
        fatal=True,
    ),
    Message(
        code="swap-space-large",
        event=SwapSpaceTooLarge,
        emitter="vLLM config",
        seen="0.1.4 - 0.17.1",
        reads={"swap": gib_2dp, "total_ram": gib_2dp},
        wordings=("Possibly too large swap space. {swap} GiB out of the {total_ram} GiB total CPU memory",),
        samples=("Possibly too large swap space. 8.00 GiB out of the 15.50 GiB total CPU memory is allocated",),
        means="The CPU swap space asked for is over 40 % of the host's RAM; a warning.",
    ),
    Message(
        code="swap-space-exhausted",
        emitter="vLLM V0 scheduler",
        seen="0.1.4 - 0.10.2",
        wordings=("Aborted due to the lack of CPU swap space.",),
        samples=("Aborted due to the lack of CPU swap space. Please increase the swap space to avoid this error.",),
        means="A preempted request could not be swapped out.",
        fatal=True,
    ),
    Message(
        code="shm-no-space",
        event=ShmShort,
        emitter="vLLM V1",
        seen="0.27.1 - 0.33.0",
        reads={"path": word, "allocation": words, "required": mib_fixed, "free": mib_fixed},
        wordings=("Insufficient space in {path}⟦ for {allocation}⟧: {required} MiB required, {free} MiB free",),
        samples=(
            "Insufficient space in /dev/shm: 240.0 MiB required, 64.0 MiB free. Increase /dev/shm (e.g. --shm-size"
            " or --ipc=host).",
            "Insufficient space in /dev/shm for shared-memory allocation: 240 MiB required, 64 MiB free.",
        ),
        means="/dev/shm is too small for the message queue or cache about to be created.",
        fatal=True,
    ),
    Message(
        code="shm-wait",
        emitter="vLLM shm_broadcast",
        seen="0.5.1 - 0.33.0",
        reads={"seconds": number},
        wordings=("No available ⟨shared memory broadcast block|block⟩ found⟦ ⟧in {seconds} second",),
        samples=(
            "No available shared memory broadcast block found in 60 seconds. This typically happens when some"
            " processes are hanging or doing some time-consuming work (e.g. compilation).",
            "No available block found in 60 second. ",
        ),
        means="A process has waited for a slot of the message queue: somebody is busy or hangs. Not a lack of memory.",
    ),
    # --- the CPU backend ------------------------------------------------------------------
    Message(
        code="cpu-kv-space-default",
        event=CpuKvSpace,
        emitter="vLLM cpu platform",
        seen="0.4.0 - 0.19.1",
        reads={"kv_cache": gib_2dp},
        wordings=(
            "Environment variable VLLM_CPU_KVCACHE_SPACE (⟨GB|GiB⟩) for CPU backend is not set, using {kv_cache} by"
            " default",
            "VLLM_CPU_KVCACHE_SPACE not set. Using {kv_cache} GiB for KV cache",
        ),
        samples=(
            "Environment variable VLLM_CPU_KVCACHE_SPACE (GB) for CPU backend is not set, using 4 by default.",
            "VLLM_CPU_KVCACHE_SPACE not set. Using 11.79 GiB for KV cache.",
        ),
        means="The CPU backend uses its default KV cache size.",
    ),
    Message(
        code="cpu-kv-size-set",
        event=CpuKvSpace,
        emitter="vLLM cpu_worker",
        seen="0.20.2 - 0.33.0",
        reads={
            "kv_cache": gib_2dp,
            "total": gib_2dp,
            "node": integer,
            "requested": gib_2dp,
            "consumed": gib_2dp,
        },
        wordings=(
            "⟨Auto|Explicitly⟩ set ({kv_cache}/{total}) GiB for KV cache on node {node}¦, with {requested} GiB"
            " requested memory for the worker. {consumed} GiB memory was consumed by non-kv usages",
        ),
        samples=(
            "Auto set (18.2/23.59) GiB for KV cache on node 0, with 21.7 GiB requested memory for the worker. 3.5 GiB"
            " memory was consumed by non-kv usages.",
            "Explicitly set (1.0/23.59) GiB for KV cache on node 0.",
        ),
        means="The KV cache size that the CPU worker chose.",
    ),
    Message(
        code="cpu-memory-short",
        event=CpuMemoryShort,
        emitter="vLLM cpu_worker",
        seen="0.20.2 - 0.33.0",
        reads={
            "node": integer,
            "available": gib_2dp,
            "total": gib_2dp,
            "utilization": number,
            "requested": gib_2dp,
            "wanted_kv": gib_2dp,
            "consumed": gib_2dp,
        },
        wordings=(
            "Available memory on node {node} ({available}/{total} GiB) on kv cache allocation is less than requested"
            " memory for kv ({wanted_kv}⟦/{requested}⟧ GiB)",
            "Available memory on node {node} ({available}/{total} GiB) on startup is less than desired CPU memory"
            " utilization ({utilization}, {requested} GiB)",
            "The worker already uses {consumed} GiB (model weights and runtime), more than the {requested} GiB of CPU"
            " memory reserved for it on node {node}",
        ),
        samples=(
            "Available memory on node 0 (19.62/23.59 GiB) on kv cache allocation is less than requested memory for kv"
            " (100.0 GiB). Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU memory used",
            "Available memory on node 0 (12.1/23.59 GiB) on startup is less than desired CPU memory utilization"
            " (0.92, 21.7 GiB). On the CPU backend",
            "The worker already uses 14.2 GiB (model weights and runtime), more than the 11.8 GiB of CPU memory"
            " reserved for it on node 0, leaving none for the KV cache.",
        ),
        means="The CPU node has too little memory for what the backend was told to take.",
        fatal=True,
    ),
    Message(
        code="cpu-kv-space-invalid",
        emitter="vLLM cpu platform",
        seen="0.4.0 - 0.9.2",
        reads={"value": words},
        wordings=("Invalid environment variable VLLM_CPU_KVCACHE_SPACE {value}, expect a positive integer value",),
        samples=("Invalid environment variable VLLM_CPU_KVCACHE_SPACE -4, expect a positive integer value.",),
        means="VLLM_CPU_KVCACHE_SPACE is no positive whole number.",
        fatal=True,
    ),
    Message(
        code="checkpoint-size",
        emitter="vLLM weight loader",
        seen="0.20.2 - 0.33.0",
        reads={"fs": words, "checkpoint": gib_2dp, "available_ram": gib_2dp},
        wordings=(
            "Filesystem type for checkpoints: {fs}. Checkpoint size: {checkpoint} GiB. Available RAM:"
            " {available_ram} GiB",
        ),
        samples=("Filesystem type for checkpoints: ext4. Checkpoint size: 14.96 GiB. Available RAM: 12.10 GiB.",),
        means="Checkpoint size against the host's available RAM.",
    ),
)
