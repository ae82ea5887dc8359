"""How much memory a model's KV cache and weights take, worked out from its config.json as vLLM does.

>>> from vllm_diag.kv_arithmetic import Layout, read_config
>>> from vllm_diag.releases import Release
>>> config = read_config({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
...                       "num_attention_heads": 32, "num_key_value_heads": 8,
...                       "max_position_embeddings": 131072})
>>> layout = Layout(config, Release(0, 29))
>>> layout.bytes_per_token(), layout.needed(131072), layout.longest_start(10 * 2**30)
(131072, 17179869184, 81904)
"""

from __future__ import annotations

from vllm_diag.kv_arithmetic.config import (
    ConfigError,
    MissingField,
    ModelConfig,
    SplitError,
    UnknownArchitecture,
    read_config,
)
from vllm_diag.kv_arithmetic.dtypes import CacheDtypeError
from vllm_diag.kv_arithmetic.interval import Interval
from vllm_diag.kv_arithmetic.layers import CacheLayer, LayoutRefused, Serving
from vllm_diag.kv_arithmetic.layout import Flags, Layout
from vllm_diag.kv_arithmetic.pool import Pool, Refusal, V0Pool, printed_gib
from vllm_diag.kv_arithmetic.weights import Weights, weights

__all__ = [
    "CacheDtypeError",
    "CacheLayer",
    "ConfigError",
    "Flags",
    "Interval",
    "Layout",
    "LayoutRefused",
    "MissingField",
    "ModelConfig",
    "Pool",
    "Refusal",
    "Serving",
    "SplitError",
    "UnknownArchitecture",
    "V0Pool",
    "Weights",
    "printed_gib",
    "read_config",
    "weights",
]
