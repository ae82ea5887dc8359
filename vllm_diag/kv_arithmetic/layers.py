"""Layers as the planner sees them: kind, tokens of a block, bytes of a block; and their groups.

v1/kv_cache_interface.py and v1/core/kv_cache_utils.py, 0.8.0 - 0.33.0 (from 0.33 also
v1/core/kv_cache_planning.py). "Page" is one block of one layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vllm_diag.kv_arithmetic.rules import (
    DECODE_SHARDS,
    GROUP_FACTOR,
    MIXED_GROUP,
    PREFILL_SHARDS,
    STATE_BLOCKS,
    STATES_OF_DRAFTS_IN_ALL,
    STATES_PADDED,
    UNLIKE_PAGES,
)
from vllm_diag.releases import Release

Kind = Literal["full", "sliding", "chunked", "state"]
StateMode = Literal["none", "align", "all"]


class LayoutRefused(ValueError):
    """Layers that the release cannot lay out; vLLM stops at start as well."""


def ceil_div(number: int, by: int) -> int:
    """Return ``number`` divided by ``by``, rounded up."""
    return -(-number // by)


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """One layer with a cache on one rank.

    ``page_bytes`` are the bytes of a block of ``block_tokens`` tokens; a state has one page
    whatever the length, and ``block_tokens`` 0 where its block is the whole length. ``form`` tells
    layers apart whose pages are equal but not interchangeable (heads, sizes). ``window`` and
    ``chunk`` are in tokens; ``latent`` marks MLA, whose pages are never padded.
    """

    kind: Kind
    block_tokens: int
    page_bytes: int
    form: tuple[int | str, ...] = ()
    window: int = 0
    chunk: int = 0
    latent: bool = False


@dataclass(frozen=True, slots=True)
class Serving:
    """What the need of a request depends on besides its layers.

    ``in_flight_tokens`` are the tokens scheduled and not yet settled (max_num_batched_tokens times
    the concurrent steps from 0.26), ``drafted_tokens`` those of speculative decoding,
    ``state_checkpoints`` the states kept besides for a checkpoint in mode "align".
    """

    release: Release | None = None
    in_flight_tokens: int = 8192
    manager: bool = True
    decode_context_parallel: int = 1
    prefill_context_parallel: int = 1
    state_mode: StateMode = "none"
    drafted_tokens: int = 0
    state_checkpoints: int = 0
    block_tokens: int = 16
    blocks_override: int | None = None

    @property
    def shards(self) -> int:
        """Ranks that share the tokens of one request."""
        decode = self.decode_context_parallel if DECODE_SHARDS.at(self.release) else 1
        prefill = self.prefill_context_parallel if PREFILL_SHARDS.at(self.release) else 1
        return decode * prefill


def pages_of_request(layer: CacheLayer, length: int, serving: Serving) -> int:
    """Return the pages of ``layer`` that a request of ``length`` tokens reserves at most.

    The max_memory_usage_bytes of each spec, v1/kv_cache_interface.py. A window may begin inside a
    block, hence one page more.
    """
    if layer.kind == "full":
        return ceil_div(ceil_div(length, serving.shards), layer.block_tokens)
    if layer.kind == "sliding":
        held = min(layer.window - 1 + serving.in_flight_tokens, length)
        return ceil_div(held, layer.block_tokens) + 1
    if layer.kind == "chunked":
        return ceil_div(min(layer.chunk + serving.in_flight_tokens, length), layer.block_tokens)
    return _state_pages(layer, length, serving)


def _state_pages(layer: CacheLayer, length: int, serving: Serving) -> int:
    how = STATE_BLOCKS.at(serving.release)
    by_length = ceil_div(length, layer.block_tokens) if layer.block_tokens else 1
    if how == "one":
        return 1
    if how == "by_length":
        return by_length
    if serving.state_mode == "all":
        return by_length + (serving.drafted_tokens if STATES_OF_DRAFTS_IN_ALL.at(serving.release) else 0)
    kept = 2 + serving.state_checkpoints if serving.state_mode == "align" else 1
    return kept + serving.drafted_tokens


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table.

    ``layers`` are their places in the list of layers that was grouped; ``spec`` speaks for all. In
    a ``mixed`` group the layers are of one kind but their pages differ.
    """

    spec: CacheLayer
    layers: tuple[int, ...]
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups of a model (or of one pipeline stage), with the layers as they were adjusted."""

    layers: tuple[CacheLayer, ...]
    groups: tuple[Group, ...]

    def block_bytes(self, here: Sequence[int] | None = None) -> int:
        """Return the bytes of one block of the pool on a rank that holds the layers ``here`` (all when None)."""
        held = set(range(len(self.layers)) if here is None else here)
        sums = [sum(self.layers[i].page_bytes for i in group.layers if i in held) for group in self.groups]
        return max(sums, default=0)

    def sizes(self) -> tuple[int, ...]:
        """Return the number of layers of each group."""
        return tuple(len(group.layers) for group in self.groups)


def group_layers(layers: Sequence[CacheLayer], serving: Serving) -> Grouping:
    """Return the groups that the release makes of ``layers`` (get_kv_cache_groups, v1/core/kv_cache_utils.py).

    Raises:
        LayoutRefused: their kinds cannot be one with the manager off, or their pages cannot be made equal.

    """
    kept = tuple(layers)
    factor = GROUP_FACTOR.at(serving.release)
    if factor is None or not serving.manager:
        kept = _all_full(kept, serving.release)
    everything = tuple(range(len(kept)))
    if not kept:
        return Grouping((), ())
    if len(set(kept)) == 1:
        return Grouping(kept, (Group(kept[0], everything),))
    if MIXED_GROUP.at(serving.release) and _same_kind(kept):
        return Grouping(kept, (Group(kept[0], everything, mixed=True),))
    if factor is None or not serving.manager:
        raise LayoutRefused("layers of unlike kinds or pages and no hybrid KV cache manager for them")
    kept = _equal_pages(kept, serving.release)
    return Grouping(kept, _dealt(kept, factor, in_order=not MIXED_GROUP.at(serving.release)))


def _all_full(layers: tuple[CacheLayer, ...], release: Release | None) -> tuple[CacheLayer, ...]:
    """Book windows and chunks as full attention where full layers are among them (unify_hybrid_kv_cache_specs)."""
    if len({_kind(layer) for layer in layers}) <= 1 and MIXED_GROUP.at(release):
        return layers
    if not any(layer.kind == "full" for layer in layers):
        return layers
    sizes = {layer.block_tokens for layer in layers if layer.kind == "full"}
    block = sizes.pop() if len(sizes) == 1 else 0
    return tuple(_as_full(layer, block) if layer.kind in ("sliding", "chunked") else layer for layer in layers)


def _as_full(layer: CacheLayer, block: int) -> CacheLayer:
    block = block or layer.block_tokens
    page = layer.page_bytes * block // layer.block_tokens
    return replace(layer, kind="full", window=0, chunk=0, block_tokens=block, page_bytes=page)


def _kind(layer: CacheLayer) -> tuple[object, ...]:
    state = (layer.page_bytes,) if layer.kind == "state" else ()
    return (layer.kind, layer.block_tokens, layer.window, layer.chunk, *state)


def _same_kind(layers: Sequence[CacheLayer]) -> bool:
    return len({_kind(layer) for layer in layers}) == 1


def _equal_pages(layers: tuple[CacheLayer, ...], release: Release | None) -> tuple[CacheLayer, ...]:
    """Give all layers the page of the largest (unify_kv_cache_spec_page_size, 0.12 on)."""
    largest = max(layer.page_bytes for layer in layers)
    if all(layer.page_bytes == largest for layer in layers):
        return layers
    how = UNLIKE_PAGES.at(release)
    if how == "refused":
        raise LayoutRefused(f"layers with unlike pages, {_pages(layers)} bytes: releases before 0.12 refuse them")
    states = STATES_PADDED.at(release)
    return tuple(
        _stretched(layer, largest, padded=states if layer.kind == "state" else how == "padded") for layer in layers
    )


def _stretched(layer: CacheLayer, page: int, *, padded: bool) -> CacheLayer:
    if layer.page_bytes == page:
        return layer
    ratio, rest = divmod(page, layer.page_bytes)
    if layer.kind != "state" and not rest:
        return replace(layer, page_bytes=page, block_tokens=layer.block_tokens * ratio)
    if padded and not layer.latent:
        return replace(layer, page_bytes=page)
    raise LayoutRefused(f"a page of {layer.page_bytes} bytes cannot be made one of {page}")


def _pages(layers: Sequence[CacheLayer]) -> str:
    return ", ".join(str(page) for page in sorted({layer.page_bytes for layer in layers}))


def _dealt(layers: tuple[CacheLayer, ...], factor: float, *, in_order: bool) -> tuple[Group, ...]:
    """Deal each kind to groups of one size (_get_kv_cache_groups_uniform_page_size)."""
    kinds: dict[CacheLayer, list[int]] = {}
    for i, layer in enumerate(layers):
        kinds.setdefault(layer, []).append(i)
    counts = [len(places) for places in kinds.values()]
    size = max(counts) if max(counts) < min(counts) * factor else min(counts)
    groups: list[Group] = []
    for spec, places in kinds.items():
        number = ceil_div(len(places), size)
        dealt = [places[k * size : (k + 1) * size] if in_order else places[k::number] for k in range(number)]
        groups.extend(Group(spec, tuple(part)) for part in dealt)
    return tuple(groups)
