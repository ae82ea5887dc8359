"""Reading a model's config.json: fields with their meaning, and errors that name the field.

The names of fields are those of Hugging Face's configuration classes; which of them vLLM looks
at is in its transformers_utils/model_arch_config_convertor.py (0.14 on) and config.py before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_diag.kv_arithmetic.caches import Attention, DecoderLayer, Indexer, Latent, Recurrent
from vllm_diag.kv_arithmetic.interval import Interval

# The largest published config.json is about 2 MiB (a quantization list of each module).
_LARGEST_FILE = 16 * 2**20
# Far above any model; keeps a hostile file from making a list of a billion layers.
_MOST_LAYERS = 4096
_LARGEST_NUMBER = 2**40

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "language_model")
# Kinds of layer as `layer_types` and its older names spell them.
FULL, SLIDING, CHUNKED, RECURRENT = "full", "sliding", "chunked", "recurrent"
_LAYER_KINDS = {
    "full_attention": FULL,
    "attention": FULL,
    "sliding_attention": SLIDING,
    "chunked_attention": CHUNKED,
    "linear_attention": RECURRENT,
    "mamba": RECURRENT,
    "mamba2": RECURRENT,
    "conv": RECURRENT,
}


class ConfigError(ValueError):
    """A config.json that cannot be read or says something impossible."""


class MissingField(ConfigError):
    """A field without which the cache cannot be worked out.

    ``field`` is its name as in the file, ``certain`` the bytes of one token in all layers of
    the whole model at 2 bytes an element as far as the other fields bound them, or None.
    """

    def __init__(self, field: str, message: str, certain: Interval | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.certain = certain


class UnknownArchitecture(MissingField):
    """A ``model_type`` whose cache layout is not known here."""


class SplitError(ConfigError):
    """Heads or layers that cannot be split over that many ranks; vLLM refuses it at start too."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What a config.json says of caches and weights.

    ``layers`` holds the caches of each decoder layer, in order; ``dtype`` is the type of the
    stored weights ("bfloat16"), None where it is not said. ``max_model_len`` is the longest
    length in tokens that vLLM derives, None where no field says it. ``fields`` are the fields of
    the text model with its defaults filled in, ``quantization`` the entry ``quantization_config``.
    """

    model_type: str
    architecture: str
    layers: tuple[DecoderLayer, ...]
    hidden_size: int
    attention_heads: int
    dtype: str | None = None
    max_model_len: int | None = None
    multimodal: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    quantization: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def attention_free(self) -> bool:
        """Whether no layer attends: all are recurrent or there are none."""
        return not any(isinstance(cache, Attention | Latent) for layer in self.layers for cache in layer)

    @property
    def hybrid(self) -> bool:
        """Whether attention layers share the cache with recurrent ones."""
        return not self.attention_free and any(isinstance(c, Recurrent) for layer in self.layers for c in layer)

    @property
    def latent(self) -> bool:
        """Whether the attention is multi-head latent attention (MLA)."""
        return any(isinstance(cache, Latent) for layer in self.layers for cache in layer)

    @property
    def sparse(self) -> bool:
        """Whether an indexer chooses the tokens to attend to (DeepSeek V3.2 and successors)."""
        return any(isinstance(cache, Indexer) for layer in self.layers for cache in layer)

    @property
    def chunked(self) -> bool:
        """Whether some layer attends in chunks (Llama 4)."""
        return any(isinstance(c, Attention) and c.chunk is not None for layer in self.layers for c in layer)


def read_config(source: str | Path | Mapping[str, Any]) -> ModelConfig:
    """Return what ``source`` says: a path of a config.json or its folder, or its parsed content.

    Raises:
        OSError: a path that cannot be read.
        MissingField: a field that is needed is absent; the error names it.
        UnknownArchitecture: the ``model_type`` is none that is known; what the other fields
            bound is in ``certain``.
        ConfigError: no JSON object, or a field with an impossible value.

    """
    from vllm_diag.kv_arithmetic.architectures import layers_of

    whole = dict(source) if isinstance(source, Mapping) else _load(Path(source))
    fields = _text_fields(whole)
    model_type = fields.text("model_type")
    if model_type is None:
        raise MissingField("model_type", "config.json has no `model_type`", bounds(fields))
    fields, layers = layers_of(model_type, fields)
    return ModelConfig(
        model_type=model_type,
        architecture=_architecture(whole) or model_type,
        layers=layers,
        hidden_size=fields.whole("hidden_size", "n_embd", "d_model"),
        attention_heads=fields.optional("num_attention_heads", "n_head", "n_heads") or 0,
        dtype=_dtype(whole, fields),
        max_model_len=_max_model_len(fields),
        multimodal=any(key.endswith(("vision_config", "audio_config")) for key in whole),
        fields=fields.merged(),
        quantization=_quantization(whole, fields),
    )


def _load(path: Path) -> dict[str, Any]:
    if path.is_dir():
        path = path / "config.json"
    with path.open("rb") as file:
        raw = file.read(_LARGEST_FILE + 1)
    if len(raw) > _LARGEST_FILE:
        raise ConfigError(f"{path.name} is larger than {_LARGEST_FILE // 2**20} MiB: no config.json")
    try:
        found = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name} is no JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path.name} holds no JSON object")
    return found


class Fields:
    """The fields of a config with the defaults of its model type; every reader names the field it misses."""

    def __init__(self, own: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, prefix: str = "") -> None:
        self._own = own
        self._defaults = defaults or {}
        self._prefix = prefix

    def with_defaults(self, defaults: Mapping[str, Any]) -> Fields:
        """Return these fields with ``defaults`` for the absent ones; an explicit null stays null."""
        return Fields(self._own, {**self._defaults, **defaults}, self._prefix)

    def part(self, name: str) -> Fields | None:
        """Return the fields of the nested object ``name``, None when there is none."""
        found = self.get(name)
        return Fields(found, prefix=f"{self._prefix}{name}.") if isinstance(found, dict) else None

    def merged(self) -> dict[str, Any]:
        """Return all fields as one mapping."""
        return {**self._defaults, **self._own}

    def get(self, name: str) -> Any:
        """Return the field as it is, None when absent or null."""
        return self._own[name] if name in self._own else self._defaults.get(name)

    def whole(self, *names: str, low: int = 1, certain: Interval | None = None) -> int:
        """Return the first of ``names`` that is given, a whole number of at least ``low``.

        Raises:
            MissingField: none is given; it names the first.
            ConfigError: the number is none or out of range.

        """
        found = self.optional(*names, low=low)
        if found is None:
            name = self._prefix + names[0]
            raise MissingField(name, f"config.json has no `{name}`", certain)
        return found

    def optional(self, *names: str, low: int = 0) -> int | None:
        """Return the first of ``names`` that is given and not null, else None."""
        for name in names:
            value = self.get(name)
            if value is None:
                continue
            return self._number(name, value, low)
        return None

    def _number(self, name: str, value: Any, low: int) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST_NUMBER:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _LARGEST_NUMBER:
            raise ConfigError(f"`{self._prefix}{name}` is {_shown(value)}: no whole number of {low} or more")
        return value

    def text(self, name: str) -> str | None:
        """Return the field when it is text, else None."""
        value = self.get(name)
        return value if isinstance(value, str) else None

    def flag(self, name: str) -> bool:
        """Whether the field is given and true."""
        return bool(self.get(name))

    def layer_count(self) -> int:
        """Return the number of decoder layers."""
        count = self.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        if count > _MOST_LAYERS:
            raise ConfigError(f"`{self._prefix}num_hidden_layers` is {count}: more layers than any model has")
        return count

    def per_layer(self, name: str, count: int) -> list[Any] | None:
        """Return the list ``name`` cut to ``count`` layers, None when absent.

        Raises:
            ConfigError: it is no list or shorter than the layers.

        """
        found = self.get(name)
        if found is None:
            return None
        if not isinstance(found, list) or len(found) < count:
            raise ConfigError(f"`{self._prefix}{name}` has no entry for each of the {count} layers")
        return found[:count]

    def layer_kinds(self, count: int, *names: str) -> list[str] | None:
        """Return full, sliding, chunked or recurrent for each layer as ``layer_types`` says, None when absent.

        Raises:
            ConfigError: a kind of layer that is not known.

        """
        for name in names or ("layer_types",):
            found = self.per_layer(name, count)
            if found is not None:
                return [self._kind(name, entry) for entry in found]
        return None

    def _kind(self, name: str, entry: Any) -> str:
        kind = _LAYER_KINDS.get(entry) if isinstance(entry, str) else None
        if kind is None:
            label = f"{self._prefix}{name}"
            raise MissingField(label, f"`{label}` names a kind of layer that is not known: {_shown(entry)}")
        return kind


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _text_fields(whole: Mapping[str, Any]) -> Fields:
    """Return the fields of the text model: nested in a multimodal config, else all of it."""
    prefix = ""
    found: Mapping[str, Any] = whole
    for name in ("thinker_config", *_TEXT_PARTS):
        part = found.get(name)
        if isinstance(part, Mapping):
            found, prefix = part, f"{prefix}{name}."
    return Fields(found, prefix=prefix)


def _architecture(whole: Mapping[str, Any]) -> str | None:
    names = whole.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _dtype(whole: Mapping[str, Any], fields: Fields) -> str | None:
    for holder in (whole, fields.merged()):
        for name in ("dtype", "torch_dtype"):
            value = holder.get(name)
            if isinstance(value, str):
                return value.removeprefix("torch.")
    return None


def _quantization(whole: Mapping[str, Any], fields: Fields) -> Mapping[str, Any]:
    for holder in (whole, fields.merged()):
        for name in ("quantization_config", "compression_config"):
            value = holder.get(name)
            if isinstance(value, Mapping):
                return value
    return {}


_LENGTH_FIELDS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_target_positions", "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
# Types of RoPE scaling whose max_position_embeddings is already the scaled length.
_SCALED_ALREADY = frozenset(
    ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "mrope", "default")
)


def _max_model_len(fields: Fields) -> int | None:
    """Return the length vLLM derives (config/model.py, _get_and_verify_max_len)."""
    lengths = [length for name in _LENGTH_FIELDS if (length := fields.optional(name)) is not None]
    if not lengths:
        return None
    longest = fields.optional("model_max_length") or min(lengths)
    scaling = fields.part("rope_scaling") or fields.part("rope_parameters")
    if scaling is None or "gemma3" in (fields.text("model_type") or ""):
        return longest
    kind = scaling.text("rope_type") or scaling.text("type") or "default"
    if kind == "longrope":
        return fields.optional("original_max_position_embeddings") or longest
    factor = scaling.get("factor")
    if kind in _SCALED_ALREADY or isinstance(factor, bool) or not isinstance(factor, int | float):
        return longest
    return int(longest * factor) if 0 < factor < 2**20 else longest


def bounds(fields: Fields) -> Interval | None:
    """Return the bytes of one token in all layers that the usual fields allow, None when they say too little.

    At 2 bytes an element and unsplit. The most is full attention with its own keys and values in
    every layer; the least is what `layer_types` calls full attention, or nothing.
    """
    try:
        count = fields.layer_count()
        heads = fields.whole("num_attention_heads", "n_head", "n_heads")
        kv_heads = fields.optional("num_key_value_heads", "num_kv_heads", low=1) or heads
        size = fields.optional("head_dim", low=1) or fields.whole("hidden_size", "n_embd", "d_model") // heads
        latent = fields.optional("kv_lora_rank", low=1)
    except ConfigError:
        return None
    row = 4 * kv_heads * size
    kinds = fields.get("layer_types")
    full = sum(kind in ("full_attention", "attention") for kind in kinds) if isinstance(kinds, list) else 0
    if latent is not None:
        rope = fields.get("qk_rope_head_dim")
        small = 2 * (latent + (rope if isinstance(rope, int) and 0 < rope < 2**20 else 0))
        return Interval(min(full, count) * min(row, small), count * max(row, small))
    return Interval(min(full, count) * row, count * row)
