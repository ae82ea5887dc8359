"""Small models without weights: a configuration and a tokenizer, for ``--load-format dummy``.

The hidden size is small and the KV cache of a token is large (about half a MiB), so that one GiB holds some two
thousand tokens and a request of the full length is answered within a minute on a CPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_COMMON: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.02,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "max_position_embeddings": 262144,
    "rope_theta": 1000000.0,
    "attention_bias": False,
    "attention_dropout": 0.0,
}


def _decoder(kind: str, architecture: str, layers: int, heads: int, kv_heads: int, size: int, **rest: Any) -> Any:
    return {
        **_COMMON,
        "model_type": kind,
        "architectures": [architecture],
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": size,
        **rest,
    }


_GEMMA = {
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
}

# name: (what it is, configuration)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": (
        "full attention (Llama), 512 KiB a token",
        _decoder("llama", "LlamaForCausalLM", 16, 16, 16, 256),
    ),
    "gqa": (
        "GQA 12:6 (Llama), 432 KiB a token",
        _decoder("llama", "LlamaForCausalLM", 36, 12, 6, 256),
    ),
    "window": (
        "sliding window 4096 in all layers (Mistral), 512 KiB a token",
        _decoder("mistral", "MistralForCausalLM", 16, 16, 16, 256, sliding_window=4096),
    ),
    "hybrid": (
        "sliding window 512 in every other layer (Gemma 2), 512 KiB a token",
        _decoder(
            "gemma2",
            "Gemma2ForCausalLM",
            16,
            16,
            16,
            256,
            sliding_window=512,
            attn_logit_softcapping=50.0,
            final_logit_softcapping=30.0,
            **_GEMMA,
        ),
    ),
    "mla": (
        "MLA (DeepSeek V2), latent of 576, 288 KiB a token",
        _decoder(
            "deepseek_v2",
            "DeepseekV2ForCausalLM",
            128,
            4,
            4,
            192,
            kv_lora_rank=512,
            q_lora_rank=None,
            qk_rope_head_dim=64,
            qk_nope_head_dim=128,
            v_head_dim=128,
            moe_intermediate_size=64,
            n_shared_experts=1,
            n_routed_experts=4,
            num_experts_per_tok=2,
            first_k_dense_replace=128,
            moe_layer_freq=1,
            routed_scaling_factor=1.0,
            topk_method="greedy",
            n_group=1,
            topk_group=1,
            norm_topk_prob=False,
            scoring_func="softmax",
            aux_loss_alpha=0.001,
            seq_aux=True,
        ),
    ),
    "small": (
        "GQA 4:2 (Llama), 2 layers",
        _decoder("llama", "LlamaForCausalLM", 2, 4, 2, 64, max_position_embeddings=32768),
    ),
}


def write_models(folder: Path) -> None:
    """Write all models below the folder."""
    for name, (_, config) in MODELS.items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        files = {
            "config.json": config,
            "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
            "tokenizer.json": _tokenizer(),
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "pad_token": "<pad>",
                "model_max_length": 1048576,
                "clean_up_tokenization_spaces": False,
            },
        }
        for file, content in files.items():
            (place / file).write_text(json.dumps(content, indent=1) + "\n")


def _tokenizer() -> dict[str, Any]:
    """One token for each byte, written out as the ``tokenizers`` package would."""
    special = ["<pad>", "<s>", "</s>"]
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(others))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": n, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False}
            for n, text in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: n for n, text in enumerate([*special, *letters])},
            "merges": [],
        },
    }
