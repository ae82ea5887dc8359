"""What one layer of a model keeps per request, as its config.json says; before any split or block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Attention:
    """Keys and values of every token; with ``window`` or ``chunk`` only of the latest tokens.

    ``kv_heads`` are those of the whole model, ``key_size`` and ``value_size`` elements a head.
    """

    kv_heads: int
    key_size: int
    value_size: int
    window: int | None = None
    chunk: int | None = None


@dataclass(frozen=True, slots=True)
class Latent:
    """One compressed vector of ``size`` elements a token for all heads (MLA)."""

    size: int


@dataclass(frozen=True, slots=True)
class Indexer:
    """One byte vector of ``row_bytes`` a token that chooses which tokens are attended to (DeepSeek V3.2)."""

    row_bytes: int


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A state of fixed size instead of a row for each token.

    The last ``conv_length`` inputs of ``conv_channels`` channels, of which ``conv_groups`` groups
    of ``group_width`` are not split below one group a rank, and ``heads`` states of ``head_elements``.
    ``conv_grows`` tells whether drafted tokens lengthen the convolution's part.
    """

    mechanism: Literal["mamba1", "mamba2", "delta", "short_conv", "linear"]
    conv_channels: int
    conv_length: int
    heads: int = 0
    head_elements: int = 0
    conv_groups: int = 0
    group_width: int = 0
    conv_grows: bool = True
    state_dtype: str | None = None
    chunk_tokens: int = 2048


LayerCache: TypeAlias = Attention | Latent | Indexer | Recurrent
# The caches of one decoder layer: none where it shares another's or has no mixer, several where
# attention and a recurrent mixer stand side by side.
DecoderLayer: TypeAlias = tuple[LayerCache, ...]
