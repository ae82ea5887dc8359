"""The failures that are made: each is a start that cannot succeed, on one of the models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .commands import Launch
from .installs import minor

_ONE_GIB = {"VLLM_CPU_KVCACHE_SPACE": "1"}


@dataclass(frozen=True)
class Failure:
    """A start that cannot succeed; ``since`` and ``until`` are the first and the last minor release that fail so."""

    name: str
    what: str
    model: str
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    since: tuple[int, int] = (0, 0)
    until: tuple[int, int] = (99, 0)
    on_a_held_port: bool = False

    def launch(self) -> Launch:
        """The start."""
        return Launch(self.flags, dict(self.env))

    def fits(self, release: str) -> bool:
        """Whether the release fails so at all."""
        return self.since <= minor(release) <= self.until


def _length(name: str, what: str, model: str, length: int, **rest: object) -> Failure:
    env = {**_ONE_GIB, **rest.pop("env", {})}  # type: ignore[dict-item]
    return Failure(name, what, model, ("--max-model-len", str(length)), env, **rest)  # type: ignore[arg-type]


FAILURES: tuple[Failure, ...] = (
    _length("kv-full", "a request of 4,096 tokens takes exactly 2 GiB; the KV cache has 1", "full", 4096),
    _length("kv-gqa", "a request of 6,000 tokens; the KV cache has 1 GiB", "gqa", 6000),
    _length("kv-window", "windows of 4,096 tokens take 2 GiB; the KV cache has 1", "window", 32768, since=(0, 11)),
    _length("kv-hybrid", "a request of 8,192 tokens; the KV cache has 1 GiB", "hybrid", 8192),
    _length("kv-mla", "a request of 8,192 tokens; the KV cache has 1 GiB", "mla", 8192, since=(0, 29)),
    _length(
        "kv-v0",
        "V0 engine: a request of 4,096 tokens takes 2 GiB; the KV cache has 1",
        "full",
        4096,
        env={"VLLM_USE_V1": "0"},
        until=(0, 9),
    ),
    Failure(
        "unknown-flag",
        "a flag that no release knows",
        "small",
        ("--max-model-len", "2048", "--kv-cache-blocks", "64"),
        _ONE_GIB,
    ),
    Failure(
        "len-over-limit",
        "--max-model-len 65536; the model has 32,768",
        "small",
        ("--max-model-len", "65536"),
        _ONE_GIB,
    ),
    Failure(
        "batched-tokens",
        "--max-num-batched-tokens 1024 below --max-model-len 4096, chunked prefill off",
        "small",
        ("--max-model-len", "4096", "--max-num-batched-tokens", "1024", "--no-enable-chunked-prefill"),
        _ONE_GIB,
    ),
    Failure(
        "batched-seqs",
        "--max-num-batched-tokens 64 below --max-num-seqs 128",
        "small",
        ("--max-model-len", "2048", "--max-num-batched-tokens", "64", "--max-num-seqs", "128"),
        _ONE_GIB,
    ),
    Failure(
        "space-over-ram",
        "VLLM_CPU_KVCACHE_SPACE=400 on a smaller machine",
        "small",
        ("--max-model-len", "2048"),
        {"VLLM_CPU_KVCACHE_SPACE": "400"},
    ),
    Failure(
        "share-too-small",
        "--gpu-memory-utilization 0.01 of the machine's memory",
        "small",
        ("--max-model-len", "2048", "--gpu-memory-utilization", "0.01"),
        since=(0, 20),
    ),
    Failure(
        "share-too-large",
        "--gpu-memory-utilization 0.999 of the machine's memory",
        "small",
        ("--max-model-len", "2048", "--gpu-memory-utilization", "0.999"),
        since=(0, 20),
    ),
    Failure(
        "kv-share",
        "a request of 12,288 tokens takes 6 GiB; --gpu-memory-utilization 0.2 gives less",
        "full",
        ("--max-model-len", "12288", "--gpu-memory-utilization", "0.2"),
        since=(0, 20),
    ),
    Failure(
        "heads-by-three",
        "--tensor-parallel-size 3 for 4 attention heads",
        "small",
        ("--max-model-len", "2048", "--tensor-parallel-size", "3"),
        {**_ONE_GIB, "VLLM_CPU_OMP_THREADS_BIND": "0|1"},
    ),
    Failure(
        "few-blocks",
        "--num-gpu-blocks-override 4 for requests of 2,048 tokens",
        "small",
        ("--max-model-len", "2048", "--num-gpu-blocks-override", "4"),
        _ONE_GIB,
    ),
    Failure("kv-dtype", "--kv-cache-dtype int3, no choice there is", "small", ("--kv-cache-dtype", "int3"), _ONE_GIB),
    Failure(
        "port-in-use",
        "another process listens on the port",
        "small",
        ("--max-model-len", "2048"),
        _ONE_GIB,
        on_a_held_port=True,
    ),
)
