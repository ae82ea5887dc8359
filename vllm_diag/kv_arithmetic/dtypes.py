"""Bytes of one token in the cache of one layer, for each cache type that a server can be given."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_diag.kv_arithmetic.caches import Attention, Latent
from vllm_diag.releases import NEWEST, Release

# Bytes of one element as torch stores it (utils/torch_utils.py, STR_DTYPE_TO_TORCH_DTYPE).
ELEMENT_BYTES = {
    "float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "fp8_inc": 1, "int8": 1,
}  # fmt: skip

# Bytes of one token of a latent layer in the packed types (mla_attention.py, get_kv_cache_spec).
_LATENT_PACKED = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}

# First release of each type that is not in all (config/cache.py, CacheDType).
_FIRST = {
    "fp8": Release(0, 3, 0),
    "fp8_e4m3": Release(0, 4, 0),
    "fp8_e5m2": Release(0, 3, 0),
    "fp8_ds_mla": Release(0, 11),
    "nvfp4": Release(0, 20),
    "int8_per_token_head": Release(0, 20),
    "fp8_per_token_head": Release(0, 20),
    "int4_per_token_head": Release(0, 25),
    "nvfp4_4over6": Release(0, 28),
    "nvfp4_ds_mla": Release(0, 30),
}
_BACKEND_DEFINED = ("turboquant_", "ultraquant_", "octave_")


class CacheDtypeError(ValueError):
    """A cache type that the release does not know, or whose size is not worked out here."""


@dataclass(frozen=True, slots=True)
class CacheDtype:
    """A cache type with the bytes of an element of the model that it falls back to.

    ``name`` is the value of --kv-cache-dtype, "auto" for the model's own type.
    """

    name: str
    model_bytes: int = 2

    def attention_row(self, layer: Attention, heads: int) -> int:
        """Return the bytes of one token of ``layer`` on a rank with ``heads`` KV heads.

        AttentionSpec.page_size_bytes, v1/kv_cache_interface.py: keys and values of each head, the
        packed types with their scales.
        """
        both = layer.key_size + layer.value_size
        if self.name.startswith("nvfp4"):
            return heads * sum(size // 2 + size // 16 for size in (layer.key_size, layer.value_size))
        if self.name == "int4_per_token_head":
            return heads * (both // 2 + 8)
        if self.name.endswith("_per_token_head"):
            return heads * (both + 8)
        return heads * both * self._element()

    def latent_row(self, layer: Latent) -> int:
        """Return the bytes of one token of a latent layer, the same on every rank."""
        return _LATENT_PACKED.get(self.name) or layer.size * self._element()

    def _element(self) -> int:
        return self.model_bytes if self.name == "auto" else ELEMENT_BYTES[self.name]


def cache_dtype(name: str, model_bytes: int, release: Release | None, *, latent: bool) -> CacheDtype:
    """Return the cache type called ``name``.

    Raises:
        CacheDtypeError: it is not known, not in that release, for the other kind of attention, or
            its size is left to a backend (turboquant, ultraquant, octave).

    """
    if name.startswith(_BACKEND_DEFINED):
        raise CacheDtypeError(f"the size of a token in {name} is left to the attention backend and not worked out")
    packed = name.endswith("_per_token_head") or name.startswith("nvfp4")
    if name != "auto" and name not in ELEMENT_BYTES and name not in _LATENT_PACKED and not packed:
        raise CacheDtypeError(f"{name[:60]!r} is no KV cache type")
    if name not in ("auto", *ELEMENT_BYTES) and name not in _FIRST:
        raise CacheDtypeError(f"{name[:60]!r} is no KV cache type")
    first = _FIRST.get(name)
    if first is not None and (release or NEWEST) < first:
        raise CacheDtypeError(f"{name} is a KV cache type from release {first} on")
    if (name in _LATENT_PACKED) and not latent:
        raise CacheDtypeError(f"{name} is for latent attention (MLA) alone")
    if packed and latent and name not in _LATENT_PACKED:
        raise CacheDtypeError(f"{name} is not worked out for latent attention (MLA)")
    return CacheDtype(name, model_bytes)
