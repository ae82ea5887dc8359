"""The terms of a rank's memory that only a start measures, as intervals, each with its rule.

The rules bound what logs print: activations by the two peaks of the dummy run that every release
makes before it sizes the cache, the others by what was seen in logs of 1 to 8 ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_diag.cards import Card
from vllm_diag.kv_arithmetic import Interval, ModelConfig
from vllm_diag.kv_arithmetic.caches import Attention, Latent
from vllm_diag.kv_arithmetic.rules import Engine, rule
from vllm_diag.planning.model import Settings, Term
from vllm_diag.quantities import GIB, MIB, human
from vllm_diag.releases import Release

# Bytes for each element of the sampler's logits (max_num_seqs x vocabulary). At least the logits
# and their float32 copy. At most what sorting for top-k and top-p takes: activation peaks reported for
# H100 (1024 requests by default), 4.8 GiB for Llama and 5.6 GiB for Qwen, come to 39 with vocabularies
# of 128,256 and 152,064; newer samplers take less.
_SAMPLER_LEAST, _SAMPLER_MOST = 6, 42
# Scratch space of attention backends, quantized kernels and cuBLAS that PyTorch counts: beside the
# widest layer; the measured peaks of the sampler have it in them.
_SCRATCH, _SCRATCH_OF_SAMPLER = 512 * MIB, 128 * MIB
# The dummy run of a vision or audio part; one large video can take more.
_ENCODER = 4 * GIB
# Temporaries of compiled code that live beside the tensors counted below.
_COMPILED = 1.25

# What of a device's memory counts as this server's own, non-PyTorch part (worker/worker.py,
# v1/worker/gpu_worker.py): nothing; all that is used, the CUDA context with it; its growth after the
# context is there; the same with what PyTorch keeps in reserve.
_NON_TORCH_V1 = rule(("0.0", "all"), ("0.9.1", "growth"), ("0.27", "growth and reserve"))
_NON_TORCH_V0 = rule(("0.0", "nothing"), ("0.2.5", "all"), ("0.3.2", "growth"), ("0.6.4", "all"), ("0.6.5", "growth"))
# Whether CUDA graphs are in the budget (v1/worker/gpu_worker.py).
_GRAPHS_COUNTED = rule(("0.0", False), ("0.20", True))
_GRAPHS_COUNTED_ON_ROCM = rule(("0.0", False), ("0.26", True))
# CUDA graphs at all.
_GRAPHS = rule(("0.0", False), ("0.2.6", True))

_CONTEXT = Interval(256 * MIB, 716 * MIB)


@dataclass(frozen=True, slots=True)
class Assumed:
    """The assumed terms of the budget, and ``outside``: what the device holds besides it."""

    activations: Term
    non_torch: Term
    cuda_graphs: Term
    outside: Interval


def assumed_terms(
    config: ModelConfig,
    card: Card,
    settings: Settings,
    engine: Engine,
    release: Release | None,
    *,
    eager: bool,
    element: int,
) -> Assumed:
    """Return the terms that are not in config.json, for the fullest rank under ``settings``."""
    activations = _activations(config, settings, element)
    if card.device == "cpu":
        held = Interval(512 * MIB, 1536 * MIB)
        process = Term("non_torch", held, "assumed", "the worker process: interpreter and libraries, 0.5 to 1.5 GiB")
        none = Term("cuda_graphs", Interval(0, 0), "derived", "none on the CPU")
        return Assumed(activations, process, none, Interval(0, 0))
    non_torch, context = _non_torch(settings, engine, release)
    graphs = _graphs(config, settings, release, eager=eager)
    counted = (_GRAPHS_COUNTED_ON_ROCM if card.device == "rocm" else _GRAPHS_COUNTED).at(release)
    if not counted and graphs.amount.high:
        why = f"outside the budget to 0.{25 if card.device == 'rocm' else 19}: {human(graphs.amount.high)} at most"
        outside = context + graphs.amount
        graphs = Term("cuda_graphs", Interval(0, 0), "derived", why)
        return Assumed(activations, non_torch, graphs, outside)
    return Assumed(activations, non_torch, graphs, context)


def _activations(config: ModelConfig, settings: Settings, element: int) -> Term:
    tokens, requests = settings.max_num_batched_tokens, settings.max_num_seqs
    token = _bytes_of_token(config, settings.tensor_parallel, element)
    vocabulary = _whole(config.fields, "vocab_size", 0)
    logits = requests * vocabulary
    last_rank_only = settings.pipeline_parallel > 1
    sampler_low = 0 if last_rank_only else logits * _SAMPLER_LEAST // settings.tensor_parallel
    low = max(tokens * token.low, sampler_low)
    high = max(tokens * token.high + _SCRATCH, logits * _SAMPLER_MOST + _SCRATCH_OF_SAMPLER)
    why = (
        f"the larger of {tokens:,} tokens x {human(token.low)} to {human(token.high)} (max-num-batched-tokens x layer)"
        f" and {requests:,} requests x {vocabulary:,} logits x {_SAMPLER_LEAST} to {_SAMPLER_MOST} bytes"
        " (max-num-seqs x vocabulary); with scratch space"
    )
    if config.multimodal:
        high += _ENCODER
        why += "; up to 4 GiB for the vision or audio part"
    return Term("activations", Interval(low, high), "assumed", why)


def _bytes_of_token(config: ModelConfig, ranks: int, element: int) -> Interval:
    """Return the bytes that one token of a step takes at the widest place of a layer."""
    hidden, queries, cached = config.hidden_size, _queries(config), _cached(config)
    inner, experts = _inner(config)
    least = 2 * hidden + max(queries, 2 * inner) // ranks
    most = 4 * hidden + (2 * queries + cached + 3 * inner) // ranks + experts * hidden
    return Interval(least * element, round(most * element * _COMPILED))


def _queries(config: ModelConfig) -> int:
    size = max((c.key_size for layer in config.layers for c in layer if isinstance(c, Attention)), default=0)
    if config.latent:
        size = _whole(config.fields, "qk_nope_head_dim", 128) + _whole(config.fields, "qk_rope_head_dim", 64)
    return config.attention_heads * size


def _cached(config: ModelConfig) -> int:
    caches = [c for layer in config.layers for c in layer]
    if any(isinstance(c, Latent) for c in caches):
        return 2 * _queries(config)
    return max((c.kv_heads * (c.key_size + c.value_size) for c in caches if isinstance(c, Attention)), default=0)


def _inner(config: ModelConfig) -> tuple[int, int]:
    """Return the width of a token inside the MLP, and to how many experts it goes (0 for none)."""
    fields = config.fields
    dense = _whole(fields, "intermediate_size", _whole(fields, "ffn_dim", 4 * config.hidden_size))
    experts = _whole(fields, "num_experts_per_tok", _whole(fields, "experts_per_token", 0))
    width = _whole(fields, "moe_intermediate_size", dense)
    shared = _whole(fields, "n_shared_experts", 0) * width or _whole(fields, "shared_expert_intermediate_size", 0)
    return max(dense if not experts or width != dense else 0, experts * width + shared), experts


def _whole(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else default


def _non_torch(settings: Settings, engine: Engine, release: Release | None) -> tuple[Term, Interval]:
    how = (_NON_TORCH_V1 if engine == "V1" else _NON_TORCH_V0).at(release)
    several = settings.ranks > 1
    own = Interval(100 * MIB, 2300 * MIB) if several else Interval(32 * MIB, 350 * MIB)
    why = "libraries and kernels after the CUDA context is there: 0.16 GiB in a log of one rank"
    if several:
        why = "NCCL and libraries of one rank of several: up to 2.1 GiB in logs of 8 ranks"
    if how == "nothing":
        return Term("non_torch", Interval(0, 0), "derived", "not counted to 0.2.4"), _CONTEXT + own
    if how == "all":
        return Term("non_torch", own + _CONTEXT, "assumed", why + "; the CUDA context is counted too"), Interval(0, 0)
    if how == "growth and reserve":
        own, why = own + Interval(0, 384 * MIB), why + "; up to 0.4 GiB that PyTorch keeps in reserve"
    return Term("non_torch", own, "assumed", why), _CONTEXT


def _graphs(config: ModelConfig, settings: Settings, release: Release | None, *, eager: bool) -> Term:
    if eager or not _GRAPHS.at(release):
        return Term("cuda_graphs", Interval(0, 0), "derived", "none with --enforce-eager" if eager else "none yet")
    layers = -(-len(config.layers) // settings.pipeline_parallel)
    amount = Interval(50 * MIB, 256 * MIB + layers * 22 * MIB)
    why = f"50 MiB to 256 MiB + 22 MiB x {layers} layers: 0.13 to 1.62 GiB in logs"
    return Term("cuda_graphs", amount, "assumed", why)
