"""What vLLM tells on the way that decides nothing by itself, but explains figures and waits."""

from __future__ import annotations

from vllm_diag.messages import Message
from vllm_diag.quantities import count, gib_2dp, mib_fixed, number, words

MESSAGES = (
    Message(
        code="compile-time",
        emitter="vLLM torch.compile backend",
        seen="0.6.5 - 0.33.0",
        reads={"what": words, "tag": words, "seconds": number},
        wordings=(
            "⟦[{tag}] ⟧Compiling a graph for {what} takes {seconds} s",
            "⟦[{tag}] ⟧Dynamo bytecode transform time: {seconds} s",
            "⟦[{tag}] ⟧Directly load the compiled graph(s) for {what} from the cache, took {seconds} s",
            "torch.compile ⟨takes|took⟩ {seconds} s in total",
            "⟦[{tag}] ⟧Initial profiling/warmup run took {seconds} s",
        ),
        samples=(
            "Compiling a graph for dynamic shape takes 27.10 s",
            "Dynamo bytecode transform time: 10.20 s",
            "Directly load the compiled graph(s) for shape None from the cache, took 4.412 s",
            "torch.compile takes 37.30 s in total",
            "Initial profiling/warmup run took 3.15 s",
        ),
        means="How long a step of compiling took: why a start was silent for so long.",
    ),
    Message(
        code="load-time",
        emitter="vLLM weight loader",
        seen="0.7.3 - 0.33.0",
        reads={"model": words, "seconds": number},
        wordings=(
            "Loading weights took {seconds} seconds",
            "Time spent downloading weights for {model}: {seconds} seconds",
            "Initializing model took {seconds} seconds",
        ),
        samples=(
            "Loading weights took 2.06 seconds",
            "Time spent downloading weights for Qwen/Qwen3-8B: 71.2 seconds",
            "Initializing model took 0.868198 seconds",
        ),
        means="How long downloading or reading the checkpoint took.",
    ),
    Message(
        code="sleep-freed",
        emitter="vLLM sleep mode",
        seen="0.7.0 - 0.33.0",
        reads={
            "allocator": words,
            "freed": gib_2dp,
            "in_use": gib_2dp,
            "backup": gib_2dp,
            "discarded": gib_2dp,
            "seconds": number,
        },
        wordings=(
            "Sleep mode freed {freed} GiB memory, {in_use} GiB memory is still in use",
            "⟨CuMemAllocator|XpuMemAllocator⟩: sleep freed {freed} GiB memory in total, of which {backup} GiB is backed"
            " up in CPU and the rest {discarded} GiB is discarded directly",
            "It took {seconds} seconds to ⟨fall asleep|wake up⟩",
        ),
        samples=(
            "Sleep mode freed 35.43 GiB memory, 1.19 GiB memory is still in use.",
            "CuMemAllocator: sleep freed 34.06 GiB memory in total, of which 7.56 GiB is backed up in CPU and the rest"
            " 26.51 GiB is discarded directly.",
            "It took 3.152680 seconds to fall asleep.",
        ),
        means="Sleep mode gave memory back; the backup takes as much host RAM for each rank.",
    ),
    Message(
        code="capture-sizes-capped",
        emitter="vLLM V1 (hybrid models)",
        seen="0.19.1 - 0.33.0",
        reads={"largest": count, "capped": count, "blocks": count},
        wordings=(
            "Capping cudagraph capture sizes from max {largest} to {capped} to fit Mamba cache blocks ({blocks} blocks"
            " available)",
        ),
        samples=(
            "Capping cudagraph capture sizes from max 512 to 352 to fit Mamba cache blocks (361 blocks available).",
        ),
        means="Larger batches run without graphs because fewer state blocks fit.",
    ),
    Message(
        code="hybrid-cache-waste",
        emitter="vLLM kv_cache_utils",
        seen="0.9.1 - 0.33.0",
        reads={"layers": count, "percent": number},
        wordings=(
            "Add {layers} padding layers, may waste at most {percent}% KV cache memory",
            "Padding mamba page size by {percent}%",
            "Hybrid KV cache manager is disabled for this hybrid model",
            "KV cache page sizes cannot be unified; treating sliding-window layers as full attention",
        ),
        samples=(
            "Add 3 padding layers, may waste at most 6.25% KV cache memory",
            "Padding mamba page size by 1.49% to ensure that mamba page size and attention page size are exactly equal.",
            "Hybrid KV cache manager is disabled for this hybrid model, This means we do not enable any optimizations",
            "KV cache page sizes cannot be unified; treating sliding-window layers as full attention for cache"
            " allocation.",
        ),
        means="Layers of unlike kind share the cache, at the price of some of it.",
    ),
    Message(
        code="cgroup-headroom",
        emitter="vLLM V1",
        seen="0.31.0 - 0.33.0",
        reads={
            "allocation": words,
            "required": mib_fixed,
            "usage": mib_fixed,
            "available": mib_fixed,
            "limit": mib_fixed,
            "remaining": number,
        },
        wordings=(
            "Cgroup memory preflight for {allocation}: {required} MiB required, {usage} MiB current usage, {available} MiB"
            " available under {limit} MiB limit¦, {remaining} MiB remaining after allocation",
        ),
        samples=(
            "Cgroup memory preflight for shared-memory allocation: 240 MiB required, 7900 MiB current usage, 292 MiB"
            " available under 8192 MiB limit, 52 MiB remaining after allocation based on current usage; current headroom"
            " meets the requested allocation.",
        ),
        means="Host memory needed by an allocation against the container's limit; it is tried either way.",
    ),
)
