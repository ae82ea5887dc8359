"""The pool of blocks: how many there are, what one request needs, which lengths start and which are served.

v1/core/kv_cache_utils.py, 0.8.0 - 0.33.0 (planning in v1/core/kv_cache_planning.py from 0.33). All
amounts are bytes on one rank; where stages of a pipeline differ they are told apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from vllm_diag.kv_arithmetic.layers import (
    CacheLayer,
    Group,
    Grouping,
    LayoutRefused,
    Serving,
    ceil_div,
    group_layers,
    pages_of_request,
)
from vllm_diag.kv_arithmetic.rules import (
    CAPACITY_LINE,
    CONCURRENCY_BY_BLOCKS,
    DEALT_OVER_MODEL,
    ESTIMATE_PRINTED,
    MIXED_BY_STAGE,
    NEED,
    NULL_BLOCK_TAKEN_OFF,
    OVERRIDE_APPLIED,
    OVERRIDE_CHECKED,
)
from vllm_diag.quantities import GIB
from vllm_diag.releases import NEWEST, Release

# A length that no model has; the search for the longest ends there.
LONGEST = 2**31
Available = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a server does not start, as its message says it.

    ``needed`` and ``available`` are the bytes it compares (0.29 on: available less the null
    block), ``estimate`` the length in tokens that it prints, None where it prints none. V0 prints
    no bytes: there ``estimate`` is the number of tokens that the whole cache stores.
    """

    kind: Literal["no_memory", "too_small"]
    needed: int | None
    available: int
    estimate: int | None


def printed_gib(size: int, release: Release | None) -> str:
    """Return ``size`` bytes as the message prints them: "16.00" up to 0.13, "16.0" from 0.14 (format_gib)."""
    if (release or NEWEST) < Release(0, 14):
        return f"{size / GIB:.2f}"
    return str(round(size / GIB, 2))


def longest(fits: Callable[[int], bool], limit: int) -> int:
    """Return the largest length from 1 to ``limit`` that fits, 0 when none does; fits is monotone."""
    if limit < 1 or not fits(1):
        return 0
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _check_alike(stages: Sequence[Grouping]) -> None:
    """Refuse stages whose groups are of unlike layers, as releases before 0.11 do (unify_kv_cache_configs)."""
    orders = [sorted((group.spec for group in stage.groups), key=_order) for stage in stages]
    for order in orders[1:]:
        if any(first != other for first, other in zip(orders[0], order, strict=False)):
            raise LayoutRefused("pipeline stages with unlike kinds of layers are refused before 0.11")


def _order(layer: CacheLayer) -> tuple[str, int, str]:
    names = {"full": "full_attention", "chunked": "local_attention", "state": "mamba", "sliding": "sliding_window"}
    return names[layer.kind], layer.window, str(layer.form)


class Pool:
    """The KV cache of one model of the V1 engine.

    Args:
        stages: the layers with a cache of one rank of each pipeline stage, in order.
        serving: what the need of a request depends on besides.

    Methods that take ``available`` want the bytes for the cache: one number for every rank, or
    one for each stage.

    Raises:
        LayoutRefused: the release cannot lay these layers out.

    """

    def __init__(self, stages: Sequence[Sequence[CacheLayer]], serving: Serving) -> None:
        self.stages = tuple(tuple(stage) for stage in stages)
        self.serving = serving
        # Layers are alike by the dozen; the searches below ask for their pages often.
        self._counted = tuple(tuple(Counter(stage).items()) for stage in self.stages)
        self._by_stage: list[tuple[Grouping, tuple[int, ...]]] = []
        if DEALT_OVER_MODEL.at(serving.release):
            whole = group_layers([layer for stage in self.stages for layer in stage], serving)
            start = 0
            for stage in self.stages:
                self._by_stage.append((whole, tuple(range(start, start + len(stage)))))
                start += len(stage)
        else:
            for stage in self.stages:
                self._by_stage.append((group_layers(stage, serving), tuple(range(len(stage)))))
            _check_alike([grouping for grouping, _ in self._by_stage])

    @property
    def release(self) -> Release | None:
        """The release whose rules hold; None for the newest."""
        return self.serving.release

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The number of layers in each group on the ranks of each stage."""
        return tuple(
            tuple(sum(i in here for i in group.layers) for group in grouping.groups)
            for grouping, here in self._by_stage
        )

    @cached_property
    def block_bytes(self) -> tuple[int, ...]:
        """The bytes of one block of the pool on the ranks of each stage."""
        cut = MIXED_BY_STAGE.at(self.release)
        return tuple(
            grouping.block_bytes(here if cut or not any(group.mixed for group in grouping.groups) else None)
            for grouping, here in self._by_stage
        )

    def bytes_per_token(self) -> int:
        """Return the bytes of one token in all layers of the fullest rank that keep tokens, windows included.

        With context parallelism: of a token on the rank that stores it.
        """
        return self._rows(lambda layer: layer.kind != "state")

    def growth_per_token(self) -> int:
        """Return the bytes by which a long request grows with each token: layers without window or chunk."""
        return self._rows(lambda layer: layer.kind == "full")

    def _rows(self, counts: Callable[[CacheLayer], bool]) -> int:
        totals = [
            sum(layer.page_bytes // layer.block_tokens for layer in stage if counts(layer)) for stage in self.stages
        ]
        return max(totals, default=0)

    def blocks_of_request(self, length: int) -> int:
        """Return the blocks that a request of ``length`` tokens takes from the pool, all groups together."""
        return max((self._group_pages(grouping.groups, length) for grouping, _ in self._by_stage), default=0)

    def _group_pages(self, groups: Sequence[Group], length: int) -> int:
        return sum(pages_of_request(group.spec, length, self.serving) for group in groups)

    def needed(self, max_model_len: int) -> int:
        """Return the bytes that the start check wants for one request of ``max_model_len`` tokens.

        On the rank that needs the most. What has to be available is more by one block from 0.29
        on, see `available_to_start`.
        """
        return max((self._need(stage, max_model_len) for stage in range(len(self.stages))), default=0)

    def available_to_start(self, max_model_len: int) -> int:
        """Return the least bytes available on every rank with which a server of that length starts."""
        need = NEED.at(self.release)
        spare = NULL_BLOCK_TAKEN_OFF.at(self.release)
        if need == "first_group_of_model":
            return max(self._need(0, max_model_len), 1)
        amounts = [
            self._need(stage, max_model_len) + (block if spare else 0) for stage, block in enumerate(self.block_bytes)
        ]
        return max((*amounts, 1))

    def _need(self, stage: int, length: int) -> int:
        """Return the need of ``stage`` by the release's rule; pipeline stages count together from 0.14 to 0.16."""
        how = NEED.at(self.release)
        if how == "layers":
            return sum(pages_of_request(layer, length, self.serving) * layer.page_bytes for layer in self.stages[stage])
        grouping = self._by_stage[stage][0]
        if not grouping.groups:
            return 0
        block = grouping.block_bytes() if how == "first_group_of_model" else self.block_bytes[stage]
        groups = grouping.groups if how == "groups" else grouping.groups[:1]
        return block * self._group_pages(groups, length)

    def _checked(self, available: Available) -> list[int]:
        """Return the bytes the need of each stage is compared with."""
        amounts = self._amounts(available)
        if self.serving.blocks_override is not None and OVERRIDE_CHECKED.at(self.release):
            amounts = [self.serving.blocks_override * block for block in self.block_bytes]
        if NEED.at(self.release) == "first_group_of_model":
            return [min(amounts)] * len(amounts)
        if NULL_BLOCK_TAKEN_OFF.at(self.release):
            return [amount - block for amount, block in zip(amounts, self.block_bytes, strict=True)]
        return amounts

    def _amounts(self, available: Available) -> list[int]:
        if isinstance(available, int):
            return [available] * len(self.stages)
        if len(available) != len(self.stages):
            raise ValueError(f"{len(available)} amounts for {len(self.stages)} pipeline stages")
        return list(available)

    def _fits(self, stage: int, have: int, length: int) -> bool:
        return not self.stages[stage] or (have > 0 and self._need(stage, length) <= have)

    def starts(self, available: Available, max_model_len: int) -> bool:
        """Whether the start check lets a server of that length pass."""
        return all(self._fits(stage, have, max_model_len) for stage, have in enumerate(self._checked(available)))

    def longest_start(self, available: Available, limit: int = LONGEST) -> int:
        """Return the largest max_model_len up to ``limit`` that starts, 0 when none does.

        This is also what `--max-model-len auto` chooses (0.14 on) with the model's own length as limit.
        """
        checked = self._checked(available)
        return longest(lambda n: all(self._fits(stage, have, n) for stage, have in enumerate(checked)), limit)

    def longest_served(self, available: Available, limit: int = LONGEST) -> int:
        """Return the largest length up to ``limit`` that starts and of which a request can also be finished.

        The null block serves no request: up to 0.28 a length equal to the whole cache starts, and
        a request of that length waits for ever. Before 0.19 the check also lets lengths pass for
        which the groups as laid out have too few blocks.
        """
        started = self.longest_start(available, limit)
        if not any(self.stages):
            return started
        usable = self.blocks(available) - 1
        return longest(lambda length: self.blocks_of_request(length) <= usable, started)

    def vllm_estimate(self, available: Available, max_model_len: int) -> Refusal | None:
        """Return what the error text says when a server of that length is refused; None when it starts.

        Of several ranks that are too small the message is about the first.
        """
        for stage, have in enumerate(self._checked(available)):
            if not self.stages[stage]:
                continue
            if have <= 0:
                return Refusal("no_memory", None, have, None)
            if not self._fits(stage, have, max_model_len):
                return self._refusal(stage, have, max_model_len)
        return None

    def _refusal(self, stage: int, have: int, length: int) -> Refusal:
        estimate = None
        if ESTIMATE_PRINTED.at(self.release):
            estimate = longest(lambda n: self._fits(stage, have, n), length) or None
        return Refusal("too_small", self._need(stage, length), have, estimate)

    def blocks(self, available: Available) -> int:
        """Return the number of blocks of the pool, the null block among them: the least of all ranks.

        Raises:
            LayoutRefused: a model without any cache before 0.10.

        """
        override = self.serving.blocks_override
        if not any(self.stages):
            if self.release is not None and self.release < Release(0, 10):
                raise LayoutRefused("a model without cache layers is served from 0.10 on")
            return 1
        if override is not None and OVERRIDE_APPLIED.at(self.release):
            return override
        amounts = zip(self._amounts(available), self.block_bytes, strict=True)
        return max(0, min(amount // block for amount, block in amounts if block))

    def concurrency(self, available: Available, max_model_len: int) -> float:
        """Return the "Maximum concurrency" that is logged for that length, unrounded."""
        blocks = self.blocks(available)
        if not CONCURRENCY_BY_BLOCKS.at(self.release):
            return blocks * self.serving.block_tokens / max_model_len
        request = self.blocks_of_request(max_model_len)
        return blocks / request if request else math.inf

    def capacity_tokens(self, available: Available, max_model_len: int) -> int:
        """Return the "KV cache size" in tokens that is logged.

        From 0.20 on it is the concurrency times the length; before, the blocks shared out evenly
        to the groups, far too few for a model with windows.
        """
        how = CAPACITY_LINE.at(self.release)
        if how == "concurrency":
            return int(self.concurrency(available, max_model_len) * max_model_len)
        groups = self._by_stage[0][0].groups
        share = self.blocks(available) // max(1, len(groups))
        if how == "configured_block":
            return share * self.serving.block_tokens
        return share * min(group.spec.block_tokens or max_model_len for group in groups) * self.serving.shards

    def bytes_for(self, concurrency: float, max_model_len: int) -> int:
        """Return the bytes on every rank with which ``concurrency`` requests of that length fit at once.

        The null block is counted in every release, since no request may use it.
        """
        if not any(self.stages):
            return 0
        blocks = math.ceil(concurrency * self.blocks_of_request(max_model_len)) + 1
        return max(self.available_to_start(max_model_len), blocks * max(self.block_bytes))


class V0Pool(Pool):
    """The KV cache of the V0 engine: one block table for all layers, windows counted in full.

    worker/cache_engine.py, worker/worker.py and core/block_manager.py, 0.4 - 0.10.2. Recurrent
    states lie outside these blocks and are left out.
    """

    # Share of the blocks that is kept free when a request is admitted (block_manager.py, watermark).
    WATERMARK = 0.01

    def __init__(self, stages: Sequence[Sequence[CacheLayer]], serving: Serving) -> None:
        plain = [
            [
                CacheLayer("full", serving.block_tokens, layer.page_bytes, layer.form, latent=layer.latent)
                for layer in stage
                if layer.kind != "state"
            ]
            for stage in stages
        ]
        super().__init__(plain, Serving(Release(0, 8, 0), block_tokens=serving.block_tokens, manager=False))
        self.serving = serving
        self._stages_share = max(1, len(stages)) if (serving.release or NEWEST) >= Release(0, 8) else 1

    def _capacity(self, available: Available) -> int:
        return self.serving.block_tokens * self.blocks(available)

    def _block_need(self, length: int) -> int:
        return ceil_div(length, self.serving.block_tokens)

    def blocks_of_request(self, length: int) -> int:
        """Return the blocks of a request of ``length`` tokens."""
        return self._block_need(length)

    def blocks(self, available: Available) -> int:
        """Return the "# GPU blocks": the least of all ranks."""
        if self.serving.blocks_override is not None:
            return self.serving.blocks_override
        amounts = zip(self._amounts(available), self.block_bytes, strict=True)
        return max(0, min((amount // block for amount, block in amounts if block), default=0))

    def needed(self, max_model_len: int) -> int:
        """Return the bytes of the blocks of one request on the rank with the most layers."""
        return self._block_need(max_model_len) * max(self.block_bytes, default=0)

    def available_to_start(self, max_model_len: int) -> int:
        """Return the least bytes available on every rank with which a server of that length starts."""
        return self.needed(max_model_len) * self._stages_share

    def _storable(self, available: Available) -> int:
        """Return the tokens that the check compares: shared out to the stages from 0.8.0 (worker/worker.py)."""
        return self.serving.block_tokens * (self.blocks(available) // self._stages_share)

    def starts(self, available: Available, max_model_len: int) -> bool:
        """Whether the start check lets a server of that length pass."""
        return 0 < max_model_len <= self._storable(available)

    def longest_start(self, available: Available, limit: int = LONGEST) -> int:
        """Return the largest max_model_len up to ``limit`` that starts, 0 when none does."""
        return min(limit, self._storable(available))

    def longest_served(self, available: Available, limit: int = LONGEST) -> int:
        """Return the largest length up to ``limit`` that starts and whose prompt is admitted.

        A prompt that would leave less than the watermark free is refused (can_allocate, block_manager.py).
        """
        blocks = self.blocks(available)
        usable = blocks - int(self.WATERMARK * blocks)
        return min(self.longest_start(available, limit), usable * self.serving.block_tokens)

    def vllm_estimate(self, available: Available, max_model_len: int) -> Refusal | None:
        """Return what the error text says when a server of that length is refused; None when it starts."""
        least = min(self._amounts(available))
        if self.blocks(available) <= 0:
            return Refusal("no_memory", None, least, None)
        if self.starts(available, max_model_len):
            return None
        return Refusal("too_small", self.needed(max_model_len), least, self._storable(available))

    def concurrency(self, available: Available, max_model_len: int) -> float:
        """Return the "Maximum concurrency" that is logged for that length, unrounded."""
        return self._capacity(available) / max_model_len

    def capacity_tokens(self, available: Available, max_model_len: int) -> int:
        """Return the tokens that the blocks store."""
        return self._capacity(available)

    def bytes_for(self, concurrency: float, max_model_len: int) -> int:
        """Return the bytes on every rank with which ``concurrency`` requests of that length fit at once."""
        blocks = math.ceil(concurrency * self._block_need(max_model_len) / (1 - self.WATERMARK))
        return max(self.available_to_start(max_model_len), blocks * max(self.block_bytes, default=0))
