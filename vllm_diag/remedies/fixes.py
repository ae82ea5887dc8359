"""What to do about causes that are not a shortage of memory: commands, packages, settings."""

from __future__ import annotations

from vllm_diag.remedies.model import Doubt, Lever

PLAN: dict[str, tuple[Lever, ...]] = {}
WONT_HELP: dict[str, tuple[Doubt, ...]] = {}
