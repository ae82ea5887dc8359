"""The settings that a release chooses where none are given, on the device that is planned for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vllm_diag.cards import Card
from vllm_diag.flags import InForce, default, in_force
from vllm_diag.kv_arithmetic import Layout, MissingField, ModelConfig, SplitError
from vllm_diag.kv_arithmetic.rules import Engine, engine_of
from vllm_diag.planning.model import Options, Refused, Settings
from vllm_diag.quantities import GIB
from vllm_diag.releases import NEWEST, Release, default_utilization

# Up to here V0 computes a prompt in one step; longer contexts turn chunked prefill on by
# themselves (engine/arg_utils.py, 0.5 on).
_LONGEST_WHOLE_PROMPT = 32768
_CPU_LIKE = "CPU backend"


@dataclass(frozen=True, slots=True)
class _Situation:
    """What the conditions in the table of defaults speak of."""

    card: Card
    engine: Engine
    max_model_len: int
    ranks: int

    def holds(self, condition: str) -> bool | None:
        """Whether ``condition`` holds; None for "other devices", which holds where nothing else does."""
        if condition in ("V0", "V1"):
            return condition == self.engine
        if condition.startswith("other "):
            return None
        if condition == _CPU_LIKE:
            return self.card.device == "cpu"
        if found := re.fullmatch(r"device memory of (\d+) GiB or more", condition):
            return self.card.device != "cpu" and self.card.low >= int(found[1]) * GIB
        if condition == "H100 or H200":
            return self.card.name.startswith(("H100", "H200"))
        if condition == "no A100":
            return not self.card.name.startswith("A100")
        if condition.startswith("chunked prefill"):
            chunked = self.engine == "V1" or self.max_model_len > _LONGEST_WHOLE_PROMPT
            return chunked == condition.endswith("on")
        raise LookupError(f"a condition of vLLM's defaults that is not known: {condition}")

    def choose(self, rows: tuple[InForce, ...], fallback: int) -> int:
        """Return the value of the most particular row that holds; later rows are the more particular."""
        chosen, rank = fallback, -1
        for row in rows:
            answers = [self.holds(part) for part in row.when.split(", ") if part]
            particular = 0 if None in answers or not row.when else 1
            if False not in answers and particular >= rank:
                chosen, rank = self._number(row.value, fallback), particular
        return chosen

    def _number(self, value: object, fallback: int) -> int:
        if isinstance(value, int):
            return value
        if found := re.fullmatch(r"(\d+) x tensor x pipeline ranks", str(value)):
            return int(found[1]) * self.ranks
        if found := re.fullmatch(r"max\(max_model_len, (\d+)\)", str(value)):
            return max(self.max_model_len, int(found[1]))
        return max(self.max_model_len, fallback)


def settle(config: ModelConfig, card: Card, options: Options) -> Settings:
    """Return ``options`` with the defaults of its release filled in.

    Raises:
        MissingField: no length is given and config.json says none.
        Refused: the length is above the model's own.
        SplitError: no split over that many devices.

    """
    length = options.max_model_len or config.max_model_len
    if length is None:
        raise MissingField("max_position_embeddings", "config.json says no longest length: give --max-model-len")
    if config.max_model_len is not None and length > config.max_model_len:
        raise Refused(
            f"--max-model-len {length:,} is above the model's own limit of {config.max_model_len:,}:"
            " vLLM refuses it at start"
        )
    tensor, pipeline = _split(config, options)
    release = options.release
    situation = _Situation(card, options.engine or engine_of(release, card.device), length, tensor * pipeline)
    seqs = options.max_num_seqs or situation.choose(in_force("--max-num-seqs", release), _plain(release))
    batched = options.max_num_batched_tokens or situation.choose(in_force("--max-num-batched-tokens", release), 2048)
    return Settings(
        max_model_len=length,
        utilization=options.utilization or default_utilization(release or NEWEST),
        utilization_given=options.utilization is not None,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        max_num_seqs=min(seqs, batched),
        max_num_batched_tokens=batched,
    )


def _plain(release: Release | None) -> int:
    found = default("--max-num-seqs", release)
    return found.value if found and isinstance(found.value, int) else 256


def _split(config: ModelConfig, options: Options) -> tuple[int, int]:
    pipeline = options.pipeline_parallel or 1
    if options.tensor_parallel is not None or options.count is None:
        tensor = options.tensor_parallel or 1
    else:
        sizes = tensor_sizes(config, options.release, options.count // pipeline)
        if not sizes:
            raise SplitError(f"{pipeline} pipeline stages need as many devices, and there are {options.count}")
        tensor = sizes[-1]
    if options.count is not None and tensor * pipeline > options.count:
        raise Refused(f"{tensor * pipeline} devices are asked for, and there are {options.count}")
    return tensor, pipeline


def tensor_sizes(config: ModelConfig, release: Release | None, most: int) -> tuple[int, ...]:
    """Return the tensor-parallel sizes up to ``most`` that divide the heads as vLLM wants, ascending."""
    return tuple(size for size in range(1, most + 1) if _divides(config, release, size))


def _divides(config: ModelConfig, release: Release | None, size: int) -> bool:
    try:
        Layout(config, release, tensor_parallel=size)
    except SplitError:
        return False
    return True
