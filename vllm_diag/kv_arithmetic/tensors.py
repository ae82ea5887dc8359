"""The weight matrices of an architecture, worked out from config.json when no file tells them.

Names and shapes as in the public checkpoints of each family. What is left out here is said by
`MissingField`; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from vllm_diag.kv_arithmetic.caches import Attention, Indexer, Latent, Recurrent
from vllm_diag.kv_arithmetic.config import Fields, ModelConfig, UnknownArchitecture

# How a tensor is split over tensor-parallel ranks: evenly; a copy each; by KV heads, which are
# copied once they run out; the vocabulary, padded.
Split = Literal["even", "copied", "kv_heads", "vocabulary"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight of a checkpoint; ``shape`` is (output rows, input columns) for a matrix.

    ``linear`` marks what a quantization method may shrink; ``layer`` is the decoder layer, None
    outside of them.
    """

    name: str
    shape: tuple[int, ...]
    split: Split = "even"
    linear: bool = False
    expert: bool = False
    layer: int | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """What differs between decoder-only families whose layers are attention and an MLP or experts."""

    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    norms: int = 2
    norm_bias: bool = False
    head_norms: bool = False
    wide_norms: bool = False
    learned_positions: int = 0
    no_norms: bool = False


_BIASED = Style(gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True)
_STYLES: dict[str, Style] = {
    **dict.fromkeys(
        ("llama", "mistral", "ministral", "ministral3", "mixtral", "granite", "phi3", "gemma", "internlm3", "olmoe",
         "deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa",
         "llama4_text", "bamba", "seed_oss", "smollm3", "ernie4_5", "minimax_m2"),
        Style(),
    ),
    **dict.fromkeys(
        ("qwen2", "qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_moe", "glm"),
        Style(qkv_bias=True),
    ),
    **dict.fromkeys(
        ("qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "glm4_moe", "qwen3_next", "qwen3_5_text",
         "qwen3_5_moe_text"),
        Style(head_norms=True),
    ),
    "gemma2": Style(norms=4),
    "gemma3_text": Style(norms=4, head_norms=True),
    "glm4": Style(qkv_bias=True, norms=4),
    "olmo": Style(no_norms=True),
    "olmo2": Style(wide_norms=True),
    "olmo3": Style(wide_norms=True),
    "cohere": Style(norms=1),
    "cohere2": Style(norms=1),
    "gpt_oss": Style(qkv_bias=True, out_bias=True, mlp_bias=True),
    "opt": replace(_BIASED, learned_positions=2),
    "gpt_neox": _BIASED,
    "starcoder2": _BIASED,
}  # fmt: skip
# Families whose keys of the MLP are fields of their own.
_MOE_TYPES = frozenset(
    ("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text", "olmoe", "deepseek", "deepseek_v2", "deepseek_v3",
     "deepseek_v32", "kimi_k2", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "llama4_text", "gpt_oss", "qwen3_next",
     "qwen3_5_moe_text", "minimax_m2")
)  # fmt: skip


def tensors_of(config: ModelConfig) -> Iterator[Tensor]:
    """Yield the tensors of the text model of ``config``; a vision part is not among them.

    Raises:
        UnknownArchitecture: the weights of this model type are not worked out.
        MissingField: a field that a shape depends on is absent.

    """
    style = _STYLES.get(config.model_type)
    if style is None:
        message = (
            f"the weights of `model_type` {config.model_type[:60]!r} are not worked out: give the checkpoint's files"
        )
        raise UnknownArchitecture("model_type", message)
    return _Reader(config, style).tensors()


class _Reader:
    def __init__(self, config: ModelConfig, style: Style) -> None:
        self.config, self.style = config, style
        self.fields = Fields(config.fields)
        self.hidden = config.hidden_size
        self.heads = config.attention_heads

    def tensors(self) -> Iterator[Tensor]:
        fields, width = self.fields, self.hidden
        vocabulary = fields.whole("vocab_size")
        own = fields.optional("word_embed_proj_dim", low=1) or width
        yield Tensor("model.embed_tokens.weight", (vocabulary, own), "vocabulary")
        if own != width:
            yield Tensor("model.project_in.weight", (width, own), "copied")
            yield Tensor("model.project_out.weight", (own, width), "copied")
        if self.style.learned_positions:
            length = fields.whole("max_position_embeddings") + self.style.learned_positions
            yield Tensor("model.embed_positions.weight", (length, width), "copied")
        for i, caches in enumerate(self.config.layers):
            for tensor in (*self._mixer(i, caches), *self._feed(i), *self._layer_norms(i)):
                yield Tensor(
                    f"model.layers.{i}.{tensor.name}", tensor.shape, tensor.split, tensor.linear, tensor.expert, i
                )
        if not self.style.no_norms:
            yield from self._norm("model.norm")
        if not fields.flag("tie_word_embeddings") and self.config.model_type != "opt":
            yield Tensor("lm_head.weight", (vocabulary, own), "vocabulary")

    def _norm(self, name: str, size: int | None = None) -> Iterator[Tensor]:
        size = size or self.hidden
        yield Tensor(f"{name}.weight", (size,), "copied")
        if self.style.norm_bias:
            yield Tensor(f"{name}.bias", (size,), "copied")

    def _layer_norms(self, i: int) -> Iterator[Tensor]:
        if not self.style.no_norms:
            for k in range(self.style.norms):
                yield from self._norm(f"norm{k}")

    def _linear(
        self,
        name: str,
        rows: int,
        columns: int,
        *,
        bias: bool = False,
        split: Split = "even",
        row_parallel: bool = False,
    ) -> Iterator[Tensor]:
        yield Tensor(f"{name}.weight", (rows, columns), split, linear=True)
        if bias:
            yield Tensor(f"{name}.bias", (rows,), "copied" if row_parallel else split)

    def _mixer(self, i: int, caches: tuple[object, ...]) -> Iterator[Tensor]:
        for cache in caches:
            if isinstance(cache, Latent):
                yield from self._latent()
            elif isinstance(cache, Indexer):
                yield from self._indexer()
            elif isinstance(cache, Recurrent):
                yield from self._recurrent(cache)
            elif isinstance(cache, Attention):
                yield from self._attention(cache)
        if not caches:
            raise UnknownArchitecture("model_type", "the weights of layers that share a cache are not worked out")

    def _attention(self, cache: Attention) -> Iterator[Tensor]:
        style, width, size = self.style, self.hidden, cache.key_size
        bias = style.qkv_bias or self.fields.flag("attention_bias")
        out_bias = style.out_bias or (self.fields.flag("attention_out_bias") if style.qkv_bias else self._out_bias())
        gate = 2 if self.config.model_type in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text") else 1
        yield from self._linear("self_attn.q_proj", self.heads * size * gate, width, bias=bias)
        yield from self._linear("self_attn.k_proj", cache.kv_heads * size, width, bias=bias, split="kv_heads")
        yield from self._linear(
            "self_attn.v_proj", cache.kv_heads * cache.value_size, width, bias=bias, split="kv_heads"
        )
        yield from self._linear(
            "self_attn.o_proj", width, self.heads * cache.value_size, bias=out_bias, row_parallel=True
        )
        if self.config.model_type == "gpt_oss":
            yield Tensor("self_attn.sinks", (self.heads,))
        if style.head_norms and (self.config.model_type != "glm4_moe" or self.fields.flag("use_qk_norm")):
            yield from self._norm("self_attn.q_norm", size)
            yield from self._norm("self_attn.k_norm", size)
        if style.wide_norms or self.config.model_type in ("olmoe", "minimax_m2"):
            yield from self._norm("self_attn.q_norm", self.heads * size)
            yield from self._norm("self_attn.k_norm", cache.kv_heads * size)

    def _out_bias(self) -> bool:
        # Llama-like classes give `attention_bias` to the output too, Qwen3 and GLM only to q, k and v.
        return self.fields.flag("attention_bias") and self.config.model_type in (
            "llama",
            "granite",
            "olmo",
            "gemma2",
            "gemma",
        )

    def _latent(self) -> Iterator[Tensor]:
        fields, width = self.fields, self.hidden
        rank, rope = fields.whole("kv_lora_rank"), fields.whole("qk_rope_head_dim")
        nope, value = fields.whole("qk_nope_head_dim"), fields.whole("v_head_dim")
        query = fields.optional("q_lora_rank", low=1)
        if query:
            yield from self._linear("self_attn.q_a_proj", query, width, split="copied")
            yield from self._norm("self_attn.q_a_layernorm", query)
            yield from self._linear("self_attn.q_b_proj", self.heads * (nope + rope), query)
        else:
            yield from self._linear("self_attn.q_proj", self.heads * (nope + rope), width)
        yield from self._linear("self_attn.kv_a_proj_with_mqa", rank + rope, width, split="copied")
        yield from self._norm("self_attn.kv_a_layernorm", rank)
        yield from self._linear("self_attn.kv_b_proj", self.heads * (nope + value), rank)
        yield from self._linear("self_attn.o_proj", width, self.heads * value, row_parallel=True)

    def _indexer(self) -> Iterator[Tensor]:
        fields = self.fields
        heads, size = fields.whole("index_n_heads"), fields.whole("index_head_dim")
        yield from self._linear("self_attn.indexer.wq_b", heads * size, fields.whole("q_lora_rank"), split="copied")
        yield from self._linear("self_attn.indexer.wk", size, self.hidden, split="copied")
        yield Tensor("self_attn.indexer.k_norm.weight", (2, size), "copied")
        yield Tensor("self_attn.indexer.weights_proj.weight", (heads, self.hidden), "copied")

    def _recurrent(self, state: Recurrent) -> Iterator[Tensor]:
        if state.mechanism == "mamba2" and self.config.model_type == "bamba":
            yield from self._mamba2(state)
        elif self.config.model_type == "qwen3_next":
            yield from self._delta(state)
        else:
            raise UnknownArchitecture(
                "model_type", f"the weights of recurrent layers of {self.config.model_type!r} are not worked out"
            )

    def _mamba2(self, state: Recurrent) -> Iterator[Tensor]:
        width = state.conv_channels
        channels = width + state.conv_groups * state.group_width
        yield from self._linear("mamba.in_proj", width + channels + state.heads, self.hidden)
        yield Tensor("mamba.conv1d.weight", (channels, state.conv_length + 1))
        yield Tensor("mamba.conv1d.bias", (channels,))
        for name in ("A_log", "D", "dt_bias"):
            yield Tensor(f"mamba.{name}", (state.heads,))
        yield Tensor("mamba.norm.weight", (width,))
        yield from self._linear("mamba.out_proj", self.hidden, width)

    def _delta(self, state: Recurrent) -> Iterator[Tensor]:
        values = state.heads * self.fields.whole("linear_value_head_dim")
        yield from self._linear("linear_attn.in_proj_qkvz", state.conv_channels + values, self.hidden)
        yield from self._linear("linear_attn.in_proj_ba", 2 * state.heads, self.hidden)
        yield Tensor("linear_attn.conv1d.weight", (state.conv_channels, state.conv_length + 1))
        for name in ("A_log", "dt_bias"):
            yield Tensor(f"linear_attn.{name}", (state.heads,))
        yield from self._norm("linear_attn.norm", self.fields.whole("linear_value_head_dim"))
        yield from self._linear("linear_attn.out_proj", self.hidden, values)

    def _feed(self, i: int) -> Iterator[Tensor]:
        if self.config.model_type in _MOE_TYPES and self._sparse(i):
            yield from self._experts()
            return
        inner = self._inner()
        yield from self._mlp("mlp", inner)

    def _inner(self) -> int:
        if self.config.model_type == "llama4_text":
            return self.fields.whole("intermediate_size_mlp")
        return self.fields.optional("intermediate_size", "ffn_dim", "n_inner", low=1) or 4 * self.hidden

    def _mlp(self, name: str, inner: int) -> Iterator[Tensor]:
        bias = self.style.mlp_bias or self.fields.flag("mlp_bias")
        if self.style.gated:
            yield from self._linear(f"{name}.gate_proj", inner, self.hidden, bias=bias)
        yield from self._linear(f"{name}.up_proj", inner, self.hidden, bias=bias)
        yield from self._linear(f"{name}.down_proj", self.hidden, inner, bias=bias, row_parallel=True)

    def _sparse(self, i: int) -> bool:
        """Whether layer ``i`` has experts instead of one MLP."""
        fields, model = self.fields, self.config.model_type
        only = fields.get("mlp_only_layers")
        if isinstance(only, list) and i in only:
            return False
        if model.startswith(("deepseek", "kimi", "glm")):
            return i >= (fields.optional("first_k_dense_replace") or 0)
        if model == "llama4_text":
            return (i + 1) % fields.whole("interleave_moe_layer_step") == 0
        return (i + 1) % (fields.optional("decoder_sparse_step", low=1) or 1) == 0

    def _experts(self) -> Iterator[Tensor]:
        """All experts are loaded, however few a token uses."""
        fields, width, model = self.fields, self.hidden, self.config.model_type
        count = fields.whole("num_local_experts", "num_experts", "n_routed_experts")
        inner = fields.optional("moe_intermediate_size", low=1) or fields.whole("intermediate_size")
        yield Tensor("mlp.gate.weight", (count, width), "copied")
        biased = model == "gpt_oss"
        if biased or fields.text("topk_method") == "noaux_tc" or model in ("glm4_moe", "minimax_m2"):
            yield Tensor("mlp.gate.bias", (count,), "copied")
        yield Tensor("mlp.experts.gate_up_proj", (count, 2 * inner, width), linear=True, expert=True)
        yield Tensor("mlp.experts.down_proj", (count, width, inner), linear=True, expert=True)
        if biased:
            yield Tensor("mlp.experts.gate_up_proj_bias", (count, 2 * inner), expert=True)
            yield Tensor("mlp.experts.down_proj_bias", (count, width), "copied", expert=True)
        yield from self._shared_experts(inner)

    def _shared_experts(self, inner: int) -> Iterator[Tensor]:
        fields, model = self.fields, self.config.model_type
        shared = fields.optional("n_shared_experts", low=1)
        if shared:
            yield from self._mlp("mlp.shared_experts", shared * inner)
        own = fields.optional("shared_expert_intermediate_size", low=1)
        if own:
            yield from self._mlp("mlp.shared_expert", own)
            yield Tensor("mlp.shared_expert_gate.weight", (1, self.hidden), "copied")
        if model == "llama4_text":
            yield from self._mlp("mlp.shared_expert", inner)
