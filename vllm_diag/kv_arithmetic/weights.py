"""Bytes that a model's weights take on the fullest rank: from the checkpoint's files, else its architecture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

from vllm_diag.kv_arithmetic.caches import Attention
from vllm_diag.kv_arithmetic.config import ConfigError, ModelConfig, SplitError
from vllm_diag.kv_arithmetic.dtypes import ELEMENT_BYTES
from vllm_diag.kv_arithmetic.interval import Interval
from vllm_diag.kv_arithmetic.layout import split_layers
from vllm_diag.kv_arithmetic.quantization import Scheme, scheme_of
from vllm_diag.kv_arithmetic.tensors import Split, Tensor, tensors_of
from vllm_diag.releases import Release

Origin = Literal["headers", "index", "architecture"]

# Bits of one element in a safetensors file.
_STORED_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_FLOATS = frozenset(("F64", "F32", "F16", "BF16"))
# The format itself allows no larger header (safetensors, MAX_HEADER_SIZE).
_LARGEST_HEADER = 100_000_000
_MOST_FILES = 2000
# vLLM pads the vocabulary to a multiple of this (layers/vocab_parallel_embedding.py).
_VOCABULARY_MULTIPLE = 64

_HEADS = ("lm_head.weight", "embed_out.weight", "output.weight")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,5})\.")
_SCALE = re.compile(r"(?:scale|scales|scale_inv|zero_point|absmax|zeros|quant_map|state)$")
_VISION = re.compile(
    r"(?:^|\.)(?:vision|visual|audio|image|multi_modal_projector|mm_projector|mlp1|embed_vision|embed_audio)"
)
_VOCABULARY = re.compile(
    r"(?:embed_tokens|word_embeddings|wte|lm_head|embed_in|embed_out|tok_embeddings|output)\.weight$"
)
_COPIED = re.compile(
    r"(?:norm|layernorm|layer_norm|ln_\w+)\w*\.(?:weight|bias)$|\.gate\.|router|e_score_correction_bias|q_a_proj"
    r"|kv_a_proj|fused_qkv_a|indexer|embed_positions|wpe\.|(?:o_proj|down_proj|fc2|out_proj|c_proj|dense)\.bias$"
    r"|shared_expert_gate"
)
_KV = re.compile(r"\.(?:k_proj|v_proj|kv_proj)\.")
_FUSED = re.compile(r"\.(?:qkv_proj|query_key_value|c_attn|[Ww]qkv|qkv)\.")
_SHARDED = re.compile(
    r"(?:q_proj|o_proj|qkv_proj|query_key_value|gate_proj|up_proj|gate_up_proj|down_proj|w1|w2|w3|wo|wqkv|fc1|fc2|out_proj"
    r"|in_proj|c_attn|c_proj|c_fc|dense|dense_h_to_4h|dense_4h_to_h|q_b_proj|kv_b_proj|experts|in_proj_qkvz|in_proj_ba|conv1d"
    r"|sinks|A_log|D|dt_bias)(?:\.|_|$)"
)


@dataclass(frozen=True, slots=True)
class Weights:
    """The memory of a model's weights after loading, in bytes.

    ``total`` is one copy of the model, ``per_rank`` what the fullest rank of the given split
    holds, ``parameters`` the number of weights (of quantized files: of stored elements). ``origin``
    says what they come from, ``notes`` what makes them uncertain or is not in them.
    """

    total: Interval
    per_rank: Interval
    parameters: int | None
    origin: Origin
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sized:
    """A tensor with the bytes of its whole."""

    name: str
    size: Interval
    split: Split | None
    layer: int | None
    shape: tuple[int, ...]


def weights(
    config: ModelConfig,
    quantization: str | None = None,
    dtype: str = "auto",
    files: str | Path | Sequence[str | Path] | None = None,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    release: Release | None = None,
) -> Weights:
    """Return the bytes of the weights of ``config`` on the fullest rank.

    Args:
        config: the model; its `quantization_config` tells how the weights are stored.
        quantization: --quantization, for weights quantized while loading.
        dtype: --dtype; "auto" is the checkpoint's own type, 16 bits for float32.
        files: safetensors files, a folder of them or a model.safetensors.index.json. Where the
            files beside an index are absent, its total size is used.
        tensor_parallel: --tensor-parallel-size.
        pipeline_parallel: --pipeline-parallel-size.
        release: for how layers are split over pipeline stages.

    Raises:
        OSError: a file that cannot be read.
        ConfigError: a file that is no safetensors file, an unknown quantization method.
        UnknownArchitecture: without files, a model type whose weights are not worked out.
        MissingField: without files, a field that a shape depends on is absent.
        SplitError: sizes that vLLM would refuse.

    """
    if tensor_parallel < 1 or pipeline_parallel < 1:
        raise SplitError("parallel sizes are at least 1")
    element = ELEMENT_BYTES.get(dtype, 2) if dtype != "auto" else 2
    stored = bool(config.quantization)
    scheme = scheme_of(config.quantization, quantization)
    stages = split_layers(len(config.layers), pipeline_parallel, release)
    notes: list[str] = []
    if files is not None:
        found = _Files(files)
        if not found.tensors:
            return _from_index(found.total_size, tensor_parallel, pipeline_parallel)
        online = scheme if scheme is not None and not stored else None
        sized = [_of_file(config, entry, element, online) for entry in found.kept(config)]
        count = sum(prod(tensor.shape) for tensor in sized)
        origin: Origin = "headers"
    else:
        listed = list(tensors_of(config))
        sized = [_of_architecture(tensor, element, scheme) for tensor in listed]
        count = sum(prod(tensor.shape) for tensor in listed)
        origin = "architecture"
        if config.multimodal:
            notes.append("the vision or audio part is not counted")
    sized.extend(_after_loading(config, element))
    total = _sum(tensor.size for tensor in sized)
    ranks = [_stage(config, sized, stage, stages, tensor_parallel) for stage in range(len(stages))]
    fullest = Interval(max(r.low for r in ranks), max(r.high for r in ranks))
    return Weights(total, fullest, count, origin, tuple(notes))


def _sum(sizes: Iterable[Interval]) -> Interval:
    low = high = 0
    for size in sizes:
        low, high = low + size.low, high + size.high
    return Interval(low, high)


def _from_index(total: int | None, tensor: int, pipeline: int) -> Weights:
    if total is None:
        raise ConfigError("neither safetensors files nor an index with `metadata.total_size`")
    least = -(-total // (tensor * pipeline))
    most = total if tensor * pipeline > 1 else least
    note = "the size of the stored tensors; how they are split is not known without their headers"
    return Weights(Interval.exactly(total), Interval(least, most), None, "index", (note,))


def _of_architecture(tensor: Tensor, element: int, scheme: Scheme | None) -> _Sized:
    quantized = scheme is not None and tensor.linear and scheme.covers(tensor.name, expert=tensor.expert)
    size = scheme.size(tensor.shape) if scheme and quantized else Interval.exactly(prod(tensor.shape) * element)
    return _Sized(tensor.name, size, tensor.split, tensor.layer, tensor.shape)


def _of_file(config: ModelConfig, entry: _Stored, element: int, online: Scheme | None) -> _Sized:
    split = _split_of(entry.name)
    found = _LAYER.search(entry.name)
    layer = int(found[1]) if found and not _VISION.search(entry.name) else None
    linear = len(entry.shape) >= 2 and split in ("even", "kv_heads") and "conv" not in entry.name
    if online is not None and linear and online.covers(entry.name, expert="experts" in entry.name):
        return _Sized(entry.name, online.size(entry.shape), split, layer, entry.shape)
    return _Sized(entry.name, entry.size(element), split, layer, entry.shape)


def _after_loading(config: ModelConfig, element: int) -> list[_Sized]:
    """Return what is made of the weights besides: MLA keeps its up-projection in two more forms.

    process_weights_after_loading, attention/backends/mla/common.py (0.8 on): W_UK and W_UV in the
    model's type; kv_b_proj itself stays. Whether the allocator already counts them is left open.
    """
    if not config.latent:
        return []
    fields = config.fields
    parts = [fields.get(name) for name in ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim")]
    if not all(isinstance(part, int) for part in parts):
        return []
    rank, nope, value = (int(part) for part in parts if isinstance(part, int))
    each = config.attention_heads * (nope + value) * rank * element
    return [
        _Sized(f"layers.{i}.self_attn.absorbed", Interval(0, each), "even", i, (0,)) for i in range(len(config.layers))
    ]


def _stage(config: ModelConfig, sized: Sequence[_Sized], stage: int, stages: Sequence[int], ranks: int) -> Interval:
    """Return the bytes on a rank of ``stage``: its layers, the embedding on the first, the head on the last."""
    first = sum(stages[:stage])
    layers = range(first, first + stages[stage])
    tied = not any(tensor.name.endswith(_HEADS) for tensor in sized)
    here: list[Interval] = []
    for tensor in sized:
        lies = _lies(tensor, stage, layers, stages, tied)
        if lies is not False:
            share = _on_rank(config, tensor, ranks)
            here.append(share if lies else Interval(0, share.high))
    return _sum(here)


def _lies(tensor: _Sized, stage: int, layers: range, stages: Sequence[int], tied: bool) -> bool | None:
    """Whether ``tensor`` lies on ``stage``; None where its name does not tell."""
    end = len(stages) - 1
    if tensor.layer is not None:
        return tensor.layer in layers
    if tensor.split == "vocabulary":
        head = tensor.name.endswith(_HEADS)
        return stage == end if head else stage == 0 or (tied and stage == end)
    if _VISION.search(tensor.name):
        return stage == 0
    if "norm" in tensor.name:
        return stage == end
    return True if end == 0 else None


def _on_rank(config: ModelConfig, tensor: _Sized, ranks: int) -> Interval:
    size = tensor.size
    if ranks == 1 or tensor.split == "copied":
        return size
    if tensor.split == "vocabulary":
        rows = max(1, tensor.shape[0])
        padded = -(-rows // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE
        share = -(-padded // ranks)
        return Interval(size.low // rows * share, -(-size.high // rows) * share)
    heads = max((c.kv_heads for layer in config.layers for c in layer if isinstance(c, Attention)), default=ranks)
    if tensor.split == "kv_heads":
        ranks = min(ranks, heads)
    low = -(-size.low // ranks)
    if ranks > heads and _FUSED.search(tensor.name):
        # Keys and values are copied once their heads run out, queries are not.
        rows = config.attention_heads + 2 * heads
        return Interval(low, -(-size.high * (config.attention_heads + 2 * ranks) // (rows * ranks)))
    return Interval(low, size.high if tensor.split is None else -(-size.high // ranks))


def _split_of(name: str) -> Split | None:
    """Return how vLLM splits the tensor called ``name``; None where its name does not tell."""
    if _VISION.search(name):
        return None
    if _VOCABULARY.search(name) and not _LAYER.search(name):
        return "vocabulary"
    if _COPIED.search(name):
        return "copied"
    if _KV.search(name):
        return "kv_heads"
    return "even" if _SHARDED.search(name) else None


@dataclass(frozen=True, slots=True)
class _Stored:
    """One tensor of a safetensors header."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def size(self, element: int) -> Interval:
        """Return the bytes once loaded: float weights in the model's type, all else as stored."""
        count = prod(self.shape)
        as_stored = -(-count * _STORED_BITS[self.dtype] // 8)
        if self.dtype not in _FLOATS or _SCALE.search(self.name):
            return Interval.exactly(as_stored)
        loaded = count * element
        # Small float32 vectors (decay rates, router corrections) are kept as they are in some models.
        if len(self.shape) < 2 and as_stored > loaded:
            return Interval(loaded, as_stored)
        return Interval.exactly(loaded)


class _Files:
    """The headers of a checkpoint's safetensors files, or the total size that its index states."""

    def __init__(self, files: str | Path | Sequence[str | Path]) -> None:
        self.total_size: int | None = None
        self.tensors: list[_Stored] = []
        paths = [Path(files)] if isinstance(files, str | Path) else [Path(file) for file in files]
        for path in self._expanded(paths):
            self.tensors.extend(_header(path))

    def _expanded(self, paths: Sequence[Path]) -> list[Path]:
        found: list[Path] = []
        for path in paths:
            if path.is_dir():
                index = path / "model.safetensors.index.json"
                found.extend(self._of_index(index) if index.exists() else sorted(path.glob("*.safetensors")))
            elif path.suffix == ".json":
                found.extend(self._of_index(path))
            else:
                found.append(path)
        if len(found) > _MOST_FILES:
            raise ConfigError(f"{len(found)} safetensors files are more than any checkpoint has")
        return found

    def _of_index(self, path: Path) -> list[Path]:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_HEADER + 1)
        try:
            index = json.loads(raw.decode()) if len(raw) <= _LARGEST_HEADER else None
        except (ValueError, RecursionError):
            index = None
        if not isinstance(index, dict) or not isinstance(index.get("weight_map"), dict):
            raise ConfigError(f"{path.name} is no index of safetensors files")
        metadata = index.get("metadata")
        size = metadata.get("total_size") if isinstance(metadata, dict) else None
        if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < 2**60:
            self.total_size = int(size)
        names = sorted({name for name in index["weight_map"].values() if isinstance(name, str)})
        shards = [path.parent / Path(name).name for name in names[:_MOST_FILES]]
        return shards if shards and all(shard.exists() for shard in shards) else []

    def kept(self, config: ModelConfig) -> Iterator[_Stored]:
        """Yield the tensors that are loaded: no second copy of a tied head, no layers of a drafter, no RoPE tables."""
        tied = config.fields.get("tie_word_embeddings") is True
        for tensor in self.tensors:
            found = _LAYER.search(tensor.name)
            text = not _VISION.search(tensor.name)
            if found and text and int(found[1]) >= len(config.layers):
                continue
            if (tied and tensor.name == "lm_head.weight") or tensor.name.startswith("mtp."):
                continue
            if not tensor.name.endswith(("rotary_emb.inv_freq", "masked_bias")):
                yield tensor


def _header(path: Path) -> Iterator[_Stored]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= _LARGEST_HEADER:
            raise ConfigError(f"{path.name} is no safetensors file")
        raw = file.read(length)
    try:
        header = json.loads(raw.decode())
    except (ValueError, RecursionError):
        header = None
    if len(raw) != length or not isinstance(header, dict):
        raise ConfigError(f"{path.name} is no safetensors file")
    for name, entry in header.items():
        if name != "__metadata__":
            yield _stored(path, name, entry)


def _stored(path: Path, name: str, entry: Any) -> _Stored:
    dtype = entry.get("dtype") if isinstance(entry, Mapping) else None
    shape = entry.get("shape") if isinstance(entry, Mapping) else None
    sound = isinstance(shape, list) and len(shape) <= 8 and all(isinstance(n, int) and 0 <= n < 2**40 for n in shape)
    if dtype not in _STORED_BITS or not sound or shape is None:
        raise ConfigError(f"{path.name} has a tensor without a known type and shape: {name[:80]!r}")
    return _Stored(name, str(dtype), tuple(shape))
