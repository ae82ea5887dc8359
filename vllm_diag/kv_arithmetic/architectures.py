"""Which layers of which model type keep what: one reader per way of saying it in config.json.

Read from vLLM's model_executor/models of 0.8.5 to 0.33.0. Defaults of absent fields are those of
the configuration classes in transformers, which vLLM reads a config.json through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_diag.kv_arithmetic.caches import Attention, DecoderLayer, Indexer, Latent, Recurrent
from vllm_diag.kv_arithmetic.config import (
    CHUNKED,
    FULL,
    RECURRENT,
    SLIDING,
    ConfigError,
    Fields,
    MissingField,
    UnknownArchitecture,
    bounds,
)

Layers = tuple[DecoderLayer, ...]
Reader = Callable[[Fields], Layers]


@dataclass(frozen=True, slots=True)
class Family:
    """How a model type is read, and the values of fields its config.json may leave out."""

    read: Reader
    defaults: Mapping[str, Any]


def layers_of(model_type: str, fields: Fields) -> tuple[Fields, Layers]:
    """Return ``fields`` with the defaults of ``model_type``, and the caches of its decoder layers.

    Raises:
        UnknownArchitecture: the model type is not known.
        MissingField: a field its layers depend on is absent.
        ConfigError: a field with an impossible value.

    """
    family = FAMILIES.get(model_type)
    if family is None:
        certain = bounds(fields)
        known = f"; a token takes {certain} bytes in all layers at 2 bytes an element" if certain else ""
        message = f"`model_type` {model_type[:60]!r} is not known: which layers keep a cache is not said{known}"
        raise UnknownArchitecture("model_type", message, certain)
    fields = fields.with_defaults(family.defaults)
    try:
        return fields, family.read(fields)
    except MissingField as error:
        if error.certain is None:
            error.certain = bounds(fields)
        raise


def kv_heads(fields: Fields) -> int:
    """Return the KV heads of the whole model: as many as attention heads where nothing else is said."""
    given = fields.optional("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", low=1)
    return given or _heads(fields)


def _heads(fields: Fields) -> int:
    return fields.whole("num_attention_heads", "n_head", "n_heads", certain=bounds(fields))


def head_size(fields: Fields) -> int:
    """Return the elements of one head: `head_dim` where given, else hidden size over heads."""
    given = fields.optional("head_dim", "hidden_size_per_head", "kv_channels", low=0)
    return given or max(1, fields.whole("hidden_size", "n_embd", "d_model") // _heads(fields))


def _window(fields: Fields) -> int | None:
    """Return the window that holds for every layer; 0 and `use_sliding_window: false` mean none."""
    if fields.get("use_sliding_window") is False:
        return None
    if isinstance(fields.get("sliding_window"), list):
        raise ConfigError("`sliding_window` is a list, one window a layer, where one for all is expected")
    return fields.optional("sliding_window") or None


def _attention(fields: Fields) -> Layers:
    """Every layer attends; the window is one for all, a list, or by `layer_types`."""
    count = fields.layer_count()
    plain = Attention(kv_heads(fields), head_size(fields), head_size(fields))
    return tuple((_with_window(plain, window),) for window in _windows(fields, count))


def _windows(fields: Fields, count: int) -> list[int | None]:
    listed = fields.get("sliding_window")
    if isinstance(listed, list):
        return _listed_windows(fields, listed, count)
    window = _window(fields)
    kinds = fields.layer_kinds(count)
    # All of one kind: vLLM takes the window for every layer (is_interleaved, arg_utils).
    if window is None or kinds is None or len(set(kinds)) == 1:
        return [window] * count
    return [window if kind == SLIDING else None for kind in kinds]


def _listed_windows(fields: Fields, listed: list[Any], count: int) -> list[int | None]:
    if not listed or not all(w is None or (isinstance(w, int) and 0 < w < 2**40) for w in listed):
        raise ConfigError("`sliding_window` is a list with something that is no window")
    return [listed[i % len(listed)] for i in range(count)]


def _with_window(plain: Attention, window: int | None) -> Attention:
    return Attention(plain.kv_heads, plain.key_size, plain.value_size, window)


def _interleaved(period: int | None = None, *, shared: bool = False) -> Reader:
    """Return a reader for windows by `layer_types`, else a full layer every ``period``-th.

    With ``shared`` the last `num_kv_shared_layers` use the cache of an earlier layer.
    """

    def read(fields: Fields) -> Layers:
        count = fields.layer_count()
        kinds = fields.layer_kinds(count) or _pattern(fields, count, period)
        window = _window(fields) if SLIDING in kinds else None
        if SLIDING in kinds and window is None:
            raise MissingField("sliding_window", "config.json has sliding layers but no `sliding_window`")
        plain = Attention(kv_heads(fields), head_size(fields), head_size(fields))
        layers = [(_with_window(plain, window if kind == SLIDING else None),) for kind in kinds]
        return _own_caches(fields, layers) if shared else tuple(layers)

    return read


def _own_caches(fields: Fields, layers: list[tuple[Attention]]) -> Layers:
    own = max(0, len(layers) - (fields.optional("num_kv_shared_layers") or 0))
    return (*layers[:own], *[()] * (len(layers) - own))


def _pattern(fields: Fields, count: int, period: int | None) -> list[str]:
    """Return the kinds that `sliding_window_pattern` (or its default) gives: every n-th layer is full."""
    given = fields.get("sliding_window_pattern")
    if isinstance(given, str):
        return _letters(given, count)
    every = fields.optional("sliding_window_pattern", "_sliding_window_pattern") or period
    if not every:
        raise MissingField("layer_types", "config.json has no `layer_types`")
    return [FULL if (i + 1) % every == 0 else SLIDING for i in range(count)]


def _letters(pattern: str, count: int) -> list[str]:
    """Read "LLLG": local and global layers, repeated; the last layer is global (Exaone 4)."""
    if not pattern or set(pattern) - {"L", "G"}:
        raise ConfigError(f"`sliding_window_pattern` {pattern[:40]!r} is not of the letters L and G")
    kinds = [SLIDING if pattern[i % len(pattern)] == "L" else FULL for i in range(count)]
    return [*kinds[:-1], FULL]


def _gemma4(fields: Fields) -> Layers:
    """Sliding and full layers differ in head size, and in KV heads where keys serve as values."""
    count = fields.layer_count()
    kinds = fields.layer_kinds(count) or [*_pattern(fields, count, 6)[:-1], FULL]
    window = fields.whole("sliding_window")
    size = fields.optional("global_head_dim", low=1) or head_size(fields)
    heads = kv_heads(fields)
    if fields.flag("attention_k_eq_v"):
        heads = fields.optional("num_global_key_value_heads", low=1) or heads
    sliding = Attention(kv_heads(fields), head_size(fields), head_size(fields), window)
    full = Attention(heads, size, size)
    return _own_caches(fields, [(sliding if kind == SLIDING else full,) for kind in kinds])


def _llama4(fields: Fields) -> Layers:
    """Chunked layers where `no_rope_layers` is 1, full ones where it is 0."""
    count = fields.layer_count()
    kinds = fields.layer_kinds(count)
    rope = fields.per_layer("no_rope_layers", count) if fields.get("no_rope_layers") else None
    if rope is None:
        every = fields.whole("no_rope_layer_interval")
        rope = [int((i + 1) % every != 0) for i in range(count)]
    kinds = kinds or [CHUNKED if entry else FULL for entry in rope]
    chunk = fields.optional("attention_chunk_size", low=1)
    heads, size = kv_heads(fields), head_size(fields)
    return tuple((Attention(heads, size, size, chunk=chunk if kind == CHUNKED else None),) for kind in kinds)


def _mimo_v2(fields: Fields) -> Layers:
    """Sliding layers where `hybrid_layer_pattern` is 1, with heads of their own; values smaller than keys."""
    count = fields.layer_count()
    pattern = fields.per_layer("hybrid_layer_pattern", count)
    if pattern is None:
        raise MissingField("hybrid_layer_pattern", "config.json has no `hybrid_layer_pattern`")
    size = head_size(fields)
    full = Attention(kv_heads(fields), size, fields.optional("v_head_dim", low=1) or size)
    own = fields.whole("swa_head_dim")
    sliding = Attention(
        fields.whole("swa_num_key_value_heads"),
        own,
        fields.optional("swa_v_head_dim", low=1) or own,
        fields.whole("sliding_window", "sliding_window_size"),
    )
    return tuple((sliding if entry == 1 else full,) for entry in pattern)


def _multi_query(fields: Fields) -> Layers:
    """One KV head for all where `multi_query` says so (GPT BigCode, Falcon before its new architecture)."""
    count, size = fields.layer_count(), head_size(fields)
    one = fields.flag("multi_query") and not fields.flag("new_decoder_architecture")
    heads = 1 if one else kv_heads(fields)
    return ((Attention(heads, size, size),),) * count


def _chatglm(fields: Fields) -> Layers:
    """Groups of queries share a KV head where `multi_query_attention` is set."""
    count, size = fields.layer_count(), head_size(fields)
    grouped = fields.flag("multi_query_attention")
    heads = fields.whole("multi_query_group_num") if grouped else _heads(fields)
    return ((Attention(heads, size, size),),) * count


def _nested_heads(fields: Fields) -> Layers:
    """KV heads in `attn_config.kv_n_heads` (DBRX, MPT)."""
    count, size = fields.layer_count(), head_size(fields)
    nested = fields.part("attn_config")
    heads = (nested.optional("kv_n_heads", low=1) if nested else None) or _heads(fields)
    return ((Attention(heads, size, size),),) * count


def _separate_values(fields: Fields) -> Layers:
    """Attention with heads of `qk_nope_head_dim` + `qk_rope_head_dim`, no latent cache (MiniCPM3)."""
    count, heads = fields.layer_count(), _heads(fields)
    size = fields.whole("qk_nope_head_dim") + fields.whole("qk_rope_head_dim")
    return ((Attention(heads, size, size),),) * count


def _nemotron_nas(fields: Fields) -> Layers:
    """Each block of `block_configs` has its own number of KV heads or no attention."""
    count, heads, size = fields.layer_count(), _heads(fields), head_size(fields)
    blocks = fields.per_layer("block_configs", count)
    if blocks is None:
        raise MissingField("block_configs", "config.json has no `block_configs`")
    layers: list[DecoderLayer] = []
    for block in blocks:
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise ConfigError("`block_configs` has an entry without `attention`")
        if attention.get("no_op") or attention.get("replace_with_linear"):
            layers.append(())
            continue
        share = attention.get("n_heads_in_group")
        if isinstance(share, bool) or not isinstance(share, int) or not 1 <= share <= heads:
            raise ConfigError("`block_configs` has an entry without `attention.n_heads_in_group`")
        layers.append((Attention(heads // share, size, size),))
    return tuple(layers)


# Bytes of one row of the indexer: 128 of 8 bits and one 4-byte scale for each 128
# (models/deepseek_v2.py, Indexer, 0.11 on).
def _index_row(size: int) -> int:
    return size + -(-size // 128) * 4


def _latent(fields: Fields) -> Layers:
    """One latent vector a token; with `index_topk` an indexer row besides."""
    count = fields.layer_count()
    size = fields.whole("kv_lora_rank", certain=bounds(fields)) + fields.whole("qk_rope_head_dim")
    if fields.get("index_topk") is None:
        return ((Latent(size),),) * count
    return ((Latent(size), Indexer(_index_row(fields.whole("index_head_dim")))),) * count


def _longcat(fields: Fields) -> Layers:
    """Two attention sublayers in each decoder layer."""
    count = fields.whole("num_layers", "num_hidden_layers")
    if fields.get("num_layers") is None:
        count //= 2
    size = fields.whole("kv_lora_rank") + fields.whole("qk_rope_head_dim")
    return ((Latent(size), Latent(size)),) * count


def mamba2(
    fields: Fields, *, width: int, groups: int, heads: int, head_elements: int, state: int, conv: int
) -> Recurrent:
    """Return the state of a Mamba-2 mixer (mamba/mamba_utils.py, mamba2_state_shape)."""
    return Recurrent(
        "mamba2",
        conv_channels=width,
        conv_length=conv - 1,
        heads=heads,
        head_elements=head_elements * state,
        conv_groups=groups,
        group_width=2 * state,
        state_dtype=fields.text("mamba_ssm_cache_dtype"),
        chunk_tokens=fields.optional("mamba_chunk_size", "chunk_size", low=1) or 2048,
    )


def _mamba_d(fields: Fields) -> Recurrent:
    """Read the names that Bamba, Granite 4 and Falcon-H1 use."""
    width = fields.optional("mamba_d_ssm", low=1) or _expanded(fields, "mamba_expand")
    heads = fields.whole("mamba_n_heads")
    size = fields.get("mamba_d_head")
    elements = width // heads if size == "auto" else fields.whole("mamba_d_head")
    return mamba2(
        fields,
        width=width,
        groups=fields.whole("mamba_n_groups"),
        heads=heads,
        head_elements=elements,
        state=fields.whole("mamba_d_state"),
        conv=fields.whole("mamba_d_conv"),
    )


def _expanded(fields: Fields, name: str) -> int:
    factor = fields.get(name)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1024:
        raise MissingField(name, f"config.json has no `{name}`")
    return int(factor * fields.whole("hidden_size"))


def _mixed(fields: Fields, kinds: list[str], state: Recurrent) -> Layers:
    heads, size = kv_heads(fields), head_size(fields)
    attention = Attention(heads, size, size)
    return tuple((attention,) if kind == FULL else (state,) for kind in kinds)


def _bamba(fields: Fields) -> Layers:
    """Attention in the layers of `attn_layer_indices`, Mamba-2 in the others."""
    count = fields.layer_count()
    kinds = fields.layer_kinds(count, "layer_types", "layers_block_type")
    indices = fields.get("attn_layer_indices")
    if kinds is None and isinstance(indices, list):
        kinds = [FULL if i in indices else RECURRENT for i in range(count)]
    if kinds is None:
        raise MissingField("attn_layer_indices", "config.json has no `attn_layer_indices`")
    return _mixed(fields, kinds, _mamba_d(fields))


def _falcon_h1(fields: Fields) -> Layers:
    """Attention and Mamba-2 side by side in every layer."""
    heads, size = kv_heads(fields), head_size(fields)
    return ((Attention(heads, size, size), _mamba_d(fields)),) * fields.layer_count()


def _nemotron_h(fields: Fields) -> Layers:
    """`hybrid_override_pattern`: M Mamba-2, * attention, - MLP, E experts."""
    count = fields.layer_count()
    pattern = fields.text("hybrid_override_pattern")
    if pattern is None or len(pattern) < count:
        raise MissingField("hybrid_override_pattern", "config.json has no `hybrid_override_pattern` of all layers")
    heads = fields.whole("mamba_num_heads")
    state = mamba2(
        fields,
        width=heads * fields.whole("mamba_head_dim"),
        groups=fields.whole("n_groups"),
        heads=heads,
        head_elements=fields.whole("mamba_head_dim"),
        state=fields.whole("ssm_state_size"),
        conv=fields.whole("conv_kernel"),
    )
    size = head_size(fields)
    attention = Attention(kv_heads(fields), size, size)
    return tuple((state,) if sign == "M" else (attention,) if sign == "*" else () for sign in pattern[:count])


def _mamba2_alone(fields: Fields) -> Layers:
    """Mamba-2 in every layer."""
    heads = fields.optional("num_heads", low=1) or _expanded(fields, "expand") // fields.whole("head_dim")
    state = mamba2(
        fields,
        width=_expanded(fields, "expand"),
        groups=fields.whole("n_groups"),
        heads=heads,
        head_elements=fields.whole("head_dim"),
        state=fields.whole("state_size"),
        conv=fields.whole("conv_kernel"),
    )
    return ((state,),) * fields.layer_count()


def _mamba1(width: int, state: int, conv: int) -> Recurrent:
    """Return the state of a Mamba-1 mixer; drafted tokens do not lengthen it (mamba1_state_shape)."""
    return Recurrent("mamba1", width, conv - 1, heads=width, head_elements=state, conv_grows=False)


def _mamba1_alone(fields: Fields) -> Layers:
    width = fields.optional("intermediate_size", low=1) or _expanded(fields, "expand")
    state = _mamba1(width, fields.whole("state_size"), fields.whole("conv_kernel"))
    return ((state,),) * fields.layer_count()


def _jamba(fields: Fields) -> Layers:
    """Attention in every `attn_layer_period`-th layer, Mamba-1 in the others."""
    count = fields.layer_count()
    kinds = fields.layer_kinds(count, "layers_block_type", "layer_types")
    if kinds is None:
        period, offset = fields.whole("attn_layer_period"), fields.whole("attn_layer_offset", low=0)
        kinds = [FULL if i % period == offset else RECURRENT for i in range(count)]
    width = _expanded(fields, "mamba_expand")
    return _mixed(fields, kinds, _mamba1(width, fields.whole("mamba_d_state"), fields.whole("mamba_d_conv")))


def _gated_delta(fields: Fields) -> Layers:
    """Gated delta net in all but every fourth layer (Qwen3-Next, Qwen3.5)."""
    count = fields.layer_count()
    every = fields.optional("full_attention_interval", low=1) or 4
    kinds = fields.layer_kinds(count) or [FULL if (i + 1) % every == 0 else RECURRENT for i in range(count)]
    keys, values = fields.whole("linear_num_key_heads"), fields.whole("linear_num_value_heads")
    key_size, value_size = fields.whole("linear_key_head_dim"), fields.whole("linear_value_head_dim")
    state = Recurrent(
        "delta",
        conv_channels=2 * keys * key_size + values * value_size,
        conv_length=fields.whole("linear_conv_kernel_dim") - 1,
        heads=values,
        head_elements=key_size * value_size,
        state_dtype=fields.text("mamba_ssm_dtype"),
    )
    return _mixed(fields, kinds, state)


def _kimi_linear(fields: Fields) -> Layers:
    """Kimi delta attention beside MLA; `linear_attn_config` numbers its layers from 1."""
    count = fields.layer_count()
    nested = fields.part("linear_attn_config")
    if nested is None:
        raise MissingField("linear_attn_config", "config.json has no `linear_attn_config`")
    recurrent = nested.get("kda_layers")
    if not isinstance(recurrent, list):
        raise MissingField("linear_attn_config.kda_layers", "config.json has no `linear_attn_config.kda_layers`")
    heads, size = nested.whole("num_heads"), nested.whole("head_dim")
    state = Recurrent(
        "delta",
        conv_channels=3 * heads * size,
        conv_length=nested.whole("short_conv_kernel_size") - 1,
        heads=heads,
        head_elements=size * size,
        state_dtype="float32",
    )
    latent = Latent(fields.whole("kv_lora_rank") + fields.whole("qk_rope_head_dim"))
    return tuple((state,) if i + 1 in recurrent else (latent,) for i in range(count))


def _short_conv(fields: Fields) -> Layers:
    """Short convolutions beside attention (LFM2)."""
    count = fields.layer_count()
    kinds = fields.layer_kinds(count)
    indices = fields.get("full_attn_idxs")
    if kinds is None and isinstance(indices, list):
        kinds = [FULL if i in indices else RECURRENT for i in range(count)]
    if kinds is None:
        raise MissingField("layer_types", "config.json has no `layer_types`")
    width = fields.optional("conv_dim", low=1) or fields.whole("hidden_size")
    state = Recurrent("short_conv", width, fields.whole("conv_L_cache") - 1, conv_grows=False)
    return _mixed(fields, kinds, state)


def _lightning(fields: Fields) -> Layers:
    """Linear attention where `attn_type_list` is 0 (MiniMax-Text-01)."""
    count = fields.layer_count()
    types = fields.per_layer("attn_type_list", count)
    kinds = [FULL if entry == 1 else RECURRENT for entry in types] if types else fields.layer_kinds(count)
    if kinds is None:
        raise MissingField("attn_type_list", "config.json has no `attn_type_list`")
    heads, size = _heads(fields), head_size(fields)
    state = Recurrent("linear", 0, 0, heads=heads, head_elements=size * size, conv_grows=False)
    return _mixed(fields, kinds, state)


def _families() -> dict[str, Family]:
    found: dict[str, Family] = {}

    def add(read: Reader, names: str, **defaults: Any) -> None:
        for name in names.split():
            found[name] = Family(read, defaults)

    tied = {"tie_word_embeddings": True}
    # Full attention in every layer, or one window for all.
    add(
        _attention,
        "llama granite granitemoe granitemoeshared olmo olmo2 olmoe stablelm phi persimmon internlm2 internlm3 exaone "
        "nemotron minicpm arcee apertus xverse orion baichuan aquila solar deepseek bailing_moe telechat2 gpt_neox "
        "minimax_m2 glm4_moe hunyuan_v1_dense mixtral phi3 phimoe",
    )
    add(_attention, "cohere gpt2 gptj opt bloom codegen starcoder2", **tied)
    found["gptj"] = found["codegen"] = Family(_attention, {})
    add(_attention, "mistral", num_key_value_heads=8, sliding_window=4096)
    add(_attention, "ministral", num_key_value_heads=8, sliding_window=4096)
    add(_attention, "ministral3", num_key_value_heads=8, head_dim=128)
    add(_attention, "qwen2 qwen2_vl qwen2_5_vl qwen2_moe", use_sliding_window=False)
    add(_attention, "qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen2_audio", use_sliding_window=False)
    add(_attention, "qwen3", head_dim=128, use_sliding_window=False)
    add(_attention, "qwen3_vl_text", head_dim=128)
    add(_attention, "qwen3_moe qwen3_vl_moe_text qwen3_omni_moe_text", use_sliding_window=False)
    add(_attention, "gemma", head_dim=256, **tied)
    add(_attention, "glm glm4", head_dim=128, num_key_value_heads=2)
    add(_attention, "seed_oss", head_dim=128)
    add(_attention, "smollm3", use_sliding_window=False, **tied)
    add(_attention, "ernie4_5 ernie4_5_moe", head_dim=None, **tied)
    found["ernie4_5"] = Family(_attention, {"head_dim": 128, **tied})
    add(_multi_query, "gpt_bigcode falcon RefinedWeb RefinedWebModel", multi_query=True, **tied)
    add(_chatglm, "chatglm")
    add(_nested_heads, "dbrx mpt", tie_word_embeddings=False)
    found["mpt"] = Family(_nested_heads, tied)
    add(_separate_values, "minicpm3")
    add(_nemotron_nas, "nemotron-nas")
    # Windows in some layers.
    add(
        _interleaved(2),
        "gemma2",
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        sliding_window=4096,
        vocab_size=256000,
        **tied,
    )
    gemma3 = {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    }
    add(_interleaved(6), "gemma3_text gemma3", vocab_size=262208, **gemma3, **tied)
    gemma3n = {
        **gemma3,
        "num_key_value_heads": 2,
        "sliding_window": 512,
        "num_kv_shared_layers": 15,
        "max_position_embeddings": 32768,
    }
    add(_interleaved(5, shared=True), "gemma3n_text", num_hidden_layers=35, **gemma3n, **tied)
    add(_gemma4, "gemma4_text gemma4_unified_text", global_head_dim=512, **{**gemma3, "sliding_window": 512}, **tied)
    add(_interleaved(2), "gpt_oss", num_key_value_heads=8, head_dim=64, sliding_window=128)
    add(_interleaved(4), "olmo3", sliding_window=4096)
    add(_interleaved(4), "exaone4", sliding_window=4096)
    add(_interleaved(4), "afmoe", head_dim=128, sliding_window=1024)
    add(_interleaved(4), "cohere2", sliding_window=4096, **tied)
    add(
        _llama4,
        "llama4_text",
        num_key_value_heads=8,
        head_dim=128,
        attention_chunk_size=8192,
        no_rope_layer_interval=4,
    )
    add(_mimo_v2, "mimo_v2 mimo_v2_flash")
    # Latent attention.
    rope = {"qk_rope_head_dim": 64}
    add(_latent, "deepseek_v2 deepseek_v3 kimi_k2 pangu_ultra_moe axk1 AXK1", kv_lora_rank=512, **rope)
    add(_latent, "deepseek_v32 glm_moe_dsa", kv_lora_rank=512, index_head_dim=128, **rope)
    add(_latent, "glm4_moe_lite", kv_lora_rank=512, **rope)
    add(_longcat, "longcat_flash", kv_lora_rank=512, **rope)
    # Recurrent layers.
    ssm = {"mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_d_head": "auto"}
    add(_bamba, "bamba", num_key_value_heads=8, mamba_n_heads=128, **ssm)
    add(_bamba, "granitemoehybrid", mamba_n_heads=128, **ssm)
    add(_falcon_h1, "falcon_h1", num_key_value_heads=8, mamba_n_heads=128, **ssm)
    add(
        _nemotron_h,
        "nemotron_h",
        num_key_value_heads=8,
        head_dim=128,
        ssm_state_size=128,
        n_groups=8,
        conv_kernel=4,
        mamba_num_heads=128,
        mamba_head_dim=64,
    )
    add(_mamba2_alone, "mamba2", head_dim=64, state_size=128, expand=2, conv_kernel=4, n_groups=8)
    add(_mamba1_alone, "mamba falcon_mamba", state_size=16, expand=2, conv_kernel=4, **tied)
    add(
        _jamba,
        "jamba",
        num_key_value_heads=8,
        attn_layer_period=8,
        attn_layer_offset=4,
        mamba_d_state=16,
        mamba_d_conv=4,
        mamba_expand=2,
    )
    delta = {
        "head_dim": 256,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
    }
    add(_gated_delta, "qwen3_next", num_key_value_heads=2, **delta)
    add(_gated_delta, "qwen3_5_text", num_key_value_heads=4, **delta)
    add(_gated_delta, "qwen3_5_moe_text", num_key_value_heads=2, **delta)
    add(_kimi_linear, "kimi_linear", **rope)
    add(_short_conv, "lfm2 lfm2_moe", num_key_value_heads=8, conv_L_cache=3, **tied)
    add(_lightning, "minimax_text_01 minimax_m1 minimax", num_key_value_heads=8)
    return found


FAMILIES: Mapping[str, Family] = _families()
