"""What differs between vLLM releases, as data with the release that changed it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A release number, for comparing; ``0.8.5.post1`` is 0.8.5."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


_NUMBER = re.compile(r"(\d{1,4})\.(\d{1,5})(?:\.(\d{1,5}))?")


def parse_release(text: str | None) -> Release | None:
    """Return the release a printed version names; None for a development build (0.1.dev...)."""
    found = _NUMBER.match(text or "")
    if not found or (text or "").startswith("0.1.dev"):
        return None
    return Release(int(found[1]), int(found[2]), int(found[3] or 0))


NEWEST = Release(0, 33)


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
    """Tokens a block when nothing else is said: 16; on the CPU 128 from 0.11.1."""
    if device == "cpu" and (release is None or release >= Release(0, 11, 1)):
        return 128
    return 16


def cpu_uses_utilization(release: Release | None) -> bool:
    """Whether the CPU backend sizes its KV cache from gpu_memory_utilization (0.20 on)."""
    return release is not None and release >= Release(0, 20)


def has_swap_space(release: Release | None) -> bool:
    """Whether ``--swap-space`` exists (to 0.17.1)."""
    return release is None or release < Release(0, 18)


def has_kv_cache_memory_bytes(release: Release | None) -> bool:
    """Whether ``--kv-cache-memory-bytes`` exists (0.10.2 on)."""
    return release is not None and release >= Release(0, 10, 2)
