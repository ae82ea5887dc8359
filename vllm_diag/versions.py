"""Release numbers of vLLM, for comparing."""

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
