"""What changed between releases in the planning of the KV cache, as data.

Each rule lists the first release of each of its values; the source is named beside it. A release
that is not known is taken as the newest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from vllm_diag.releases import NEWEST, Release

T = TypeVar("T")
Engine = Literal["V0", "V1"]


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """A value for each release: that of the last change not after it; None before the first."""

    changes: tuple[tuple[Release, T], ...]

    def at(self, release: Release | None) -> T:
        """Return the value in ``release``.

        Raises:
            LookupError: no release that old had it.

        """
        known = [value for first, value in self.changes if first <= (release or NEWEST)]
        if not known:
            raise LookupError(f"nothing of the kind in release {release}")
        return known[-1]


def rule(*changes: tuple[str, T]) -> Rule[T]:
    """Return a rule of (first release, value) pairs, the oldest first."""
    return Rule(tuple((_release(first), value) for first, value in changes))


def _release(text: str) -> Release:
    parts = [int(part) for part in text.split(".")]
    return Release(parts[0], parts[1], parts[2] if len(parts) > 2 else 0)


# How many layers of each kind share one block table (v1/core/kv_cache_utils.py,
# _get_kv_cache_groups_uniform_page_size): all in one; as many as the rarest kind has; as many as
# the commonest kind has while that is fewer than so many times the rarest.
GROUP_FACTOR = rule(("0.0", None), ("0.9.1", 1.0), ("0.12", 1.25), ("0.18", 1.5))

# Layers of one kind with unlike pages in one group (UniformTypeKVCacheSpecs, v1/kv_cache_interface.py).
MIXED_GROUP = rule(("0.0", False), ("0.11", True))

# What is done when kinds have unlike pages (unify_kv_cache_spec_page_size): refuse; longer blocks
# for the smaller where the ratio is whole; else the smaller is padded.
UNLIKE_PAGES: Rule[Literal["refused", "longer", "padded"]] = rule(
    ("0.0", "refused"), ("0.12", "longer"), ("0.24", "padded")
)

# Whether a recurrent layer's page is padded to a larger one then (the same; a crash before).
STATES_PADDED = rule(("0.0", False), ("0.26", True))

# Whether a group of unlike pages is cut to the layers of a pipeline stage when its blocks are
# counted (_project_kv_cache_groups_to_worker); before, each stage divides by the whole model's.
MIXED_BY_STAGE = rule(("0.0", False), ("0.17", True))

# Whether layers are dealt to groups over the whole model, or within each pipeline stage
# (get_kv_cache_configs from 0.11, get_kv_cache_config before).
DEALT_OVER_MODEL = rule(("0.0", False), ("0.11", True))

# What one request needs at start (check_enough_kv_cache_memory to 0.13,
# _max_memory_usage_bytes_from_groups from 0.14): the layers of the rank each for itself; the first
# group only, all stages at once or by stage; all groups with their padding.
NEED: Rule[Literal["layers", "first_group_of_model", "first_group", "groups"]] = rule(
    ("0.0", "layers"), ("0.14", "first_group_of_model"), ("0.17", "first_group"), ("0.19", "groups")
)

# Whether the null block, which serves no request, is taken off before the check (get_kv_cache_configs).
NULL_BLOCK_TAKEN_OFF = rule(("0.0", False), ("0.29", True))

# Whether num_gpu_blocks_override replaces the memory that is checked (get_kv_cache_configs).
OVERRIDE_CHECKED = rule(("0.0", False), ("0.20", True))

# Whether num_gpu_blocks_override is applied at all (get_num_blocks; 0.9.1 logs it only).
OVERRIDE_APPLIED = rule(("0.0", True), ("0.9.1", False), ("0.9.2", True))

# Whether the message prints an estimate (check_enough_kv_cache_memory; 0.8.4 to 0.9.0.1 cut it off).
ESTIMATE_PRINTED = rule(("0.0", False), ("0.9.1", True))

# Which layers are told apart from full attention (v1/worker/gpu_model_runner.py, get_kv_cache_spec).
WINDOWS_TOLD_APART = rule(("0.0", False), ("0.8.3", True))
CHUNKS_TOLD_APART = rule(("0.0", False), ("0.10.0", True))
SHARED_LAYERS_LEFT_OUT = rule(("0.0", False), ("0.9.1", True))

# Tokens in flight for layers that drop old blocks (SlidingWindowSpec.max_memory_usage_bytes): one
# batch, or one for each concurrent step (VllmConfig.max_in_flight_tokens, config/vllm.py).
COUNTS_CONCURRENT_STEPS = rule(("0.0", False), ("0.26", True))

# Concurrent steps with pipelining and asynchronous scheduling: the V2 model runner has one more
# (VllmConfig.max_concurrent_batches); it is the default from 0.29.
V2_MODEL_RUNNER = rule(("0.0", False), ("0.29", True))

# Which context parallelism shards the tokens of a request (FullAttentionSpec.max_memory_usage_bytes).
DECODE_SHARDS = rule(("0.0", False), ("0.10.2", True))
PREFILL_SHARDS = rule(("0.0", False), ("0.12", True), ("0.26", False))

# Blocks of a recurrent layer (MambaSpec.max_memory_usage_bytes): one; as many as the length has;
# by the cache mode.
STATE_BLOCKS: Rule[Literal["one", "by_length", "by_mode"]] = rule(
    ("0.0", "one"), ("0.11.1", "by_length"), ("0.15", "by_mode")
)
# Mode "all" keeps a state for each block and, from 0.22, for each drafted token.
STATES_OF_DRAFTS_IN_ALL = rule(("0.0", False), ("0.22", True))
# Whether prefixes of hybrid models are cached by default (engine/arg_utils.py,
# _set_default_chunked_prefill_and_prefix_caching_args: 0.26 and 0.27 know how and leave it off), and
# the cache mode that this gives (MambaModelConfig, models/config.py).
HYBRID_PREFIX_CACHING = rule(("0.0", False), ("0.28", True))
PREFIX_CACHING_MODE: Rule[Literal["none", "all", "align"]] = rule(("0.0", "none"), ("0.11.1", "all"), ("0.28", "align"))
# What mode "all" falls back to where a model does not support it.
WITHOUT_MODE_ALL: Rule[Literal["none", "align"]] = rule(("0.0", "none"), ("0.15", "align"))
# States that Mamba-2 layers keep besides for a checkpoint in mode "align" (mamba/mamba_mixer2.py).
CHECKPOINTS_OF_MAMBA2 = rule(("0.0", 0), ("0.32", 1))

# Concurrency line: tokens over length; blocks over the blocks of one request
# (get_max_concurrency_for_kv_cache_config).
CONCURRENCY_BY_BLOCKS = rule(("0.0", False), ("0.9.1", True))

# "KV cache size: N tokens" (_report_kv_cache_config, update_kv_cache_capacity): blocks of one group
# of the configured size, of the smallest size and all context shards, or concurrency times length.
CAPACITY_LINE: Rule[Literal["configured_block", "smallest_block", "concurrency"]] = rule(
    ("0.0", "configured_block"), ("0.9.2", "smallest_block"), ("0.20", "concurrency")
)

# --max-model-len auto (get_kv_cache_configs, _auto_fit_max_model_len).
AUTO_LENGTH = rule(("0.0", False), ("0.14", True))

# Tokens of an attention block beside recurrent layers are a multiple of this
# (HybridAttentionMambaModelConfig in models/config.py to 0.19, platforms/interface.py from 0.20):
# whether vLLM chooses it, and the multiples without and with latent attention. From 0.20 the
# configured block size is the least multiple.
ALIGNS_BLOCKS = rule(("0.0", False), ("0.10.0", True))
ALIGNMENT_OF_LATENT = rule(("0.0", 16), ("0.11.1", 64), ("0.28", 128))
ALIGNS_TO_CONFIGURED = rule(("0.0", False), ("0.20", True))

# Tokens of a block of a sliding layer (Attention.get_kv_cache_spec): the configured size, the
# smallest that the kernel takes, or the largest multiple of it within the configured size.
SLIDING_BLOCK: Rule[Literal["configured", "kernel", "largest"]] = rule(
    ("0.0", "configured"), ("0.25", "kernel"), ("0.30", "largest")
)
# That kernel block on the CPU (v1/attention/backends/cpu_attn.py); 16 elsewhere.
CPU_KERNEL_BLOCK = rule(("0.0", 16), ("0.29", 32))

# Hybrid KV cache manager (config.py, config/vllm.py): on GPUs from 0.9.1, on other platforms from
# 0.10.2 (support_hybrid_kv_cache). Off by default for chunked attention from 0.10.1 unless
# VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=1.
MANAGER_ON_GPU = rule(("0.0", False), ("0.9.1", True))
MANAGER_ELSEWHERE = rule(("0.0", False), ("0.10.2", True))
MANAGER_WITH_CHUNKS = rule(("0.0", False), ("0.10.0", True), ("0.10.1", False))

# Cohere 2 sees one token more than its window (models/commandr.py).
COHERE2_ONE_MORE = rule(("0.0", False), ("0.29", True))

# Pipeline stages (distributed/utils.py, get_pp_indices): what is left over goes to the last stage,
# or one each to the stages before the last.
LEFT_OVER_LAYERS: Rule[Literal["last", "before_last"]] = rule(("0.0", "last"), ("0.8.0", "before_last"))

# Bytes that a row of latent attention is padded to on CUDA (worker/cache_engine.py, _align_cache;
# VLLM_CUDA_MEM_ALIGN_KV_CACHE=0 turned it off).
LATENT_ROW_MULTIPLE = rule(("0.0", 1), ("0.7.2", 256), ("0.8.0", 1))
# Tokens of a block of latent attention on CUDA where --block-size is not given: FlashMLA's.
LATENT_BLOCK = rule(("0.0", 16), ("0.8.0", 64))

# An fp8 cache that the checkpoint itself asks for under --kv-cache-dtype auto: by ModelOpt
# (utils/torch_utils.py) and by compressed-tensors (attention/layer.py).
MODELOPT_CACHE_DTYPE = rule(("0.0", False), ("0.14", True))
COMPRESSED_CACHE_DTYPE = rule(("0.0", False), ("0.15", True))


def engine_of(release: Release | None, device: str) -> Engine:
    """Return the engine that serves by default: V0 before 0.8.0 and on the CPU before 0.9.1, V1 from 0.11 on.

    Between, the features decide as well (_is_v1_supported_oracle, engine/arg_utils.py).
    """
    first = _release("0.9.1") if device == "cpu" else _release("0.8.0")
    return "V1" if (release or NEWEST) >= first else "V0"


def manager_default(release: Release | None, device: str, *, chunked: bool) -> bool:
    """Whether kinds of layers are managed apart when no flag says otherwise (config/vllm.py)."""
    on = (MANAGER_ON_GPU if device in ("cuda", "rocm") else MANAGER_ELSEWHERE).at(release)
    return on and (not chunked or MANAGER_WITH_CHUNKS.at(release))


def concurrent_steps(release: Release | None, pipeline: int, *, asynchronous: bool, v2_runner: bool | None) -> int:
    """Return how many batches may be in flight at once (config/vllm.py, max_concurrent_batches, 0.26 on)."""
    if not COUNTS_CONCURRENT_STEPS.at(release):
        return 1
    runner = V2_MODEL_RUNNER.at(release) if v2_runner is None else v2_runner
    if asynchronous and runner:
        return pipeline + 1
    return 2 if asynchronous and pipeline <= 1 else pipeline
