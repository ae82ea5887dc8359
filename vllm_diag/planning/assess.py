"""One combination of settings against one device: the ledger, and whether it closes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vllm_diag.cards import Card
from vllm_diag.kv_arithmetic import Interval, Layout, ModelConfig, Weights, weights
from vllm_diag.planning.defaults import settle
from vllm_diag.planning.model import Assessment, Options, Settings, Term, Verdict
from vllm_diag.planning.terms import Assumed, assumed_terms
from vllm_diag.quantities import GIB, MIB, human
from vllm_diag.releases import NEWEST, Release, cpu_uses_utilization

# What loading takes beside the tensors themselves: the RoPE table, rounding of the allocator. Logs
# print 54.92 GiB for 54.91 and 1.12 GiB for 1.11.
_LOADING_SHARE, _LOADING_MOST = 0.005, 64 * MIB
# Allowed for a vision or audio part whose tensors no file tells.
_UNSEEN_PART = 5 * GIB // 2

# The better first: the worst of several answers is the verdict.
_ORDER: tuple[Verdict, ...] = ("fits", "cannot-tell", "does-not-fit")

# Sizes of a CPU's cache where none is set (platforms/cpu.py): 4 GiB to 0.12, half of the node's memory then.
_CPU_DEFAULT = 4 * GIB
_HALF_OF_NODE = Release(0, 13)


class Planner:
    """Assesses one model on one device; sums of weights are kept between calls."""

    def __init__(self, config: ModelConfig, card: Card) -> None:
        self.config, self.card = config, card
        self._weights: dict[tuple[str | None, str, str | None, int, int], Weights] = {}

    def assess(self, options: Options) -> Assessment:
        """Return what comes of ``options``; an unknown release is taken as the newest.

        Raises:
            Refused, SplitError, LayoutRefused: settings that vLLM refuses whatever the memory.
            ConfigError, MissingField, CacheDtypeError: what cannot be worked out.
            OSError: files of the checkpoint that cannot be read.

        """
        release = options.release or NEWEST
        settings = settle(self.config, self.card, options)
        layout = self._layout(options, settings, release)
        held = self._weights_of(options, settings, release)
        assumed = assumed_terms(
            self.config, self.card, settings, layout.engine, release,
            eager=options.enforce_eager, element=4 if options.dtype in ("float32", "float") else 2,
        )  # fmt: skip
        terms = (
            _loaded(held, settings, unseen=self._unseen(held)),
            assumed.activations,
            assumed.non_torch,
            assumed.cuda_graphs,
        )
        budget = _Budget.of(self.card, options, settings, release, terms, assumed)
        return _Verdict(self, options, settings, layout, held, terms, budget).assessment()

    def layout(self, options: Options) -> tuple[Layout, int]:
        """Return the KV cache under ``options`` and the length planned for; raises as `assess` but for weights."""
        settings = settle(self.config, self.card, options)
        return self._layout(options, settings, options.release or NEWEST), settings.max_model_len

    def _unseen(self, held: Weights) -> bool:
        return self.config.multimodal and held.origin == "architecture"

    def _layout(self, options: Options, settings: Settings, release: Release) -> Layout:
        return Layout(
            self.config,
            release,
            tensor_parallel=settings.tensor_parallel,
            pipeline_parallel=settings.pipeline_parallel,
            dtype=options.dtype,
            cache_dtype=options.kv_cache_dtype,
            block_size=options.block_size,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            device=self.card.device,
            engine=options.engine,
        )

    def _weights_of(self, options: Options, settings: Settings, release: Release) -> Weights:
        # Files tell the bytes of the checkpoint at hand, not of another one.
        files = None if options.checkpoint else options.files
        return self.weights(options.checkpoint or options.quantization, options.dtype, files, settings, release)

    def weights(
        self, quantization: str | None, dtype: str, files: str | None, settings: Settings, release: Release
    ) -> Weights:
        """Return the weights under ``quantization``; raises as `kv_arithmetic.weights`."""
        split = (settings.tensor_parallel, settings.pipeline_parallel)
        key = (quantization, dtype, files, *split)
        if key not in self._weights:
            self._weights[key] = weights(self.config, quantization, dtype, files, *split, release)
        return self._weights[key]


def _loaded(held: Weights, settings: Settings, *, unseen: bool) -> Term:
    high = held.per_rank.high + round(held.per_rank.high * _LOADING_SHARE) + _LOADING_MOST
    high += _UNSEEN_PART if unseen else 0
    low = held.per_rank.low
    if settings.pipeline_parallel > 1:
        # The stage that is short of cache need not be the one with the most weights.
        low = min(low, held.total.low // settings.ranks)
    source = {
        "headers": "the headers of the safetensors files",
        "index": "the total in the index of the safetensors files",
        "architecture": "the shapes that config.json gives",
    }[held.origin]
    count = f", {held.parameters / 1e9:,.2f} billion weights" if held.parameters else ""
    share = "" if settings.ranks == 1 else f", 1 of {settings.ranks} ranks"
    return Term("weights", Interval(low, high), "derived", f"{source}{count}{share}")


@dataclass(frozen=True, slots=True)
class _Budget:
    """The sums of a rank; ``fixed`` where the size of the cache was given."""

    total: Interval
    requested: Interval
    available: Interval
    outside: Interval
    room: Interval

    @classmethod
    def of(
        cls, card: Card, options: Options, settings: Settings, release: Release, terms: tuple[Term, ...], held: Assumed
    ) -> _Budget:
        total = Interval(card.low, card.high)
        used = Interval(sum(t.amount.low for t in terms), sum(t.amount.high for t in terms))
        given = options.kv_cache_memory
        if given is None and card.device == "cpu" and not cpu_uses_utilization(release):
            given = _CPU_DEFAULT if release < _HALF_OF_NODE else card.low // 2
        if given is not None:
            requested = used + Interval.exactly(given)
            available = Interval.exactly(given)
        else:
            share = settings.utilization
            requested = Interval(int(card.low * share), int(card.high * share))
            available = Interval(requested.low - used.high, requested.high - used.low)
        room = Interval(total.low - requested.high, total.high - requested.low)
        if given is None:
            room = Interval(total.low - requested.low, total.high - requested.high)
        return cls(total, requested, available, held.outside, room)


class _Verdict:
    """Compares what is available with what is asked for."""

    def __init__(
        self,
        planner: Planner,
        options: Options,
        settings: Settings,
        layout: Layout,
        held: Weights,
        terms: tuple[Term, ...],
        budget: _Budget,
    ) -> None:
        self.planner, self.options, self.settings = planner, options, settings
        self.layout, self.held, self.terms, self.budget = layout, held, terms, budget
        length = settings.max_model_len
        self.goal = max(layout.bytes_for(max(1.0, options.want_concurrency or 1.0), length), 1)
        self.to_start = layout.available_to_start(length)

    def assessment(self) -> Assessment:
        answers = [self._cache(), self._beside(), self._loading()]
        verdict = max((answer for answer, _ in answers), key=_ORDER.index)
        budget, layout, length = self.budget, self.layout, self.settings.max_model_len
        ends = (max(0, budget.available.low), max(0, budget.available.high))
        low, high = (layout.longest_served(end) for end in ends)
        return Assessment(
            settings=self.settings,
            verdict=verdict,
            reasons=tuple(reason for answer, reason in answers if reason and answer == verdict),
            total=budget.total,
            requested=budget.requested,
            terms=self.terms,
            outside=budget.outside,
            room=budget.room,
            available=budget.available,
            needed=layout.needed(length),
            to_start=self.to_start,
            served=layout.bytes_for(1.0, length),
            goal=self.goal,
            longest=(low, high),
            concurrency=(layout.concurrency(ends[0], length), layout.concurrency(ends[1], length)),
            bytes_per_token=layout.bytes_per_token(),
            growth_per_token=layout.growth_per_token(),
            engine=layout.engine,
            weights_total=self.held.total,
            notes=self._notes(),
        )

    def _cache(self) -> tuple[Verdict, str]:
        """Judge the memory for the cache."""
        available, goal = self.budget.available, self.goal
        if available.low >= goal:
            return "fits", self._words_of_goal(fits=True)
        if available.high >= goal:
            return "cannot-tell", self._words_of_goal(fits=None)
        return "does-not-fit", self._words_of_goal(fits=False)

    def _words_of_goal(self, *, fits: bool | None) -> str:
        available, length = self.budget.available, self.settings.max_model_len
        wanted = self.options.want_concurrency
        what = f"One request of {length:,} tokens needs" if not wanted else (
            f"{wanted:g} requests of {length:,} tokens at once need"
        )  # fmt: skip
        if available.high <= 0:
            over = human(-available.high)
            return f"Nothing is left for the KV cache: the other terms alone take at least {over} more than the share."
        left = _between(max(0, available.low), available.high)
        words = f"{what} {human(self.goal)} of KV cache; {left} is left for it."
        if fits is False and available.high >= self.to_start:
            trap = "a request of full length" if not wanted else f"{wanted:g} requests"
            words += f" The server may start, but {trap} cannot be served{'' if not wanted else ' at once'}."
        return words

    def _beside(self) -> tuple[Verdict, str]:
        """Judge what the device must hold outside of the share."""
        outside, room = self.budget.outside, self.budget.room
        if room.low >= outside.high:
            return "fits", ""
        left, needed = _between(max(0, room.low), max(0, room.high)), _between(outside.low, outside.high)
        words = f"Outside of the share {left} is left, and the CUDA context (and graphs, to 0.19) takes {needed}."
        if self.options.kv_cache_memory is not None:
            words = f"With the cache of that size {left} is left beside it, and the CUDA context takes {needed}."
        return ("cannot-tell" if room.high >= outside.low else "does-not-fit"), words

    def _loading(self) -> tuple[Verdict, str]:
        """Judge whether 16-bit weights that are quantized while loading fit before they are."""
        options, config = self.options, self.planner.config
        if not options.quantization or options.checkpoint or config.quantization:
            return "fits", ""
        whole = self.planner.weights(None, options.dtype, options.files, self.settings, options.release or NEWEST)
        if whole.per_rank.high <= self.budget.total.low - self.budget.outside.high:
            return "fits", ""
        return "cannot-tell", (
            f"--quantization {options.quantization} quantizes while loading: where the release loads all weights"
            f" first, {human(whole.per_rank.high)} must fit; a checkpoint that is quantized already avoids it."
        )

    def _notes(self) -> tuple[str, ...]:
        notes = [*self.held.notes]
        if self.planner.config.multimodal and self.held.origin == "architecture":
            allowed = f"{human(_UNSEEN_PART)} is allowed for it; the checkpoint's folder in place of config.json tells"
            notes = [f"{notes[0]}: {allowed}"] if notes else [allowed]
        if self.planner.config.multimodal:
            notes.append("images, video and audio: --limit-mm-per-prompt bounds what the dummy run of their part takes")
        if self.planner.card.has_bfloat16 is False and self.planner.config.dtype == "bfloat16":
            notes.append("this card has no bfloat16: --dtype half")
        if math.isinf(self.layout.concurrency(GIB, 1)):
            notes.append("no layer keeps a cache")
        return tuple(notes)


def _between(low: int, high: int) -> str:
    return human(low) if human(low) == human(high) else f"{human(low)} to {human(high)}"


def longest_where(holds: Callable[[int], bool], limit: int) -> int:
    """Return the largest length up to ``limit`` for which ``holds``, 0 for none; it holds up to some length."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
