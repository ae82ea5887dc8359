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

# First and last release of each flag that is ever advised (read from arg_utils.py of 68
# releases); a flag that is not listed is in all of them.
_FLAGS: dict[str, tuple[Release | None, Release | None]] = {
    "--max-model-len": (Release(0, 2, 0), None),
    "--quantization": (Release(0, 2, 0), None),
    "--enforce-eager": (Release(0, 2, 6), None),
    "--kv-cache-dtype": (Release(0, 3, 0), None),
    "--max-lora-rank": (Release(0, 3, 0), None),
    "--disable-custom-all-reduce": (Release(0, 3, 0), None),
    "--enable-chunked-prefill": (Release(0, 4, 0), None),
    "--cpu-offload-gb": (Release(0, 5, 3), None),
    "--limit-mm-per-prompt": (Release(0, 5, 5), None),
    "--kv-cache-memory-bytes": (Release(0, 10, 2), None),
    "--attention-backend": (Release(0, 13, 0), None),
    "--swap-space": (None, Release(0, 17, 1)),
}


def has_flag(flag: str, release: Release | None) -> bool:
    """Whether the server of ``release`` knows ``flag``; an unknown release is taken as the newest."""
    first, last = _FLAGS.get(flag, (None, None))
    release = release or NEWEST
    return (first is None or release >= first) and (last is None or release <= last)


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
