"""What differs between vLLM releases, as data with the release that changed it."""

from __future__ import annotations

from vllm_diag import flags
from vllm_diag.versions import Release, parse_release

__all__ = [
    "NEWEST", "Release", "counts_null_block", "cpu_uses_utilization", "default_block_size", "default_utilization",
    "has_flag", "parse_release",
]  # fmt: skip

NEWEST = Release(0, 33)


def has_flag(flag: str, release: Release | None) -> bool:
    """Whether the server of ``release`` knows ``flag``; an unknown release is taken as the newest.

    ``flag`` may be a variable of vLLM too. Of another program's flag or variable it is true: no
    release of vLLM is without it.
    """
    if flag.startswith("--"):
        return flags.has_flag(flag, release) if flags.canonical(flag) else True
    return flags.has_env(flag, release)


def default_utilization(release: Release | None) -> float:
    """gpu_memory_utilization when not given: 0.90 to 0.19, 0.92 from 0.20 (arg_utils)."""
    return 0.92 if release and release >= Release(0, 20) else 0.9


def counts_null_block(release: Release | None) -> bool:
    """Whether the start check knows that one block of the pool serves no request (0.29 on).

    Before, a length equal to the whole cache starts and a request of that length waits for
    ever; so where the release is unknown the block is taken off as well.
    """
    return release is None or release >= Release(0, 29)


def default_block_size(device: str | None, release: Release | None) -> int:
    """Tokens a block when nothing else is said: 16; on the CPU 128.

    platforms/cpu.py of 0.9 to 0.11.0 takes 128 only where IPEX is installed, as the CPU wheels
    have it; 128 is the safe side where it is not.
    """
    if device == "cpu" and (release is None or release >= Release(0, 9)):
        return 128
    return 16


def cpu_uses_utilization(release: Release | None) -> bool:
    """Whether the CPU backend sizes its KV cache from gpu_memory_utilization (0.20 on)."""
    return release is not None and release >= Release(0, 20)
