"""Will a model start on a device, how many requests will it serve, and what makes it fit: before it is started.

>>> from vllm_diag.cards import card
>>> from vllm_diag.kv_arithmetic import read_config
>>> config = read_config({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
...                       "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
...                       "max_position_embeddings": 131072})
>>> plan(config, card("24GiB"), Options(max_model_len=8192)).assessment.verdict
'fits'
"""

from __future__ import annotations

from vllm_diag.cards import Card
from vllm_diag.defects import Defect, possible_defects
from vllm_diag.kv_arithmetic import CacheDtypeError, ConfigError, LayoutRefused, ModelConfig
from vllm_diag.kv_arithmetic.caches import Attention, Recurrent
from vllm_diag.planning.assess import Planner
from vllm_diag.planning.command import command_line
from vllm_diag.planning.host import host_needs
from vllm_diag.planning.levers import levers, round_down
from vllm_diag.planning.model import (
    Assessment,
    Change,
    Host,
    Lever,
    Options,
    Planned,
    Refused,
    Settings,
    Term,
    Verdict,
)
from vllm_diag.quantities import GIB, human
from vllm_diag.releases import NEWEST, Release

__all__ = [
    "Assessment", "Change", "Host", "Lever", "Options", "Planned", "Refused", "Settings", "Term", "Verdict",
    "cache_alone", "command_line", "plan",
]  # fmt: skip

# What of the known defects bears on a plan; the others are about reading logs. The block that no
# request may use is counted here in every release.
_SUBJECTS = frozenset(("kv-cache", "graphs", "memory-profile"))
_EFFECTS = frozenset(
    ("no-flag-helps", "starts-too-long", "refuses-to-start", "overcounts", "undercounts", "wastes-memory")
)  # fmt: skip


def plan(config: ModelConfig, card: Card, options: Options | None = None) -> Planned:
    """Return the memory budget of ``config`` on ``card``, whether it closes, and what would make it close.

    "fits" holds at the pessimistic end of every term, "does-not-fit" at the optimistic end; between
    them lies "cannot-tell". Pure but for reading ``options.files``. All amounts are bytes on the
    fullest rank. An unknown release is taken as the newest one.

    Raises:
        Refused: a length above the model's own, more devices than there are.
        SplitError: heads or layers do not divide over the ranks (vLLM refuses it too).
        LayoutRefused: a combination that the release refuses.
        MissingField, UnknownArchitecture: config.json leaves out what is needed; the error names it.
        ConfigError, CacheDtypeError: a quantization or cache type that is not worked out.
        OSError: files of the checkpoint that cannot be read.

    """
    options = options or Options()
    planner = Planner(config, card)
    now = planner.assess(options)
    found = () if now.verdict == "fits" else levers(planner, options, now)
    best = (options, now) if now.verdict == "fits" or not found else (found[0].options, found[0].assessment)
    starts = now.verdict != "does-not-fit" or bool(found)
    return Planned(
        config=config,
        card=card,
        options=options,
        assessment=now,
        comfortable=round_down(now.longest[0]),
        levers=found,
        settles=_settles(now) if now.verdict == "cannot-tell" else None,
        defects=_defects(config, card, options, now),
        command=command_line(*best, device=card.device) if starts else None,
        host=host_needs(planner, *best),
    )


def cache_alone(config: ModelConfig, card: Card, options: Options) -> str | None:
    """Return a sentence on the KV cache of a model whose weights are not known; None where that is not known either."""
    try:
        layout, length = Planner(config, card).layout(options)
    except (ConfigError, CacheDtypeError, LayoutRefused, Refused):
        return None
    one, token = human(layout.bytes_for(1, length)), human(layout.bytes_per_token())
    return f"What is certain: one request of {length:,} tokens takes {one} of KV cache on a rank, one token {token}."


def _settles(now: Assessment) -> str:
    """Say which measured figure tells what the plan cannot."""
    if now.available.low < now.goal <= now.available.high:
        figure = f"{-(-now.goal * 100 // GIB) / 100:.2f} GiB"
        line = "Available KV cache memory" if now.engine == "V1" else "the rest of the memory reserved for KV Cache is"
        return f"a start's own line '{line}': {figure} or more is enough"
    if now.room.low < now.outside.high:
        return "nvidia-smi before the start (free memory), and whether a start passes the capture of its graphs"
    return "a start: whether the weights load"


def _defects(config: ModelConfig, card: Card, options: Options, now: Assessment) -> tuple[Defect, ...]:
    release: Release = options.release or NEWEST
    caches = [cache for layer in config.layers for cache in layer]
    windows = any(isinstance(c, Attention) and (c.window or c.chunk) for c in caches)
    full = any(isinstance(c, Attention) and not (c.window or c.chunk) for c in caches)
    rows = possible_defects(
        release,
        engine=now.engine.lower(),
        device=card.device,
        has_windows=windows and full,
        has_recurrent=any(isinstance(c, Recurrent) for c in caches),
        pipeline_parallel=now.settings.pipeline_parallel,
        eager=options.enforce_eager,
        cpu_space_given=options.kv_cache_memory is not None,
    )
    return tuple(row for row in rows if row.subject in _SUBJECTS and row.effect in _EFFECTS)
