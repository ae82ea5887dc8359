"""The KV cache of a model under given flags: from its config.json to the pool of a release."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_diag.kv_arithmetic.caches import Attention, DecoderLayer, Indexer, Latent, LayerCache, Recurrent
from vllm_diag.kv_arithmetic.config import ModelConfig, SplitError
from vllm_diag.kv_arithmetic.dtypes import ELEMENT_BYTES, CacheDtypeError, cache_dtype
from vllm_diag.kv_arithmetic.layers import CacheLayer, LayoutRefused, Serving, StateMode, ceil_div
from vllm_diag.kv_arithmetic.pool import LONGEST, Available, Pool, Refusal, V0Pool
from vllm_diag.kv_arithmetic.rules import (
    ALIGNMENT_OF_LATENT,
    ALIGNS_BLOCKS,
    ALIGNS_TO_CONFIGURED,
    CHECKPOINTS_OF_MAMBA2,
    CHUNKS_TOLD_APART,
    COHERE2_ONE_MORE,
    COMPRESSED_CACHE_DTYPE,
    CPU_KERNEL_BLOCK,
    HYBRID_PREFIX_CACHING,
    LATENT_BLOCK,
    LATENT_ROW_MULTIPLE,
    LEFT_OVER_LAYERS,
    MODELOPT_CACHE_DTYPE,
    PREFIX_CACHING_MODE,
    SHARED_LAYERS_LEFT_OUT,
    SLIDING_BLOCK,
    STATE_BLOCKS,
    WINDOWS_TOLD_APART,
    WITHOUT_MODE_ALL,
    Engine,
    concurrent_steps,
    engine_of,
    manager_default,
)
from vllm_diag.releases import NEWEST, Release, default_block_size

# Families whose models vLLM gives a state for each block under prefix caching to 0.27
# (SupportsMambaPrefixCaching in model_executor/models).
_STATE_FOR_EACH_BLOCK = frozenset(
    ("mamba", "falcon_mamba", "mamba2", "jamba", "bamba", "granitemoehybrid", "falcon_h1", "nemotron_h", "zamba2")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flags:
    """The settings that change the size of the KV cache; None stands for vLLM's default.

    ``dtype`` is --dtype, ``cache_dtype`` --kv-cache-dtype. ``block_size`` defaults to the backend's:
    16, for latent attention on CUDA 64 from 0.8, on the CPU 16 to 0.11.0 (128 with IPEX) and 128 from 0.11.1.
    ``max_num_batched_tokens`` defaults to 2048 on the CPU and 8192 elsewhere, what a server on a
    device of 70 GiB takes and the larger of its usual defaults. ``layer_partition`` is
    VLLM_PP_LAYER_PARTITION, ``hybrid_manager`` the hybrid KV cache manager, ``draft`` the model whose
    layers lie on the last stage besides, ``drafted_tokens`` num_speculative_tokens. With pipelining
    ``v2_model_runner`` decides how many batches are in flight; its default is the release's, some
    models had it earlier. ``state_dtype`` and ``ssm_state_dtype`` are --mamba-cache-dtype and
    --mamba-ssm-cache-dtype; ``state_checkpoints`` the states kept for a checkpoint in mode "align",
    by default 1 for Mamba-2 from 0.32 and else 0 (0.33: also 1 for gated delta nets where
    FlashInfer does their prefill).
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    decode_context_parallel: int = 1
    prefill_context_parallel: int = 1
    dtype: str = "auto"
    cache_dtype: str = "auto"
    block_size: int | None = None
    max_num_batched_tokens: int | None = None
    device: str = "cuda"
    engine: Engine | None = None
    hybrid_manager: bool | None = None
    async_scheduling: bool | None = None
    v2_model_runner: bool | None = None
    prefix_caching: bool | None = None
    mamba_cache_mode: StateMode | None = None
    state_checkpoints: int | None = None
    state_dtype: str = "auto"
    ssm_state_dtype: str = "auto"
    draft: ModelConfig | None = None
    drafted_tokens: int = 0
    layer_partition: tuple[int, ...] | None = None
    num_gpu_blocks_override: int | None = None


class Layout:
    """How a release lays out the KV cache of ``config`` under ``flags``.

    Args:
        config: the model.
        release: the release; None for the newest rules known.
        flags: the settings; keywords replace single ones.

    All amounts are bytes on one rank, the rank that needs the most; lengths are in tokens.

    Raises:
        SplitError: heads, states or layers do not divide over the ranks.
        CacheDtypeError: a cache type that the release does not have or that is not worked out.
        LayoutRefused: a combination that the release refuses at start.
        TypeError: a keyword that is no field of `Flags`.

    """

    def __init__(
        self, config: ModelConfig, release: Release | None, flags: Flags | None = None, **changed: object
    ) -> None:
        self.config = config
        self.release = release
        self.flags = replace(flags or Flags(), **changed)  # type: ignore[arg-type]
        self.engine: Engine = self.flags.engine or engine_of(release, self.flags.device)
        builder = _Builder(config, release, self.flags, self.engine)
        self.block_tokens = builder.block_tokens
        pool = V0Pool if self.engine == "V0" else Pool
        self.pool: Pool = pool(builder.stages(), builder.serving())

    @property
    def limit(self) -> int:
        """The longest length that the model itself allows; beyond any model where its config does not say."""
        return self.config.max_model_len or LONGEST

    def bytes_per_token(self) -> int:
        """Return the bytes of one token in all layers that keep tokens, windows included."""
        return self.pool.bytes_per_token()

    def growth_per_token(self) -> int:
        """Return the bytes by which a long request grows with each token (layers without window or chunk)."""
        return self.pool.growth_per_token()

    def needed(self, max_model_len: int) -> int:
        """Return the bytes for one request of ``max_model_len`` tokens as the start check counts them."""
        return self.pool.needed(max_model_len)

    def available_to_start(self, max_model_len: int) -> int:
        """Return the least bytes available with which a server of that length starts (null block from 0.29)."""
        return self.pool.available_to_start(max_model_len)

    def starts(self, available: Available, max_model_len: int) -> bool:
        """Whether a server of that length starts with ``available`` bytes (one number, or one a stage)."""
        return self.pool.starts(available, max_model_len)

    def longest_start(self, available: Available, limit: int | None = None) -> int:
        """Return the largest max_model_len that starts, up to ``limit`` (the model's own); 0 when none does."""
        return self.pool.longest_start(available, self.limit if limit is None else limit)

    def longest_served(self, available: Available, limit: int | None = None) -> int:
        """Return the largest length that starts and of which a request can be finished; 0 when none."""
        return self.pool.longest_served(available, self.limit if limit is None else limit)

    def vllm_estimate(self, available: Available, max_model_len: int) -> Refusal | None:
        """Return the numbers of the error text when a server of that length is refused, None when it starts."""
        return self.pool.vllm_estimate(available, max_model_len)

    def blocks(self, available: Available) -> int:
        """Return the number of blocks of the pool."""
        return self.pool.blocks(available)

    def concurrency(self, available: Available, max_model_len: int) -> float:
        """Return "Maximum concurrency" as this release counts it, unrounded."""
        return self.pool.concurrency(available, max_model_len)

    def capacity_tokens(self, available: Available, max_model_len: int) -> int:
        """Return "KV cache size" in tokens as this release counts it."""
        return self.pool.capacity_tokens(available, max_model_len)

    def bytes_for(self, concurrency: float, max_model_len: int) -> int:
        """Return the bytes with which ``concurrency`` requests of that length fit at once, and the server starts."""
        return self.pool.bytes_for(concurrency, max_model_len)


class _Builder:
    """Turns a config and flags into layers with pages."""

    def __init__(self, config: ModelConfig, release: Release | None, flags: Flags, engine: Engine) -> None:
        self.config, self.release, self.flags, self.engine = config, release, flags, engine
        _check_split(config, flags)
        if config.latent and (release or NEWEST) < Release(0, 7, 2):
            raise LayoutRefused(
                "latent attention is cached as such from 0.7.2 on; before, its layout is not known here"
            )
        self.model_bytes = _model_bytes(config, flags.dtype)
        self.dtype = cache_dtype(self._cache_dtype_name(), self.model_bytes, release, latent=config.latent)
        self.state_mode = self._state_mode()
        self.block_tokens, self.state_page = self._blocks()

    def serving(self) -> Serving:
        flags, chunked = self.flags, self.config.chunked and CHUNKS_TOLD_APART.at(self.release)
        manager = flags.hybrid_manager
        if manager is None:
            manager = manager_default(self.release, flags.device, chunked=chunked)
        batch = flags.max_num_batched_tokens or (2048 if flags.device == "cpu" else 8192)
        asynchronous = flags.device != "cpu" if flags.async_scheduling is None else flags.async_scheduling
        steps = concurrent_steps(
            self.release, flags.pipeline_parallel, asynchronous=asynchronous, v2_runner=flags.v2_model_runner
        )
        return Serving(
            release=self.release,
            in_flight_tokens=batch * steps,
            manager=manager,
            decode_context_parallel=flags.decode_context_parallel,
            prefill_context_parallel=flags.prefill_context_parallel,
            state_mode=self.state_mode,
            drafted_tokens=flags.drafted_tokens,
            state_checkpoints=self._checkpoints(),
            block_tokens=self.block_tokens,
            blocks_override=flags.num_gpu_blocks_override,
        )

    def stages(self) -> list[list[CacheLayer]]:
        parts = split_layers(
            len(self.config.layers), self.flags.pipeline_parallel, self.release, self.flags.layer_partition
        )
        found: list[list[CacheLayer]] = []
        start = 0
        for count in parts:
            found.append(self._layers(self.config, self.config.layers[start : start + count]))
            start += count
        if self.flags.draft is not None:
            found[-1].extend(self._layers(self.flags.draft, self.flags.draft.layers))
        return found

    def _layers(self, config: ModelConfig, layers: Sequence[DecoderLayer]) -> list[CacheLayer]:
        shared = () if SHARED_LAYERS_LEFT_OUT.at(self.release) else self._first_attention()
        return [self._layer(config, cache) for layer in layers for cache in (layer or shared)]

    def _first_attention(self) -> DecoderLayer:
        """Return what a layer without a cache of its own has in releases that do not share: one more cache."""
        if "num_kv_shared_layers" not in self.config.fields:
            return ()
        return next((layer for layer in reversed(self.config.layers) if layer), ())

    def _layer(self, config: ModelConfig, cache: LayerCache) -> CacheLayer:
        if isinstance(cache, Recurrent):
            return self._state(cache)
        block = self.block_tokens
        if isinstance(cache, Latent):
            return CacheLayer("full", block, block * self._row(cache), ("latent", cache.size), latent=True)
        if isinstance(cache, Indexer):
            return CacheLayer("full", block, block * cache.row_bytes, ("indexer", cache.row_bytes), latent=True)
        return self._attention(config, cache)

    def _attention(self, config: ModelConfig, cache: Attention) -> CacheLayer:
        heads = max(1, cache.kv_heads // self.flags.tensor_parallel)
        row = self.dtype.attention_row(cache, heads)
        form = (heads, cache.key_size, cache.value_size)
        block = self.block_tokens
        if cache.window and WINDOWS_TOLD_APART.at(self.release):
            more = config.model_type == "cohere2" and COHERE2_ONE_MORE.at(self.release)
            own = self._sliding_block()
            return CacheLayer("sliding", own, own * row, form, window=cache.window + more)
        if cache.chunk and CHUNKS_TOLD_APART.at(self.release):
            return CacheLayer("chunked", block, block * row, form, chunk=cache.chunk)
        return CacheLayer("full", block, block * row, form)

    def _sliding_block(self) -> int:
        how = SLIDING_BLOCK.at(self.release)
        if how == "configured":
            return self.block_tokens
        kernel = CPU_KERNEL_BLOCK.at(self.release) if self.flags.device == "cpu" else 16
        return kernel if how == "kernel" else max(kernel, self.block_tokens // kernel * kernel)

    def _state(self, state: Recurrent) -> CacheLayer:
        form = (state.mechanism, state.heads, state.head_elements, state.conv_channels)
        page = max(self._state_bytes(state), self.state_page)
        by_block = self.state_mode != "none" and STATE_BLOCKS.at(self.release) != "one"
        return CacheLayer("state", self.block_tokens if by_block else 0, page, form)

    def _state_bytes(self, state: Recurrent) -> int:
        """Return the bytes of one state on one rank (mamba/mamba_utils.py, MambaStateShapeCalculator)."""
        ranks = self.flags.tensor_parallel
        groups = state.conv_groups
        if groups and groups % ranks:
            groups = ranks
        channels = _divided(state.conv_channels + groups * state.group_width, ranks, "channels of the convolution")
        length = state.conv_length + (self.flags.drafted_tokens if state.conv_grows else 0)
        heads = _divided(state.heads, ranks, "heads of the recurrent state")
        conv, own = self._state_elements(state)
        return channels * length * conv + heads * state.head_elements * own

    def _state_elements(self, state: Recurrent) -> tuple[int, int]:
        conv = _element_bytes(self.flags.state_dtype, self.model_bytes)
        name = self.flags.ssm_state_dtype
        if name == "auto":
            return conv, _element_bytes(state.state_dtype or "auto", conv)
        return conv, _element_bytes(name, conv)

    def _cache_dtype_name(self) -> str:
        name = self.flags.cache_dtype
        if name == "auto":
            name = self._checkpoint_cache_dtype()
        # The larger of the two forms that the sparse backends store (config.py to 0.19, backends from 0.20).
        if self.config.sparse and name.startswith("fp8"):
            return "fp8_ds_mla"
        return name

    def _checkpoint_cache_dtype(self) -> str:
        """Return the cache type that the checkpoint itself asks for, else "auto"."""
        said = self.config.quantization
        method = str(said.get("quant_method", ""))
        inner = said.get("quantization") if isinstance(said.get("quantization"), dict) else said
        scheme = said.get("kv_cache_scheme") or inner.get("kv_cache_quant_algo")  # type: ignore[union-attr]
        if not scheme:
            return "auto"
        bits = scheme.get("num_bits") if isinstance(scheme, dict) else None
        eight = bits == 8 or (isinstance(scheme, str) and scheme.lower() == "fp8")
        if method.startswith("modelopt"):
            return "fp8" if eight and MODELOPT_CACHE_DTYPE.at(self.release) else "auto"
        return "fp8" if eight and COMPRESSED_CACHE_DTYPE.at(self.release) else "auto"

    def _state_mode(self) -> StateMode:
        if self.flags.mamba_cache_mode is not None:
            return self.flags.mamba_cache_mode
        caching = self.flags.prefix_caching
        if caching is None:
            caching = HYBRID_PREFIX_CACHING.at(self.release) and not self.config.attention_free
        if not caching:
            return "none"
        mode: StateMode = PREFIX_CACHING_MODE.at(self.release)
        if mode == "all" and self.config.model_type not in _STATE_FOR_EACH_BLOCK:
            return WITHOUT_MODE_ALL.at(self.release)
        return mode

    def _checkpoints(self) -> int:
        if self.flags.state_checkpoints is not None:
            return self.flags.state_checkpoints
        states = [c for layer in self.config.layers for c in layer if isinstance(c, Recurrent)]
        return CHECKPOINTS_OF_MAMBA2.at(self.release) if any(c.mechanism == "mamba2" for c in states) else 0

    def _blocks(self) -> tuple[int, int]:
        """Return the tokens of an attention block, and the bytes that a state is padded to (0: not padded)."""
        block = self.flags.block_size or self._default_block()
        states = [c for layer in self.config.layers for c in layer if isinstance(c, Recurrent)]
        if not self.config.hybrid or self.engine == "V0":
            return block, 0
        row = max(self._row(c) for layer in self.config.layers for c in layer if not isinstance(c, Recurrent))
        page = max(self._state_bytes(state) for state in states)
        if ALIGNS_BLOCKS.at(self.release):
            block = max(block, self._aligned(page, row, block, states[0].chunk_tokens))
        if block * row < page:
            least = ceil_div(page, row)
            raise LayoutRefused(f"a block of {block} tokens is smaller than a state: --block-size {least} or more")
        return block, block * row

    def _aligned(self, page: int, row: int, block: int, chunk: int) -> int:
        multiple = ALIGNMENT_OF_LATENT.at(self.release) if self.config.latent else 16
        if ALIGNS_TO_CONFIGURED.at(self.release):
            multiple = max(multiple, block)
        if self.state_mode == "all":
            multiple = math.lcm(chunk, multiple)
        return multiple * ceil_div(page, multiple * row)

    def _row(self, cache: LayerCache) -> int:
        if isinstance(cache, Attention):
            return self.dtype.attention_row(cache, max(1, cache.kv_heads // self.flags.tensor_parallel))
        if not isinstance(cache, Latent):
            return 0
        multiple = LATENT_ROW_MULTIPLE.at(self.release) if self.flags.device == "cuda" else 1
        return ceil_div(self.dtype.latent_row(cache), multiple) * multiple

    def _default_block(self) -> int:
        if self.config.latent and self.flags.device == "cuda":
            return LATENT_BLOCK.at(self.release)
        return default_block_size(self.flags.device, self.release)


def split_layers(
    count: int, stages: int, release: Release | None, partition: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Return the decoder layers of each pipeline stage (distributed/utils.py, get_pp_indices).

    Raises:
        SplitError: a partition that does not sum up, or more stages than layers.

    """
    if partition is not None:
        if len(partition) != stages or sum(partition) != count:
            raise SplitError(f"the partition {partition} is not {count} layers in {stages} stages")
        return partition
    if stages > count:
        raise SplitError(f"{count} layers cannot be split over {stages} pipeline stages")
    each, left = divmod(count, stages)
    parts = [each] * stages
    if LEFT_OVER_LAYERS.at(release) == "last":
        parts[-1] += left
        return tuple(parts)
    for i in range(2, left + 2):
        parts[-i] += 1
    return tuple(parts)


def _check_split(config: ModelConfig, flags: Flags) -> None:
    """Check what vLLM checks (config/model.py, verify_with_parallel_config; the assertions of the models)."""
    ranks = flags.tensor_parallel
    if ranks < 1 or flags.pipeline_parallel < 1 or flags.decode_context_parallel < 1:
        raise SplitError("parallel sizes are at least 1")
    if config.attention_heads % ranks:
        raise SplitError(f"{config.attention_heads} attention heads cannot be split over {ranks} tensor-parallel ranks")
    if ranks % flags.decode_context_parallel:
        raise SplitError(
            f"{ranks} tensor-parallel ranks are no multiple of {flags.decode_context_parallel} decode shards"
        )
    for cache in {cache for layer in config.layers for cache in layer if isinstance(cache, Attention)}:
        if cache.kv_heads % ranks and ranks % cache.kv_heads:
            raise SplitError(f"{cache.kv_heads} KV heads cannot be split over {ranks} tensor-parallel ranks")


def _divided(number: int, ranks: int, what: str) -> int:
    if number % ranks:
        raise SplitError(f"{number} {what} cannot be split over {ranks} tensor-parallel ranks")
    return number // ranks


def _model_bytes(config: ModelConfig, dtype: str) -> int:
    """Return the bytes of an element of the running model: a float32 checkpoint runs at 16 bits unless told."""
    if dtype == "auto":
        return 2
    if dtype not in ELEMENT_BYTES or ELEMENT_BYTES[dtype] < 2:
        raise CacheDtypeError(f"{dtype[:60]!r} is no type that a model runs in")
    return ELEMENT_BYTES[dtype]


def _element_bytes(name: str, default: int) -> int:
    if name == "auto":
        return default
    if name not in ELEMENT_BYTES:
        raise CacheDtypeError(f"{name[:60]!r} is no type of a recurrent state")
    return ELEMENT_BYTES[name]
