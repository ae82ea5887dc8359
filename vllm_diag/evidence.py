"""Where a fact was read: the quoted line, with what must not be shown taken out.

Evidence carries its own text, so no later stage reopens the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MAX_QUOTE = 700

_SECRETS = (
    re.compile(r"\bhf_[A-Za-z0-9]{8,}"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"),
    re.compile(r"(?<=Bearer )[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE),
    re.compile(r"""(?<=://)[^/\s:@'"]+:[^/\s@'"]+(?=@)"""),
    re.compile(
        r"""((?:api[_-]?key|token|password|passwd|secret|authorization)["']?\s*[=:]\s*\[?\s*["']?)"""
        r"""(?!None\b|null\b|\*\*\*)[^\s"',)\]}]{3,}""",
        re.IGNORECASE,
    ),
)
# "--max-model-len 8 tokens" and "34,608 tokens" are no secrets: the word must be a key.


def mask_secrets(text: str) -> tuple[str, int]:
    """Return ``text`` with keys, tokens and passwords masked, and how many were."""
    total = 0
    for pattern in _SECRETS:
        replacement = r"\1***" if pattern.groups else "***"
        text, hits = pattern.subn(replacement, text)
        total += hits
    return text, total


def quote(text: str, around: int = 0, redact: bool = True) -> str:
    """Return at most 700 characters of ``text`` from about ``around`` on, safe to print.

    Control characters are gone already (framing); secrets are masked unless ``redact`` is off.
    """
    start = max(0, around - 80) if len(text) > _MAX_QUOTE and around > _MAX_QUOTE // 2 else 0
    piece = text[start : start + _MAX_QUOTE].strip()
    if start:
        piece = "... " + piece
    if len(text) > start + _MAX_QUOTE:
        piece += " ..."
    return mask_secrets(piece)[0] if redact else piece


@dataclass(frozen=True, slots=True)
class Evidence:
    """One place in the input: source name, 1-based line number, the line as quoted."""

    source: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"
